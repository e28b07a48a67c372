"""Pictures scaled down as they are loaded: each new pixel is the mean of the old ones it touches."""

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from coterie.datasets import Dataset
from coterie.errors import ConfigError, DataError
from coterie.parts import find

SIDES = {"mnist": 28, "fashion_mnist": 28, "emnist_letters": 28, "cifar10": 32, "cifar100": 32}
REAL = os.environ.get("COTERIE_DATA")


def load(name: str, folder: Path, **settings: Any) -> Dataset:
    dataset = find("datasets", name).make(**settings)(folder)
    assert isinstance(dataset, Dataset)
    return dataset


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for name, side in SIDES.items():
        x = draw.integers(0, 256, (6, side, side, 3) if "cifar" in name else (6, side, side), np.uint8)
        y = np.arange(1, 7, dtype=np.uint8)
        if name == "emnist_letters":
            for part, rows in (("train", slice(None)), ("test", slice(2))):
                (tmp_path / f"emnist-letters-{part}-images-idx3-ubyte").write_bytes(idx(x[rows]))
                (tmp_path / f"emnist-letters-{part}-labels-idx1-ubyte").write_bytes(idx(y[rows]))
        else:
            np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    return tmp_path


def touched(x: Tensor, size: int) -> Tensor:
    """The definition, pixel by pixel, in double precision."""
    old = x.shape[-1]
    spans = [slice(i * old // size, -(-(i + 1) * old // size)) for i in range(size)]
    means = [[x.double()[..., rows, columns].mean((-2, -1)) for columns in spans] for rows in spans]
    return torch.stack([torch.stack(row, -1) for row in means], -2)


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("size", [1, 5, 16, 27])
def test_a_pixel_is_the_mean_of_those_it_touches(folder: Path, name: str, size: int) -> None:
    plain, scaled = load(name, folder, normalise=False), load(name, folder, normalise=False, size=size)
    assert scaled.shape == (plain.shape[0], size, size)
    for before, after in ((plain.train_x, scaled.train_x), (plain.test_x, scaled.test_x)):
        torch.testing.assert_close(after.double(), touched(before, size), atol=1e-6, rtol=0)
    assert torch.equal(scaled.train_y, plain.train_y)


def test_where_sizes_divide_these_are_blocks(folder: Path) -> None:
    plain, scaled = load("cifar10", folder, normalise=False), load("cifar10", folder, normalise=False, size=16)
    blocks = plain.train_x.unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1))
    torch.testing.assert_close(scaled.train_x, blocks)


@pytest.mark.parametrize("name", SIDES)
def test_scaling_and_normalising_may_be_exchanged(folder: Path, name: str) -> None:
    after = load(name, folder, size=16).train_x
    torch.testing.assert_close(after.double(), touched(load(name, folder).train_x, 16), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", SIDES)
def test_the_published_size_changes_nothing(folder: Path, name: str) -> None:
    plain = load(name, folder)
    assert plain.shape[1:] == (SIDES[name], SIDES[name])
    torch.testing.assert_close(load(name, folder, size=SIDES[name]).train_x, plain.train_x)


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("size", [0, -16, 33])
def test_pictures_are_not_scaled_up_nor_to_nothing(folder: Path, name: str, size: int) -> None:
    says = rf"dataset\.size: expected 1 to {SIDES[name]} pixels, got {size}\. .*leave it out"
    with pytest.raises(ConfigError, match=says):
        load(name, folder, size=size)


@pytest.mark.skipif(not REAL, reason="needs the real files: set COTERIE_DATA")
@pytest.mark.parametrize("name", SIDES)
def test_real_pictures_at_laptop_size_keep_their_mean_and_most_of_their_contrast(name: str) -> None:
    try:
        data = load(name, Path(str(REAL)), size=16)
    except DataError as error:
        if "not on this machine" in str(error):
            pytest.skip(f"{name} is not in {REAL}")
        raise
    assert data.shape == (3 if "cifar" in name else 1, 16, 16)
    assert data.train_x.mean().abs() < 0.01
    assert 0.85 < data.train_x.std() < 1
