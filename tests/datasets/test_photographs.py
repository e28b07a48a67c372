"""Photographs of all sizes, on folders of tiny ones: every form they come in, and what is wrong with one."""

import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from coterie.datasets import Dataset
from coterie.errors import ConfigError, DataError
from coterie.parts import find

PUBLISHED = {  # classes, training and test pictures
    "caltech101": (101, 6_941, 1_736),
    "oxford_pets": (37, 3_680, 3_669),
    "stanford_cars": (196, 8_144, 8_041),
}
REAL = os.environ.get("COTERIE_DATA")


def load(name: str, folder: Path | None, **settings: Any) -> Dataset:
    dataset = find("datasets", name).make(**settings)(folder)
    assert isinstance(dataset, Dataset)
    return dataset


def refused(action: Callable[[], object], *says: str) -> None:
    with pytest.raises(DataError) as caught:
        action()
    assert "\n" not in str(caught.value)
    for words in says:
        assert words in str(caught.value)


def same(a: Dataset, b: Dataset) -> bool:
    pairs = ((a.train_x, b.train_x), (a.train_y, b.train_y), (a.test_x, b.test_x), (a.test_y, b.test_y))
    return all(torch.equal(one, other) for one, other in pairs)  # type: ignore[arg-type]


def photo(path: Path, *colour: int, size: tuple[int, int] = (12, 8), **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, **options)  # type: ignore[arg-type]
    return path


def pack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


def colours(x: Any) -> np.ndarray:
    """The mean colour of each picture in bytes, if these were not normalised."""
    return np.asarray((x.mean((2, 3)) * 255).round().int())


# --- Caltech 101: the colour of a picture tells its class (red, twice) and its number (green, fortyfold)

KINDS = [f"{'Aa'[i % 2]}-kind-{i:03}" for i in range(101)]


def caltech_file(folder: Path, kind: int, number: int) -> Path:
    return folder / sorted(KINDS)[kind] / f"image_{number:04}.jpg"


