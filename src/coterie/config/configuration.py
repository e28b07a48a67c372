"""The configuration of an experiment: one model for TOML files, the flags of the command line, and Python."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tomlkit
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from coterie import methods as presets
from coterie.config import given
from coterie.config.slots import SLOTS, as_table, choice, explain, overlay, refuse_unnamed, resolve
from coterie.config.spread import Slot, canonical, deal, kinds, resolved
from coterie.config.text import by_node, read_toml, seeds_from
from coterie.errors import ConfigError
from coterie.metrics import DEFAULT as METRICS
from coterie.metrics import label
from coterie.network.faults import Faults, check_churn
from coterie.node.measures import KINDS
from coterie.parts import Choice, chosen, find, unknown
from coterie.protocols import Protocol
from coterie.topologies import topology as as_topology


def _once(seeds: tuple[int, ...]) -> tuple[int, ...]:
    """Seeds without repetition: one named twice is run once."""
    return tuple(dict.fromkeys(seeds))


def _rounds(value: Any) -> Any:
    """Rounds to evaluate from `log`, `5` (every fifth round) or `0,10,100`."""
    if isinstance(value, str) and value != "log":
        numbers = tuple(int(p) if p.strip().isdecimal() else -1 for p in value.split(","))
        value = numbers[0] if len(numbers) == 1 else numbers
    if (isinstance(value, int) and value < 1) or (isinstance(value, tuple) and -1 in value):
        raise ValueError("'log', a number k for every k-th round, or a list of rounds such as 0,10,100")
    return value


def by_name(value: Any) -> Any:
    """Methods from `a,b` or `["a", "b"]`, which name presets, or from a table with each method's own settings."""
    if isinstance(value, str):
        value = [v.strip() for v in value.split(",") if v.strip()]
    return {name: {} for name in value} if isinstance(value, list | tuple) else value


def _kinds(value: Any) -> Any:
    """Kinds of measures from `spread,steps` or `["spread", "steps"]`, each once."""
    if isinstance(value, str):
        value = [v.strip() for v in value.split(",") if v.strip()]
    if isinstance(value, list | tuple):
        for name in value:
            if name not in KINDS:
                raise unknown("measure", str(name), KINDS)
        return tuple(dict.fromkeys(value))
    return value


def _listed(value: Any) -> Any:
    """`accuracy,loss` and `["accuracy", {name = "top_k", k = 3}]` name parts."""
    if isinstance(value, str):
        return tuple(v.strip() for v in value.split(",") if v.strip())
    return (value,) if isinstance(value, dict) else value


