"""What a page shows of one job: its network and data, who had which value when, what happened, what went where."""

import math
import tomllib
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from coterie import records
from coterie.errors import CoterieError, RunError
from coterie.network import skew
from coterie.network.graph import Graph
from coterie.node.measures import CONFUSION
from coterie.page import clocks
from coterie.page.numbers import plain, short, thinned
from coterie.page.overview import View
from coterie.page.run import RunReader
from coterie.page.state import JobState
from coterie.records import nodes
from coterie.records.journal import JobKey
from coterie.report.network import describe
from coterie.report.statistics import KEYS

CELLS = 200_000
"""Values of one column that are shown over nodes and rounds, at most."""
LINKS = 40_000
"""Arcs of a network that are shown at most."""
DENSE = 600
"""Nodes up to which all eigenvalues are computed, and measures that take as long."""


def job_view(reader: RunReader, key: JobKey) -> View:
    """The network, the data and the events of a job."""
    job = _known(reader, key)
    own = reader.rows(key)
    shown, trouble = _nodes(reader, key)
    count = max(_count(job, own), 0 if shown is None else len(shown))
    view: View = {
        "nodes": count,
        "rounds": shown_rounds(own, count),
        "columns": [c for c in own.columns if c not in KEYS and own[c].count()],
        "marks": job.happened() + _fault_marks(reader, key) + _churn_marks(reader, key),
        "unlisted": job.unlisted,
        "roles": job.roles,
        "progress": clocks.progress(job),
        "names": {str(number): name for name, number in job.peers.items()},
        "trouble": trouble,
    }
    return view | ({} if shown is None else _network(shown) | _data(shown))


def matrix(reader: RunReader, key: JobKey, column: str, cells: int = CELLS) -> View:
    """A column of a job: for each shown round a value for each node."""
    own = reader.rows(key)
    if column not in own.columns or column in KEYS:
        raise RunError(f"no column {column!r} was recorded")
    count = _count(_known(reader, key), own)
    rounds = shown_rounds(own, count, cells)
    kept = own.filter(pl.col("round").is_in(rounds)).select("round", "node", pl.col(column).cast(pl.Float64))
    table = np.full((len(rounds), count), np.nan)
    table[np.searchsorted(rounds, kept["round"].to_numpy()), kept["node"].to_numpy()] = kept[column].to_numpy()
    return {"rounds": rounds, "values": [plain(pl.Series(line)) for line in table]}


def node_view(reader: RunReader, key: JobKey, node: int | None) -> View:
    """All that was recorded of one node; of a peer's own records (None) of the only one there is."""
    own = reader.rows(key).sort("round")
    own = own if node is None else own.filter(pl.col("node") == node)
    columns = {c: plain(own[c]) for c in own.columns if c not in KEYS and own[c].count()}
    return {
        "node": node,
        "round": own["round"].to_list(),
        "columns": columns,
        "confusion": confusion(reader, key, node),
    }


def confusion(reader: RunReader, key: JobKey, node: int | None = None) -> View:
    """Which class each node (or one) takes for which, the last time that it was counted: a table by node, if it was."""
    try:
        counted = records.measures(reader.folder).filter(method=key[0], seed=key[1], measure=CONFUSION)
    except CoterieError:
        return {}
    counted = counted if node is None else counted.filter(node=node)
    counted = counted.filter(pl.col("round") == pl.col("round").max())
    pairs = np.array([[int(name) for name in pair.split(" as ")] for pair in counted["layer"]])
    if not len(pairs):
        return {}
    tables = np.zeros((int(counted["node"].to_numpy().max()) + 1, *(pairs.max(0) + 1)), np.int64)
    tables[counted["node"].to_numpy(), *pairs.T] = counted["value"].to_numpy()
    return {"round": counted["round"][0], "counts": {n: tables[n].tolist() for n in counted["node"].unique().to_list()}}


def links_view(reader: RunReader, key: JobKey, round: int) -> View:
    """What went along each link up to this round since it was last told, and which links and nodes failed in it."""
    job = _known(reader, key)
    told = next(clocks.exchanges(job, round), {"round": None, "bytes": None, "sources": None, "targets": None})
    view = told | {"ages": clocks.ages(job, round)}
    if round in job.faults and (lost := job.faults[round].event()) is not None:
        return view | {"down": lost.get("down", []), "away": lost.get("nodes", [])}
    if not job.words:
        return view | {"down": [], "away": []}
    before = max((r for r in reader.rows(key)["round"].unique() if r < round), default=0)
    down, away = clocks.gone(job, round, before)
    return view | {"down": down, "away": away}