@pytest.fixture(scope="module")
def caltech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published folder with five pictures a class, written in an order that is none."""
    folder = tmp_path_factory.mktemp("published") / "101_ObjectCategories"
    for kind in np.random.default_rng(0).permutation(101).tolist():
        for number in (3, 1, 5, 2, 4):
            photo(caltech_file(folder, kind, number), 2 * kind, 40 * number, 7, quality=95)
    photo(folder / "BACKGROUND_Google" / "image_0001.jpg", 0, 0, 255)
    (folder / "BACKGROUND_Google" / "tmp").write_text("left behind")
    (folder / sorted(KINDS)[0] / "._image_0001.jpg").write_text("left behind by macOS")
    return folder


def test_caltech_classes_are_in_the_order_of_their_names_and_a_fifth_of_each_is_for_testing(caltech: Path) -> None:
    data = load("caltech101", caltech.parent, size=8, normalise=False)
    assert (data.name, data.shape, data.classes) == ("caltech101", (3, 8, 8), 101)
    assert data.train_y.bincount().tolist() == [4] * 101
    assert data.test_y.bincount().tolist() == [1] * 101
    for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y)):
        np.testing.assert_allclose(colours(x)[:, 0], 2 * y.numpy(), atol=3)
    half = load("caltech101", caltech.parent, size=8, test_share=0.4)
    assert half.test_y.bincount().tolist() == [2] * 101


def test_which_pictures_of_caltech_are_for_testing_is_the_same_on_every_machine(caltech: Path) -> None:
    data = load("caltech101", caltech.parent, size=8, normalise=False)
    numbers = (colours(data.test_x)[:, 1] / 40).round().astype(int).tolist()
    assert numbers[:20] == [4, 3, 4, 4, 5, 3, 3, 5, 3, 3, 1, 3, 1, 5, 5, 4, 5, 4, 3, 5]


def test_every_form_of_caltech_gives_the_same(caltech: Path, tmp_path: Path) -> None:
    plain = load("caltech101", caltech.parent, size=8)
    torchvision = tmp_path / "unzipped/caltech101/caltech-101"
    torchvision.mkdir(parents=True)
    archive = pack(torchvision / "101_ObjectCategories.tar.gz", caltech)
    assert same(load("caltech101", tmp_path / "unzipped", size=8), plain)
    place = tmp_path / "zipped/caltech-101"
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "caltech-101.zip", "w") as zipped:
        zipped.writestr("__MACOSX/caltech-101/._101_ObjectCategories.tar.gz", b"resource fork")
        zipped.write(archive, "caltech-101/101_ObjectCategories.tar.gz")
    assert same(load("caltech101", tmp_path / "zipped", size=8), plain)
    (tmp_path / "cache/datasets").mkdir(parents=True)
    place.rename(tmp_path / "cache/datasets/caltech101")
    assert same(load("caltech101", None, size=8), plain)


def test_a_caltech_folder_that_lacks_classes_is_refused(caltech: Path, tmp_path: Path) -> None:
    folder = tmp_path / caltech.name
    shutil.copytree(caltech / sorted(KINDS)[3], folder / sorted(KINDS)[3])
    refused(lambda: load("caltech101", tmp_path), str(folder), "expected 101 folders of .jpg, got 1", ".tar.gz again")


def test_damaged_caltech_archives_are_named(caltech: Path, tmp_path: Path) -> None:
    archive = pack(tmp_path / "101_ObjectCategories.tar.gz", caltech)
    archive.write_bytes(archive.read_bytes()[:-2000])
    refused(lambda: load("caltech101", tmp_path), str(archive), "damaged")
    archive.unlink()
    zipped = tmp_path / "caltech-101.zip"
    zipped.write_bytes(b"PK\x03\x04 and no more")
    refused(lambda: load("caltech101", tmp_path), str(zipped), "damaged")
    with zipfile.ZipFile(zipped, "w") as empty:
        empty.writestr("caltech-101/show_annotation.m", b"")
    refused(lambda: load("caltech101", tmp_path), str(zipped), "without 101_ObjectCategories.tar.gz")


# --- what becomes of a picture


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """The published folders with two pictures to train on and one to test on."""
    folder = tmp_path / "oxford-pets"
    photo(folder / "images/Abyssinian_100.jpg", 200, 0, 0)
    photo(folder / "images/yorkshire_terrier_9.jpg", 0, 200, 0)
    photo(folder / "images/Bombay_2.jpg", 0, 0, 200)
    (folder / "images/Abyssinian_100.mat").write_bytes(b"left behind by the publisher")
    (folder / "annotations").mkdir()
    trainval = "#Image CLASS-ID SPECIES BREED ID\nyorkshire_terrier_9 37 2 25\nAbyssinian_100 1 1 1\n"
    (folder / "annotations/trainval.txt").write_text(trainval)
    (folder / "annotations/test.txt").write_text("Bombay_2 8 1 4\n")
    return folder


def test_the_middle_square_is_scaled_and_normalised_by_the_numbers_of_imagenet(pets: Path) -> None:
    pixels = np.zeros((40, 120, 3), np.uint8)
    pixels[:, :40, 0], pixels[:20, 40:80, 1], pixels[:, 80:, 2] = 255, 255, 255
    Image.fromarray(pixels).save(pets / "images/Bombay_2.jpg", quality=95, subsampling=0)
    square = load("oxford_pets", pets.parent, size=10, normalise=False).test_x[0]
    expected = torch.zeros(3, 10, 10)
    expected[1, :5] = 1
    inside = (slice(None), [0, 1, 2, 3, 6, 7, 8, 9], slice(1, 9))  # a JPEG rings where colours meet
    torch.testing.assert_close(square[inside], expected[inside], atol=0.03, rtol=0)
    normal = load("oxford_pets", pets.parent, size=10).test_x[0]
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(normal, (square - mean.view(3, 1, 1)) / deviation.view(3, 1, 1))


@pytest.mark.parametrize(("size", "published"), [(4, (300, 500)), (64, (9, 7)), (1, (5, 5))])
def test_pictures_of_any_size_come_out_in_one(pets: Path, size: int, published: tuple[int, int]) -> None:
    photo(pets / "images/Bombay_2.jpg", 10, 120, 230, size=published)
    data = load("oxford_pets", pets.parent, size=size, normalise=False)
    assert data.shape == (3, size, size)
    np.testing.assert_allclose(colours(data.test_x), [[10, 120, 230]], atol=3)


@pytest.mark.parametrize(
    ("mode", "colour", "kind", "becomes"),
    [
        ("L", 90, "JPEG", (90, 90, 90)),
        ("P", 1, "GIF", (10, 20, 30)),
        ("RGBA", (10, 20, 30, 128), "PNG", (10, 20, 30)),
        ("CMYK", (255, 0, 0, 0), "JPEG", (0, 255, 255)),
    ],
)
def test_grey_and_other_pictures_become_three_channels_whatever_they_are_called(
    pets: Path, mode: str, colour: Any, kind: str, becomes: tuple[int, ...]
) -> None:
    picture = Image.new(mode, (12, 8), colour)
    if mode == "P":
        picture.putpalette([0, 0, 0, 10, 20, 30])
    picture.save(pets / "images/Bombay_2.jpg", kind)
    data = load("oxford_pets", pets.parent, size=8, normalise=False)
    np.testing.assert_allclose(colours(data.test_x), [becomes], atol=3)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "spoil", [lambda content: content[: len(content) // 2], lambda _: b"", lambda _: b"no picture"]
)
def test_a_broken_picture_is_named(pets: Path, spoil: Callable[[bytes], bytes], packed: bool) -> None:
    path = photo(pets / "images/Bombay_2.jpg", 9, 9, 9, size=(200, 200))
    path.write_bytes(spoil(path.read_bytes()))
    if packed:
        pack(pets / "images.tar.gz", pets / "images")
        shutil.rmtree(pets / "images")
    says = str(pets / "images.tar.gz/Bombay_2.jpg") if packed else str(path)
    refused(lambda: load("oxford_pets", pets.parent), says, "damaged", "replace it")


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("size", [0, -3, 513])
def test_sizes_that_no_picture_can_have_are_refused(name: str, size: int) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.size: expected 1 to 512 pixels, got .* 64 is the default"):
        load(name, None, size=size)


def test_a_share_that_leaves_nothing_is_refused(caltech: Path) -> None:
    with pytest.raises(ConfigError, match="test_share"):
        load("caltech101", caltech.parent, test_share=1.0)


# --- Oxford pets


def test_pets_are_read_by_their_lists(pets: Path) -> None:
    data = load("oxford_pets", pets.parent, size=8, normalise=False)
    assert (data.name, data.classes, data.train_y.tolist(), data.test_y.tolist()) == ("oxford_pets", 37, [36, 0], [7])
    np.testing.assert_allclose(colours(data.train_x), [[0, 200, 0], [200, 0, 0]], atol=3)
    np.testing.assert_allclose(colours(data.test_x), [[0, 0, 200]], atol=3)


@pytest.mark.parametrize("packed", [("images",), ("annotations",), ("images", "annotations")])
def test_pets_may_be_in_their_archives(pets: Path, packed: tuple[str, ...]) -> None:
    plain = load("oxford_pets", pets, size=8)
    for name in packed:
        pack(pets / f"{name}.tar.gz", pets / name)
        shutil.rmtree(pets / name)
    pets.rename(pets.parent / "oxford-iiit-pet")
    assert same(load("oxford_pets", pets.parent, size=8), plain)


def test_folders_of_other_sets_are_not_taken_for_pets(pets: Path) -> None:
    (pets / "annotations/trainval.txt").unlink()
    refused(lambda: load("oxford_pets", pets), "not on this machine")


def test_missing_pets_and_lists_are_named(pets: Path, asked: list[str]) -> None:
    (pets / "images/Bombay_2.jpg").unlink()
    refused(lambda: load("oxford_pets", pets.parent), "incomplete", str(pets / "images"), "Add Bombay_2.jpg.")
    shutil.rmtree(pets / "images")
    refused(lambda: load("oxford_pets", pets.parent), "incomplete", "Add images.tar.gz.")
    (pets / "annotations/test.txt").unlink()
    photo(pets / "images/Bombay_2.jpg", 1, 1, 1)
    refused(lambda: load("oxford_pets", pets.parent), "incomplete", "Add test.txt.")
    assert asked == []


@pytest.mark.parametrize("content", [b"Bombay_2 eight\n", b"Bombay_2\n", b"", b"\xff\xfe"])
def test_a_list_of_pets_that_is_none_is_named(pets: Path, content: bytes) -> None:
    (pets / "annotations/test.txt").write_bytes(content)
    refused(lambda: load("oxford_pets", pets.parent), str(pets / "annotations/test.txt"), "damaged")


# --- Stanford cars


def annotate(path: Path, pictures: dict[str, int], **changes: Any) -> None:
    """A MATLAB file of structures as the publisher's: boxes, then the class from 1, then the file."""
    fields = [("bbox_x1", "O"), ("bbox_y1", "O"), ("bbox_x2", "O"), ("bbox_y2", "O"), ("class", "O"), ("fname", "O")]
    rows = [(np.uint16(1), np.uint16(1), np.uint16(9), np.uint16(9), np.uint8(y), x) for x, y in pictures.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"annotations": np.array([rows], fields), **changes})


