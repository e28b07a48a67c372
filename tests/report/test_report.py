"""Reports: numbers against hand calculations, and pages and figures that survive awkward records."""

import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from rich.console import Console

import pictures
from coterie.errors import ConfigError, RunError
from coterie.report.curves import plot_accuracy, plot_all, plot_nodes, plot_spread
from coterie.report.statistics import (
    characteristic_time,
    complete,
    label_runs,
    mean_characteristic_time,
    mean_ci,
    methods,
    per_seed,
    summary,
)
from coterie.report.tables import cells, headers, humanise, notes, render, title, to_markdown
from coterie.report.words import finding

ROUNDS = (0, 1, 2, 4)
T_THREE_SEEDS = 4.302653  # Student's 97.5 % quantile with two degrees of freedom


def rows(method: str, seed: int, accuracy: list[list[float | None]], **more: Any) -> list[dict[str, Any]]:
    """The records of one seed from one list of node accuracies per round; each node sends 1 kB a round."""
    return [
        {
            "method": method,
            "seed": seed,
            "round": number,
            "node": node,
            "test_accuracy": value,
            "test_loss": None if value is None else 1 - value,
            "test_f1": value,
            "validation_accuracy": None,
            "sent_bytes": 1000 * number,
            "batches": 8 * number,
            **more,
        }
        for number, nodes in zip(ROUNDS, accuracy, strict=False)
        for node, value in enumerate(nodes)
    ]


