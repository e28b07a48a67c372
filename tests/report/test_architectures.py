"""Accuracy by architecture, of made-up records."""

import polars as pl

from coterie.report.architectures import by_architecture
from coterie.report.tables import UNKNOWN


def records(**accuracies: list[list[float]]) -> pl.DataFrame:
    """Two rounds of each method: with each seed, what its nodes reach in the last; the first node alone has a peak."""
    rows = [
        {
            "method": method,
            "seed": seed,
            "round": number,
            "node": node,
            "test_accuracy": value * number / 2,
            "peak_accuracy": 0.9 if node == 0 else None,
            "validation_accuracy": None,
        }
        for method, seeds in accuracies.items()
        for seed, values in enumerate(seeds)
        for number in range(3)
        for node, value in enumerate(values)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def test_nodes_are_averaged_within_an_architecture_and_then_over_seeds() -> None:
    found = records(mixed=[[0.2, 0.6, 0.4], [0.4, 0.6, 0.6]], alike=[[0.1] * 3])
    kinds = {"mixed": ["mlp[8]", "logistic", "mlp[8]"], "alike": ["mlp[8]"] * 3, "not run": ["a", "b", "c"]}
    sheet = by_architecture(found, kinds, "runs/x")
    assert sheet is not None
    assert sheet.title.endswith("of runs/x")
    assert sheet.headings == ["method", "architecture", "nodes", "accuracy", "of the peaks"]
    assert sheet.rows == [
        ["mixed", "mlp[8]", "2", "0.400 ± 1.271", "0.900 ± 0.000"],  # 0.3 and 0.5: 12.706 · 0.141 / √2
        ["mixed", "logistic", "1", "0.600 ± 0.000", UNKNOWN],
    ]


def test_there_is_none_where_all_models_are_alike() -> None:
    assert by_architecture(records(alike=[[0.1] * 3]), {"alike": ["mlp[8]"] * 3}) is None
