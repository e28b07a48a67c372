"""From a configuration and a seed to everything an engine needs: data, graph, nodes, parts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from coterie.config.configuration import Method, data_folder
from coterie.config.networks import family, mixing, network
from coterie.config.spread import notation
from coterie.contract import Rule
from coterie.datasets import Dataset, each
from coterie.errors import ConfigError
from coterie.job import Indices, Job, Roster, Samples, Training, is_image
from coterie.network import skew
from coterie.network.estimates import from_degrees, from_nodes, walks
from coterie.network.graph import Graph
from coterie.network.mixing import Mixing, own_weights
from coterie.network.rounds import Network, mean_gain, union
from coterie.node.architecture import architectures, check_scores
from coterie.node.measures import CONFUSION
from coterie.node.varying import Varying
from coterie.partitions import split
from coterie.parts import Choice
from coterie.randomness import generator

FIRST = 32
"""Rounds over which the gain of a network that changes is taken."""


def load_samples(method: Method) -> Samples:
    """The method's data set in shared memory, images of floats channels-last, on the engine's device."""
    dataset: Dataset = method.choice("dataset").make()(data_folder(method))
    device = _device(method)

    def kept(x: Tensor) -> Tensor:
        return x.contiguous().share_memory_() if device == "cpu" else x.contiguous().to(device)

    def ready(x: Tensor) -> Tensor:
        return kept(x.permute(0, 2, 3, 1) if is_image(x) else x)

    return Samples(
        train_x=each(dataset.train_x, ready),
        train_y=kept(dataset.train_y),
        test_x=each(dataset.test_x, ready),
        test_y=kept(dataset.test_y),
        classes=dataset.classes,
        shape=dataset.shape,
        origin=method,
    )


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
    graphs = network(e, seed)
    if e.pooled:
        together = [np.unique(np.concatenate(own)) for own in zip(*parts, strict=True)]
        parts = [(together[0], together[1])]
        graphs = Network.still(Graph.from_edges(1, []))
    train, validation = tuple(p[0] for p in parts), tuple(p[1] for p in parts)
    has, models = e.models[: len(train)], list[Choice]()
    for model in has:
        if model not in models:
            models.append(model)
    kind = np.array([models.index(m) for m in has])
    roster = Roster(
        seed=seed,
        models=tuple(models),
        rule=e.choice("rule"),
        protocol=e.choice("protocol"),
        objective=e.choice("objective"),
        optimiser=e.choice("optimiser"),
        training=Training(
            e.epochs,
            e.batches,
            e.batch_size,
            e.clamp,
            e.keep_optimiser,
            e.patience if e.early_stopping else None,
            e.renew_optimiser,
            e.clip,
            {} if e.pooled else e.work,
        ),
        groups=tuple(np.flatnonzero(kind == g) for g in range(len(models))),
        train=train,
        validation=validation,
        degree=graphs.graph(1).degree,
        labels=_label_shares(labels, train, samples.classes),
        device=_device(e),
        mixing=mixing(e),
        own=graphs.graph(1).loops,
        metrics=e.judges,
        augment=e.varied,
        rounds=e.rounds,
        confusion=CONFUSION in e.measures,
        merged=e.merged,
    )
    notes = (*_check_models(roster, samples), *_dealt(e, roster, labels, samples.classes))
    Varying(roster).check(samples)
    rule = roster.rule.make()
    size = len(samples.test_y)
    some = generator(seed, "test").choice(size, max(1, round(e.test_share * size)), replace=False)
    job = Job(
        roster=roster,
        samples=samples,
        network=graphs,
        rule=rule,
        protocol=roster.protocol.make(),
        initialiser=e.choice("initialiser"),
        merge_first=bool(e.merge_first),
        faults=e.faults(seed),
        gains=np.ones(len(train)),
        test=np.sort(some),
        measures=tuple(e.measures),
        best=e.keep_models == "best",
        notes=notes,
    )
    if job.roster.nodes > 1:  # one alone has all data, or is a peer that will meet others
        job.protocol.suits(graphs.graph(1))
    return replace(job, gains=_gains(e, job))


def _check_models(roster: Roster, samples: Samples) -> tuple[str, ...]:
    """Refuse models that do not fit the data before anything is trained; of several, say which. Gives their notes."""
    notes = dict[str, None]()
    for model in roster.models:
        try:
            notes[check_scores(model, samples, roster.device)] = None
        except ConfigError as error:
            if len(roster.models) == 1:
                raise
            raise ConfigError(f"{_typed(model)}: {error}") from None
    for lesson in roster.protocol.make().lessons:
        made = architectures(roster, samples)
        lesson.suits({_typed(model): each.layout for model, each in zip(roster.models, made, strict=True)})
    return tuple(filter(None, notes))


def _typed(model: Choice) -> str:
    """A model as one would type it."""
    return notation({"name": model.name, **model.settings})


def _gains(e: Method, job: Job) -> NDArray[np.float64]:
    """The gain of each node, exact or as the initialiser's `estimate` has it.

    Only who is there from the beginning: who joins later meets models that agree already, and averaging with them
    takes nothing away.
    """
    settings = e.choice("initialiser").settings
    _check_estimate(e, job.network)
    gains, founders = np.ones(job.roster.nodes), np.flatnonzero(job.members(1))
    graphs, sizes = [g.among(founders) for g in job.network.first(FIRST)], job.roster.sizes(founders).numpy().ravel()
    for part in union(graphs).parts():  # more than one only where those are missing who will join
        among, count = [g.among(part) for g in graphs], len(part)
        if not mends(job.rule):
            continue
        match settings.get("estimate"):
            case "size":
                gains[founders[part]] = believed_size(e, count)
            case "degrees":
                nodes = settings["assumed_nodes"] or count
                visited = walks(among[0], np.arange(count), settings["degree_samples"], seed=job.roster.seed)
                degrees = among[0].degree
                gains[founders[part]] = [from_degrees(degrees[row], nodes, walked=count > 1) for row in visited]
            case _:
                gains[founders[part]] = gain(job.rule, among, sizes[part], e.links, e.presence, mixing(e))
    return gains


def _check_estimate(e: Method, network: Network) -> None:
    """Refuse to guess the gain from degrees where it does not follow from them."""
    how = e.choice("initialiser").settings.get("estimate")
    if how not in ("degrees", "gossip"):
        return
    cure = 'Set initialiser.estimate to "exact" or "size".'
    if network.changes:
        raise ConfigError("the degrees of one round do not tell the gain of a network that changes", cure=cure)
    if network.graph(1).directed:
        raise ConfigError("where links go one way, degrees do not tell the gain", cure=cure)
    weights = network.graph(1).weights
    if network.graph(1).loops is not None:
        raise ConfigError("degrees do not tell the gain where one's own model has a weight of its own", cure=cure)
    if how == "degrees" and mixing(e) != "metropolis" and (weights != weights[:1]).any():
        raise ConfigError("the number of links does not tell the gain where they differ in weight", cure=cure)
    if mixing(e) == "metropolis":
        raise ConfigError("with metropolis weights the gain is √n, whatever the degrees", cure=cure)


def mends(rule: Rule) -> bool:
    """Whether this rule's merges shrink independent models, so that a gain makes good for it."""
    one = torch.ones(1)
    return rule.own_weight(one, one, one) is not None


