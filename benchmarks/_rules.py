"""What rules cost that compute more than an average: a round of theirs against the same round without it."""

from collections.abc import Iterator
from dataclasses import replace

from _setup import Case, best_of, session
from coterie.parts import Choice

CNN = Choice("models", "cnn_mnist")
ER = Choice("topologies", "er", {"p": 0.2})
PAPER = Case("CNN conv10-conv20, 5 epochs of 200 samples", CNN, (1, 28, 28), 50, 100, 10, samples=200, topology=ER)
SMALL = Case("", Choice("models", "mlp", {"sizes": (64,)}), (64,), 100, 16)


def curvature(repeats: int) -> Iterator[tuple[str, str, float, float | None]]:
    """A round with second-order weights against one of plain averaging: the diagonal, a second field, the merge."""
    names = ("decavg", "dechw", "dechw_lite")
    plain, *others = _rounds(repeats, *(replace(PAPER, rule=Choice("rules", name)) for name in names))
    for name, time, goal in zip(names[1:], others, (1.6, None), strict=True):
        yield PAPER.name, name, time / plain, goal


def answers(repeats: int) -> Iterator[tuple[int, float, float]]:
    """A round of CFA-GE against one of CFA as links become more, and what a link adds, in rounds of CFA per 1,000."""
    for k in (2, 4, 8, 16, 32):
        case = replace(SMALL, topology=Choice("topologies", "regular", {"k": k}))
        cfa, ge = _rounds(repeats, *(replace(case, rule=Choice("rules", name)) for name in ("cfa", "cfa_ge")))
        links = case.nodes * k // 2
        yield links, ge / cfa, 1000 * (ge / cfa - 1) / links


def _rounds(repeats: int, *cases: Case) -> list[float]:
    """The best time of a round of each, in turns."""
    sessions = [session(case)[0] for case in cases]
    times = best_of(repeats, *(lambda r, s=s: s.round(r, False) for s in sessions))
    for one in sessions:
        one.close()
    return times
