"""Every data set reads every form its files come in, and says in one line what is wrong with a file it cannot read."""

import gzip
import hashlib
import importlib.util
import io
import os
import pickle
import shutil
import struct
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor

from coterie.datasets import Dataset, mnist
from coterie.datasets.breast_cancer import breast_cancer
from coterie.datasets.digits import digits
from coterie.errors import ConfigError, DataError
from coterie.parts import find, names

SHIPPED = ("breast_cancer", "digits")
IMAGES = {
    "mnist": ((1, 28, 28), 10),
    "fashion_mnist": ((1, 28, 28), 10),
    "emnist_letters": ((1, 28, 28), 26),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
}
REAL = os.environ.get("COTERIE_DATA")


class Response(io.BytesIO):
    """What a server answers."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.headers = {"Content-Length": str(len(content))}


def load(name: str, folder: Path | None, **settings: Any) -> Dataset:
    dataset = find("datasets", name).make(**settings)(folder)
    assert isinstance(dataset, Dataset)
    return dataset


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def pictures(n: int, *shape: int, classes: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.integers(0, 256, (n, *shape), np.uint8), draw.integers(0, classes, n, np.uint8)


def write_four(folder: Path, *, train: str = "train", test: str = "t10k", dot: str = "-", packed: bool = True) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    parts = pictures(6, 28, 28), pictures(4, 28, 28, seed=1)
    for stem, (x, y) in zip((train, test), parts, strict=True):
        for kind, array in (("images", x), ("labels", y)):
            content = idx(array + (kind == "labels" and "emnist" in stem))
            path = folder / f"{stem}-{kind}{dot}idx{array.ndim}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(content) if packed else content)
    return parts


def check(data: Dataset, train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> None:
    for (x, y), got_x, got_y in ((train, data.train_x, data.train_y), (test, data.test_x, data.test_y)):
        assert torch.equal(got_y, torch.from_numpy(y.astype(np.int64)))
        torch.testing.assert_close(got_x, torch.from_numpy(x.reshape(-1, *data.shape).astype(np.float32) / 255))
        assert got_x.is_contiguous()


# --- the idx sets


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("subfolder", ["", "{name}", "{dashed}"])
@pytest.mark.parametrize(("dot", "packed"), [("-", True), ("-", False), (".", False), (".", True)])
def test_idx_files_are_read_however_spelled(tmp_path: Path, name: str, subfolder: str, dot: str, packed: bool) -> None:
    folder = tmp_path / subfolder.format(name=name, dashed=name.replace("_", "-"))
    parts = write_four(folder, dot=dot, packed=packed)
    data = load(name, tmp_path, normalise=False)
    check(data, *parts)
    assert (data.shape, data.classes) == IMAGES[name]


def test_the_folder_of_the_sets_name_comes_before_the_folder_itself(tmp_path: Path) -> None:
    write_four(tmp_path)
    parts = write_four(tmp_path / "fashion-mnist")
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"anything")
    check(load("fashion_mnist", tmp_path, normalise=False), *parts)


def test_normalising_takes_the_published_mean_and_deviation(tmp_path: Path) -> None:
    write_four(tmp_path)
    plain, normal = load("mnist", tmp_path, normalise=False), load("mnist", tmp_path)
    torch.testing.assert_close(normal.train_x, (plain.train_x - 0.1307) / 0.3081)
    torch.testing.assert_close(normal.test_x, (plain.test_x - 0.1307) / 0.3081)


def test_emnist_letters_stand_upright_and_count_from_zero(tmp_path: Path) -> None:
    (x, y), _ = write_four(tmp_path / "emnist-letters", train="emnist-letters-train", test="emnist-letters-test")
    data = load("emnist_letters", tmp_path, normalise=False)
    assert data.classes == 26
    assert torch.equal(data.train_y, torch.from_numpy(y.astype(np.int64)))
    torch.testing.assert_close(data.train_x[3, 0, 5, 17].item(), x[3, 17, 5] / 255)
    assert data.train_x.is_contiguous()


def test_emnist_is_read_from_the_publishers_zip(tmp_path: Path) -> None:
    write_four(tmp_path / "gzip", train="emnist-letters-train", test="emnist-letters-test")
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for file in (tmp_path / "gzip").iterdir():
            archive.write(file, f"gzip/{file.name}")
    (tmp_path / "emnist-letters").mkdir()
    for file in (tmp_path / "gzip").iterdir():
        file.rename(tmp_path / "emnist-letters" / file.name)
    unpacked = load("emnist_letters", tmp_path)
    for file in (tmp_path / "emnist-letters").iterdir():
        file.unlink()
    zipped = load("emnist_letters", tmp_path)
    assert torch.equal(unpacked.train_x, zipped.train_x)
    assert torch.equal(unpacked.test_y, zipped.test_y)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:-20],
        lambda content: b"",
        lambda content: b"not an idx file at all, whatever its name",
        lambda content: gzip.compress(gzip.decompress(content)[:-1]),
        lambda content: gzip.compress(gzip.decompress(content) + b"x"),
        lambda content: content[:40] + bytes(len(content) - 40),
        lambda content: gzip.compress(b"\0\0\x0d" + gzip.decompress(content)[3:]),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path: Path, spoil: Any) -> None:
    write_four(tmp_path)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(spoil(path.read_bytes()))
    one_line(lambda: load("mnist", tmp_path), str(path), "damaged")


def test_a_missing_file_of_four_is_named_and_not_downloaded(tmp_path: Path, asked: list[str]) -> None:
    write_four(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    one_line(lambda: load("mnist", tmp_path), "incomplete", "t10k-labels-idx1-ubyte.gz")
    assert asked == []


def test_files_of_another_set_are_not_taken_for_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (_, y), _ = write_four(tmp_path)
    md5, published = hashlib.md5, SimpleNamespace(hexdigest=lambda: "3236f6424fc25388b2834cb19942cf7e")
    monkeypatch.setattr(hashlib, "md5", lambda data, **k: published if data == y.tobytes() else md5(data, **k))
    load("fashion_mnist", tmp_path)
    one_line(lambda: load("mnist", tmp_path), "expected mnist, got fashion_mnist")


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_pictures_of_another_size_are_refused(tmp_path: Path, name: str) -> None:
    x, y = pictures(4, 27, 28)
    np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    one_line(lambda: load(name, tmp_path), "expected", "[27, 28]")


def test_a_label_out_of_range_is_refused(tmp_path: Path) -> None:
    write_four(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.array([0, 1, 2, 3, 4, 10])))
    one_line(lambda: load("mnist", tmp_path), "between 0 and 9", "to 10")


def test_more_labels_than_pictures_are_refused(tmp_path: Path) -> None:
    write_four(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros(7, np.uint8)))
    one_line(lambda: load("mnist", tmp_path), "training part", "[7]")


# --- npz


@pytest.mark.parametrize(
    ("name", "file", "shape"),
    [
        ("mnist", "mnist.npz", (28, 28)),
        ("mnist", "mnist.npz", (28, 28, 1)),
        ("mnist", "mnist.npz", (784,)),
        ("fashion_mnist", "fashion-mnist.npz", (28, 28)),
        ("fashion_mnist", "fashion_mnist.npz", (1, 28, 28)),
        ("cifar10", "cifar10.npz", (3, 32, 32)),
        ("cifar100", "cifar-100.npz", (3, 32, 32)),
    ],
)
def test_npz_files_are_read(tmp_path: Path, name: str, file: str, shape: tuple[int, ...]) -> None:
    train, test = pictures(5, *shape), pictures(3, *shape, seed=1)
    np.savez(tmp_path / file, x_train=train[0], y_train=train[1][:, None], x_test=test[0], y_test=test[1])
    check(load(name, tmp_path, normalise=False), train, test)


def test_channels_last_pictures_become_channels_first(tmp_path: Path) -> None:
    x, y = pictures(5, 32, 32, 3)
    np.savez(tmp_path / "cifar10.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    first = np.moveaxis(x, -1, 1), y
    check(load("cifar10", tmp_path, normalise=False), first, first)


def test_pictures_between_0_and_1_stay_and_others_are_refused(tmp_path: Path) -> None:
    x, y = pictures(5, 28, 28)
    np.savez(tmp_path / "mnist.npz", x_train=x / 255, y_train=y, x_test=x / 255, y_test=y)
    check(load("mnist", tmp_path, normalise=False), (x, y), (x, y))
    np.savez(tmp_path / "mnist.npz", x_train=x.astype(float), y_train=y, x_test=x.astype(float), y_test=y)
    one_line(lambda: load("mnist", tmp_path), "numbers from 0 to 1")


def test_arrays_are_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.random.default_rng(0).normal(size=(8, 5)), np.array([0, 1, 2, 0, 1, 2, 0, 1])
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x[:3], y_test=y[:3])
    data = load("arrays", tmp_path, path="mine.npz")
    assert (data.name, data.shape, data.classes, len(data.train_x), len(data.test_x)) == ("mine", (5,), 3, 8, 3)
    torch.testing.assert_close(data.train_x, torch.from_numpy(x.astype(np.float32)))
    assert load("arrays", None, path=str(tmp_path / "mine.npz")).classes == 3
    monkeypatch.chdir(tmp_path)
    assert load("arrays", None, path="mine.npz").classes == 3


@pytest.mark.parametrize(
    ("shape", "becomes"),
    [((4,), (4,)), ((6, 7), (1, 6, 7)), ((6, 7, 3), (3, 6, 7)), ((3, 6, 7), (3, 6, 7)), ((10, 6, 7), (10, 6, 7))],
)
def test_arrays_of_pictures_have_channels_first(
    tmp_path: Path, shape: tuple[int, ...], becomes: tuple[int, ...]
) -> None:
    x, y = pictures(4, *shape)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    data = load("arrays", tmp_path, path="mine.npz")
    assert data.shape == becomes
    assert data.train_x.min() >= 0
    assert data.train_x.max() <= 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"y_train": None}, "y_train"),
        ({"x_train": np.array([[object()]] * 4)}, "damaged"),
        ({"x_train": np.full((4, 2), np.nan)}, "finite"),
        ({"x_test": np.full((4, 2), np.inf)}, "finite"),
        ({"y_train": np.array([0.5, 1, 0, 1])}, "whole numbers"),
        ({"y_train": np.array([-1, 1, 0, 1])}, "labels between"),
        ({"y_train": np.array([1, 0])}, "[2]"),
        ({"x_train": np.array([["a", "b"]] * 4)}, "real numbers"),
        ({"x_test": np.zeros((4, 3))}, "differ in shape"),
        ({"x_test": np.zeros((0, 2)), "y_test": np.zeros(0, int)}, "at least one"),
    ],
)
def test_unusable_arrays_say_why(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    x, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    content = {"x_train": x, "y_train": y, "x_test": x, "y_test": y, **changes}
    np.savez(tmp_path / "mine.npz", **{k: v for k, v in content.items() if v is not None})
    one_line(lambda: load("arrays", tmp_path, path="mine.npz"), says)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and so on", b"\x80\x04N.", b"text"])
def test_a_file_that_is_no_npz_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mine.npz").write_bytes(content)
    one_line(lambda: load("arrays", tmp_path, path="mine.npz"), str(tmp_path / "mine.npz"), "damaged")


def test_missing_arrays_are_named(tmp_path: Path) -> None:
    one_line(lambda: load("arrays", tmp_path, path="none.npz"), "none.npz", "--data-dir")


# --- CIFAR

CIFAR = {
    "cifar10": (
        [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"],
        "cifar-10-batches-bin",
        "cifar-10-batches-py",
    ),
    "cifar100": (["train", "test"], "cifar-100-binary", "cifar-100-python"),
}


def write_cifar(root: Path, name: str, form: str, *, protocol: int = 2) -> Any:
    stems, binary, python = CIFAR[name]
    folder = root / (binary if form == "bin" else python)
    folder.mkdir(parents=True)
    batches = [pictures(3, 3072, classes=IMAGES[name][1], seed=i) for i in range(len(stems))]
    for stem, (x, y) in zip(stems, batches, strict=True):
        if form == "bin":
            coarse = [] if name == "cifar10" else [y[:, None] // 5]
            (folder / f"{stem}.bin").write_bytes(np.hstack([*coarse, y[:, None], x]).tobytes())
        else:
            key = "labels" if name == "cifar10" else "fine_labels"
            content = {"data": x, key: y.tolist(), "coarse_labels": [0, 0, 0], "batch_label": "one"}
            # The published files were written by Python 2 and an old NumPy, which called its inner module `core`.
            (folder / stem).write_bytes(pickle.dumps(content, protocol).replace(b"cnumpy._core.", b"cnumpy.core."))
    train = [np.concatenate(part) for part in zip(*batches[:-1], strict=True)]
    return folder, (train[0], train[1]), batches[-1]


@pytest.mark.parametrize("name", CIFAR)
@pytest.mark.parametrize(("form", "protocol"), [("bin", 0), ("py", 2), ("py", 4), ("py", 5)])
def test_cifar_folders_are_read(tmp_path: Path, name: str, form: str, protocol: int) -> None:
    _, train, test = write_cifar(tmp_path / name, name, form, protocol=protocol)
    data = load(name, tmp_path, normalise=False)
    check(data, train, test)
    assert (data.shape, data.classes) == IMAGES[name]


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_batches_may_lie_in_the_folder_itself(tmp_path: Path, name: str) -> None:
    folder, train, test = write_cifar(tmp_path, name, "bin")
    check(load(name, folder, normalise=False), train, test)


@pytest.mark.parametrize("name", CIFAR)
@pytest.mark.parametrize(("form", "end"), [("bin", "binary"), ("py", "python")])
def test_cifar_archives_are_read_unopened(tmp_path: Path, name: str, form: str, end: str) -> None:
    folder, train, test = write_cifar(tmp_path / "elsewhere", name, form)
    archive = tmp_path / f"{name.replace('cifar', 'cifar-')}-{end}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    check(load(name, tmp_path, normalise=False), train, test)
    archive.write_bytes(archive.read_bytes()[:-3000])
    one_line(lambda: load(name, tmp_path), str(archive), "damaged")


@pytest.mark.parametrize(("form", "end"), [("bin", ".bin"), ("py", "")])
def test_a_truncated_or_missing_cifar_batch_is_named(tmp_path: Path, form: str, end: str) -> None:
    folder, _, _ = write_cifar(tmp_path, "cifar10", form)
    path = folder / f"data_batch_3{end}"
    path.write_bytes(path.read_bytes()[:-1])
    one_line(lambda: load("cifar10", tmp_path), str(path), "damaged")
    path.unlink()
    one_line(lambda: load("cifar10", tmp_path), "incomplete", path.name)


class Intruder:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def test_a_pickle_cannot_run_code(tmp_path: Path) -> None:
    folder, _, _ = write_cifar(tmp_path, "cifar100", "py")
    (folder / "train").write_bytes(pickle.dumps({"data": Intruder(tmp_path / "broken-in"), "fine_labels": []}))
    one_line(lambda: load("cifar100", tmp_path), str(folder / "train"), "not allowed")
    assert not (tmp_path / "broken-in").exists()


def test_cifar_channels_are_normalised_each_by_its_own(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10", "bin")
    plain, normal = load("cifar10", tmp_path, normalise=False), load("cifar10", tmp_path)
    torch.testing.assert_close(normal.test_x[:, 2], (plain.test_x[:, 2] - 0.4465) / 0.2616)
    torch.testing.assert_close(normal.test_x[:, 0], (plain.test_x[:, 0] - 0.4914) / 0.2470)


# --- where files come from


def one_line(action: Any, *says: str) -> None:
    with pytest.raises(DataError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    for words in says:
        assert words in message


@pytest.mark.parametrize("name", IMAGES)
def test_offline_says_which_files_go_where(tmp_path: Path, name: str, asked: list[str]) -> None:
    files = {
        "mnist": ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"],
        "fashion_mnist": ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"],
        "emnist_letters": ["gzip.zip"],
        "cifar10": ["cifar-10-binary.tar.gz"],
        "cifar100": ["cifar-100-binary.tar.gz"],
    }[name]
    hints = [*files, "--data-dir", "COTERIE_DATA", "no route to host"]
    one_line(lambda: load(name, None), *hints, str(tmp_path / "cache" / "datasets" / name))
    assert asked
    one_line(lambda: load(name, tmp_path), *hints, str(tmp_path / name.replace("_", "-")))


def test_the_folder_an_offline_error_names_is_one_that_is_read(tmp_path: Path) -> None:
    for folder, place in ((None, tmp_path / "cache/datasets/fashion_mnist"), (tmp_path, tmp_path / "fashion-mnist")):
        one_line(lambda folder=folder: load("fashion_mnist", folder), f"into {place}")
        parts = write_four(place)
        check(load("fashion_mnist", folder, normalise=False), *parts)
        for file in place.iterdir():
            file.unlink()


@pytest.mark.parametrize("name", IMAGES)
def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path, name: str, asked: list[str]) -> None:
    one_line(lambda: load(name, tmp_path / "nowhere"), str(tmp_path / "nowhere"), "--data-dir")
    assert asked == []


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    one_line(lambda: load("mnist", None), f"into {tmp_path / 'cache/datasets/mnist'},")
    monkeypatch.delenv("COTERIE_CACHE")
    one_line(lambda: load("mnist", None), f"into {tmp_path / 'xdg/coterie/datasets/mnist'},")
    monkeypatch.delenv("XDG_CACHE_HOME")
    one_line(lambda: load("mnist", None), f"into {tmp_path / 'home/.cache/coterie/datasets/mnist'},")


def publish(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[Any, dict[str, bytes | Exception]]:
    """MNIST of a few pictures as two servers would offer it: the pictures, and what the servers answer by address."""
    parts = write_four(folder)
    contents = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    monkeypatch.setattr(mnist, "FILES", {name: hashlib.md5(c).hexdigest() for name, c in contents.items()})
    monkeypatch.setattr(mnist, "SERVERS", ("http://a/", "http://b/"))
    return parts, {f"http://{server}/{name}": c for server in "ab" for name, c in contents.items()}


def serve(monkeypatch: pytest.MonkeyPatch, answers: dict[str, bytes | Exception]) -> list[str]:
    calls: list[str] = []

    def urlopen(request: urllib.request.Request, **_: Any) -> Response:
        calls.append(request.full_url)
        answer = answers[request.full_url]
        if isinstance(answer, Exception):
            raise answer
        return Response(answer)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return calls


def test_a_download_is_checked_kept_and_not_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts, answers = publish(monkeypatch, tmp_path / "server")
    first = "http://a/" + next(iter(mnist.FILES))
    calls = serve(monkeypatch, answers | {first: TimeoutError("too slow")})
    for _ in range(2):
        check(load("mnist", None, normalise=False), *parts)
    assert calls == [first, first.replace("//a", "//b"), *(f"http://a/{name}" for name in [*mnist.FILES][1:])]
    assert {file.name for file in (tmp_path / "cache/datasets/mnist").iterdir()} == set(mnist.FILES)


def test_a_download_with_another_checksum_is_thrown_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, answers = publish(monkeypatch, tmp_path / "server")
    serve(monkeypatch, dict.fromkeys(answers, b"conten"))
    one_line(lambda: load("mnist", None), "checksum", next(iter(mnist.FILES)))
    assert list((tmp_path / "cache/datasets/mnist").iterdir()) == []


def test_a_half_downloaded_set_is_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts, answers = publish(monkeypatch, tmp_path / "server")
    calls = serve(monkeypatch, answers)
    have, *missing = mnist.FILES
    cache = tmp_path / "cache/datasets/mnist"
    cache.mkdir(parents=True)
    shutil.copy(tmp_path / "server" / have, cache)
    check(load("mnist", None, normalise=False), *parts)
    assert calls == [f"http://a/{name}" for name in missing]


def test_a_cache_that_cannot_be_written_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "file"))
    one_line(lambda: load("mnist", None), "cannot be downloaded", "--data-dir")


# --- the sets that come along


@pytest.mark.parametrize(
    ("name", "shape", "classes", "size"), [("digits", (1, 8, 8), 10, 1797), ("breast_cancer", (30,), 2, 569)]
)
def test_shipped_sets_are_split_once_for_all(name: str, shape: tuple[int, ...], classes: int, size: int) -> None:
    data, again = load(name, None), load(name, None)
    assert (data.shape, data.classes, len(data.train_x) + len(data.test_x)) == (shape, classes, size)
    assert torch.equal(data.train_x, again.train_x)
    assert torch.equal(data.test_y, again.test_y)
    in_test = data.test_y.bincount() / (data.train_y.bincount() + data.test_y.bincount())
    assert in_test.sub(0.2).abs().max() < 0.01
    assert load(name, None, test_share=0.5).test_x.shape[0] == pytest.approx(size / 2, abs=classes)
    with pytest.raises(ConfigError, match="test_share"):
        load(name, None, test_share=1.0)


def test_digits_are_between_0_and_1_and_none_is_in_both_parts() -> None:
    data = load("digits", None)
    assert (data.train_x.min(), data.train_x.max()) == (0, 1)
    seen = {x.numpy().tobytes() for x in data.train_x}
    assert not any(x.numpy().tobytes() in seen for x in data.test_x)


def test_breast_cancer_is_standardised_by_its_training_part() -> None:
    data = load("breast_cancer", None)
    torch.testing.assert_close(data.train_x.mean(0), torch.zeros(30), atol=1e-5, rtol=0)
    torch.testing.assert_close(data.train_x.std(0, correction=0), torch.ones(30), atol=1e-5, rtol=0)
    assert data.test_x.mean(0).abs().max() > 1e-3


@pytest.mark.parametrize("share", [1e-4, 1 - 1e-4])
def test_every_class_is_in_both_parts_however_small_one_is(share: float) -> None:
    data = load("digits", None, test_share=share)
    assert len(data.train_y) + len(data.test_y) == 1797
    assert min(data.train_y.bincount(minlength=10)) >= 1
    assert min(data.test_y.bincount(minlength=10)) >= 1
    assert min(len(data.train_y), len(data.test_y)) == 10


def test_a_dataset_prints_in_one_short_line() -> None:
    assert repr(load("digits", None)) == "Dataset(name='digits', classes=10)"


# --- samples of several tensors, and targets that are no classes

X, Y = torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])


def test_samples_may_be_several_tensors_of_any_kind() -> None:
    several = {"ids": torch.zeros(4, 7, dtype=torch.int64), "age": torch.zeros(4)}
    data = Dataset("mine", several, Y, several, Y, classes=2)
    assert data.shape == {"ids": (7,), "age": ()}
    assert Dataset("mine", (X, Y), Y, (X, Y), Y, classes=2).shape == ((3,), ())
    assert Dataset("mine", X.half(), torch.rand(4, 2), X.half(), torch.rand(4, 2)).classes == 0


@pytest.mark.parametrize(
    ("x", "y", "classes", "words"),
    [
        (X.double(), Y, 2, ("float32 samples, or whole numbers", "float64", "x.float()")),
        (X[:, 0], Y, 2, ("samples [N, …]", "[4] and [4]")),
        ({"a": X, "b": X[:2]}, Y, 2, ("samples [N, …]", "[2, 3] and [4]")),
        ({}, Y, 2, ("at least one tensor",)),
        ([X, X], Y, 2, ("expected tensors", "list")),
        ({"a": X.numpy()}, Y, 2, ("expected tensors", "dict")),
        (X, Y.float(), 2, ("int64 labels [N]", "float32 [4]", "Leave classes out")),
        (X, Y.view(2, 2).repeat(2, 1), 2, ("int64 labels [N]", "int64 [4, 2]")),
        (X, Y, 1, ("labels between 0 and 0", "0 to 1")),
        (X, Y * float("nan"), 0, ("finite", "targets")),
        ((X, X / 0), Y, 2, ("finite", "samples")),
    ],
)
def test_what_is_no_data_set_is_refused(x: Any, y: Tensor, classes: int, words: tuple[str, ...]) -> None:
    one_line(lambda: Dataset("mine", x, y, x, y, classes=classes), "data set 'mine', training part", *words)


def test_both_parts_have_one_shape() -> None:
    one_line(lambda: Dataset("mine", {"a": X}, Y, {"b": X}, Y, classes=2), "differ in shape", "'a': (3,)", "'b': (3,)")


# --- every part, and the real files where there are any


@pytest.mark.parametrize("name", names("datasets"))
def test_every_data_set_says_what_it_is(name: str) -> None:
    part = find("datasets", name)
    assert part.summary.endswith(".")
    assert "\n" not in part.summary
    assert {*SHIPPED, *IMAGES, "arrays"} <= set(names("datasets"))


@pytest.mark.skipif(not REAL, reason="needs the real files: set COTERIE_DATA")
@pytest.mark.parametrize("name", IMAGES)
def test_real_files_have_the_published_shape_and_statistics(name: str) -> None:
    try:
        data = load(name, Path(str(REAL)))
    except DataError as error:
        if "not on this machine" in str(error):
            pytest.skip(f"{name} is not in {REAL}")
        raise
    shape, classes = IMAGES[name]
    assert data.shape == shape
    assert data.classes == classes
    for y in (data.train_y, data.test_y):
        assert (y.bincount(minlength=classes) > 0).all()
    assert data.train_x.mean().abs() < 0.01
    assert (data.train_x.std() - 1).abs() < 0.01


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_comes_with_scikit_learn_is_read_as_it_reads_it(elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its import, which takes long; with it where its files are elsewhere."""
    expected = {"digits": load_digits(return_X_y=True), "breast_cancer": load_breast_cancer(return_X_y=True)}
    if elsewhere:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, found in (("digits", digits()), ("breast_cancer", breast_cancer(scaling="none"))):
        x = np.concatenate([np.asarray(found.train_x), np.asarray(found.test_x)]).reshape(len(expected[name][1]), -1)
        y = np.concatenate([np.asarray(found.train_y), np.asarray(found.test_y)])
        rows = expected[name][0].astype(np.float32) / np.float32(16 if name == "digits" else 1)
        mine, theirs = (np.column_stack([a, b]) for a, b in ((x, y), (rows, expected[name][1])))
        np.testing.assert_allclose(mine[np.lexsort(mine.T)], theirs[np.lexsort(theirs.T)], rtol=1e-6)