def frame(*parts: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame([row for part in parts for row in part], infer_schema_length=None)


@pytest.fixture
def records() -> pl.DataFrame:
    """Two methods of two nodes and a centralised one, three seeds each."""
    gossip = [
        rows("gossip", 0, [[0.1, 0.1], [0.4, 0.6], [0.7, 0.7], [0.7, 0.9]]),
        rows("gossip", 1, [[0.1, 0.1], [0.3, 0.5], [0.6, 0.6], [0.8, 0.9]]),
        rows("gossip", 2, [[0.1, 0.1], [0.3, 0.3], [0.5, 0.5], [0.6, 0.9]]),
    ]
    alone = [rows("alone", seed, [[0.1, 0.1], [0.2, 0.2], [0.3, 0.3], [0.3, 0.4]], sent_bytes=0) for seed in range(3)]
    central = [rows("centralised", seed, [[0.1], [0.9], [1.0], [1.0]], sent_bytes=0) for seed in range(3)]
    return frame(*gossip, *alone, *central)


def row_of(table: pl.DataFrame, method: str) -> dict[str, Any]:
    return table.row(by_predicate=pl.col("method") == method, named=True)


# Statistics


def test_interval_of_three_seeds_by_hand() -> None:
    mean, half = mean_ci([1.0, 2.0, 3.0])
    assert mean == 2
    assert half == pytest.approx(T_THREE_SEEDS / math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize(("values", "mean"), [([0.5], 0.5), ([None, 0.5, math.nan], 0.5), ([], math.nan)])
def test_interval_of_fewer_than_two_values_is_unknown(values: list[float | None], mean: float) -> None:
    found = mean_ci(values)
    assert found.mean == pytest.approx(mean, nan_ok=True)
    assert math.isnan(found.half)


@given(st.integers(2, 6), st.floats(0.5, 0.99), st.floats(-10, 10), st.floats(0.1, 10))
def test_interval_moves_and_scales_with_its_values(n: int, level: float, shift: float, scale: float) -> None:
    values = [math.sin(i) for i in range(n)]
    plain, moved = mean_ci(values, level), mean_ci([shift + scale * v for v in values], level)
    assert moved.mean == pytest.approx(shift + scale * plain.mean)
    assert moved.half == pytest.approx(scale * plain.half)
    assert plain.half < mean_ci(values, (1 + level) / 2).half


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(size=(4000, 4))
    covered = np.mean([abs(mean) <= half for mean, half in (mean_ci(d.tolist(), 0.8) for d in draws)])
    assert covered == pytest.approx(0.8, abs=0.03)


def test_per_seed_averages_nodes_and_skips_missing_ones() -> None:
    curve = per_seed(frame(rows("a", 7, [[0.1, None, 0.3], [math.nan, 0.5, 0.7], [None, None, None]])), "test_accuracy")
    assert curve.columns == ["method", "seed", "round", "value"]
    assert curve["value"].to_list() == [pytest.approx(0.2), pytest.approx(0.6), None]


def test_characteristic_time_is_the_first_recorded_round_at_the_level() -> None:
    curve = pl.DataFrame({"round": [0, 1, 2, 5], "value": [0.1, 0.5, 0.4, None]})
    assert characteristic_time(curve, 0.5) == 1
    assert characteristic_time(curve, 0.51) is None


def test_characteristic_time_is_averaged_over_the_seeds_that_reach_it(records: pl.DataFrame) -> None:
    curves = per_seed(records.filter(pl.col("method") == "gossip"), "test_accuracy")
    assert mean_characteristic_time(curves, 0.5) == (pytest.approx((1 + 2 + 2) / 3), 3)
    assert mean_characteristic_time(curves, 0.8) == (4, 2)
    assert mean_characteristic_time(curves, 0.99) == (None, 0)


def test_summary_by_hand(records: pl.DataFrame) -> None:
    table = summary(records)
    assert table["method"].to_list() == ["gossip", "alone", "centralised"]
    gossip = row_of(table, "gossip")
    seeds = [0.8, 0.85, 0.75]
    assert gossip["accuracy"] == pytest.approx(0.8)
    assert gossip["accuracy_ci"] == pytest.approx(T_THREE_SEEDS * np.std(seeds, ddof=1) / math.sqrt(3), rel=1e-6)
    assert gossip["spread"] == pytest.approx((0.2 + 0.1 + 0.3) / math.sqrt(2) / 3)
    assert gossip["loss"] == pytest.approx(0.2)
    assert gossip["f1"] == pytest.approx(0.8)
    assert (gossip["sent_bytes"], gossip["sent_bytes_total"]) == (4000, 8000)
    assert (gossip["round"], gossip["nodes"], gossip["seeds"], gossip["missing"]) == (4, 2, 3, 0)
    assert (gossip["rounds_to_50"], gossip["reached_50"]) == (pytest.approx(5 / 3), 3)
    assert (gossip["rounds_to_80"], gossip["reached_80"]) == (4, 2)
    assert (gossip["rounds_to_90"], gossip["reached_90"]) == (None, 0)
    assert table["bound"].to_list() == [False, False, True]
    assert row_of(table, "centralised")["spread"] is None


def test_without_the_reference_the_best_method_is_the_measure(records: pl.DataFrame) -> None:
    table = summary(records.filter(pl.col("method") != "centralised"))
    assert table["reference"].unique().to_list() == ["gossip"]
    assert not table["bound"].any()
    assert row_of(table, "gossip")["reached_90"] == 3  # 0.72 is 90 % of its own 0.8
    assert "best method, gossip (0.800)" in title(table)
    assert "bound" not in to_markdown(table)


def test_another_reference_and_other_levels(records: pl.DataFrame) -> None:
    table = summary(records, levels=(0.995,), reference="alone")
    assert row_of(table, "gossip")["rounds_to_99.5"] == pytest.approx(4 / 3)
    assert table["method"].to_list()[-1] == "alone"
    assert "share of that of alone (0.350)" in title(table)


def test_a_seed_under_way_is_left_out_and_said_to_be() -> None:
    short = rows("a", 1, [[0.9], [0.9]])
    both = frame(rows("a", 0, [[0.1], [0.2], [0.3], [0.4]]), short)
    assert complete(both)["seed"].unique().to_list() == [0]
    table = summary(both)
    assert table["accuracy"].item() == 0.4
    assert cells(table)[0][headers(table).index("seeds")] == "1 of 2"
    assert any("left out" in note for note in notes(table))


def test_summary_bears_missing_values_and_columns() -> None:
    few = frame(rows("a", 0, [[0.1, 0.1], [None, 0.5]]), rows("b", 0, [[None], [math.nan]], sent_bytes=None))
    table = summary(few.drop("test_f1", "batches"))
    assert row_of(table, "a")["accuracy"] == 0.5
    assert row_of(table, "a")["missing"] == 1
    assert table["method"].to_list() == ["a", "b"]
    unknown = row_of(table, "b")
    assert [unknown[c] for c in ("accuracy", "f1", "sent_bytes", "sent_bytes_total", "rounds_to_50")] == [None] * 5
    assert "nan" not in to_markdown(table).lower()


def test_what_is_not_records_is_refused() -> None:
    with pytest.raises(RunError, match="columns method, seed"):
        summary(pl.DataFrame({"method": ["a"]}))
    with pytest.raises(RunError, match="no records"):
        summary(frame(rows("a", 0, [[0.1]])).clear())
    with pytest.raises(RunError, match="'speed'"):
        per_seed(frame(rows("a", 0, [[0.1]])), "speed")


def test_runs_are_named_only_where_methods_clash() -> None:
    first = frame(rows("gossip", 0, [[0.1]]), rows("only", 0, [[0.2]]))
    second = frame(rows("gossip", 0, [[0.3]])).drop("batches")
    both = label_runs({"ring": first, "star": second})
    assert methods(both) == ["ring/gossip", "only", "star/gossip"]
    assert both["test_accuracy"].to_list() == [0.1, 0.2, 0.3]
    with pytest.raises(RunError, match="ring/gossip"):
        label_runs({"ring": first, "star": second, "odd": frame(rows("ring/gossip", 0, [[0.1]]))})
    with pytest.raises(RunError, match="no runs"):
        label_runs({})


# Tables


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (12.4e6, "12.4 MB"), (999_999, "1.0 MB"), (3e18, "3000.0 PB")],
)
def test_bytes_are_humanised(count: float, text: str) -> None:
    assert humanise(count) == text
    assert humanise(None) == "—"


