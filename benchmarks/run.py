"""Speed and memory as ratios in one run: this machine against itself. `make bench` prints the tables."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
import _rules
from _contenders import COLUMNS, ROWS, one_column
from _memory import peak_ratio
from _setup import Case, bare_forward, bare_loop, best_of, matrix_of, session
from coterie.engines.local import Local, LocalSession
from coterie.node.merging import Exchange
from coterie.parts import Choice

MLP = Choice("models", "mlp", {"sizes": (512, 256, 128)})
SMALL = Choice("models", "mlp", {"sizes": (64,)})
CNN = Choice("models", "cnn_mnist")
ROUNDS = [
    Case("MLP 784-512-256-128-10, batch 16", MLP, (784,), 16, 16, goal=0.6),
    Case("MLP 784-512-256-128-10, batch 16", MLP, (784,), 64, 16, goal=0.6),
    Case("MLP 64-64-10, batch 16", SMALL, (64,), 500, 16, goal=0.08),
    Case("logistic regression 784-10, batch 16", Choice("models", "logistic"), (784,), 50, 16, goal=0.15),
    Case("CNN conv10-conv20, batch 100", CNN, (1, 28, 28), 16, 100, goal=0.35),
]


def rounds(repeats: int) -> Iterator[list[str]]:
    """A whole round without evaluation against the bare loop over the same mini-batches."""
    for case in ROUNDS:
        ours, where = session(case)
        bare = bare_loop(where)
        mine, theirs = best_of(repeats, lambda r, s=ours: s.round(r, False), bare)
        (mode,) = ours.plan["modes"]
        ours.close()
        how = f"stack of {mode['chunk']}" if mode["stack"] else "loop"
        yield [case.name, str(case.nodes), how, f"{mine / theirs:.3f}", f"{case.goal}", _met(mine / theirs, case.goal)]


def merging(repeats: int) -> Iterator[list[str]]:
    """The merge alone, in units of a copy of all that it reads."""
    regular, ba = Choice("topologies", "regular", {"k": 4}), Choice("topologies", "ba", {"m": 8})
    for rule, reads, goal in (("decavg", 1, 3.0), ("dechw", 2, 8.0)):
        for nodes in (50, 200, 1000):
            for topology in (regular, ba):
                model = MLP if nodes == 50 else Choice("models", "mlp", {"sizes": (128,) if nodes == 200 else (32,)})
                case = Case("", model, (784,), nodes, 16, 1, rule=Choice("rules", rule), topology=topology)
                ours, _ = session(case)
                matrix = torch.randn_like(matrix_of(ours))
                other = torch.empty_like(matrix)
                exchange = captured(ours)
                copy, merge = best_of(
                    repeats,
                    lambda _, a=matrix, b=other: b.copy_(a),
                    lambda _, s=ours, e=exchange: s.workers.all("merge", 0, e),
                )
                ours.close()
                ratio = merge / (reads * copy)
                aim = goal if topology is regular else None
                yield [
                    rule,
                    str(nodes),
                    f"{matrix.shape[1]:,}",
                    topology.name,
                    f"{ratio:.2f}",
                    str(aim or ""),
                    _met(ratio, aim),
                ]


def captured(ours: LocalSession) -> Exchange:
    """The exchange that a round hands to the workers."""
    caught: list[Exchange] = []
    passing = ours.workers.all

    def watch(name: str, *args: object, **doing: Any) -> list[object]:
        if name == "merge":
            caught.append(args[1])  # type: ignore[arg-type]
        return passing(name, *args, **doing)

    ours.workers.all = watch  # type: ignore[method-assign]
    ours.round(1, False)
    ours.workers.all = passing  # type: ignore[method-assign]
    return caught[0]


def growth(repeats: int) -> Iterator[list[str]]:
    """How a round's time grows with nodes and with links."""
    base = None
    for nodes, k in ((125, 4), (250, 4), (500, 4), (1000, 4), (1000, 16), (1000, 64)):
        case = Case("", SMALL, (64,), nodes, 16, topology=Choice("topologies", "regular", {"k": k}))
        ours, _ = session(case)
        (time,) = best_of(repeats, lambda r, s=ours: s.round(r, False))
        ours.close()
        base = base or time
        yield [str(nodes), str(nodes * k // 2), f"{time / base:.2f}", f"{time / base * 125 / nodes:.2f}"]


def curvature(repeats: int) -> Iterator[list[str]]:
    """A round of DecHW and its cheaper form against one of DecHetero."""
    for name, rule, ratio, goal in _rules.curvature(repeats):
        yield [name, rule, f"{ratio:.2f}", str(goal or ""), _met(ratio, goal)]


def answers(repeats: int) -> Iterator[list[str]]:
    """A round of CFA-GE against one of CFA, by the number of links."""
    for links, ratio, each in _rules.answers(repeats):
        yield [f"{links:,}", f"{ratio:.2f}", f"{each:.2f}"]


def memory() -> Iterator[list[str]]:
    """Peak memory of all processes above what they hold with no job, against n·P·4 bytes."""
    for rule, goal in (("decavg", 4.0), ("decdiff", None), ("dechw", None)):
        ratio = peak_ratio(rule)
        yield [rule, f"{ratio:.2f}", str(goal or ""), _met(ratio, goal)]


def evaluation(repeats: int) -> Iterator[list[str]]:
    """An evaluation of all nodes by the default metrics against a bare forward pass, both on one core."""
    for name, model, shape in (("MLP 784-512-256-128-10", MLP, (784,)), ("CNN conv10-conv20", CNN, (1, 28, 28))):
        ours, where = session(Case(name, model, shape, 16, 100, test=2000), Local(workers=1))
        mine, theirs = best_of(repeats, lambda _, s=ours: s.evaluate(), bare_forward(where))
        ours.close()
        yield [name, f"{mine / theirs:.2f}", "1.1", _met(mine / theirs, 1.1)]


def contenders(repeats: int, columns: Sequence[str], rows: Sequence[str]) -> Iterator[list[str]]:
    """Ours and what is written by hand, in units of the bare loop, whose own milliseconds come first."""
    found = [one_column(COLUMNS[column], repeats, rows) for column in columns]
    yield ["bare loop, ms", *(f"{1000 * unit:.0f}" for unit, _ in found)]
    for row in rows:
        yield [ROWS[row], *(f"{ratios[row]:.3f}" if row in ratios else "-" for _, ratios in found)]


TABLES = ("rounds", "merging", "growth", "curvature", "answers", "evaluation", "memory", "contenders")


def _met(ratio: float, goal: float | None) -> str:
    return "" if goal is None else "yes" if ratio <= goal else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=TABLES, action="append")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--columns", choices=COLUMNS, nargs="+", default=list(COLUMNS), help="of the contenders' table")
    parser.add_argument("--contenders", choices=ROWS, nargs="+", default=list(ROWS), help="of them")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tables: dict[str, tuple[str, list[str], Callable[[int], Iterator[list[str]]]]] = {
        "rounds": (
            "A whole round / a bare single-threaded loop",
            ["model", "nodes", "mode", "ratio", "goal", "met"],
            rounds,
        ),
        "merging": (
            "The merge / a copy of all it reads",
            ["rule", "nodes", "parameters", "graph", "ratio", "goal", "met"],
            merging,
        ),
        "growth": ("A round of MLP 64-64-10 / that of 125 nodes", ["nodes", "links", "ratio", "per node"], growth),
        "curvature": ("A round / one of DecHetero", ["setting", "rule", "ratio", "goal", "met"], curvature),
        "answers": ("A round of CFA-GE / one of CFA, 100 nodes", ["links", "ratio", "per 1,000 links"], answers),
        "evaluation": (
            "An evaluation of 16 nodes on 2,000 samples / bare forward passes, one core",
            ["model", "ratio", "goal", "met"],
            evaluation,
        ),
        "memory": ("Peak memory / (n·P·4 bytes), MLP, 64 nodes", ["rule", "ratio", "goal", "met"], lambda _: memory()),
        "contenders": (
            "A round / one of a bare single-threaded loop without exchange",
            ["", *(COLUMNS[column].name for column in given.columns)],
            lambda repeats: contenders(repeats, given.columns, given.contenders),
        ),
    }
    console = Console()
    for name, (title, columns, rows) in tables.items():
        if not given.only or name in given.only:
            table = Table(*columns, title=title)
            for row in rows(given.repeats):
                table.add_row(*row)
            console.print(table)


if __name__ == "__main__":
    main()
