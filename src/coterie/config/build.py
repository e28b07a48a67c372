"""From a configuration and a seed to everything an engine needs: data, graph, nodes, parts."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from coterie.config.configuration import Method, data_folder
from coterie.config.slots import choice
from coterie.contract import Rule
from coterie.datasets import Dataset
from coterie.errors import ConfigError
from coterie.job import Indices, Job, Roster, Samples, Training
from coterie.network.estimates import exponent, from_degrees, from_nodes, walks
from coterie.network.graph import Graph, draw
from coterie.network.rewiring import rewire
from coterie.partitions import split
from coterie.randomness import generator


def load_samples(method: Method) -> Samples:
    """The method's data set in shared memory, images channels-last, on the engine's device."""
    dataset: Dataset = method.choice("dataset").make()(data_folder(method))
    device = _device(method)

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


def network(method: Method, seed: int) -> Graph:
    """The graph of this seed."""
    topology = method.topology
    assert isinstance(topology, dict)
    graph = draw(choice("topology", topology).make(), method.nodes, seed, connect=topology.get("connect", False))
    target = topology.get("assortativity")
    return graph if target is None else rewire(graph, target, generator(seed, "rewiring"))


def build(method: Method, samples: Samples, seed: int) -> Job:
    """Build the job of one method with one seed; a gain that is to be estimated by gossip is not in it yet."""
    e = method
    labels = samples.train_y.cpu().numpy()
    parts = split(
        e.choice("partition").make(),
        labels,
        e.nodes,
        seed,
        items=e.items,
        total=e.total,
        validation=e.validation,
    )
    graph = network(e, seed)
    if e.pooled:
        together = [np.sort(np.concatenate(own)) for own in zip(*parts, strict=True)]
        parts = [(together[0], together[1])]
        graph = Graph.from_edges(1, [])
    train, validation = tuple(p[0] for p in parts), tuple(p[1] for p in parts)
    listed = e.models[: len(train)]
    models = [m for i, m in enumerate(listed) if m not in listed[:i]]
    kind = np.array([models.index(m) for m in listed])[np.arange(len(train)) % len(listed)]
    roster = Roster(
        seed=seed,
        models=tuple(models),
        rule=e.choice("rule"),
        protocol=e.choice("protocol"),
        objective=e.choice("objective"),
        optimiser=e.choice("optimiser"),
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
    rule = roster.rule.make()
    size = len(samples.test_y)
    some = generator(seed, "test").choice(size, max(1, round(e.test_share * size)), replace=False)
    job = Job(
        roster=roster,
        samples=samples,
        graph=graph,
        rule=rule,
        protocol=roster.protocol.make(),
        initialiser=e.choice("initialiser"),
        merge_first=bool(e.merge_first),
        faults=e.faults(seed),
        gains=np.ones(len(train)),
        test=np.sort(some),
        measures=e.measures,
    )
    return replace(job, gains=_gains(e, job))


def _gains(e: Method, job: Job) -> NDArray[np.float64]:
    """The gain of each node, exact or as the initialiser's `estimate` has it.

    Only who is there from the beginning: who joins later meets models that agree already, and averaging with them
    takes nothing away.
    """
    settings = e.choice("initialiser").settings
    gains, founders = np.ones(job.roster.nodes), np.flatnonzero(job.members(1))
    network, sizes = job.graph.among(founders), np.array([len(job.roster.train[i]) for i in founders])
    for part in network.parts():  # more than one only where those are missing who will join
        among, count = network.among(part), len(part)
        if not mends(job.rule):
            continue
        match settings.get("estimate"):
            case "size":
                gains[founders[part]] = believed_size(e, count)
            case "degrees":
                nodes = settings["assumed_nodes"] or count
                visited = walks(among, np.arange(count), settings["degree_samples"], seed=job.roster.seed)
                gains[founders[part]] = [from_degrees(among.degree[row], nodes, walked=count > 1) for row in visited]
            case _:
                gains[founders[part]] = gain(job.rule, among, sizes[part], e.links, e.presence)
    return gains


def mends(rule: Rule) -> bool:
    """Whether this rule's merges shrink independent models, so that a gain makes good for it."""
    one = torch.ones(1)
    return rule.own_weight(one, one, one) is not None


def believed_size(method: Method, nodes: int) -> float:
    """The gain by the number of nodes and the exponent of their network's family, right or wrong."""
    settings = method.choice("initialiser").settings
    power = settings["exponent"]
    if power is None:
        topology = method.choice("topology")
        power = exponent(topology.name, **topology.settings)
    return from_nodes(settings["assumed_nodes"] or nodes, power)


def gain(rule: Rule, graph: Graph, sizes: ArrayLike, links: float = 1.0, presence: float = 1.0) -> float:
    """The exact gain of a rule on a graph; where links or nodes fail, as if own weights stayed alike."""
    data = np.asarray(sizes, np.float64)
    size, near, count = (torch.from_numpy(x.astype(np.float64)) for x in (data, graph.matrix() @ data, graph.degree))
    own = rule.own_weight(size, near, count)
    return 1.0 if own is None else graph.gain(data, links, presence, np.asarray(own))


def gossip(method: Method) -> dict[str, int] | None:
    """The settings of gossip if the initialiser estimates the gain by it, else None."""
    settings = method.choice("initialiser").settings
    rule: Rule = method.choice("rule").make()
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


def _device(method: Method) -> str:
    return str(method.choice("engine").settings.get("device", "cpu"))