@pytest.fixture
def cars(tmp_path: Path) -> Path:
    """The published folders with two pictures in each part, of the same names."""
    folder = tmp_path / "stanford-cars"
    for part, colour in (("train", 200), ("test", 100)):
        photo(folder / f"cars_{part}/00001.jpg", colour, 0, 0)
        photo(folder / f"cars_{part}/00002.jpg", 0, colour, 0)
    annotate(folder / "devkit/cars_train_annos.mat", {"00001.jpg": 14, "00002.jpg": 196})
    annotate(folder / "devkit/cars_test_annos.mat", {"00001.jpg": 1, "00002.jpg": 1})
    annotate(folder / "cars_test_annos_withlabels.mat", {"00002.jpg": 181, "00001.jpg": 1})
    return folder


def test_cars_are_read_by_their_annotations(cars: Path) -> None:
    data = load("stanford_cars", cars.parent, size=8, normalise=False)
    assert (data.name, data.classes) == ("stanford_cars", 196)
    assert (data.train_y.tolist(), data.test_y.tolist()) == ([13, 195], [180, 0])
    np.testing.assert_allclose(colours(data.train_x), [[200, 0, 0], [0, 200, 0]], atol=3)
    np.testing.assert_allclose(colours(data.test_x), [[0, 100, 0], [100, 0, 0]], atol=3)