class Configuration(BaseModel):
    """All settings of an experiment: everything that decides the numbers of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: given.Dataset = Field(default="digits", description="what is learnt")
    data_dir: str | None = Field(
        default=None, description="folder with data sets (else COTERIE_DATA, the cache, or a download)"
    )
    model: given.Model | Annotated[given.Models, Field(min_length=1)] = Field(
        default={"name": "mlp", "sizes": [64]},
        description="what learns; several, such as 'cnn[32,64]*10,mlp*10', a mix or a file are spread over the nodes",
    )
    nodes: int = Field(default=20, ge=1, description="how many nodes")
    rounds: int = Field(default=60, ge=1, description="how many rounds")
    epochs: int | None = Field(default=None, ge=1, description="local epochs a round")
    work: Annotated[dict[int, PositiveInt], BeforeValidator(by_node)] = Field(
        default={}, description="nodes whose epochs a round differ, and the epochs of each"
    )
    batches: int | None = Field(default=None, ge=1, description="local mini-batches a round, instead of epochs")
    budget: int | None = Field(
        default=None, ge=1, description="epochs of a model in all, shared out over those who train, instead of epochs"
    )
    batch_size: int = Field(default=16, ge=1, description="samples in a mini-batch")
    optimiser: given.Optimiser = Field(
        default={"name": "sgd", "lr": 0.05, "momentum": 0.5}, description="how a gradient becomes a step"
    )
    lr: float | None = Field(default=None, gt=0, description="short for optimiser.lr")
    momentum: float | None = Field(default=None, ge=0, lt=1, description="short for optimiser.momentum")
    keep_optimiser: bool = Field(default=False, description="keep the optimiser's state from round to round")
    renew_optimiser: bool = Field(default=False, description="begin every epoch with a new optimiser")
    early_stopping: bool = Field(default=False, description="undo a round's training if its validation loss rises")
    patience: int = Field(default=1, ge=1, description="epochs in a row with a risen loss until then")
    items: int | None = Field(
        default=None, ge=1, description="samples of a node, or the most of one where nodes differ"
    )
    total: int | None = Field(default=None, ge=1, description="use only this many of the training samples")
    validation: float = Field(default=0.2, ge=0, lt=1, description="share of a node's samples kept for validation")
    seeds: Annotated[given.Seeds, BeforeValidator(seeds_from), AfterValidator(_once)] = Field(
        default=(0,), min_length=1, description="0-4, or 0,2,5"
    )
    topology: given.Topology = Field(
        default={"name": "er", "p": 0.2, "connect": True}, description="who is whose neighbour"
    )
    links: float = Field(default=1.0, gt=0, le=1, description="probability that a link is up in a round")
    presence: float = Field(default=1.0, gt=0, le=1, description="probability that a node takes part in a round")
    outage: float | None = Field(
        default=None, ge=1, description="mean rounds that a link stays down (else drawn each round)"
    )
    absence: float | None = Field(
        default=None, ge=1, description="mean rounds that a node stays away (else drawn each round)"
    )
    joins: Annotated[dict[int, int], BeforeValidator(by_node)] = Field(
        default={}, description="nodes that come later, and the first round of each"
    )
    leaves: Annotated[dict[int, int], BeforeValidator(by_node)] = Field(
        default={}, description="nodes that go for good, and the first round without each"
    )
    partition: given.Partition = Field(
        default={"name": "dirichlet", "alpha": 0.5, "min_samples": 10}, description="who holds which samples"
    )
    pooled: bool = Field(default=False, description="put the data of all nodes into one (the centralised bound)")
    rule: given.Rule = Field(default="decavg", description="how a node merges what it hears")
    objective: given.Objective = Field(default="cross_entropy", description="what local training minimises")
    initialiser: given.Initialiser = Field(default="default", description="where parameters start")
    protocol: given.Protocol = Field(default="neighbourhood", description="who trains, sends and merges when")
    merge_first: bool | None = Field(default=None, description="exchange and merge the untrained models before round 1")
    clamp: float | None = Field(default=None, gt=0, description="upper limit of a mini-batch's mean loss")
    augment: Annotated[given.Augment | None, BeforeValidator(_listed)] = Field(
        default=None, description="how training samples vary whenever they are trained on, one after the other"
    )
    clip: float | None = Field(default=None, gt=0, description="greatest norm of a gradient")
    evaluate: Annotated[Literal["log"] | PositiveInt | tuple[NonNegativeInt, ...], BeforeValidator(_rounds)] = Field(
        default="log", description="rounds to evaluate: log, every k-th, or a list"
    )
    test_share: float = Field(default=1.0, gt=0, le=1, description="share of the test set that evaluations use")
    metrics: Annotated[given.Metrics, BeforeValidator(_listed)] = Field(
        default=tuple(m.name for m in METRICS),
        min_length=1,
        description="by what models are judged (`coterie list metrics`)",
    )
    merged: bool = Field(default=False, description="judge models once more after the merge, by the first metric")
    measures: Annotated[given.Measures, BeforeValidator(_kinds)] = Field(
        default=(), description=f"more to measure in evaluated rounds: {', '.join(KINDS)}"
    )
    engine: given.Engine = Field(default="local", description="where the nodes live")
    keep_models: bool | Literal["best"] = Field(
        default=True,
        description="keep the trained models with the run, for `coterie export`; best: also each node's best one",
    )
    methods: Annotated[given.Methods, BeforeValidator(by_name)] = Field(
        default={}, description="methods to compare: presets' names, or tables of settings that differ"
    )

    if not TYPE_CHECKING:  # who reads types takes the fields for its arguments

        def __init__(self, **settings: Any) -> None:
            said = canonical(settings)
            if "nodes" not in said and (count := nodes_of(said.get("topology"))):
                said["nodes"] = count
            try:
                super().__init__(**said)
            except ValidationError as error:
                raise explain(error, "", type(self).model_fields, "an experiment") from None
            self._check_settings()

    def _check_settings(self) -> None:
        """Refuse settings that exclude each other, and parts that cannot be."""
        said = [name for name in ("epochs", "batches", "budget") if getattr(self, name) is not None]
        if len(said) > 1:
            raise ConfigError(f"{' and '.join(said)} exclude each other", cure="Give one of them.")
        if self.keep_optimiser and self.renew_optimiser:
            raise ConfigError("keep_optimiser and renew_optimiser exclude each other", cure="Give one of them.")
        for slot in SLOTS if self.methods else ():
            refuse_unnamed(slot, getattr(self, slot), next(iter(self.methods)))
        check_churn(self.joins, self.leaves, self.nodes, self.rounds)
        if self.work and (strange := max(self.work)) >= self.nodes:
            raise ConfigError("work names a node that does not exist", expected=f"0 to {self.nodes - 1}", got=strange)
        if self.work and (self.batches or self.budget):
            raise ConfigError("work is in epochs", cure="Say epochs for the other nodes, not batches or budget.")
        _ = self.faults(0)
        _ = self.resolved

    @property
    def resolved(self) -> dict[str, "Method"]:
        """The methods by name, each with every setting written out.

        Not cached: `model_copy` would hand the old answer to a copy with other settings.
        """
        if not self.methods:
            return {self._own_name(): self._fill()}
        return {name: self._under(*layers_of(name, own))._fill() for name, own in self.methods.items()}

    def _own_name(self) -> str:
        name = str(as_table(self.rule).get("name"))
        return name.rpartition(":")[2].lower() if ":" in name else name

    def _under(self, *layers: Mapping[str, Any]) -> "Configuration":
        """This configuration with the settings of a method laid over it, one layer after the other."""
        shared = {"methods", "seeds", "engine", "keep_models", "data_dir", "dataset", "metrics", "measures"}
        allowed = set(type(self).model_fields) - shared
        settings = self.model_dump(exclude={"methods"})
        for own in map(canonical, layers):
            for key in own:
                if key not in allowed:
                    raise unknown("setting of a method", key, sorted(allowed))
            settings = merge(settings, own)
        return type(self)(**settings)

    def _fill(self, checked: bool = True) -> "Method":
        """Fill in the defaults: slots resolved, what the initialiser needs, short names moved to where they belong.

        What methods have in common need not be one itself, and is not `checked`.
        """
        optimiser = as_table(self.optimiser)
        short = {k: v for k, v in (("lr", self.lr), ("momentum", self.momentum)) if v is not None}
        update: dict[str, Any] = {"methods": {}, "lr": None, "momentum": None, "optimiser": {**optimiser, **short}}
        needs = getattr(find("initialisers", as_table(self.initialiser)["name"]).target, "needs", {})
        update["merge_first"] = self.merge_first if self.merge_first is not None else needs.get("merge_first", False)
        update["clamp"] = self.clamp if self.clamp is not None else needs.get("clamp")
        if self.budget is not None:
            update |= {"epochs": self._share(self.budget), "budget": None}
        elif self.epochs is None and self.batches is None:
            update["epochs"] = 1
        update["metrics"] = _distinct(self.metrics)
        update["augment"] = tuple(resolve("augment", a, "augmentations") for a in _listed(self.augment or ())) or None
        filled = self.model_copy(update=update)
        slots: dict[str, Any] = {s: resolve(s, getattr(filled, s)) for s in SLOTS if s != "model"}
        said = filled.model
        slots["model"] = [resolved(m) for m in said] if isinstance(said, list) else resolved(said)
        done = filled.model_copy(update=slots)
        method = Method.model_construct(**{name: getattr(done, name) for name in Configuration.model_fields})
        if checked:
            method._check()
        return method

    def _share(self, budget: int) -> int:
        """The epochs of one turn: whole ones, and what is left over is not trained."""
        protocol, nodes = choice("protocol", resolve("protocol", self.protocol)), 1 if self.pooled else self.nodes
        (made := protocol.make()).fits(nodes)
        if budget < (turns := made.turns(nodes, self.rounds)):
            expected = f"at least {turns}, an epoch for each of {turns} turns of protocol {protocol.name}"
            cure = f"Raise it: --budget {turns}, or take fewer nodes or rounds."
            raise ConfigError("budget", expected=expected, got=budget, cure=cure)
        return int(budget // turns)

    def faults(self, seed: int) -> Faults:
        """The faults of the network with this seed."""
        joins, leaves = ({}, {}) if self.pooled else (self.joins, self.leaves)
        return Faults(seed, self.links, self.presence, self.outage, self.absence, joins, leaves)

    def evaluated(self) -> list[int]:
        """The rounds after which models are measured; the untrained start (0) and the last always are."""
        if self.evaluate == "log":
            found = {round(10 ** (k / 10)) for k in range(200) if 10 ** (k / 10) <= self.rounds}
        elif isinstance(self.evaluate, int):
            found = set(range(0, self.rounds + 1, self.evaluate))
        else:
            found = {r for r in self.evaluate if r <= self.rounds}
        return sorted(found | {0, self.rounds})

    def to_toml(self) -> str:
        """The configuration as TOML, which read again gives the same one."""
        given = self.model_dump(exclude_none=True, exclude_defaults=False)
        simple = {k: v for k, v in given.items() if not isinstance(v, dict)}
        tables = {k: v for k, v in given.items() if isinstance(v, dict) and v}
        return tomlkit.dumps(_plain({**simple, **tables}))


class Method(Configuration):
    """One method of an experiment, with every setting written out and every part resolved."""

    def choice(self, slot: str) -> Choice:
        """The part that fills a slot."""
        return choice(slot, as_table(getattr(self, slot)))

    @property
    def models(self) -> tuple[Choice, ...]:
        """The model of each node."""
        made = [choice("model", table) for table in kinds(self.model)]
        return tuple(made[i] for i in deal(self.model, self.nodes))

    @property
    def shipped(self) -> Iterator[Choice]:
        """The parts that worker processes make for themselves."""
        yield from (self.choice(slot) for slot in ("rule", "protocol", "objective", "optimiser", "initialiser"))
        yield from (*{model.name: model for model in self.models}.values(), *self.judges, *self.varied)

    @property
    def judges(self) -> tuple[Choice, ...]:
        """The metrics by which models are judged."""
        return tuple(chosen("metrics", as_table(m)) for m in self.metrics)

    @property
    def varied(self) -> tuple[Choice, ...]:
        """The augmentations of training samples."""
        return tuple(chosen("augmentations", as_table(a)) for a in _listed(self.augment or ()))

    def _check(self) -> None:
        """Refuse settings that are sound by themselves and make no sense together."""
        deal(self.model, self.nodes)
        protocol: Protocol = self.choice("protocol").make()
        protocol.fits(1 if self.pooled else self.nodes, {*self.joins, *self.leaves} if not self.pooled else ())
        if not self.early_stopping:
            return
        if self.validation == 0:
            cure = "Keep some samples for it: --validation 0.2."
            raise ConfigError("early_stopping needs validation data", expected="validation above 0", got=0, cure=cure)
        if self.epochs is None or self.epochs <= self.patience:
            came = f"batches = {self.batches}" if self.epochs is None else f"epochs = {self.epochs}"
            wanted = f"at least {self.patience + 1} epochs with patience = {self.patience}"
            cure = f"Train for more: --epochs {self.patience + 1}."
            raise ConfigError("early_stopping looks at the loss after each epoch", expected=wanted, got=came, cure=cure)


def nodes_of(topology: Any) -> int | None:
    """How many nodes a network has that is in hand or in a file."""
    known = topology is not None and "name" in as_table(topology)
    return as_topology(choice("topology", resolve("topology", topology)).make()).size if known else None


def layers_of(name: str, own: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a method says: its preset, and what lies over that."""
    own = dict(own)
    # a preset's name stands for the preset even with settings of its own, unless these say which rule it is
    preset = not own or (name in presets.names() and "name" not in as_table(own.get("rule", {})))
    return (presets.load(own.pop("use", name)) if preset or "use" in own else {}), own