def printed(table: pl.DataFrame, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(render(table, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_printed_table_says_what_the_summary_says(records: pl.DataFrame) -> None:
    text = printed(summary(records), 140)
    assert "0.800 ± 0.124" in text
    assert "4 (2/3)" in text
    assert "centralised (bound)" in text.splitlines()[-3]
    assert "rounds to a share of that of centralised (1.000)" in text


def test_a_narrow_terminal_loses_columns_not_digits(records: pl.DataFrame) -> None:
    text = printed(summary(records), 72)
    assert max(map(len, text.splitlines())) <= 72
    assert "0.800 ± 0.124" in text
    assert "No room for: sent in all" in text


def test_one_seed_shows_a_dash_for_its_interval() -> None:
    table = summary(frame(rows("[red]a|b<i>", 0, [[0.1], [0.5]])))
    assert "0.500 ± —" in to_markdown(table)
    assert r"a\|b&lt;i>" in to_markdown(table)
    assert "[red]a|b<i>" in printed(table, 200)


# Figures and the page


def test_all_figures_are_written(records: pl.DataFrame, tmp_path: Path, figures: dict[str, Figure]) -> None:
    written = plot_all(records, tmp_path / "new")
    assert [path.name for path in written] == ["accuracy.png", "loss.png", "accuracy_by_bytes.png", "spread.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    said = {path.stem: pictures.title(*figures[path.name].axes) for path in written}
    assert said == {
        "accuracy": "Test accuracy by round",
        "loss": "Test loss by round",
        "accuracy_by_bytes": "Test accuracy by bytes sent",
        "spread": "Test accuracy of every node",
    }


def test_a_curve_is_the_mean_over_nodes_and_seeds_with_few_seeds_as_thin_lines(
    records: pl.DataFrame, tmp_path: Path, figures: dict[str, Figure]
) -> None:
    plot_accuracy(records, tmp_path / "a.png")
    (axes,) = figures["a.png"].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("communication round", "test accuracy, mean over nodes")
    assert "Thin: each of 3 seeds; thick: their mean" in pictures.words(figures["a.png"])
    assert 4 in axes.get_xticks()  # the last round
    assert pictures.legend(axes) == ["centralised", "gossip", "alone"]  # best first
    lines = pictures.named(axes)
    means = [0.1, (0.5 + 0.4 + 0.3) / 3, 0.6, 0.8]
    np.testing.assert_allclose(pictures.points(lines["gossip"]), np.transpose([ROUNDS, means]))
    assert pictures.points(lines["centralised"])[:, 1].tolist() == [1.0, 1.0]  # a level, not a curve
    thin = [pictures.points(line)[-1, 1] for line in axes.lines if line.get_linewidth() < 1]
    assert thin[:3] == pytest.approx([0.8, 0.85, 0.75])


T_FOUR_SEEDS = 3.182446


def test_four_seeds_have_an_interval_and_that_of_a_loss_is_of_its_logarithm(
    tmp_path: Path, figures: dict[str, Figure]
) -> None:
    last, losses = [0.7, 0.8, 0.85, 0.75], [0.1, 1.0, 10.0, 0.5]
    seeds = [rows("gossip", s, [[0.1], [a]], test_loss=v) for s, (a, v) in enumerate(zip(last, losses, strict=True))]
    for column, values in (("test_accuracy", last), ("test_loss", losses)):
        plot_accuracy(frame(*seeds), tmp_path / f"{column}.png", column=column)
        (axes,) = figures[f"{column}.png"].axes
        band = axes.collections[0].get_paths()[0].vertices
        edges = sorted({y for x, y in band if x == max(x for x, _ in band)})
        taken = np.log(values) if column == "test_loss" else np.array(values)
        half = T_FOUR_SEEDS * np.std(taken, ddof=1) / 2
        mean = np.mean(values)
        wanted = [mean / np.exp(half), mean * np.exp(half)] if column == "test_loss" else [mean - half, mean + half]
        assert edges == pytest.approx(wanted, rel=1e-5)
    assert "interval of the logarithm over 4 seeds" in pictures.words(figures["test_loss.png"])


def test_a_curve_by_bytes_has_a_level_for_who_sends_nothing(
    records: pl.DataFrame, tmp_path: Path, figures: dict[str, Figure]
) -> None:
    plot_accuracy(records, tmp_path / "b.png", x="sent_bytes")
    (axes,) = figures["b.png"].axes
    assert axes.get_xlabel() == "sent per node"
    lines = pictures.named(axes)
    assert pictures.points(lines["gossip"])[:, 0].tolist() == [0, 1000, 2000, 4000]
    np.testing.assert_allclose(pictures.points(lines["alone"])[:, 1], [0.35, 0.35])


def test_the_spread_shows_every_node_and_the_best_method_on_top(
    records: pl.DataFrame, tmp_path: Path, figures: dict[str, Figure]
) -> None:
    plot_spread(records, tmp_path / "s.png")
    (axes,) = figures["s.png"].axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["alone", "gossip"]
    assert pictures.legend(axes) == ["centralised"]
    assert "3 seeds pooled" in pictures.words(figures["s.png"])
    alone, gossip = (sorted(axes.collections[i].get_offsets()[:, 0]) for i in (0, 1))
    assert alone == pytest.approx([0.3] * 3 + [0.4] * 3)
    assert gossip == pytest.approx([0.6, 0.7, 0.8, 0.9, 0.9, 0.9])


def test_nodes_are_thin_lines_around_their_mean(
    records: pl.DataFrame, tmp_path: Path, figures: dict[str, Figure]
) -> None:
    plot_nodes(records, tmp_path / "n.png")
    (axes,) = figures["n.png"].axes
    assert (pictures.title(axes), axes.get_ylabel()) == ("Test accuracy of every node", "test accuracy")
    assert [*pictures.named(axes)] == ["gossip", "alone", "centralised"]
    assert len(axes.lines) == 3 + 2 + 2  # a mean each, and two nodes of two methods; a bound has none
    np.testing.assert_allclose(pictures.points(axes.lines[0])[:, 1], [0.1, 0.4, 0.7, 0.7])
    np.testing.assert_allclose(pictures.points(pictures.named(axes)["gossip"])[:, 1], [0.1, 0.5, 0.7, 0.8])


def test_figures_with_nothing_in_them_are_left_out(tmp_path: Path) -> None:
    silent = frame(rows("$x_", 0, [[0.1], [0.5]], test_loss=math.nan, sent_bytes=0))
    assert [path.stem for path in plot_all(silent, tmp_path)] == ["accuracy", "spread"]
    with pytest.raises(RunError, match="nothing to draw"):
        plot_accuracy(silent, tmp_path / "v.png", column="validation_accuracy")
    with pytest.raises(RunError, match="nothing to draw"):
        plot_spread(frame(rows("a", 0, [[None]])), tmp_path / "s.png")
    with pytest.raises(ConfigError, match="unknown axis"):
        plot_accuracy(silent, tmp_path / "v.png", x="bytes")  # type: ignore[arg-type]


def test_a_curve_on_a_logarithmic_axis_and_in_another_format(records: pl.DataFrame, tmp_path: Path) -> None:
    path = plot_accuracy(records, tmp_path / "work.svg", x="batches", log_x=True)
    text = path.read_text()
    assert all(words in text for words in ("gossip", "centralised", "mini-batches computed per node", "3 seeds"))
    one = plot_accuracy(records.filter(pl.col("seed") == 0), tmp_path / "one.svg").read_text()
    assert "middle 80 % of nodes" in one


def test_every_method_looks_different_and_the_reference_is_a_bound_only_for_others(
    records: pl.DataFrame, tmp_path: Path, figures: dict[str, Figure]
) -> None:
    many = pl.concat([records.with_columns(method=pl.lit(f"m{i}")) for i in range(15)] + [records])
    drawn = plot_accuracy(many, tmp_path / "many.svg").read_text().partition('<g id="legend')[2]
    looks = re.findall(r'style="fill: none; (.*?); stroke-width', drawn)  # colour and dashes
    assert len(looks) == len(set(looks)) == 18
    plot_accuracy(records.filter(pl.col("method") == "centralised"), tmp_path / "alone.svg")
    ((name, line),) = pictures.named(*figures["alone.svg"].axes).items()
    assert name == "centralised"
    np.testing.assert_allclose(pictures.points(line)[:, 1], [0.1, 0.9, 1.0, 1.0])


def test_no_more_is_claimed_than_the_seeds_allow() -> None:
    def lead(*parts: list[dict[str, Any]]) -> str:
        return finding(summary(frame(*parts)))

    clear = [rows(m, s, [[a + s / 1000]]) for m, a in (("a", 0.9), ("b", 0.5)) for s in range(3)]
    close = [rows(m, s, [[a + s / 10]]) for m, a in (("a", 0.51), ("b", 0.5)) for s in range(3)]
    assert lead(*clear) == "a reaches a mean test accuracy of 0.901 ± 0.002, followed by b with 0.501 ± 0.002."
    assert "intervals overlap" in lead(*close)
    assert "may be chance" in lead(clear[0], clear[3])
    assert lead(rows("centralised", 0, [[0.9]])) == "centralised reaches a mean test accuracy of 0.900."
    assert lead(rows("a", 0, [[None]])) == "No accuracy was recorded."
