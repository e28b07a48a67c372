"""A peer on a machine of its own: its own data, and the neighbours it was introduced to."""

import contextlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from coterie import files, records
from coterie.config.build import believed_size, build, gain, load_samples, mends
from coterie.config.configuration import Configuration, Method
from coterie.config.networks import family, mixing, network
from coterie.config.slots import as_table, choice, resolve
from coterie.config.spread import kinds
from coterie.errors import ConfigError, PeerError, RunError
from coterie.initialisers import Origin
from coterie.job import Job
from coterie.net.identity import Home
from coterie.network.graph import Graph
from coterie.network.rounds import Network
from coterie.peers.agreement import written
from coterie.peers.checkpoint import (
    BEFORE,
    CHECKPOINT,
    WHOLE,
    has_checkpoint,
    kept_measures,
    kept_rows,
    load_checkpoint,
)
from coterie.peers.runtime import PeerConfig
from coterie.peers.settings import PeerSettings
from coterie.protocols import Protocol
from coterie.randomness import key
from coterie.records.journal import merge
from coterie.records.models import NodeModels

RUN = "run"
"""The folder in a peer's home with its configuration, checkpoint, records, status and log."""
PEERS = "peers.json"
"""In a run that was collected: the peers' names, by the numbers of their nodes."""
NUMBERS = "numbers.json"
"""In it: what number each neighbour has here."""
NUMBERS_COPY = "numbers.copy.json"


@contextlib.contextmanager
def alone(home: Home) -> Iterator[None]:
    """Be the only process of the peer that lives in `home`."""
    folder = home.path / RUN
    with files.disk(folder, WHOLE):
        folder.mkdir(parents=True, exist_ok=True)
    with records.RunFolder(folder).lock():
        yield


def peer_config(
    experiment: Configuration,
    home: Home,
    data: str | None,
    method: str | None,
    architecture: int,
    port: int,
    verbose: bool,
    device: str | None = None,
) -> PeerConfig:
    """The configuration of the peer that lives in `home`."""
    name, settings = _one(experiment, method)
    _check(settings)
    own = as_table(settings.dataset)
    if device is not None:
        settings = _with(settings, engine={**as_table(settings.engine), "device": device})
    if data is not None:
        own = own if own["name"] == "own" else {"name": "own"}
        settings = _with(settings, dataset={**own, "path": str(Path(data).resolve())})
    elif own["name"] == "own" and not own.get("path"):
        cure = "Name them with --data; `coterie show dataset own` tells the kinds."
        raise ConfigError("this peer has no data", cure=cure)
    (seed,) = settings.seeds
    neighbours = sorted(home.look()[0])
    if not neighbours:
        cure = "Give one a ticket, with `coterie peer invite`, or take one, with `coterie peer join TICKET`."
        raise PeerError("this peer has no neighbours", cure=cure)
    folder = home.path / RUN
    with files.disk(folder, WHOLE):
        folder.mkdir(parents=True, exist_ok=True)
        files.write(folder / "config.toml", records.frozen(settings).encode())
        numbers, warnings = _numbers(folder, neighbours)
    engine = PeerSettings(**{k: v for k, v in as_table(settings.engine).items() if k != "name"})
    return PeerConfig(
        method=name,
        settings=settings,
        seed=seed,
        job=_world(settings, seed, home.name, numbers, architecture),
        node=0,
        numbers=numbers,
        home=home,
        folder=folder,
        timing=engine.timing,
        limits=engine.limits,
        half=engine.half,
        wait=engine.wait,
        threads=engine.threads,
        status_port=port,
        verbose=verbose,
        introduced=True,
        warnings=tuple(warnings),
    )


def _with(settings: Method, **changes: Any) -> Method:
    """The same with other settings."""
    (changed,) = Configuration(**{**settings.model_dump(), **changes}).resolved.values()
    return changed


def _numbers(folder: Path, neighbours: list[str]) -> tuple[dict[str, int], list[str]]:
    """The neighbours' numbers, which each keeps for good: what a checkpoint says of a number is said of a neighbour.

    They are kept twice. If one of the files is damaged the other counts, and this gives a word of it beside.
    """
    path, copy = folder / NUMBERS, folder / NUMBERS_COPY
    known, said = {}, list[str]()
    if path.exists() or copy.exists():
        try:
            known = _read_numbers(path)
        except RunError as error:
            known = _read_numbers(copy)
            said.append(f"{str(error).partition('. ')[0]}: going on with {copy.name}")
    last = max(known.values(), default=0)
    new = [name for name in neighbours if name not in known]
    known |= {name: last + i for i, name in enumerate(new, 1)}
    if new or said or not copy.exists():
        files.write_json(copy, known)
        files.write_json(path, known)
    return {name: known[name] for name in neighbours}, said


