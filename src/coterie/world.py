"""From a configuration and a seed to everything an engine needs: data, graph, nodes, parts."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from coterie.census import estimates
from coterie.contract import Rule
from coterie.datasets import Dataset
from coterie.engines import World
from coterie.engines._job import Indices, Job, Samples, Training
from coterie.errors import ConfigError
from coterie.estimates import exponent, from_degrees, from_nodes, walks
from coterie.experiment import Experiment, data_folder
from coterie.graph import Graph, draw
from coterie.partitions import split
from coterie.randomness import generator
from coterie.rewiring import rewire
from coterie.slots import choice


def load_samples(experiment: Experiment) -> Samples:
    """The experiment's data set in shared memory, images channels-last, on the engine's device."""
    dataset: Dataset = choice("dataset", experiment.dataset).make()(data_folder(experiment))  # type: ignore[arg-type]
    device = _device(experiment)

    def ready(x: Tensor) -> Tensor:
        x = (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).contiguous()
        return x.share_memory_() if device == "cpu" else x.to(device)

    return Samples(
        train_x=ready(dataset.train_x),
        train_y=ready(dataset.train_y),
        test_x=ready(dataset.test_x),
        test_y=ready(dataset.test_y),
        classes=dataset.classes,
        shape=dataset.shape,
    )


def network(experiment: Experiment, seed: int) -> Graph:
    """The graph of this seed."""
    topology = experiment.topology
    assert isinstance(topology, dict)
    graph = draw(choice("topology", topology).make(), experiment.nodes, seed, connect=topology.get("connect", False))
    target = topology.get("assortativity")
    return graph if target is None else rewire(graph, target, generator(seed, "rewiring"))


def build(experiment: Experiment, samples: Samples, seed: int, ask: bool = True) -> World:
    """One method (a resolved experiment) with one seed.

    Nodes that are to find out the gain by gossip do so here, in the simulator, unless they can `ask` for themselves.
    """
    e = experiment
    labels = samples.train_y.cpu().numpy()
    parts = split(
        choice("partition", e.partition).make(),  # type: ignore[arg-type]
        labels,
        e.nodes,
        seed,
        items=e.items,
        total=e.total,
        validation=e.validation,
    )
    graph = network(e, seed)
    if e.pooled:
        parts = [tuple(np.sort(np.concatenate(p)) for p in zip(*parts, strict=True))]  # type: ignore[list-item]
        graph = Graph.from_edges(1, [])
    train, validation = tuple(p[0] for p in parts), tuple(p[1] for p in parts)
    listed = (e.model if isinstance(e.model, list) else [e.model])[: len(train)]
    models = [m for i, m in enumerate(listed) if m not in listed[:i]]
    kind = np.array([models.index(m) for m in listed])[np.arange(len(train)) % len(listed)]
    job = Job(
        seed=seed,
        models=tuple(choice("model", m) for m in models),  # type: ignore[arg-type]
        rule=choice("rule", e.rule),  # type: ignore[arg-type]
        protocol=choice("protocol", e.protocol),  # type: ignore[arg-type]
        objective=choice("objective", e.objective),  # type: ignore[arg-type]
        optimiser=choice("optimiser", e.optimiser),  # type: ignore[arg-type]
        training=Training(
            e.epochs, e.batches, e.batch_size, e.clamp, e.keep_optimiser, e.patience if e.early_stopping else None
        ),
        groups=tuple(np.flatnonzero(kind == g) for g in range(len(models))),
        train=train,
        validation=validation,
        degree=graph.degree,
        labels=_label_shares(labels, train, samples.classes),
        device=_device(e),
    )
    rule = job.rule.make()
    size = len(samples.test_y)
    some = generator(seed, "test").choice(size, max(1, round(e.test_share * size)), replace=False)
    world = World(
        job=job,
        samples=samples,
        graph=graph,
        rule=rule,
        protocol=job.protocol.make(),
        initialiser=choice("initialiser", e.initialiser),  # type: ignore[arg-type]
        start=e.start or "train",
        faults=e.faults(seed),
        gains=np.ones(len(train)),
        test=np.sort(some),
        measures=e.measures,
    )
    asking = gossip(e)
    if asking and ask:
        return replace(world, gains=estimates(world, **asking))
    return replace(world, gains=_gains(e, world))


def _gains(e: Experiment, world: World) -> NDArray[np.float64]:
    """What each node takes the gain to be, as the initialiser estimates it.

    Only who is there from the beginning: who joins later meets models that agree already, and averaging with them
    takes nothing away.
    """
    settings = choice("initialiser", e.initialiser).settings  # type: ignore[arg-type]
    gains, founders = np.ones(world.job.nodes), np.flatnonzero(world.there(1))
    network, sizes = world.graph.among(founders), np.array([len(world.job.train[i]) for i in founders])
    for part in network.parts():  # more than one only where those are missing who will join
        among, count = network.among(part), len(part)
        if not mends(world.rule):
            continue
        match settings.get("estimate"):
            case "size":
                gains[founders[part]] = believed_size(e, count)
            case "degrees":
                nodes = settings["assumed_nodes"] or count
                visited = walks(among, np.arange(count), settings["degree_samples"], seed=world.job.seed)
                gains[founders[part]] = [from_degrees(among.degree[row], nodes, walked=count > 1) for row in visited]
            case _:
                gains[founders[part]] = gain(world.rule, among, sizes[part], e.links, e.presence)
    return gains


def mends(rule: Rule) -> bool:
    """Whether a gain makes good what this rule's merges take away: where they take nothing, it would do harm."""
    one = torch.ones(1)
    return rule.own_weight(one, one, one) is not None