def _distinct(named: Iterable[Any]) -> tuple[Slot, ...]:
    """Metrics with every setting written out, those without any by name alone; each has columns of its own."""
    found: dict[str, Slot] = {}
    for slot in named:
        table = resolve("metrics", slot, "metrics")
        name, short = label(chosen("metrics", table)), table if len(table) > 1 else table["name"]
        if found.setdefault(name, short) != short:
            cure = "Judge by one of them, or name your own: another class, or in Python metrics={'name': function}."
            raise ConfigError(f"two metrics would both be in the column test_{name}", cure=cure)
    return tuple(found.values())


def _plain(value: Any) -> Any:
    """Settings as TOML can hold them: without None, with lists for tuples."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items() if v is not None}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings over earlier ones; slots are joined by `overlay`, and the last setting of the optimiser wins."""
    below, above = canonical(below), canonical(above)
    merged = dict(below)
    for key, value in above.items():
        joins = key in SLOTS and below.get(key) is not None and not isinstance(value, list | tuple)
        merged[key] = overlay(below[key], value) if joins and not isinstance(below[key], list) else value
    ways = ("epochs", "batches", "budget")
    if any(above.get(way) is not None for way in ways):
        merged |= {way: above.get(way) for way in ways if way in merged or above.get(way) is not None}
    if above.get("optimiser") is not None:  # what lies below in short speaks of the optimiser below
        was, now = (_name_of(layer.get("optimiser")) for layer in (below, merged))
        for short in ("lr", "momentum"):
            if above.get(short) is None and (now != was or short in as_table(above["optimiser"])):
                merged[short] = None
    return merged


def _name_of(optimiser: Any) -> Any:
    return as_table(optimiser or Configuration.model_fields["optimiser"].default).get("name")


DEFAULT = Path(__file__).parent / "default.toml"  # what `coterie run` runs without arguments


def read(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    return canonical(read_toml(path, "configuration file"))


def data_folder(experiment: Configuration) -> Path | None:
    """The folder with data sets that the user named: `--data-dir`, else `COTERIE_DATA`."""
    named = experiment.data_dir or os.environ.get("COTERIE_DATA")
    return Path(named).expanduser() if named else None
