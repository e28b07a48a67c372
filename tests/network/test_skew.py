import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.image import imread

import pictures
from coterie.network import skew
from coterie.report.allocation import draw_allocation

TABLE = np.array([[4, 0, 2], [0, 4, 2], [4, 4, 2], [0, 0, 2]])


def test_counts_has_a_row_per_node_and_a_column_per_class() -> None:
    labels = np.array([0, 2, 2, 1, 0])
    parts = [np.array([0, 1, 2]), np.array([], np.int64), np.array([4])]
    assert skew.counts(labels, parts, 4).tolist() == [[1, 0, 2, 0], [0, 0, 0, 0], [1, 0, 0, 0]]


def test_gini_is_the_mean_absolute_difference_within_a_class() -> None:
    def slowly(x: np.ndarray) -> float:
        return float(np.abs(x[:, None] - x).sum() / (2 * len(x) * x.sum()))

    counts = np.random.default_rng(0).zipf(1.5, size=(9, 4))
    assert skew.gini(counts) == pytest.approx(np.mean([slowly(column.astype(float)) for column in counts.T]))


def test_gini_is_taken_over_nodes_and_not_over_totals() -> None:
    assert skew.gini(np.eye(5) * 7) == pytest.approx(4 / 5)  # equal totals, each class on one node
    assert skew.gini(np.full((5, 3), 7)) == 0
    assert skew.gini(TABLE) == pytest.approx((0.5 + 0.5 + 0) / 3)


def test_gini_leaves_out_classes_without_samples() -> None:
    assert skew.gini([[4, 0], [0, 0]]) == skew.gini([[4], [0]]) == 0.5
    assert skew.gini([[0, 0]]) == 0


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=8))
def test_gini_lies_between_equality_and_one_owner(rows: list[list[int]]) -> None:
    assert -1e-12 <= skew.gini(rows) <= (len(rows) - 1) / len(rows) + 1e-12


def test_label_kl_by_hand() -> None:
    # All nodes together: (8, 8, 8) / 24.
    third = 1 / 3
    first = 2 / 3 * np.log(2 / 3 / third) + 1 / 3 * np.log(1)
    third_node = 2 * 0.4 * np.log(0.4 / third) + 0.2 * np.log(0.2 / third)
    assert skew.label_kl(TABLE) == pytest.approx([first, first, third_node, np.log(3)])


def test_label_kl_is_zero_for_equal_mixtures_and_nan_for_an_empty_node() -> None:
    assert skew.label_kl([[1, 2, 0], [10, 20, 0]]) == pytest.approx([0, 0])
    assert np.isnan(skew.label_kl([[1, 2], [0, 0]])).tolist() == [False, True]


@pytest.mark.parametrize(
    ("shares", "printed"),
    [((0.5, 0.6, 0.7, 0.8, 0.9), 0.0206), ((0.1, 0.3, 0.5, 0.7, 0.9), 0.18013), ((1, 0, 0.7, 1, 0), 0.52371)],
)
def test_shares_kl_gives_the_numbers_of_the_deployments_paper(shares: tuple[float, ...], printed: float) -> None:
    digits = 10 ** (len(str(printed)) - 2)
    assert np.floor(skew.shares_kl(shares) * digits) / digits == pytest.approx(printed)  # printed without rounding up


def test_describe_is_plain_numbers_that_agree_with_the_measures() -> None:
    said = skew.describe(TABLE)
    assert json.loads(json.dumps(said)) == said
    assert (said["nodes"], said["classes"], said["samples"]) == (4, 3, 24)
    assert (said["smallest"], said["largest"], said["labels_per_node"]) == (2, 10, 2.0)
    assert said["gini"] == skew.gini(TABLE)
    assert said["gini_sizes"] == pytest.approx(0.25)
    assert said["label_kl"] == pytest.approx(skew.label_kl(TABLE).mean())
    assert said["label_kl_max"] == pytest.approx(np.log(3))


def test_describe_survives_an_empty_node() -> None:
    assert np.isfinite(skew.describe([[3, 1], [0, 0]])["label_kl"])


def test_bubbles_are_where_the_samples_are_with_area_by_their_number(tmp_path: Path) -> None:
    def ink(node: int, label: int, samples: int) -> int:
        """Blue pixels in the upper left of a picture with these samples and a bubble in the middle for scale."""
        table = np.zeros((12, 10))
        table[6, 5], table[node, label] = 100, samples
        draw_allocation(table, tmp_path / "a.png", title="one")
        image = imread(tmp_path / "a.png")
        corner = image[: image.shape[0] // 3, : image.shape[1] // 3]
        return int((corner[:, :, 2] - corner[:, :, 0] > 0.3).sum())

    whole = ink(0, 9, 100)  # node 0 at the left, class 9 on top
    assert whole > 500
    assert whole / ink(0, 9, 25) == pytest.approx(4, rel=0.1)
    assert ink(0, 9, 0) == ink(9, 0, 100) == 0


@pytest.mark.parametrize(
    ("shape", "suffix"), [((1, 1), "png"), ((150, 26), "png"), ((50, 10), "svg"), ((50, 10), "pdf")]
)
def test_allocations_of_any_size_are_drawn(
    shape: tuple[int, int], suffix: str, tmp_path: Path, figures: dict[str, Figure]
) -> None:
    table = np.random.default_rng(0).integers(0, 100, shape)
    draw_allocation(table, tmp_path / f"a.{suffix}", title="one")
    (axes,) = figures[f"a.{suffix}"].axes
    assert (pictures.title(axes), axes.get_xlabel(), axes.get_ylabel()) == ("one", "node", "class")
    bubbles = axes.collections[0]
    assert np.array_equal(bubbles.get_offsets(), np.argwhere(table))
    areas = bubbles.get_sizes() / table[table > 0]
    np.testing.assert_allclose(areas, areas[0])
    shown = [int(text.replace(",", "")) for text in pictures.legend(axes)]
    assert shown
    assert max(shown) <= table.max()


def test_a_picture_is_of_the_format_that_its_name_says(tmp_path: Path) -> None:
    for suffix, begin in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        draw_allocation(TABLE, tmp_path / f"a.{suffix}")
        assert (tmp_path / f"a.{suffix}").read_bytes().startswith(begin)
