"""So2Sat as its publisher gives it, on files of a few samples."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.datasets import Dataset
from coterie.datasets.so2sat import so2sat
from coterie.errors import ConfigError, DataError

h5py = pytest.importorskip("h5py")


def write(path: Path, samples: int, seed: int, **changes: Any) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 17, samples)
    x = rng.normal(0.1, 0.05, (samples, 32, 32, 10)) * np.arange(1, 11)
    arrays = {"sen1": np.zeros((samples, 32, 32, 8)), "sen2": x, "label": np.eye(17)[labels], **changes}
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            if array is not None:
                file[name] = array
    return x, labels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "so2sat/training.h5", 300, 0)
    write(tmp_path / "so2sat/testing.h5", 40, 1)
    write(tmp_path / "so2sat/validation.h5", 30, 2)
    return tmp_path


def test_so2sat_is_read_whole_and_standardised_by_band(folder: Path) -> None:
    found = so2sat(folder, limit=None)
    assert isinstance(found, Dataset)
    assert (found.shape, found.classes, len(found.train_y), len(found.test_y)) == ((10, 32, 32), 17, 300, 40)
    x, labels = write(folder / "other.h5", 300, 0)
    assert found.train_y.tolist() == labels.tolist()
    scaled = (x - x.mean((0, 1, 2))) / x.std((0, 1, 2))
    np.testing.assert_allclose(found.train_x.numpy(), np.moveaxis(scaled, -1, 1), atol=1e-4)
    torch.testing.assert_close(found.train_x.mean((0, 2, 3)), torch.zeros(10), atol=1e-4, rtol=0)


def test_a_limit_takes_samples_at_equal_distances(folder: Path) -> None:
    whole, some = so2sat(folder, limit=None), so2sat(folder, limit=100, test_limit=8)
    assert some.train_y.tolist() == whole.train_y[::3].tolist()
    assert some.test_y.tolist() == whole.test_y[::5].tolist()
    assert len(so2sat(folder, limit=10**9, test_part="validation").test_y) == 30


@pytest.mark.parametrize(
    ("settings", "words"), [({"limit": 0}, "dataset.limit"), ({"test_part": "x"}, "testing or validation")]
)
def test_impossible_settings_of_so2sat_are_refused(folder: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        so2sat(folder, **settings)


def test_files_that_are_missing_or_damaged(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"training\.h5 and testing\.h5 at https"):
        so2sat(None)
    file = folder / "so2sat/training.h5"
    write(file, 5, 0, sen2=np.zeros((5, 32, 32, 3)))
    with pytest.raises(DataError, match=r"got \[5, 32, 32, 3\]"):
        so2sat(folder)
    write(file, 5, 0, label=None)
    with pytest.raises(DataError, match="sen2 and label"):
        so2sat(folder)
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"cannot read .*training\.h5"):
        so2sat(folder)
    file.unlink()
    with pytest.raises(DataError, match=r"Add training\.h5"):
        so2sat(folder)


def test_without_h5py(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=r"coterie\[hdf5\]"):
        so2sat(folder)