def believed_size(experiment: Experiment, nodes: int) -> float:
    """The gain by the number of nodes and the exponent of their network's family, right or wrong."""
    settings = choice("initialiser", experiment.initialiser).settings  # type: ignore[arg-type]
    power = settings["exponent"]
    if power is None:
        topology = choice("topology", experiment.topology)  # type: ignore[arg-type]
        power = exponent(topology.name, **topology.settings)
    return from_nodes(settings["assumed_nodes"] or nodes, power)


def gain(rule: Rule, graph: Graph, sizes: ArrayLike, links: float = 1.0, presence: float = 1.0) -> float:
    """How much a rule's merges shrink independent models; where links or nodes fail, as if own weights stayed alike."""
    data = np.asarray(sizes, np.float64)
    size, near, count = (torch.from_numpy(x.astype(np.float64)) for x in (data, graph.matrix() @ data, graph.degree))
    own = rule.own_weight(size, near, count)
    return 1.0 if own is None else graph.gain(data, links, presence, np.asarray(own))


def gossip(experiment: Experiment) -> dict[str, int] | None:
    """How the gain is to be found out by gossip, if it is."""
    settings = choice("initialiser", experiment.initialiser).settings  # type: ignore[arg-type]
    rule: Rule = choice("rule", experiment.rule).make()  # type: ignore[arg-type]
    if settings.get("estimate") != "gossip" or not mends(rule):
        return None
    asking: dict[str, int] = {name: settings[f"gossip_{name}"] for name in ("samples", "rounds")}
    for name, value in asking.items():
        if value < 2:
            raise ConfigError(f"initialiser.gossip_{name}", expected="at least 2", got=value)
    return asking


def _label_shares(labels: Indices, train: tuple[Indices, ...], classes: int) -> Tensor:
    counts = np.stack([np.bincount(labels[own], minlength=classes) for own in train])
    return torch.from_numpy((counts / counts.sum(1, keepdims=True)).astype(np.float32))


def _device(experiment: Experiment) -> str:
    return str(choice("engine", experiment.engine).settings.get("device", "cpu"))  # type: ignore[arg-type]