def shown_rounds(own: pl.DataFrame, count: int, cells: int = CELLS) -> list[int]:
    """The rounds whose values are shown: all, if there is room."""
    return thinned(own["round"].unique().to_list(), max(cells // max(count, 1), 8))


def _count(job: JobState, own: pl.DataFrame) -> int:
    """How many nodes there are."""
    return max(job.nodes, *(int(node) + 1 for node in own["node"].unique()), 0)


def _known(reader: RunReader, key: JobKey) -> JobState:
    if key not in reader.jobs:
        raise RunError(f"no job {key[0]!r} with seed {key[1]} in {reader.label}")
    return reader.jobs[key]


def _nodes(reader: RunReader, key: JobKey) -> tuple[pl.DataFrame | None, str]:
    """Who takes part, if it was written down, and what is wrong with that."""
    try:
        return nodes.read(records.RunFolder(reader.folder).job(*key)), ""
    except CoterieError as error:
        return None, str(error)


def _fault_marks(reader: RunReader, key: JobKey) -> list[View]:
    """How much failed, on up to so many rounds."""
    faults, found = reader.jobs[key].faults, []
    for number in thinned(list(faults), 200):
        event = faults[number].event()
        if event is None:
            continue
        away, links = event.get("nodes") or [], event.get("links") or 0
        said = [f"{len(away)} node{'s' * (len(away) != 1)} away"] if away else []
        said += [f"{links} link{'s' * (links != 1)} down"] if links else []
        found.append({"kind": "fault", "round": number, "time": event.time, "text": ", ".join(said)})
    return found


def _churn_marks(reader: RunReader, key: JobKey) -> list[View]:
    """Who joins and who leaves by the configuration, by round."""
    try:
        settings = tomllib.loads(records.configuration_text(reader.folder))
    except (CoterieError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return []
    settings |= settings.get("methods", {}).get(key[0], {})
    found = []
    for what, kind in (("joins", "join"), ("leaves", "leave")) if not settings.get("pooled") else ():
        at: dict[int, list[str]] = {}
        for node, number in settings.get(what, {}).items():
            at.setdefault(number, []).append(node)
        for number, who in at.items():
            named = ", ".join(who[:8]) + (f" and {len(who) - 8} more" if len(who) > 8 else "")
            said = f"node{'s' * (len(who) != 1)} {named} {kind if len(who) > 1 else what}"
            found.append({"kind": kind, "round": number, "time": 0.0, "text": said})
    return found


def _network(shown: pl.DataFrame) -> View:
    """The links of round 1, and the network in numbers."""
    arcs = shown.select("node", "neighbours", "weights").explode("neighbours", "weights").drop_nulls()
    targets, sources, weights = (arcs[c].to_numpy() for c in ("node", "neighbours", "weights"))
    n = len(shown)
    directed = set(zip(sources.tolist(), targets.tolist(), strict=True)) != set(
        zip(targets.tolist(), sources.tolist(), strict=True)
    )
    step = max(1, -(-len(arcs) // (LINKS if directed else 2 * LINKS)))
    kept = np.arange(len(arcs)) if directed else np.flatnonzero(sources < targets)
    kept = kept[::step]
    graph = Graph(n, sources, targets, weights, directed)
    facts = _facts(graph) if n <= DENSE else {"nodes": n, "arcs" if directed else "links": graph.edges}
    return {
        "directed": directed,
        "links": {
            "sources": sources[kept].tolist(),
            "targets": targets[kept].tolist(),
            "weights": [short(w) for w in weights[kept]],
        },
        "sampled": step > 1,
        "degrees": graph.degree.tolist(),
        "facts": facts,
        "spectrum": _spectrum(graph) if n <= DENSE else [],
    }


def _facts(graph: Graph) -> dict[str, Any]:
    try:
        return {k: short(v) if isinstance(v, float) else v for k, v in describe(graph).items()}
    except CoterieError:
        return {"nodes": graph.nodes, "connected": False}


def _spectrum(graph: Graph) -> list[float | None]:
    """The moduli of the eigenvalues of averaging with equal samples, the greatest first."""
    values: NDArray[np.float64] = np.abs(np.linalg.eigvals(graph.merge_matrix().toarray()))
    return [short(float(v)) for v in np.sort(values)[::-1]]


def _data(shown: pl.DataFrame) -> View:
    """Who holds what."""
    labels = shown["labels"].to_list()
    view: View = {"samples": shown["samples"].to_list(), "architectures": shown["architecture"].to_list()}
    if labels and labels[0]:
        measured = skew.describe(np.array(labels))
        view |= {"labels": labels, "skew": {k: short(v) for k, v in measured.items() if math.isfinite(v)}}
    return view