def _read_numbers(path: Path) -> dict[str, int]:
    with files.undamaged(path, "Remove both it and its copy, and the checkpoint beside them, to begin again."):
        known = files.read_json(path)
        if any(type(number) is not int or number < 1 for number in known.values()):
            raise ValueError("neighbours have whole numbers from 1")
    return known


def _one(experiment: Configuration, method: str | None) -> tuple[str, Method]:
    """The one method and seed that peers train with."""
    methods = experiment.resolved
    if method is not None:
        if method not in methods:
            raise ConfigError("no such method in the configuration", expected=", ".join(methods), got=method)
        methods = {method: methods[method]}
    if len(methods) != 1:
        cure = "Choose one with --method."
        raise ConfigError("peers train with one method", got=", ".join(methods), cure=cure)
    ((name, settings),) = methods.items()
    if as_table(settings.engine)["name"] != "peer":
        settings = _with(settings, engine="peer")
    if len(settings.seeds) != 1:
        cure = "Give the file one: seeds = 0."
        raise ConfigError("peers have one seed", got=", ".join(map(str, settings.seeds)), cure=cure)
    return name, settings


def _check(settings: Method) -> None:
    if settings.faults(0).fails:
        cure = "Remove links, presence, joins and leaves: real networks fail by themselves; `coterie up` has them."
        raise ConfigError("faults are injected where the whole network is known", cure=cure)
    protocol: Protocol = settings.choice("protocol").make()
    if not protocol.local:
        cure = "`coterie up` and `coterie run` have it; one of your own that needs only neighbours says `local = True`."
        name = as_table(settings.protocol)["name"]
        raise ConfigError(f"protocol {name} needs everyone's number, and peers know their neighbours", cure=cure)
    if family(settings).changes:
        cure = "Choose a topology that stays; `coterie up` and `coterie run` have those that change."
        raise ConfigError(
            "a peer knows the neighbours it was introduced to, and a changing network brings others", cure=cure
        )
    if mixing(settings) == "metropolis":
        cure = 'Set topology.mixing to "uniform"; `coterie up` and `coterie run` have metropolis.'
        raise ConfigError("metropolis weights need the neighbours' degrees, which a peer does not know", cure=cure)


def _world(settings: Method, seed: int, name: str, numbers: dict[str, int], architecture: int) -> Job:
    """The world as one peer sees it: itself is node 0, its neighbours come after, and their data are unknown."""
    models = kinds(settings.model)
    if not 0 <= architecture < len(models):
        raise ConfigError("--architecture", expected=f"0 to {len(models) - 1}", got=architecture)
    alone = settings.model_copy(update={"nodes": 1, "partition": resolve("partition", "iid"), "pooled": False})
    beside = as_table(settings.topology)["own"]
    complete = resolve("topology", {"name": "complete", "mixing": mixing(settings), "own": beside})
    alone = alone.model_copy(update={"topology": complete, "model": models[architecture]})
    own = build(alone, load_samples(settings), seed)
    others = max(numbers.values())  # some of them may be neighbours no more
    graph = Graph.from_edges(1 + others, [(0, number) for number in numbers.values()])
    nothing = np.array([], np.int64)
    distinct = [m for i, m in enumerate(models) if m not in models[:i]]
    mine = distinct.index(models[architecture])
    roster = replace(
        own.roster,
        seed=key(seed, f"peer {name}") >> 1,
        models=tuple(choice("model", m) for m in distinct),
        groups=tuple(np.array([0]) if g == mine else nothing for g in range(len(distinct))),
        train=(own.roster.train[0], *[nothing] * others),
        validation=(own.roster.validation[0], *[nothing] * others),
        degree=graph.degree,
        own=None if own.roster.own is None else np.full(1 + others, own.roster.own[0]),
        labels=own.roster.labels.expand(1 + others, -1),
    )
    shrinks, identity = _gain(own, settings, seed), key(0, f"peer {name}") >> 1
    return replace(
        own,
        protocol=own.protocol.among(name, numbers),
        roster=roster,
        network=Network.still(graph),
        gains=np.full(1 + others, shrinks),
        origin=Origin(seed, identity, shrinks),
        identity=identity,
    )


def _gain(own: Job, settings: Method, seed: int) -> float:
    """What a peer takes the gain to be before it asks anybody."""
    initialiser = as_table(settings.initialiser)
    if initialiser["name"] != "gain" or not mends(own.rule):
        return 1.0
    if initialiser["estimate"] == "degrees":
        cure = 'Set initialiser.estimate to "gossip" or "size".'
        raise ConfigError("a peer that knows its neighbours alone cannot sample the network's degrees", cure=cure)
    if initialiser["estimate"] == "size":
        return believed_size(settings, settings.nodes)
    known = network(settings, seed).graph(1)
    return gain(own.rule, [known], np.ones(known.nodes))