def test_cars_may_be_in_their_archives_or_folders_twice_as_at_kaggle(cars: Path) -> None:
    plain = load("stanford_cars", cars, size=8)
    (cars / "cars_test_annos_withlabels.mat").rename(cars / "devkit/cars_test_annos_withlabels.mat")
    (cars / "cars_test").rename(cars / "inner")
    (cars / "cars_test").mkdir()
    (cars / "inner").rename(cars / "cars_test/cars_test")
    assert same(load("stanford_cars", cars, size=8), plain)
    (cars / "devkit/cars_test_annos_withlabels.mat").rename(cars / "cars_test_annos_withlabels.mat")
    for name, archive in (("cars_train", "cars_train"), ("devkit", "car_devkit")):
        pack(cars / f"{archive}.tgz", cars / name)
        shutil.rmtree(cars / name)
    assert same(load("stanford_cars", cars, size=8), plain)


def test_one_picture_is_enough(cars: Path) -> None:
    annotate(cars / "cars_test_annos_withlabels.mat", {"00002.jpg": 5})
    assert load("stanford_cars", cars.parent, size=8).test_y.tolist() == [4]


def test_missing_cars_and_annotations_are_named(cars: Path) -> None:
    (cars / "cars_test_annos_withlabels.mat").unlink()
    shutil.rmtree(cars / "cars_train")
    says = "Add cars_train.tgz, cars_test_annos_withlabels.mat."
    refused(lambda: load("stanford_cars", cars.parent), "incomplete", str(cars), says)