def believed_size(method: Method, nodes: int) -> float:
    """The gain by the number of nodes and the exponent of their network's family, right or wrong."""
    settings = method.choice("initialiser").settings
    power = settings["exponent"]
    if power is None:
        power = 0.5 if mixing(method) == "metropolis" else family(method).gain_exponent
    if power is None:
        name = method.choice("topology").name
        raise ConfigError(f"no theory of the gain of topology {name}", cure="Say which: --initialiser.exponent 0.5.")
    return from_nodes(settings["assumed_nodes"] or nodes, power)


def gain(
    rule: Rule,
    graphs: Sequence[Graph],
    sizes: ArrayLike,
    links: float = 1.0,
    presence: float = 1.0,
    mixing: Mixing = "data",
) -> float:
    """How much a rule's merges shrink independent models, on one network or on the mean over several rounds'.

    Where links or nodes fail, as if own weights stayed alike; with metropolis weights as if nothing failed, since a
    node then keeps what it does not hear, and the mean of all models stays.
    """
    if mends(rule):
        owns = [_own(rule, graph, np.asarray(sizes, np.float64), mixing) for graph in graphs]
        chances = (1.0, 1.0) if mixing == "metropolis" else (links, presence)
        return mean_gain(graphs, np.asarray(sizes, np.float64), owns, *chances)
    return 1.0


def _own(rule: Rule, graph: Graph, data: NDArray[np.float64], mixing: Mixing) -> NDArray[np.float64]:
    """The weight of each node's own model beside those of its links, by a rule."""
    unit = own_weights(graph, mixing)
    near = np.asarray(graph.matrix() @ data) / unit  # a rule takes its own link for 1
    size, heard, count = (torch.from_numpy(x.astype(np.float64)) for x in (data, near, graph.degree))
    own = rule.own_weight(size, heard, count)
    assert own is not None, "a rule has an own weight always or never"
    return np.asarray(np.asarray(own) * unit, np.float64)


def gossip(method: Method) -> dict[str, Any] | None:
    """The settings of gossip if the initialiser estimates the gain by it, else None; rounds may be left open."""
    settings = method.choice("initialiser").settings
    rule: Rule = method.choice("rule").make()
    if settings.get("estimate") != "gossip" or not mends(rule):
        return None
    asking = {name: settings[f"gossip_{name}"] for name in ("samples", "rounds")}
    for name, value in asking.items():
        if value is not None and value < 2:
            raise ConfigError(f"initialiser.gossip_{name}", expected="at least 2", got=value)
    return asking


def _dealt(e: Method, roster: Roster, labels: Indices, classes: int) -> Iterator[str]:
    """What a draw of Zipf's law came to, which differs much from seed to seed."""
    if e.choice("partition").name == "zipf" and roster.nodes > 1:
        index = skew.gini(skew.counts(labels, roster.train, classes))
        yield f"seed {roster.seed}: samples are dealt out with a Gini index of {index:.3f} within a class"


def _label_shares(labels: Indices, train: tuple[Indices, ...], classes: int) -> Tensor:
    if not classes:
        return torch.empty(len(train), 0)
    counts = np.stack([np.bincount(labels[own], minlength=classes) for own in train])
    return torch.from_numpy((counts / counts.sum(1, keepdims=True)).astype(np.float32))


def _device(method: Method) -> str:
    return str(method.choice("engine").settings.get("device", "cpu"))
