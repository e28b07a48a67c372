"""Lessons as ratios in one run: models that learn together, against the same in plain PyTorch.

`python benchmarks/lessons.py` prints four rows. The first is an epoch of mutual learning over six models in one
thread, in units of six plain epochs on the same mini-batches; the second a round of a wandering aggregator, with two
workers, in units of the same round written by hand in one thread; the third the same in processor time, half of which
is what two cores need if nobody else has them and halves are even; the fourth what a lesson takes of memory beside the
models that were handed in, in units of a copy of each and its optimiser's state. Each is a median of ratios in turns.
"""

import argparse
import gc
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from _memory import proportional_bytes
from _setup import in_turns, processor_seconds
from coterie.config.build import build, load_samples
from coterie.engines.local import Local
from coterie.job import Job
from coterie.lessons.mutual import Mutual
from coterie.node.node import trainers
from coterie.node.student import Schoolhouse
from coterie.parts import Choice
from coterie.runs.experiment import Experiment

CNNS = ((8, 16, 32, 64), (8, 16, 32), (8, 16), (4, 8, 16), (2, 4, 8, 16))
"""The five nets of the mutual-learning paper, a quarter as wide."""
NODES, EPOCHS, BATCH, LR = 6, 5, 64, 0.01


def job() -> Job:
    """Six nodes with 300 made-up pictures of 16×16 each, all of which take part in every round: the same work each."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        x, y = rng.normal(size=(300 * NODES, 1, 16, 16)).astype(np.float32), rng.integers(0, 10, 300 * NODES)
        np.savez(f"{folder}/x.npz", x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])
        (method,) = Experiment(
            dataset={"name": "arrays", "path": f"{folder}/x.npz"},
            nodes=NODES,
            rounds=1000,
            validation=0.0,
            batch_size=BATCH,
            topology="complete",
            partition="iid",
            model=[{"name": "cnn", "channels": channels, "norm": "layer"} for channels in CNNS],
            optimiser={"name": "sgd", "lr": LR, "momentum": 0.9, "weight_decay": 5e-4},
            protocol={
                "name": "wandering",
                "share": 1.0,
                "lesson": {"name": "mutual", "epochs": EPOCHS, "schedule": "fixed"},
            },
        ).resolved.values()
        return build(method, load_samples(method), 0)


class Bare:
    """Six models, each with an optimiser of its own, in plain PyTorch."""

    def __init__(self, where: Job) -> None:
        torch.set_num_threads(1)
        roster = where.roster
        self.x, self.y = where.samples.train_x.permute(0, 3, 1, 2), where.samples.train_y
        self.own = [torch.as_tensor(roster.train[i]) for i in range(6)]
        makes = [roster.models[i % len(CNNS)].make() for i in range(6)]
        self.models: list[nn.Module] = [make(where.samples.shape, where.samples.classes) for make in makes]

    def optimisers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(m.parameters(), LR, momentum=0.9, weight_decay=5e-4) for m in self.models]

    def epoch(self, own: list[Tensor], optimisers: list[torch.optim.Optimizer]) -> None:
        """A plain epoch of each model."""
        for module, optimiser, mine in zip(self.models, optimisers, own, strict=True):
            for where in mine[torch.randperm(len(mine))].split(BATCH):
                optimiser.zero_grad()
                F.cross_entropy(module(self.x[where]), self.y[where]).backward()
                optimiser.step()

    def mutual(self, epochs: int) -> None:
        """Epochs of mutual learning on the data of the first."""
        optimisers, sizes = self.optimisers(), [sum(p.numel() for p in m.parameters()) for m in self.models]
        trust = torch.tensor(sizes, dtype=torch.float32).expand(6, 6) * (1 - torch.eye(6))
        trust = trust / trust.sum(1, keepdim=True)
        for _ in range(epochs):
            for where in self.own[0][torch.randperm(len(self.own[0]))].split(BATCH):
                x, y = self.x[where], self.y[where]
                logs = torch.stack([F.log_softmax(m(x), -1) for m in self.models])
                mixed = torch.einsum("nq,qbc->nbc", trust, logs.detach().exp())
                errors = -logs[:, torch.arange(len(y)), y].mean()
                for optimiser in optimisers:
                    optimiser.zero_grad()
                (0.1 * 6 * errors - 0.9 * (mixed * logs).sum(-1).mean(-1).sum()).backward()
                for optimiser in optimisers:
                    optimiser.step()


def one_epoch(where: Job) -> tuple[Callable[[int], object], Callable[[int], object]]:
    """An epoch of a lesson over six models in one thread, and six plain epochs."""
    bare, made = Bare(where), trainers(where, np.arange(NODES))
    school, own = Schoolhouse({t.architecture.signature: t.architecture for t in made}), made[0]
    models = [made[i % len(CNNS)] for i in range(6)]
    pupils = {i: school.pupil(t.architecture.signature, t.matrix[i // len(CNNS)], 300.0) for i, t in enumerate(models)}
    lesson = Mutual(epochs=1, schedule="fixed")
    data = school.classroom(own, 0, 1, {})
    optimisers = bare.optimisers()
    return lambda _: lesson.teach(pupils, data), lambda _: bare.epoch([bare.own[0]] * 6, optimisers)


def one_round(where: Job) -> tuple[Callable[[int], object], Callable[[int], object], Callable[[], None]]:
    """A round of the wandering aggregator on two workers, the same by hand in one thread, and what ends the workers."""
    bare, ours = Bare(where), Local(workers=2).open()
    ours.begin(where)

    def by_hand(_: int) -> None:
        bare.epoch(bare.own, bare.optimisers())
        bare.mutual(EPOCHS)

    return lambda round: ours.round(round, False), by_hand, ours.close


def memory(where: Job) -> float:
    """What a lesson takes at most beside its pupils, in units of six models with their optimisers' states."""
    large = Choice("models", "mlp", {"sizes": (2048, 1024)})
    roster = replace(where.roster, models=(large,), groups=(np.arange(NODES),))
    (own,) = trainers(replace(where, roster=roster), np.arange(NODES))
    signature = own.architecture.signature
    school = Schoolhouse({signature: own.architecture})
    pupils = {i: school.pupil(signature, own.matrix[i].clone(), 300.0) for i in range(6)}
    lesson, data = Mutual(epochs=1, schedule="fixed"), school.classroom(own, 0, 1, {})
    gc.collect()
    before, peak, teaching = proportional_bytes(), 0, True

    def watch() -> None:
        nonlocal peak
        while teaching:
            peak = max(peak, proportional_bytes())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    lesson.teach(pupils, data)
    teaching = False
    watcher.join()
    return (peak - before) / (2 * sum(p.params.numel() * 4 for p in pupils.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    where, table = job(), Table("lessons", "ratio", "goal", "")
    (epoch,) = in_turns(repeats, [processor_seconds], *one_epoch(where))
    ours, by_hand, close = one_round(where)
    work, waited = in_turns(repeats, [processor_seconds, time.perf_counter], ours, by_hand)
    close()
    for name, ratio, goal in (
        ("a mutual epoch over six models / six plain epochs, one thread: processor time", epoch, 1.05),
        ("a round of a wandering aggregator, two workers / by hand, one thread: time", waited, 0.6),
        ("the same: processor time of all processes", work, None),
        ("memory of a lesson / six models and their optimisers' states", memory(where), None),
    ):
        met = "" if goal is None else "met" if ratio <= goal else "missed"
        table.add_row(name, f"{ratio:.2f}", f"{goal or ''}", met)
    Console().print(table)


if __name__ == "__main__":
    main()
