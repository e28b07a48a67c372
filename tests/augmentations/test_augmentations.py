"""Augmentations: what they do to pictures, by what they are keyed, and that every engine varies alike."""

import random
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from torch import Tensor

from coterie import Experiment
from coterie.augmentations import Draw
from coterie.augmentations.flip import flip
from coterie.augmentations.noise import noise
from coterie.augmentations.shift import shift
from coterie.errors import ConfigError, CoterieError

X = np.random.default_rng(0).random((80, 1, 6, 6)).astype(np.float32)
Y = np.arange(80) % 2
PICTURES = torch.tensor(X[:8])


def draw(*nodes: int, round: int = 1, step: int = 1, size: int = 8) -> Draw:
    return Draw(3, np.array(nodes), round, step, size, "cpu")


def test_pictures_are_mirrored_or_not() -> None:
    assert torch.equal(flip(PICTURES, draw(0), share=1), PICTURES.flip(-1))
    assert torch.equal(flip(PICTURES, draw(0), share=0), PICTURES)
    some = flip(PICTURES, draw(0))
    mirrored = [torch.equal(a, b.flip(-1)) for a, b in zip(some, PICTURES, strict=True)]
    assert 0 < sum(mirrored) < 8
    assert all(m or torch.equal(a, b) for m, a, b in zip(mirrored, some, PICTURES, strict=True))


def test_pictures_are_moved_and_nothing_else_changes() -> None:
    moved = shift(PICTURES + 1, draw(0), by=1)
    assert moved.shape == PICTURES.shape
    ways = set()
    for before, after in zip(PICTURES + 1, moved, strict=True):
        wide = torch.nn.functional.pad(before, (1, 1, 1, 1))
        found = [(i, j) for i in range(3) for j in range(3) if torch.equal(wide[:, i : i + 6, j : j + 6], after)]
        ways |= set(found)
        assert len(found) == 1
    assert len(ways) > 2


def test_noise_has_its_deviation() -> None:
    many = torch.zeros(500, 1, 6, 6)
    assert noise(many, draw(0, size=500), deviation=0.5).std().item() == pytest.approx(0.5, rel=0.02)


def test_draws_are_keyed_by_node_round_step_and_place() -> None:
    both = draw(4, 9)()
    assert torch.equal(both, torch.cat([draw(4)(), draw(9)()]))
    assert len({float(x) for x in both}) == 16
    first = draw(4)()
    others = [draw(5)(), draw(4, round=2)(), draw(4, step=2)()]
    assert not any(torch.equal(first, other) for other in others)
    twice = draw(4)
    assert not torch.equal(twice(), twice())


def per_sample(x: Tensor) -> Tensor:
    """As transforms of other libraries are, which draw from generators that all share."""
    return x + 0.2 * torch.rand(()) + 0.1 * random.random()


def by_hand(x: Tensor, draw: Draw) -> Tensor:
    return x * (1 + draw.normal(1, 1, 1))


def trained(augment: Any, engine: Any = "memory") -> pl.DataFrame:
    run = Experiment(
        dataset=(X, Y), nodes=3, rounds=2, partition="iid", topology="ring", engine=engine, augment=augment
    ).run(progress=False)  # fmt: skip
    return run.records.select("round", "node", "test_loss")


@pytest.mark.parametrize("augment", [["flip", {"name": "shift", "by": 1}], per_sample, by_hand])
def test_every_engine_varies_alike(augment: Any) -> None:
    alone = trained(augment)
    for mode in ("loop", "stack"):
        assert_frame_equal(trained(augment, {"name": "local", "workers": 1, "mode": mode}), alone, abs_tol=1e-5)
    assert (alone["test_loss"] - trained(None)["test_loss"]).abs().max() > 1e-4  # type: ignore[operator]


def test_generators_that_all_share_are_left_as_they_were() -> None:
    torch.manual_seed(1)
    random.seed(1)
    before = torch.get_rng_state(), random.getstate()
    with draw(0).each() as seeds:
        torch.manual_seed(seeds[0])
        random.seed(seeds[0])
    assert len(set(seeds)) == 8
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_what_makes_other_samples_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(
        ConfigError, match=r"other samples: expected float32 \[2, 1, 6, 6\], got float32 \[2, 1, 6, 5\]"
    ):
        trained(lambda x, draw: x[..., 1:])
    with pytest.raises(ConfigError, match=r"does not take the samples: .*ValueError: no"):
        trained(fails)
    with pytest.raises(CoterieError, match=r"unknown augmentation .flop.. Did you mean .flip."):
        trained("flop")


def fails(x: Tensor, draw: Draw) -> Tensor:
    raise ValueError("no")
