"""Driving engines directly: the same world in any engine, and everything that came of it."""

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.config.build import build, load_samples
from coterie.config.slots import choice
from coterie.engines import Session
from coterie.job import Job, Samples
from coterie.network.graph import Graph
from coterie.network.mixing import weighed
from coterie.network.rounds import Network
from coterie.node import merging
from coterie.node.snapshot import Snapshot
from coterie.runs.experiment import Experiment

OWN = Path(__file__).parent / "contracts" / "own_parts.py"
"""Parts as a user would bring them."""

ENGINES: dict[str, dict[str, Any]] = {
    "memory": {"name": "memory"},
    "loop": {"name": "local", "workers": 1, "mode": "loop"},
    "stack": {"name": "local", "workers": 1, "mode": "stack", "chunk": 100},
    "workers": {"name": "local", "workers": 2, "mode": "stack", "chunk": 2},
    "two": {"name": "local", "workers": 2, "mode": "loop"},
    "auto": {"name": "local", "workers": 1},
    "cluster": {"name": "cluster", "workers": 2, "by": "processes", "mode": "loop"},
    "three": {"name": "cluster", "workers": 3, "by": "processes", "mode": "loop"},
}

SMALL: dict[str, Any] = {
    "model": {"name": "mlp", "sizes": [8]},
    "nodes": 6,
    "rounds": 3,
    "batches": 3,
    "batch_size": 8,
    "merged": True,
    "total": 240,
    "lr": 0.1,
    "topology": {"name": "er", "p": 0.5, "connect": True},
    "test_share": 0.3,
}
"""Six nodes with some tens of digits each, unlike in number and in kind."""

SHORT = {"name": "mutual", "epochs": 1, "period": 2}
"""A lesson that is over soon, and at the height of its cycle in every other turn."""

LIGHT: dict[str, dict[str, Any]] = {
    "desa": {"name": "desa", "ipc": 2, "steps": 3, "width": 4},
    "relay": {"name": "relay", "skips": True, "reach": 5},
    "wandering": {"name": "wandering", "lesson": SHORT, "patience": 3},
    "meetings": {"name": "meetings", "lesson": SHORT},
    "mentors": {"name": "mentors", "lesson": {**SHORT, "learners": "own"}},
    "fml": {"name": "fml", "meme": {"name": "mlp", "sizes": [6]}, "patience": 3},
}
"""Protocols that do more than a test can wait for, with less to do."""


def light(protocol: str) -> str | dict[str, Any]:
    """A protocol, with little to do."""
    return LIGHT.get(protocol, protocol)


def own(name: str) -> str:
    """The name of a part in the user's file."""
    return f"{OWN}:{name}"


@dataclass
class Outcome:
    """What a run came to."""

    models: dict[int, Tensor]
    """Each node's row: parameters and float buffers."""
    integers: dict[int, Tensor]
    state: dict[str, dict[int, Tensor]]
    ledger: dict[str, np.ndarray]
    counters: dict[int, dict[str, int]]
    notes: dict[int, dict[str, Tensor]]
    plan: dict[str, Any]
    job: Job


@functools.cache
def samples(dataset: str = "digits") -> Samples:
    (one,) = Experiment(dataset=dataset).resolved.values()
    return load_samples(one)


def job(seed: int = 0, graph: Graph | None = None, **settings: Any) -> Job:
    """A small world, on a network of one's own if it is to be one that no topology would give."""
    (one,) = Experiment(**{**SMALL, **settings}).resolved.values()
    made = build(one, samples(settings.get("dataset", "digits")), seed)
    if graph is None:
        return made
    weights = weighed(graph, made.roster.mixing)
    return replace(made, network=Network.still(weights), roster=replace(made.roster, degree=graph.degree))


_open: dict[str, Session] = {}


def session(engine: str) -> Session:
    """A session that all runs in this engine share, one after the other."""
    if engine not in _open:
        _open[engine] = choice("engine", ENGINES[engine]).make().open()
    return _open[engine]


def close_all() -> None:
    while _open:
        _open.popitem()[1].close()


@contextmanager
def narrow_blocks() -> Iterator[None]:
    """Column blocks as narrow as they get, so that small models have several."""
    before, merging.BLOCK_BYTES = merging.BLOCK_BYTES, 1
    try:
        yield
    finally:
        merging.BLOCK_BYTES = before


def drive(engine: str, rounds: int = 3, seed: int = 0, **settings: Any) -> Outcome:
    """Run a small world in an engine and measure it in the last round."""
    the_job, running = job(seed, **settings), session(engine)
    with narrow_blocks():
        running.begin(the_job)
        for number in range(1, rounds + 1):
            running.round(number, number == rounds)
    return outcome(running, the_job)


def outcome(running: Session, the_job: Job) -> Outcome:
    return brought_together([running.snapshot()], running.plan, the_job)


def brought_together(found: Iterable[dict[str, Tensor]], plan: dict[str, Any], the_job: Job) -> Outcome:
    """What came of a run, from the snapshots of all of its nodes."""
    nodes = the_job.roster.nodes
    come = Outcome({}, {}, {}, {}, {}, {}, plan, the_job)
    for kept in (Snapshot.read({k: v.clone() for k, v in tensors.items()}) for tensors in found):
        for rows in kept.rows.values():
            for r, node in enumerate(rows.nodes.tolist()):
                come.models[node], come.integers[node] = rows.matrix[r], rows.integers[r]
                for name, value in rows.state.items():
                    come.state.setdefault(name, {})[node] = value[r]
        come.counters |= {node: counts for node, counts in kept.counters.items() if counts}
        come.notes |= {node: noted for node, noted in kept.notes.items() if noted}
        for name, values in kept.ledger.items():
            come.ledger.setdefault(name, np.full(nodes, np.nan))[kept.nodes] = values
    return come


def agree(a: Outcome, b: Outcome, tolerance: float = 1e-4) -> None:
    """Hold two engines to the same numbers."""
    for name in ("sent_bytes", "received_bytes", "batches"):
        np.testing.assert_array_equal(a.ledger[name], b.ledger[name], err_msg=name)
    assert a.models.keys() == b.models.keys()
    for node, row in a.models.items():
        torch.testing.assert_close(
            row, b.models[node], rtol=tolerance, atol=tolerance, msg=lambda m, n=node: f"node {n}: {m}"
        )
        assert torch.equal(a.integers[node], b.integers[node])
    assert a.state.keys() == b.state.keys()
    for name, values in a.state.items():
        for node, value in values.items():
            torch.testing.assert_close(value, b.state[name][node], rtol=tolerance, atol=tolerance)
    assert a.counters == b.counters
    assert {n: noted.keys() for n, noted in a.notes.items()} == {n: noted.keys() for n, noted in b.notes.items()}
    for node, noted in a.notes.items():
        for name, note in noted.items():
            torch.testing.assert_close(note, b.notes[node][name], rtol=tolerance, atol=tolerance)
    here = b.job.members(1_000_000)  # who has left may have been measured before, or not
    judged = [
        n for n in a.ledger if n.startswith(("test_", "validation_", "merged_", "peak_")) and not n.endswith("_f1")
    ]
    close = [n for n in judged if n.endswith("_accuracy")]
    for name in (n for n in judged if n not in close):
        one, other = a.ledger[name][here], b.ledger[name][here]
        np.testing.assert_allclose(one, other, rtol=10 * tolerance, atol=10 * tolerance, err_msg=name)
    for name in close:  # one sample on the border of two classes may fall either way
        np.testing.assert_allclose(a.ledger[name][here], b.ledger[name][here], atol=0.01, err_msg=name)