def export(home: Home, path: Path, which: Literal["", "peak", "best"] = "") -> dict[str, str]:
    """Write the peer's model, or one that is kept beside it, as plain named tensors; what the file says of itself."""
    found = home.path / RUN / CHECKPOINT
    if not has_checkpoint(found.parent):
        raise PeerError(
            "this peer has no model yet", expected=f"the file {found}", cure="Start it: `coterie peer run`."
        )
    about, _ = load_checkpoint(found)
    whole = found.with_name(BEFORE) if "damage" in about else found
    (model,) = NodeModels.read(whole, method=about["method"], peer=home.name).values()
    return (getattr(model, which) if which else model).export(path)


def last_words(home: Path) -> str:
    """What is known of a peer that does not answer."""
    found = home / RUN / CHECKPOINT
    if not has_checkpoint(found.parent):
        return "It has not been started, or has not come to the end of a round: `coterie peer run`."
    about, _ = load_checkpoint(found)
    if (home / RUN / "records.parquet").is_file():
        return f"It has finished, with round {about['round']}."
    return f"It has stopped, or hangs, after round {about['round']}; `coterie peer run` goes on."


def _check_agreement(settings: dict[str, dict[str, Any]]) -> None:
    """Refuse records of peers that did not do the same thing."""
    said = {name: written(table) for name, table in settings.items()}
    (first, mine), *others = said.items()
    for name, theirs in others:
        if key := next((key for key in sorted({*mine, *theirs}) if mine.get(key) != theirs.get(key)), None):
            raise RunError(
                f"{first} and {name} differ in {key}",
                expected=f"{mine.get(key, 'nothing')}, as {first} has it",
                got=str(theirs.get(key, "nothing")),
                cure="Collect peers that trained together: their records are of one run.",
            )


def _settings(folder: Path) -> dict[str, Any]:
    """What a peer's configuration says, which has every setting written out; nothing of it is carried out."""
    with files.undamaged(folder / "config.toml", "Ask for it again, or leave that peer out."):
        said = tomllib.loads(records.configuration_text(folder))
        if not isinstance(said["rounds"], int):
            raise ValueError("rounds is no number")
        _ = written(said)
    return said


def collect(folders: list[Path], out: Path) -> tuple[pl.DataFrame, dict[str, int]]:
    """Bring the records of peers together as one run; nodes are numbered in the order of the peers' names.

    Gives the records, and the last round of each peer that has not come to the end.
    """
    found: dict[str, tuple[pl.DataFrame, Path]] = {}
    measured: dict[str, pl.DataFrame] = {}
    for folder in folders:
        home = Home(folder)
        here = folder / RUN
        finished = here / "records.parquet"
        rows = records.printable(records.read_frame(finished) if finished.is_file() else kept_rows(here))
        if rows.is_empty():
            raise RunError(f"{folder} has no records yet", cure="Let the peer finish a round: `coterie peer run`.")
        if home.name in found:
            raise RunError(f"{folder} and {found[home.name][1]} are both called {home.name}", cure="Name each once.")
        found[home.name] = rows, folder
        if (measures := kept_measures(here)) is not None:
            measured[home.name] = records.printable(measures)
    settings = {name: _settings(folder / RUN) for name, (_, folder) in sorted(found.items())}
    _check_agreement(settings)
    frames = [rows.with_columns(node=pl.lit(i, pl.Int64)) for i, (_, (rows, _)) in enumerate(sorted(found.items()))]
    whole = records.together(frames).sort("method", "seed", "round", "node")
    numbered = [
        measured[name].with_columns(node=pl.lit(i, pl.Int64))
        for i, name in enumerate(sorted(found))
        if name in measured
    ]
    measures = pl.concat(numbered).sort("round", "node", maintain_order=True) if numbered else None
    run, another = records.RunFolder(out), "Choose another --out."
    run.adopt(records.configuration_text(folders[0] / RUN), another)
    with files.disk(out, another):
        for (method, seed), part in whole.group_by("method", "seed", maintain_order=True):
            mine = (pl.col("method") == method) & (pl.col("seed") == seed)
            run.finish(str(method), int(seed), part, None if measures is None else measures.filter(mine))
        merge(out, {i: found[name][1] / RUN for i, name in enumerate(sorted(found))})
        files.write(out / PEERS, json.dumps(dict(enumerate(sorted(found))), indent=1).encode())
    ends = {name: int(rows["round"].to_numpy().max()) for name, (rows, _) in sorted(found.items())}
    return whole, {name: end for name, end in ends.items() if end < settings[name]["rounds"]}


def names(out: Path) -> dict[int, str]:
    """The peers' names in a run that was collected, by node."""
    return {int(node): str(name) for node, name in files.read_json(out / PEERS).items()}