def test_many_missing_cars_are_counted(cars: Path) -> None:
    annotate(cars / "devkit/cars_train_annos.mat", {f"{i:05}.jpg": 1 for i in range(1, 11)})
    refused(lambda: load("stanford_cars", cars.parent), "Add 00003.jpg", "00007.jpg, 3 more.")


def test_damaged_annotations_of_cars_are_named(cars: Path) -> None:
    path = cars / "devkit/cars_train_annos.mat"
    whole = path.read_bytes()
    for content in (b"", b"not a MATLAB file" * 20, whole[:300]):
        path.write_bytes(content)
        refused(lambda: load("stanford_cars", cars.parent), str(path), "damaged")
    savemat(path, {"something": np.ones(3)})
    refused(lambda: load("stanford_cars", cars.parent), str(path), "annotations")
    annotate(path, {})
    refused(lambda: load("stanford_cars", cars.parent), str(path), "no picture")
    annotate(path, {"00001.jpg": 197})
    refused(lambda: load("stanford_cars", cars.parent), "labels between 0 and 195")


# --- where files come from


@pytest.mark.parametrize(
    ("name", "addresses", "files"),
    [
        (
            "caltech101",
            ["https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip"],
            ["caltech-101.zip", "(https://data.caltech.edu/records/mzrjq-6wc02)", "no route to host"],
        ),
        (
            "oxford_pets",
            [
                "https://www.robots.ox.ac.uk/~vgg/data/pets/data/annotations.tar.gz",
                "https://thor.robots.ox.ac.uk/~vgg/data/pets/annotations.tar.gz",
            ],
            ["annotations.tar.gz, images.tar.gz (https://www.robots.ox.ac.uk/~vgg/data/pets/)", "no route to host"],
        ),
        (
            "stanford_cars",
            [],
            [
                "no server offers cars_train.tgz any more",
                "cars_train.tgz, cars_test.tgz, car_devkit.tgz, cars_test_annos_withlabels.mat (https://github.com/",
            ],
        ),
    ],
)
def test_offline_says_which_files_go_where_and_where_they_are(
    tmp_path: Path, name: str, addresses: list[str], files: list[str], asked: list[str]
) -> None:
    hints = [*files, "--data-dir", "COTERIE_DATA"]
    refused(lambda: load(name, None), *hints, str(tmp_path / "cache/datasets" / name))
    assert asked == addresses
    refused(lambda: load(name, tmp_path), *hints, str(tmp_path / name.replace("_", "-")))


@pytest.mark.skipif(not REAL, reason="needs the real files: set COTERIE_DATA")
@pytest.mark.parametrize("name", PUBLISHED)
def test_real_photographs_are_as_many_as_were_published(name: str) -> None:
    try:
        data = load(name, Path(str(REAL)), size=32)
    except DataError as error:
        if "not on this machine" in str(error):
            pytest.skip(f"{name} is not in {REAL}")
        raise
    classes, train, test = PUBLISHED[name]
    assert (data.shape, data.classes, len(data.train_y) + len(data.test_y)) == ((3, 32, 32), classes, train + test)
    assert abs(len(data.test_y) - test) <= classes / 2 * (name == "caltech101")  # a fifth of each class, rounded
    for y in (data.train_y, data.test_y):
        assert (y.bincount(minlength=classes) > 0).all()
    assert data.train_x.mean().abs() < 0.5  # type: ignore[union-attr]
    assert 0.7 < data.train_x.std() < 1.5  # type: ignore[union-attr]
