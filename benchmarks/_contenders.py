"""What a good engineer writes by hand instead of using Coterie: a round of training and averaging, four ways."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from _setup import Case, bare_loop, best_of, job, session
from coterie.engines.local import Local
from coterie.job import Job
from coterie.parts import Choice

MLP = Choice("models", "mlp", {"sizes": (512, 256, 128)})
SMALL = Choice("models", "mlp", {"sizes": (64,)})
COLUMNS = {
    **{f"large-{n}": Case(f"MLP 784-512-256-128-10, n = {n}", MLP, (784,), n, 16) for n in (16, 64, 256)},
    **{f"small-{n}": Case(f"MLP 64-64-10, n = {n:,}", SMALL, (64,), n, 16) for n in (100, 200, 500, 2000)},
    "cnn-16": Case("conv10-conv20, n = 16", Choice("models", "cnn_mnist"), (1, 28, 28), 16, 100),
}
ROWS = {
    "coterie": "Coterie",
    "processes": "by hand: two processes",
    "vmap": "by hand: torch vmap, two threads",
    "jax": "by hand: JAX jit, its own threads",
}
Run = Callable[[int], float | None]
"""A round; it gives its seconds if it has taken the time itself."""


@contextlib.contextmanager
def contenders(case: Case, rows: Sequence[str] = tuple(ROWS)) -> Iterator[tuple[Callable[[int], None], dict[str, Run]]]:
    """The bare loop, and all who can run here, with a round of each."""
    makers = dict(zip(ROWS, (coterie, processes, stacked, jitted), strict=True))
    with contextlib.ExitStack() as stack:
        where = job(case)
        runs = {name: stack.enter_context(makers[name](case, where)) for name in rows}
        yield bare_loop(where), {name: run for name, run in runs.items() if run}


@contextlib.contextmanager
def coterie(case: Case, where: Job) -> Iterator[Run]:
    """Ours, as it chooses to compute when a run is long."""
    ours, _ = session(case, Local())
    print(f"{case.name}: Coterie computes it as {ours.plan}", file=sys.stderr)
    try:
        yield lambda round: ours.round(round, False)
    finally:
        ours.close()


def module_of(where: Job) -> nn.Module:
    """A model as PyTorch makes it."""
    torch.manual_seed(0)
    made: nn.Module = where.roster.models[0].make()(where.samples.shape, where.samples.classes)
    return made


def data_of(where: Job) -> tuple[Tensor, Tensor]:
    """Samples in the shape that models take, and labels."""
    x = where.samples.train_x
    assert isinstance(x, Tensor)
    return (x.permute(0, 3, 1, 2) if x.dim() == 4 else x), where.samples.train_y


def neighbours(where: Job) -> Tensor:
    """Whom each node hears, all equally many."""
    graph = where.graph(1)
    return torch.as_tensor(np.stack([graph.neighbours(node) for node in range(graph.nodes)]))


def averaged(rows: Tensor, near: Tensor, mine: slice = slice(None)) -> Tensor:
    """The mean of some rows with their neighbours'."""
    total = rows[mine].clone()
    for k in range(near.shape[1]):
        total += rows[near[mine, k]]
    return total.div_(1 + near.shape[1])


@contextlib.contextmanager
def processes(case: Case, where: Job) -> Iterator[Run]:
    """Half of the nodes in each of two processes, one module and one fused SGD a node, all rows in shared memory."""
    context = mp.get_context("fork")
    width = sum(p.numel() for p in module_of(where).parameters())
    rows, merged = (torch.zeros(case.nodes, width).share_memory_() for _ in range(2))
    begun, ended, between = (context.Barrier(2) for _ in range(3))
    half, stop = case.nodes // 2, torch.zeros(1).share_memory_()

    def halves(nodes: range) -> Callable[[int], None]:
        mine, near = slice(nodes.start, nodes.stop), neighbours(where)
        train = _loop(where, nodes, rows)

        def run(round: int) -> None:
            train()
            between.wait()
            merged[mine] = averaged(rows, near, mine)
            between.wait()
            rows[mine] = merged[mine]

        return run

    def other() -> None:
        torch.set_num_threads(1)
        run = halves(range(half, case.nodes))
        while True:
            begun.wait()
            if stop.item():
                return
            run(0)
            ended.wait()

    started = context.Process(target=other, daemon=True)
    started.start()
    run = halves(range(half))

    def both(round: int) -> None:
        begun.wait()
        run(round)
        ended.wait()

    try:
        yield both
    finally:
        stop.fill_(1)
        begun.wait()
        started.join()


