"""How the runs of a study are scaled: when they are evaluated, and how they differ from the paper's."""

from collections.abc import Iterable

from coterie.config.configuration import Configuration
from coterie.config.slots import as_table

FRESH = tuple(range(30, 40))
"""Seeds that have chosen no setting."""
STEP = 0.1
"""How far a step goes with all that momentum adds to it, lr / (1 − momentum): the greatest of the papers' settings."""


def quickened(momentum: float) -> float:
    """The learning rate of races at the scale `laptop`, which have fewer rounds than the papers', by rule.

    The rule: the paper's batches, epochs and momentum; its model, or that of its MNIST where a run of the paper's takes
    minutes; this learning rate, because with a smaller one nobody would learn in so few rounds; then the most images
    and rounds with which a run takes less than ten seconds of a core; seeds that have chosen nothing.
    """
    return round(STEP * (1 - momentum), 6)


def rounds_to_evaluate(rounds: int, every: int, last: int = 1) -> tuple[int, ...]:
    """The rounds to evaluate: the first few, every so many, and the last ones."""
    return tuple(
        sorted({*range(min(rounds, 5) + 1), *range(0, rounds + 1, every), *range(rounds - last + 1, rounds + 1)})
    )


def describe_scale(experiments: Iterable[Configuration], paper: str) -> str:
    """The settings of these runs in words, beside those of the paper."""
    told = []
    for e in experiments:
        (first, *_) = e.resolved.values()
        model, optimiser = as_table(first.model), as_table(first.optimiser)
        sizes = "".join(f" {'-'.join(map(str, model['sizes']))}" for _ in range("sizes" in model))
        images = f"{e.total:,} samples" if e.total else "all samples"
        tested = "" if e.test_share == 1 else f", {e.test_share:.0%} of the test samples"
        told.append(
            f"{as_table(e.dataset)['name']}, {model['name']}{sizes}, {e.nodes} nodes, {images}{tested}, {e.rounds} "
            f"rounds of {e.epochs} epochs, batches of {e.batch_size}, lr {optimiser['lr']:g}, "
            f"momentum {optimiser['momentum']:g}"
        )
    return f"Here: {'; '.join(dict.fromkeys(told))}. Paper: {paper}."
