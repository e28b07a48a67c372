"""A run on made-up data, ready to be timed, and the bare PyTorch loop it is measured against."""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from coterie.engines.local import Local, LocalSession
from coterie.job import Job, Roster, Samples, Training
from coterie.network.faults import Faults
from coterie.network.graph import Graph, draw
from coterie.network.rounds import Network
from coterie.node.snapshot import Snapshot
from coterie.parts import Choice


@dataclass(frozen=True)
class Case:
    """One setting to be timed."""

    name: str
    model: Choice
    shape: tuple[int, ...]
    nodes: int
    batch_size: int
    batches: int = 8
    samples: int | None = None
    """On each node; else enough for every mini-batch of a round to be another one."""
    test: int = 100
    momentum: float = 0.5
    rule: Choice = field(default_factory=lambda: Choice("rules", "decavg"))
    topology: Choice = field(default_factory=lambda: Choice("topologies", "regular", {"k": 4}))
    goal: float | None = None


def job(case: Case, classes: int = 10) -> Job:
    """The case on random samples."""
    each = case.samples or case.batch_size * case.batches
    rng = torch.Generator().manual_seed(0)
    count = min(case.nodes * each, 20_000)
    x = torch.randn(count, *case.shape, generator=rng)
    y = torch.randint(classes, (count,), generator=rng)
    x = (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).contiguous().share_memory_()
    samples = Samples(x, y.share_memory_(), x[: case.test], y[: case.test], classes, case.shape)
    pick = np.random.default_rng(0)
    train = tuple(pick.choice(count, each, replace=False) for _ in range(case.nodes))
    graph: Graph = draw(case.topology.make().draw, case.nodes, 0, connect=True)
    roster = Roster(
        seed=0,
        models=(case.model,),
        rule=case.rule,
        protocol=Choice("protocols", "neighbourhood"),
        objective=Choice("objectives", "cross_entropy"),
        optimiser=Choice("optimisers", "sgd", {"lr": 0.01, "momentum": case.momentum}),
        training=Training(None, case.batches, case.batch_size, None, False),
        groups=(np.arange(case.nodes),),
        train=train,
        validation=tuple(t[:0] for t in train),
        degree=graph.degree,
        labels=torch.full((case.nodes, classes), 1 / classes),
        device="cpu",
        rounds=1000,  # so that it is worth while to find out what is faster
    )
    start = Choice("initialisers", "he")
    gains = np.ones(case.nodes)
    made = {"rule": case.rule.make(), "protocol": roster.protocol.make(), "initialiser": start}
    return Job(
        roster,
        samples,
        Network.still(graph),
        **made,
        merge_first=False,
        faults=Faults(0),
        gains=gains,
        test=np.arange(case.test),
    )


def session(case: Case, engine: Local | None = None) -> tuple[LocalSession, Job]:
    """The case laid out in a local session."""
    made, where = (engine or Local()).open(), job(case)
    made.begin(where)
    return made, where


def matrix_of(ours: LocalSession) -> torch.Tensor:
    """The parameters of all nodes, which are of one architecture."""
    return Snapshot.read(ours.snapshot()).rows[0].matrix


def bare_loop(where: Job) -> Callable[[int], None]:
    """One module and one SGD per node, a single thread, and nothing else: the same mini-batches as the round's."""
    roster, samples = where.roster, where.samples
    x = samples.train_x.permute(0, 3, 1, 2).contiguous() if len(samples.shape) == 3 else samples.train_x
    settings = roster.optimiser.settings
    modules = [roster.models[0].make()(samples.shape, samples.classes) for _ in range(roster.nodes)]
    optimisers = [torch.optim.SGD(m.parameters(), **settings) for m in modules]

    def run(round: int) -> None:
        for node, (module, optimiser) in enumerate(zip(modules, optimisers, strict=True)):
            for batch in roster.schedule(node, round):
                index = torch.as_tensor(batch)
                optimiser.zero_grad()
                F.cross_entropy(module(x[index]), samples.train_y[index]).backward()
                optimiser.step()

    return run


def bare_forward(where: Job) -> Callable[[int], None]:
    """A module per node shown all test samples, 250 at a time, a single thread, and nothing else."""
    roster, samples = where.roster, where.samples
    modules = [roster.models[0].make()(samples.shape, samples.classes).eval() for _ in range(roster.nodes)]

    def run(round: int) -> None:
        with torch.no_grad():
            for module in modules:
                for index in torch.as_tensor(where.test).split(250):
                    module(samples.inputs(index, test=True))

    return run


def best_of(repeats: int, *runs: Callable[[int], Any]) -> list[float]:
    """The best time of each, taken in turns so that a busy moment hits all alike; or the seconds that a run gives."""
    times: list[list[float]] = [[] for _ in runs]
    for repeat in range(repeats + 1):
        for run, found in zip(runs, times, strict=True):
            start = time.perf_counter()
            took = run(repeat + 1)
            found.append(took if isinstance(took, float) else time.perf_counter() - start)
    return [min(found[1:]) for found in times]


def in_turns(
    repeats: int, clocks: Sequence[Callable[[], float]], ours: Callable[[int], Any], theirs: Callable[[int], Any]
) -> list[float]:
    """What one takes by each clock in units of the other, run right after it: medians over the turns but the first."""
    turns = []
    for repeat in range(repeats + 1):
        marks = [[clock() for clock in clocks]]
        for run in (ours, theirs):
            run(repeat + 1)
            marks.append([clock() for clock in clocks])
        before, between, after = np.array(marks)
        turns.append((between - before) / (after - between))
    return [float(x) for x in np.median(turns[1:], axis=0)]


def processor_seconds() -> float:
    """The processor time of this process and of the workers it has started."""
    used = time.process_time()
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used
