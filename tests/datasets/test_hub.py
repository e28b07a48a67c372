"""Data sets as Hugging Face keeps them: folders of tables in parts, and names on its hub."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from coterie import Experiment
from coterie.config.build import load_samples
from coterie.datasets import Dataset
from coterie.errors import DataError
from coterie.files import named
from coterie.parts import find

huggingface_hub = pytest.importorskip("huggingface_hub")

NUMBERS = pl.DataFrame({"a": np.arange(12.0), "b": np.arange(12.0) ** 2, "label": np.arange(12) % 3})


def load(path: Path | str, **settings: Any) -> Dataset:
    dataset = find("datasets", "own").make(path=str(path), **settings)(None)
    assert isinstance(dataset, Dataset)
    return dataset


def written(folder: Path, **parts: pl.DataFrame) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in parts.items():
        frame.write_parquet(folder / f"{name.replace('_', '-')}.parquet")
    return folder


def test_parts_are_known_by_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "numbers" / "data"
    written(
        folder, train_00000_of_00002=NUMBERS[:5], train_00001_of_00002=NUMBERS[5:8], test_00000_of_00001=NUMBERS[8:]
    )
    found = load(tmp_path / "numbers")
    assert found.train_y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert found.test_y.tolist() == [2, 0, 1, 2]
    expected = torch.tensor(NUMBERS[:8].select("a", "b").to_numpy(), dtype=torch.float32)
    assert isinstance(found.train_x, torch.Tensor)
    assert torch.equal(found.train_x, expected)


def test_folders_of_parts_too_and_validation_where_the_test_is_kept_from_everybody(tmp_path: Path) -> None:
    hidden = NUMBERS[8:].with_columns(label=pl.lit(-1))
    for part, frame in {"train": NUMBERS[:6], "validation": NUMBERS[6:8], "test": hidden}.items():
        written(tmp_path / "set" / part, **{"0000": frame})
    found = load(tmp_path / "set")
    assert (len(found.train_y), found.test_y.tolist()) == (6, [0, 1])


def test_what_save_to_disk_writes(tmp_path: Path) -> None:
    for part, frame in {"train": NUMBERS[:9], "test": NUMBERS[9:]}.items():
        (tmp_path / part).mkdir()
        frame.write_ipc_stream(tmp_path / part / "data-00000-of-00001.arrow")
        frame.write_ipc_stream(tmp_path / part / "cache-1234.arrow")
        (tmp_path / part / "state.json").write_text("{}")
    found = load(tmp_path)
    assert (len(found.train_y), len(found.test_y), found.classes) == (9, 3, 3)


def picture(value: int, mode: str = "L", size: tuple[int, int] = (5, 4)) -> dict[str, Any]:
    held = io.BytesIO()
    Image.new(mode, size, value if mode == "L" else (value, 0, 0)).save(held, "PNG")
    return {"bytes": held.getvalue(), "path": f"{value}.png"}


def test_pictures_and_texts(tmp_path: Path) -> None:
    grey = pl.DataFrame({"image": [picture(v) for v in range(6)], "label": [0, 1] * 3})
    found = load(written(tmp_path / "grey", train=grey[:4], test=grey[4:]))
    assert isinstance(found.train_x, torch.Tensor)
    assert found.train_x.shape == (4, 1, 4, 5)
    assert found.train_x[3].unique().tolist() == pytest.approx([3 / 255])
    colour = pl.DataFrame({"img": [picture(0), picture(9, "RGB")] * 3, "label": [0, 1] * 3})
    assert load(written(tmp_path / "colour", train=colour)).shape == (3, 4, 5)
    texts = pl.DataFrame({"text": ["good film", "bad film"] * 5, "label": [1, 0] * 5})
    assert load(written(tmp_path / "texts", train=texts), length=4).shape == {"tokens": (4,), "mask": (4,)}


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    for kind in ("plain", "hard"):
        written(tmp_path / "two" / kind, train=NUMBERS)
    with pytest.raises(DataError, match=r"several data sets.*got hard, plain.*--dataset\.path .*two/hard"):
        load(tmp_path / "two")
    assert len(load(tmp_path / "two" / "plain").train_y) == 9
    with pytest.raises(DataError, match=r"nothing to train on.*got test"):
        load(written(tmp_path / "untrained", test=NUMBERS))
    uneven = pl.DataFrame({"image": [picture(1), picture(2, size=(9, 9))], "label": [0, 1]})
    with pytest.raises(DataError, match=r"expected 5×4 pixels.*got 9×9, mode L, in row 1"):
        load(written(tmp_path / "uneven", train=uneven))


def test_a_name_is_fetched_once_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    asked: list[Any] = []

    def fetch(name: str, local_dir: Path, **how: Any) -> None:
        asked.append((name, how["repo_type"], how["revision"]))
        if name.endswith("gone"):
            raise OSError("no route\nand more")
        written(local_dir / "default" / "train", **{"0000": NUMBERS})

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert len(load("hf://someone/numbers").train_y) == 9
    assert len(load("hf://someone/numbers").train_y) == 9
    assert asked == [("someone/numbers", "dataset", "refs/convert/parquet")]
    with pytest.raises(DataError, match=r"cannot download hf://someone/gone \(OSError: no route\)"):
        load("hf://someone/gone")


def test_weights_and_tokenizers_have_names_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    asked: list[Any] = []

    def fetch(name: str, local_dir: Path, allow_patterns: list[str]) -> None:
        asked.append(name)
        assert not any("bin" in pattern or "py" in pattern for pattern in allow_patterns)
        local_dir.mkdir(parents=True)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    folder = named("hf://someone/small")
    assert named("hf://someone/small") == folder
    assert folder.is_relative_to(tmp_path / "cache")
    assert asked == ["someone/small"]
    assert named(str(tmp_path)) == tmp_path


def test_data_sets_of_pytorch_may_give_dicts() -> None:
    class Given(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"x": torch.full((3,), float(i)), "label": i % 2}

    (method,) = Experiment(dataset=Given()).resolved.values()
    samples = load_samples(method)
    assert (samples.shape, samples.classes, len(samples.train_y) + len(samples.test_y)) == ((3,), 2, 20)
