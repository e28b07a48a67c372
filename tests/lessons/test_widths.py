"""Averages of narrow models as parts of wide ones: which units each has, and what comes of them."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from coterie.contract import Layout
from coterie.errors import ConfigError
from coterie.lessons import Classroom, Lesson, Pupil
from coterie.lessons.federated_dropout import FederatedDropout
from coterie.lessons.fedrolex import FedRolex
from coterie.lessons.heterofl import HeteroFL

Shapes = Sequence[tuple[int, ...]]


def pupil(values: Tensor, shapes: Shapes | None = None, buffers: Shapes = ()) -> Pupil:
    shapes = tuple(shapes or (tuple(values.shape),))
    layout, beside = (
        Layout(tuple(f"{what}{i}" for i in range(len(s))), tuple(s)) for what, s in (("w", shapes), ("b", buffers))
    )
    return Pupil(str(shapes), values, 1.0, lambda p, x: x, layout, beside)


def room(turn: int = 0, round: int = 1) -> Classroom:
    return Classroom(torch.zeros(0), torch.zeros(0), seed=0, round=round, node=0, turn=turn)


def units(lesson: Lesson, turn: int, whole: int, own: int, round: int = 1, node: int = 1) -> list[int]:
    """Which units of the wide model a narrow one has: it is 0, so it goes home with half of theirs."""
    models = {0: pupil(torch.arange(whole) * 2.0), node: pupil(torch.zeros(own))}
    found = lesson.teach(models, room(turn, round))
    return [int(x) for x in found[node]]


@pytest.mark.parametrize(("turn", "wanted"), [(1, [1, 2, 3, 4]), (5, [5, 6, 7, 0]), (11, [3, 4, 5, 6])])
def test_units_roll_on_and_around(turn: int, wanted: list[int]) -> None:
    assert units(FedRolex(), turn, 8, 4) == sorted(wanted)


BOTH = {0: pupil(torch.tensor([1.0, 2, 3, 4])), 1: pupil(torch.tensor([10.0, 20]))}


@pytest.mark.parametrize(
    ("lesson", "turn", "wide", "narrow"),
    [
        (HeteroFL(), 2, [5.5, 11, 3, 4], [5.5, 11]),
        (FedRolex(), 2, [1, 2, 6.5, 12], [6.5, 12]),
        (FedRolex("rolled"), 2, [5.5, 11, 3, 4], [5.5, 11]),
        (FedRolex("rolled"), 3, [5.5, 11, 3, 4], [5.5, 11]),
    ],
    ids=["heterofl", "ascending", "rolled", "rolled around"],
)
def test_each_unit_is_averaged_over_who_has_it(
    lesson: Lesson, turn: int, wide: list[float], narrow: list[float]
) -> None:
    """Where all roll alike, it is HeteroFL again."""
    found = lesson.teach(BOTH, room(turn))
    assert found[0].tolist() == wide
    assert found[1].tolist() == narrow


class TestFederatedDropout:
    def test_units_are_drawn_for_each_node_and_round(self) -> None:
        drawn = [units(FederatedDropout(), 0, 50, 10, r, n) for r, n in ((1, 1), (1, 2), (2, 1))]
        assert all(len({*d}) == 10 and d == sorted(d) and {*d} <= {*range(50)} for d in drawn)
        assert len({tuple(d) for d in drawn}) == 3
        assert drawn[0] == units(FederatedDropout(), 0, 50, 10)

    def test_a_model_of_full_width_has_all(self) -> None:
        assert units(FederatedDropout(), 0, 8, 8) == list(range(8))


def places(lesson: Lesson, wide: Shapes, narrow: Shapes, turn: int = 0) -> list[Tensor]:
    """For each tensor of a narrow model, where its numbers stand in that of the wide one."""
    sizes = [torch.Size(s).numel() for s in wide]
    numbered = torch.cat([torch.arange(n) * 2.0 for n in sizes])
    lengths = [torch.Size(s).numel() for s in narrow]
    found = lesson.teach({0: pupil(numbered, wide), 1: pupil(torch.zeros(sum(lengths)), narrow)}, room(turn))
    return [x.view(s).long() for x, s in zip(found[1].split(lengths), narrow, strict=True)]


def test_inputs_follow_the_outputs_of_the_layer_before() -> None:
    """Two dense layers: the first has all inputs and the last all outputs; hidden units are the same in both."""
    first, bias, last = places(FedRolex(), [(8, 3), (8,), (2, 8)], [(4, 3), (4,), (2, 4)], turn=5)
    hidden = [0, 5, 6, 7]
    assert bias.tolist() == hidden
    assert first.tolist() == [[3 * u + i for i in range(3)] for u in hidden]
    assert last.tolist() == [[8 * o + u for u in hidden] for o in range(2)]


def test_a_classifier_after_a_flattened_image_has_a_block_of_pixels_for_each_channel() -> None:
    *_, last = places(FedRolex(), [(4, 1, 3, 3), (4,), (2, 4 * 6)], [(2, 1, 3, 3), (2,), (2, 2 * 6)], turn=3)
    assert last[0].tolist() == [*range(6), *range(18, 24)]  # channels 0 and 3


@pytest.mark.parametrize("lesson", [HeteroFL(), FedRolex(), FederatedDropout()])
def test_statistics_are_averaged_over_models_of_one_width(lesson: Lesson) -> None:
    """Those of a narrow model's channels, which fewer others feed, are not those of a wide one's."""
    wide, other = (pupil(x * torch.arange(8.0), [(4,)], [(4,)]) for x in (1, 3))
    narrow = pupil(torch.tensor([0.0, 0, 90, 91]), [(2,)], [(2,)])
    found = lesson.teach({0: wide, 1: narrow, 2: other}, room(turn=1))
    assert found[1][2:].tolist() == [90, 91]
    assert found[0][4:].tolist() == found[2][4:].tolist() == [8, 10, 12, 14]
    assert found[1][:2].tolist() != [0, 0]  # what is trained is averaged over all widths


@pytest.mark.parametrize("lesson", [HeteroFL(), FedRolex(), FederatedDropout()])
@pytest.mark.parametrize(
    "other",
    [Layout(("a",), ((9,),)), Layout(("a", "b"), ((4,), (1,))), Layout(("z",), ((4,),)), Layout(("a",), ((2, 2),))],
    ids=["wider in one", "deeper", "named otherwise", "other dimensions"],
)
def test_what_is_no_narrower_version_is_refused(lesson: Lesson, other: Layout) -> None:
    wide = Layout(("a",), ((8,),)) if other.shapes != ((9,),) else Layout(("a",), ((8, 2),))
    with pytest.raises(ConfigError, match=r"each as wide or narrower.*mutual, average"):
        lesson.suits({"one": wide, "other": other})
