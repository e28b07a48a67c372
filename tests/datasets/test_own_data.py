"""A practitioner's own data: every form is read to the same numbers, and what is wrong is named with its cure."""

import contextlib
import gzip
import io
import os
import pickle
import random
import struct
import tempfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from coterie.datasets import Dataset
from coterie.errors import ConfigError, CoterieError, DataError
from coterie.parts import find

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = np.arange(20) % 4
BYTES = np.random.default_rng(1).integers(0, 256, (20, 6, 5), np.uint8)


def load(folder: Path | None, path: str, **settings: Any) -> Dataset:
    dataset = find("datasets", "own").make(path=path, **settings)(folder)
    assert isinstance(dataset, Dataset)
    return dataset


def complaint(kind: type[CoterieError], folder: Path, path: str, *words: str, **settings: Any) -> None:
    """The error has one line, with what was expected, what came and a cure, and these words."""
    with pytest.raises(kind) as caught:
        load(folder, path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    for word in ("expected ", "got ", *words):
        assert word in message, message
    assert message.rstrip().endswith(".")
    assert "Delete" not in message


def idx(array: NDArray[Any]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, stem: str, x: NDArray[Any], y: NDArray[Any], packed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    end, pack = (".gz", gzip.compress) if packed else ("", bytes)
    (folder / f"{stem}-labels-idx1-ubyte{end}").write_bytes(pack(idx(y)))
    path = folder / f"{stem}-images-idx3-ubyte{end}"
    path.write_bytes(pack(idx(x)))
    return path


def write_pictures(folder: Path, names: list[str], x: NDArray[Any] = BYTES, y: NDArray[Any] = Y) -> None:
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for i, (picture, label) in enumerate(zip(x, y, strict=True)):
        Image.fromarray(picture).save(folder / names[label] / f"{i:03}.png")


def everything(data: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Both parts together, in an order that does not depend on the form."""
    x, y = torch.cat([data.train_x, data.test_x]), torch.cat([data.train_y, data.test_y])
    order = torch.from_numpy(np.lexsort(x.flatten(1).numpy().T))
    return x[order], y[order]


def same(data: Dataset, x: NDArray[Any], y: NDArray[Any]) -> None:
    wanted = torch.from_numpy(x).float()
    got_x, got_y = everything(data)
    order = torch.from_numpy(np.lexsort(wanted.flatten(1).numpy().T))
    torch.testing.assert_close(got_x, wanted[order])
    assert torch.equal(got_y, torch.from_numpy(y.astype(np.int64))[order])


def divided(data: Dataset, tests: int) -> None:
    assert len(data.test_y) == tests
    assert data.test_y.bincount().tolist() == [tests // 4] * 4


# --- the forms


def test_npz_without_a_test_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y)
    data = load(tmp_path, "mine.npz")
    same(data, X, Y)
    divided(data, 4)
    assert (data.name, data.shape, data.classes) == ("mine", (3,), 4)
    divided(load(tmp_path, "mine.npz", test=0.4), 8)
    monkeypatch.chdir(tmp_path)
    same(load(None, "mine.npz"), X, Y)


@pytest.mark.parametrize("keys", [("x", "y"), ("x_train", "y_train")])
def test_npz_with_a_test_part(tmp_path: Path, keys: tuple[str, str]) -> None:
    parts = {keys[0]: X[:15].astype(np.float64), keys[1]: Y[:15, None], "x_test": X[15:], "y_test": Y[15:]}
    np.savez(tmp_path / "mine.npz", **parts)
    data = load(tmp_path, "mine.npz")
    torch.testing.assert_close(data.train_x, torch.from_numpy(X[:15]))
    assert data.test_y.tolist() == Y[15:].tolist()


def test_bytes_are_scaled_and_have_channels(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=BYTES, y=Y)
    same(load(tmp_path, "mine.npz"), BYTES[:, None] / np.float32(255), Y)
    np.savez(tmp_path / "mine.npz", x=BYTES.astype(np.int64), y=Y)
    same(load(tmp_path, "mine.npz"), BYTES[:, None], Y)


@pytest.mark.parametrize("label", ["label", "y", "target"])
def test_a_parquet_table_of_numbers(tmp_path: Path, label: str) -> None:
    """Plain columns keep their numbers, bytes too: they are no pictures."""
    columns = {"a": X[:, 0], label: Y, "b": pl.Series(range(20), dtype=pl.UInt8), "c": Y > 1}
    pl.DataFrame(columns).write_parquet(tmp_path / "mine.parquet")
    wanted = np.stack([X[:, 0], np.arange(20), Y > 1], axis=1)
    same(load(tmp_path, "mine.parquet"), wanted, Y)
    aside = np.arange(20) >= 13
    pl.DataFrame({**columns, "test": aside}).write_parquet(tmp_path / "mine.parquet")
    data = load(tmp_path, "mine.parquet")
    torch.testing.assert_close(data.test_x, torch.from_numpy(wanted[13:]).float())
    assert data.train_y.tolist() == Y[:13].tolist()


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pl.Series(X.tolist()), X),
        (pl.Series(X.tolist(), dtype=pl.Array(pl.Float32, 3)), X),
        (pl.Series(BYTES.reshape(20, -1).tolist(), dtype=pl.List(pl.UInt8)), BYTES.reshape(20, -1) / np.float32(255)),
        (pl.Series(BYTES.tolist(), dtype=pl.Array(pl.UInt8, (6, 5))), BYTES[:, None] / np.float32(255)),
    ],
)
def test_a_table_with_a_column_of_lists(tmp_path: Path, column: pl.Series, wanted: NDArray[Any]) -> None:
    pl.DataFrame({"x": column, "y": Y}).write_parquet(tmp_path / "mine.parquet")
    same(load(tmp_path, "mine.parquet"), wanted, Y)


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical])
def test_text_labels_are_numbered_in_alphabetical_order(tmp_path: Path, kind: Any) -> None:
    names = pl.Series([["wolf", "ant", "cat", "bee"][i] for i in Y], dtype=kind)
    pl.DataFrame({"a": X[:, 0], "label": names}).write_parquet(tmp_path / "mine.parquet")
    same(load(tmp_path, "mine.parquet", classes=4), X[:, :1], np.array([3, 0, 2, 1])[Y])


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_of_ones_own(tmp_path: Path, packed: bool) -> None:
    pictures = write_idx(tmp_path / "mine", "train", BYTES, Y, packed)
    wanted = BYTES[:, None] / np.float32(255)
    for path in ("mine", f"mine/{pictures.name}"):
        data = load(tmp_path, path)
        same(data, wanted, Y)
        divided(data, 4)
    write_idx(tmp_path / "mine", "t10k", BYTES[:5], Y[:5], packed)
    data = load(tmp_path, "mine")
    torch.testing.assert_close(data.train_x, torch.from_numpy(wanted))
    torch.testing.assert_close(data.test_x, torch.from_numpy(wanted[:5]))
    divided(load(tmp_path, f"mine/{pictures.name}"), 4)


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    write_pictures(tmp_path, ["wolf", "ant", "cat", "bee"])
    (tmp_path / "ant" / "Thumbs.db").write_bytes(b"no picture")
    (tmp_path / "ant" / "._000.png").write_bytes(b"no picture")
    (tmp_path / "ant" / "deeper").mkdir()
    (tmp_path / "ant" / "001.png").rename(tmp_path / "ant" / "deeper" / "001.PNG")
    same(load(None, str(tmp_path)), BYTES[:, None] / np.float32(255), np.array([3, 0, 2, 1])[Y])


def test_pictures_to_train_and_to_test_on_share_their_classes(tmp_path: Path) -> None:
    write_pictures(tmp_path / "train", ["b", "c"], BYTES[:2], Y[:2])
    halved = load(None, str(tmp_path))
    assert (len(halved.train_y), len(halved.test_y)) == (1, 1)
    write_pictures(tmp_path / "test", ["a", "b"], BYTES[2:4], Y[:2])
    data = load(None, str(tmp_path), classes=3)
    assert (data.train_y.tolist(), data.test_y.tolist()) == ([1, 2], [0, 1])
    torch.testing.assert_close(data.test_x[:, 0], torch.from_numpy(BYTES[2:4]) / 255)


def test_one_coloured_picture_makes_all_of_them_coloured(tmp_path: Path) -> None:
    colours = np.random.default_rng(2).integers(0, 256, (6, 5, 3), np.uint8)
    write_pictures(tmp_path, ["a"], BYTES[:1], Y[:1])
    (tmp_path / "b").mkdir()
    Image.fromarray(np.dstack([colours, BYTES[0]])).save(tmp_path / "b" / "0.png")
    Image.new("RGB", (5, 6), (255, 0, 0)).save(tmp_path / "b" / "1.jpg")
    x, y = everything(load(None, str(tmp_path)))
    assert x.shape == (3, 3, 6, 5)
    wanted = [torch.from_numpy(BYTES[0]).expand(3, 6, 5), torch.from_numpy(colours).permute(2, 0, 1)]
    for picture in wanted:
        assert any(torch.allclose(row, picture / 255) for row in x)
    assert sorted(y.tolist()) == [0, 1, 1]


# --- classes and the test part


def test_a_machine_may_lack_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y)
    assert load(tmp_path, "mine.npz", classes=9).classes == 9
    complaint(DataError, tmp_path, "mine.npz", "0 to 2", "got 3", "dataset.classes to 4", classes=3)


def test_names_are_numbered_only_where_all_are_known(tmp_path: Path) -> None:
    """Two machines that each lack another name would otherwise mean different classes by one number."""
    write_pictures(tmp_path / "mine", ["ant", "bee", "cat", "wolf"])
    complaint(DataError, tmp_path, "mine", "all 5", "got 4: ant, bee, cat, wolf", "empty folders", classes=5)
    (tmp_path / "mine" / "asp").mkdir()
    data = load(tmp_path, "mine", classes=5)
    assert data.classes == load(tmp_path, "mine").classes == 5
    same(data, BYTES[:, None] / np.float32(255), np.array([0, 2, 3, 4])[Y])
    complaint(DataError, tmp_path, "mine", "all 4", classes=4)


def test_the_test_part_is_the_same_each_time_and_under_any_name(tmp_path: Path) -> None:
    for name in ("one", "other"):
        np.savez(tmp_path / f"{name}.npz", x=X, y=Y)
    first, again, other = (load(tmp_path, f"{name}.npz") for name in ("one", "one", "other"))
    assert torch.equal(first.test_x, again.test_x)
    assert torch.equal(first.test_x, other.test_x)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.floats(0.01, 0.99))
def test_the_parts_are_disjoint_complete_and_never_empty(numbers: list[int], share: float) -> None:
    y = torch.tensor(numbers)
    x = torch.arange(len(y), dtype=torch.float32)[:, None]
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "mine.npz", x=x, y=y)
        data = load(Path(folder), "mine.npz", test=share)
    train_x, train_y, test_x, test_y = data.train_x, data.train_y, data.test_x, data.test_y
    assert sorted([*train_x.flatten().tolist(), *test_x.flatten().tolist()]) == x.flatten().tolist()
    assert len(train_y) > 0
    assert len(test_y) > 0
    assert torch.equal(y[train_x.flatten().long()], train_y)
    assert torch.equal(y[test_x.flatten().long()], test_y)
    if max(numbers.count(c) for c in set(numbers)) > 1:  # some class can be divided: none is lost from training
        assert set(train_y.tolist()) == set(numbers)


# --- what is wrong is named


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"path": ""}, ["--dataset.path", ".parquet"]),
        ({"test": 0.0}, ["dataset.test", "got 0.0"]),
        ({"test": 1.0}, ["dataset.test", "got 1.0"]),
        ({"test": float("nan")}, ["dataset.test", "got nan"]),
        ({"classes": -1}, ["dataset.classes", "got -1"]),
    ],
)
def test_impossible_settings_of_own_data_are_refused(
    tmp_path: Path, settings: dict[str, Any], words: list[str]
) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y)
    complaint(ConfigError, tmp_path, settings.pop("path", "mine.npz"), *words, **settings)


def spoilt(value: float) -> NDArray[Any]:
    x = X.astype(np.float64)
    x[7, 2] = value
    return x


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"x": X}, ["x and y", "got x", "savez"]),
        ({"other": X}, ["x and y", "none of them"]),
        ({"x": X, "y": Y, "x_test": X}, ["y_test"]),
        ({"x": X, "y": Y[:9]}, ["[20]", "got [9]"]),
        ({"x": X, "y": np.where(Y, Y / 2, np.nan)}, ["targets of", "finite numbers"]),
        ({"x": X, "y": Y - 1}, ["0 or more", "-1 in sample 0"]),
        ({"x": X, "y": np.array(["a"] * 20)}, ["whole numbers"]),
        ({"x": X[:, 0], "y": Y}, ["[N, …]", "[20]", "reshape(-1, 1)"]),
        ({"x": X[:0], "y": Y[:0]}, ["at least one", "[0, 3]"]),
        ({"x": X[:1], "y": Y[:1]}, ["2 or more", "got 1"]),
        ({"x": spoilt(np.nan), "y": Y}, ["nan in sample 7, column 2"]),
        ({"x": spoilt(-np.inf), "y": Y}, ["-inf in sample 7, column 2"]),
        ({"x": spoilt(1e300), "y": Y}, ["inf in sample 7, column 2", "32 bits"]),
        ({"x": X, "y": Y, "x_test": spoilt(np.nan), "y_test": Y}, ["test part", "sample 7"]),
        ({"x": X * 1j, "y": Y}, ["real numbers", "complex64"]),
        ({"x": X, "y": Y, "x_test": X[:, :2], "y_test": Y}, ["not like", "[3]", "[2]"]),
        ({"x": BYTES, "y": Y, "x_test": BYTES / 255, "y_test": Y}, ["not like", "uint8", "float64"]),
    ],
)
def test_unusable_arrays_say_why(tmp_path: Path, content: dict[str, Any], words: list[str]) -> None:
    np.savez(tmp_path / "mine.npz", **content)
    complaint(DataError, tmp_path, "mine.npz", str(tmp_path / "mine.npz"), *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"a": X[:, 0]}, ["label, y, target", "got a"]),
        ({"x": X[:, 0], "y": X[:, 1], "label": Y}, ["y and label", "Rename"]),
        ({"y": Y}, ["beside the label", "no other columns"]),
        ({"a": X.tolist(), "b": X[:, 0], "y": Y}, ["one column of lists", "a, b"]),
        ({"a": spoilt(np.nan)[:, 2], "y": Y}, ["column a", "nan in row 7"]),
        ({"a": spoilt(1e300)[:, 2], "y": Y}, ["column a", "1e+300 in row 7"]),
        ({"a": [*X[:19, 0], None], "y": Y}, ["column a", "1 empty, the first in row 19"]),
        ({"a": X[:, 0], "y": [None, *Y[1:]]}, ["column y", "row 0"]),
        ({"a": ["red"] * 20, "y": Y}, ["column a", "expected numbers", "String"]),
        ({"__index_level_0__": np.arange(20), "y": Y}, ["pandas", "index=False"]),
        ({"a": X[:, 0], "y": spoilt(np.nan)[:, 2]}, ["targets of", "in sample 7"]),
        ({"a": X[:, 0], "y": Y - 3}, ["-3 in sample 0"]),
        ({"a": X[:, 0], "y": Y, "test": Y}, ["column test", "true or false", "Int64"]),
        ({"a": X[:, 0], "y": Y, "test": [None, *[True] * 19]}, ["column test", "row 0"]),
        ({"a": X[:, 0], "y": Y, "test": [True] * 20}, ["training part", "at least one"]),
        ({"a": [*X[:19].tolist(), [1.0]], "y": Y}, ["3 numbers in every row", "1 in row 19"]),
        ({"a": [*X[:19].tolist(), [1.0, None, 2.0]], "y": Y}, ["empty value in row 19"]),
        ({"a": spoilt(np.inf).tolist(), "y": Y}, ["inf in sample 7, column 2"]),
        ({"a": [[]] * 20, "y": Y}, ["column a"]),
        ({"a": [["red"]] * 20, "y": Y}, ["lists of numbers"]),
        ({"a": [], "y": []}, ["empty"]),
    ],
)
def test_unusable_tables_say_why(tmp_path: Path, content: dict[str, Any], words: list[str]) -> None:
    pl.DataFrame(content).write_parquet(tmp_path / "mine.parquet")
    complaint(DataError, tmp_path, "mine.parquet", str(tmp_path / "mine.parquet"), *words)


@pytest.mark.parametrize("name", ["mine.npz", "mine.parquet", "train-images-idx3-ubyte.gz", "a/mine.png", "a/mine.jpg"])
@pytest.mark.parametrize(
    "content", [b"", b"text", b"PK\x03\x04 and so on", b"PAR1 and so on", b"\x1f\x8b\x08", b"\x80\x04N."]
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / "mine" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    write_idx(tmp_path / "beside", "train", BYTES, Y)
    labels = tmp_path / "beside" / "train-labels-idx1-ubyte.gz"
    labels.rename(file.parent / labels.name)
    path = "mine" if "/" in name else f"mine/{name}"
    complaint(DataError, tmp_path, path, f"cannot read {file}", "whole")


@pytest.mark.parametrize("name", ["mine.npz", "mine.parquet", "train-images-idx3-ubyte.gz", "a/000.png"])
def test_a_file_cut_short_is_named(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y)
    pl.DataFrame({"x": X.tolist(), "y": Y}).write_parquet(tmp_path / "mine.parquet")
    write_idx(tmp_path, "train", BYTES, Y)
    write_pictures(tmp_path / "pictures", ["a"], BYTES, Y * 0)
    file = tmp_path / "pictures" / name if "/" in name else tmp_path / name
    file.write_bytes(file.read_bytes()[: -max(file.stat().st_size // 2, 1)])
    complaint(DataError, tmp_path, "pictures" if "/" in name else name, f"cannot read {file}")


class Intruder:
    """Makes a folder when unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    trace = tmp_path / "broken-in"
    np.savez(tmp_path / "mine.npz", x=np.array([[Intruder(trace)]], object), y=Y[:1])
    complaint(DataError, tmp_path, "mine.npz", "plain arrays")
    (tmp_path / "mine.npz").write_bytes(pickle.dumps(Intruder(trace)))
    complaint(DataError, tmp_path, "mine.npz", "plain arrays")
    assert not trace.exists()


def test_unusable_idx_files_say_why(tmp_path: Path) -> None:
    pictures = write_idx(tmp_path, "train", BYTES, Y)
    write_idx(tmp_path, "more", BYTES, Y)
    complaint(DataError, tmp_path, ".", "one file of pictures", "more-images", "train-images")
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(Y[:7]))
    complaint(DataError, tmp_path, pictures.name, "[20]", "[7]")
    complaint(DataError, tmp_path, "train-labels-idx1-ubyte.gz", "name the one of pictures")
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    complaint(DataError, tmp_path, pictures.name, "train-labels-idx1-ubyte.gz", "no such file")


def test_unusable_folders_of_pictures_say_why(tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        write_pictures(tmp_path / name, ["a", "b", "c", "d"])
        return tmp_path / name

    (tmp_path / "none").mkdir()
    complaint(DataError, tmp_path, "none", "no pictures", "CLASS/picture.png")
    Image.new("L", (5, 7)).save(fresh("sizes") / "c" / "other.png")
    complaint(DataError, tmp_path, "sizes", "5×6 pixels", "5×7 in", "other.png", "000.png")
    Image.new("L", (5, 6)).save(fresh("loose") / "loose.png")
    complaint(DataError, tmp_path, "loose", "without a class", "loose.png")
    Image.new("L", (5, 6)).save(fresh("kinds") / "a" / "other.bmp")
    complaint(DataError, tmp_path, "kinds", "other.bmp", "Convert")
    Image.new("I;16", (5, 6)).save(fresh("deep") / "a" / "deep.png")
    complaint(DataError, tmp_path, "deep", "8 bits", "deep.png", "I;16")
    write_pictures(fresh("layout") / "train", ["a", "b", "c", "d"])
    complaint(DataError, tmp_path, "layout", "train/, or train/ and test/", "a, b, c, d, train")
    write_pictures(tmp_path / "only" / "test", ["a", "b", "c", "d"])
    complaint(DataError, tmp_path, "only", "got test")


def test_what_is_not_there_or_of_no_known_kind_is_said(tmp_path: Path) -> None:
    complaint(DataError, tmp_path, "none.npz", "none.npz", "--data-dir")
    (tmp_path / "mine.xls").write_text("a,b\n")
    complaint(DataError, tmp_path, "mine.xls", "mine.xls", ".parquet", ".csv")
    (tmp_path / "mine.csv").write_text("a,label\n")
    complaint(DataError, tmp_path, "mine.csv", "mine.csv is empty", "Add samples")


# ---- Files that promise too much


def npz(path: Path, **members: bytes) -> None:
    """An archive with these contents under the names of arrays."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def plain(array: NDArray[Any]) -> bytes:
    """An array as it stands in an archive."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@contextlib.contextmanager
def little_memory(megabytes: int) -> Iterator[None]:
    """At most so much memory may be taken on the way."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
    finally:
        tracemalloc.stop()


def test_bare_pickles_in_an_archive(tmp_path: Path) -> None:
    npz(tmp_path / "mine.npz", x=pickle.dumps([1, 2]), y=plain(Y))
    complaint(DataError, tmp_path, "mine.npz", "x is no plain array", "write it again")
    npz(tmp_path / "mine.npz", x=plain(X), y=b"")
    complaint(DataError, tmp_path, "mine.npz", "y is no plain array")


def test_rows_that_are_promised_and_not_there(tmp_path: Path) -> None:
    file = io.BytesIO()
    about = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 3)}
    np.lib.format.write_array_header_1_0(file, about)
    npz(tmp_path / "mine.npz", x=file.getvalue() + bytes(80), y=plain(Y))
    complaint(DataError, tmp_path, "mine.npz", "x promises 12000000000000 bytes, and there are 80", "write it again")


@pytest.mark.parametrize("kind", ["npz", "idx"])
def test_a_little_file_that_expands_beyond_measure_takes_no_memory(tmp_path: Path, kind: str) -> None:
    zeros = np.zeros((100, 1000, 1000), np.uint8)
    if kind == "npz":
        np.savez_compressed(tmp_path / "mine.npz", x=zeros, y=np.zeros(100, np.int64))
        name = "mine.npz"
    else:
        name = write_idx(tmp_path, "train", zeros, np.zeros(100, np.uint8)).name
    del zeros
    assert (tmp_path / name).stat().st_size < 1 << 20
    with little_memory(20):
        complaint(DataError, tmp_path, name, "that become samples of 40000", "uncompressed")


def test_a_table_of_more_rows_than_fit(tmp_path: Path) -> None:
    pl.select(a=pl.repeat(1.0, 40_000_000, dtype=pl.Float32), label=0).write_parquet(tmp_path / "mine.parquet")
    with little_memory(20):
        complaint(DataError, tmp_path, "mine.parquet", "that become samples of")


@pytest.mark.parametrize("label", [2**62, 100_000])
def test_a_label_that_no_class_can_have(tmp_path: Path, label: int) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=np.where(np.arange(len(Y)) == 3, label, Y))
    complaint(DataError, tmp_path, "mine.npz", "0 to 99999", f"{label} in sample 3", "without gaps")
    complaint(ConfigError, tmp_path, "mine.npz", "dataset.classes", classes=label + 1)


def test_no_flipped_bit_of_a_table_is_more_than_a_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Some make Polars panic, which is no `Exception` and speaks to the terminal."""
    rng, path = random.Random(1), tmp_path / "mine.parquet"
    pl.DataFrame({"a": [rng.random() for _ in range(200)], "label": [i % 3 for i in range(200)]}).write_parquet(path)
    whole, panics = path.read_bytes(), 0
    for _ in range(400):
        spoilt, bit = bytearray(whole), rng.randrange(8 * len(whole))
        spoilt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        try:
            load(tmp_path, "mine.parquet")
        except DataError as error:
            panics += isinstance(error.__cause__, pl.exceptions.PanicException)
    assert panics
    assert capfd.readouterr().err == ""