def _loop(where: Job, nodes: range, rows: Tensor) -> Callable[[], None]:
    """The training of some nodes one after the other, whose parameters are views of their rows."""
    (x, y), roster = data_of(where), where.roster
    modules = [module_of(where) for _ in nodes]
    for module, node in zip(modules, nodes, strict=True):
        at = 0
        for p in module.parameters():
            row = rows[node, at : at + p.numel()].view_as(p)
            row.copy_(p.data)
            p.data, at = row, at + p.numel()
    optimisers = [torch.optim.SGD(m.parameters(), **roster.optimiser.settings, fused=True) for m in modules]
    rng, size = np.random.default_rng(nodes.start), roster.training.batch_size

    def run() -> None:
        for node, module, optimiser in zip(nodes, modules, optimisers, strict=True):
            optimiser.state.clear()
            order = torch.from_numpy(rng.permutation(roster.train[node]))
            for batch in order.split(size)[: roster.steps(node)]:
                optimiser.zero_grad()
                F.cross_entropy(module(x[batch]), y[batch]).backward()
                optimiser.step()

    return run


@contextlib.contextmanager
def stacked(case: Case, where: Job) -> Iterator[Run]:
    """All nodes in one vmapped gradient, with PyTorch's own threads."""
    module, (x, y), near = module_of(where), data_of(where), neighbours(where)
    own = torch.as_tensor(np.stack(where.roster.train))
    names = [name for name, _ in module.named_parameters()]
    rows = {n: p.detach().expand(case.nodes, *p.shape).clone() for n, p in module.named_parameters()}
    lr, momentum = (where.roster.optimiser.settings[name] for name in ("lr", "momentum"))

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(module, params, (x,)), y)

    gradient = vmap(grad(loss))

    def run(round: int) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        order = own.gather(1, torch.rand(own.shape).argsort(1))
        moving = [torch.zeros_like(rows[n]) for n in names]
        weights = [rows[n] for n in names]
        for batch in order.split(case.batch_size, 1)[: case.batches]:
            found = gradient(rows, x[batch], y[batch])
            torch._foreach_mul_(moving, momentum)
            torch._foreach_add_(moving, [found[n] for n in names])
            torch._foreach_add_(weights, moving, alpha=-lr)
        for n in names:
            rows[n] = averaged(rows[n], near)
        torch.set_num_threads(threads)

    yield run


@contextlib.contextmanager
def jitted(case: Case, where: Job) -> Iterator[Run | None]:
    """The whole round as one program of JAX, if an interpreter that has it is here: this one, or $JAX_PYTHON."""
    python = os.environ.get("JAX_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import jax"], capture_output=True).returncode:
        print("JAX is left out: it is not installed here. $JAX_PYTHON may name an interpreter that has it.")
        yield None
        return
    x, y = data_of(where)
    tensors = [p.detach().numpy() for p in module_of(where).parameters()]
    settings: dict[str, Any] = {name: where.roster.optimiser.settings[name] for name in ("lr", "momentum")}
    about = {"steps": case.batches, "size": case.batch_size, "tensors": len(tensors)} | settings
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.npz"
        arrays = {f"tensor{i}": t for i, t in enumerate(tensors)}
        arrays |= {"x": (x.permute(0, 2, 3, 1) if x.dim() == 4 else x).numpy(), "y": y.numpy()}
        arrays |= {"near": neighbours(where).numpy(), "own": np.stack(where.roster.train)}
        np.savez(file, allow_pickle=False, **arrays, **{name: np.asarray(value) for name, value in about.items()})
        script = Path(__file__).with_name("_jax_round.py")
        free = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "PYTHONPATH")}
        command = [python, str(script), str(file)]
        with subprocess.Popen(command, env=free, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            to, back = process.stdin, process.stdout
            assert to is not None
            assert back is not None
            assert back.readline() == "ready\n"

            def run(round: int) -> float:
                to.write("\n")
                to.flush()
                return float(back.readline())

            yield run
            to.close()


def one_column(case: Case, repeats: int, rows: Sequence[str] = tuple(ROWS)) -> tuple[float, dict[str, float]]:
    """The bare loop's best seconds, and the best of each contender in units of it, taken in turns."""
    with contenders(case, rows) as (bare, runs):
        unit, *others = best_of(repeats, bare, *runs.values())
    return unit, {name: time / unit for name, time in zip(runs, others, strict=True)}
