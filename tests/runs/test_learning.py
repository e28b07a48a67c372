"""Learning on real data: what alone cannot be learnt is learnt together, and a good start shows early."""

from typing import Any

import polars as pl

from coterie.runs.experiment import Experiment
from small import LOOP

CLASSES_HELD = 4
"""Of the ten digits, those that a node has seen: alone it cannot recognise more than about this many tenths of all."""

SKEWED: dict[str, Any] = {
    "dataset": "digits",
    "nodes": 10,
    "epochs": 1,
    "batch_size": 10,
    "lr": 0.1,
    "momentum": 0.7,
    "topology": {"name": "er", "p": 0.6, "connect": True},
    "merged": True,
    "partition": {"name": "labels", "k": CLASSES_HELD},
    "engine": {**LOOP, "mode": "stack", "chunk": 10},
}


def accuracy(frame: pl.DataFrame, method: str, round: int) -> pl.Series:
    """Each node's accuracy after the merge of a round."""
    found = frame.filter((pl.col("method") == method) & (pl.col("round") == round))["merged_accuracy"]
    assert len(found)
    return found


def test_together_nodes_learn_what_none_of_them_could_alone() -> None:
    methods = ["isolation", "decavg", "centralised"]
    frame = (
        Experiment(**SKEWED, rounds=16, evaluate=16, model={"name": "mlp", "sizes": [48]}, methods=methods)
        .run()
        .records
    )
    for method in methods:
        assert accuracy(frame, method, 0).max() < 0.3
    alone, together, bound = (accuracy(frame, method, 16) for method in methods)
    assert alone.max() < CLASSES_HELD / 10 + 0.05
    assert alone.min() > CLASSES_HELD / 10 - 0.1
    assert together.mean() > 0.85
    assert together.min() > alone.max() + 0.2
    assert bound.item() > 0.93
    assert bound.item() > together.mean()


def test_the_gain_makes_an_uncoordinated_start_learn_early() -> None:
    methods = ["dechetero", "gain-decavg"]
    frame = (
        Experiment(**SKEWED, rounds=5, evaluate=5, model={"name": "mlp", "sizes": [64, 32]}, methods=methods)
        .run()
        .records
    )
    assert accuracy(frame, "gain-decavg", 5).mean() > accuracy(frame, "dechetero", 5).mean() + 0.3
    assert accuracy(frame, "gain-decavg", 5).mean() > 0.5
