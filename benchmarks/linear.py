"""Linear models by hand as ratios in one run: one sample a step, against autograd and against a plain numpy loop.

`python benchmarks/linear.py` prints, by loss and number of rows, how many times as long autograd and numpy take for an
epoch of 455 samples, as processor time. Both go through the rows one by one: one row is timed and multiplied.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from coterie.config.build import build, load_samples
from coterie.job import Job
from coterie.node.node import trainers
from coterie.runs.experiment import Experiment

ROWS = (1, 2, 5, 8, 16, 64, 256)
LOSSES = {"hinge": False, "squared hinge": True, "logistic": False}
LR = 1e-5


def job(loss: str, rows: int, epochs: int) -> Job:
    """So many nodes with the same 455 samples."""
    objective = "cross_entropy" if loss == "logistic" else {"name": "hinge", "squared": LOSSES[loss]}
    (method,) = Experiment(
        dataset={"name": "breast_cancer", "test_share": 0.1},
        validation=1 / 9,
        partition="everything",
        nodes=rows,
        rounds=1000,
        topology="ring" if rows > 2 else "complete",
        model={"name": "svm", "one": True},
        objective=objective,
        optimiser={"name": "sgd", "lr": LR, "momentum": 0.0},
        batch_size=1,
        epochs=epochs,
        batches=None,
    ).resolved.values()
    return build(method, load_samples(method), 0)


def by_autograd(where: Job) -> None:
    """An epoch of one row in plain PyTorch."""
    torch.set_num_threads(1)
    roster = where.roster
    module = roster.models[0].make()(where.samples.shape, 2)
    optimiser, objective = torch.optim.SGD(module.parameters(), LR), roster.objective.make()
    for batch in roster.schedule(0, 1):
        at = torch.as_tensor(batch)
        optimiser.zero_grad()
        objective(module(where.samples.inputs(at)), where.samples.targets(at), None).mean().backward()
        optimiser.step()


def by_numpy(where: Job, loss: str) -> None:
    """An epoch of one row in a plain loop."""
    x, y = np.asarray(where.samples.train_x), 2 * np.asarray(where.samples.train_y, np.float32) - 1
    order = next(where.roster.orders(0, 1))
    w, lr = np.zeros(x.shape[1] + 1, np.float32), np.float32(LR)
    for z in np.c_[x, np.ones(len(x), np.float32)][order] * y[order, None]:
        margin = z @ w
        if loss == "logistic":
            w += lr / (1 + np.exp(margin)) * z
        elif margin < 1:
            w += lr * z if loss == "hinge" else 2 * lr * (1 - margin) * z


def cost(run: Callable[[], object], repeats: int) -> float:
    """The least processor time of some runs."""
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    table = Table("loss", "rows", "ms an epoch", "autograd / by hand", "numpy / by hand")
    for loss in LOSSES:
        autograd, numpy = (cost(lambda f=f: f(), repeats) for f in _others(loss))  # type: ignore[misc]
        for rows in ROWS:
            (trainer,) = trainers(job(loss, rows, 4), np.arange(rows))
            ours = cost(lambda t=trainer, n=rows: t.train_stack(np.arange(n), 1), repeats) / 4  # type: ignore[misc]
            ratios = (f"{rows * other / ours:.1f}" for other in (autograd, numpy))
            table.add_row(loss, str(rows), f"{ours * 1e3:.2f}", *ratios)
    Console().print(table)


def _others(loss: str) -> tuple[Callable[[], None], Callable[[], None]]:
    where = job(loss, 1, 1)
    return lambda: by_autograd(where), lambda: by_numpy(where, loss)


if __name__ == "__main__":
    main()
