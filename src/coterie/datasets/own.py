from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from coterie.datasets import Dataset
from coterie.datasets._arrays import Found, members
from coterie.datasets._assembly import Words, assemble, check_settings
from coterie.datasets._files import find_path, reading
from coterie.datasets._hub import TABLES, read_tables, table_files
from coterie.datasets._idx import PICTURES, decode, labels_beside, picture_files
from coterie.datasets._pictures import read_pictures
from coterie.datasets._table import read_csv, read_table
from coterie.errors import ConfigError, DataError
from coterie.files import HUB, fetched

KINDS = "an .npz, .parquet, .csv or idx file, or a folder of idx files, of tables or of pictures"


def own(
    folder: Path | None = None,
    *,
    path: str = "",
    classes: int | None = None,
    test: float = 0.2,
    length: int = 32,
    pieces: int = 2000,
    tokenizer: str | None = None,
) -> Dataset:
    """Your own data on this machine: an .npz, Parquet, csv or idx file, or a folder of pictures or of tables.

    `path` names one of these; a relative one is looked for in the data folder, then where you are.

    - `.npz`: the arrays x and y, and x_test and y_test if there is a test part.
    - `.parquet`, `.csv`: a column label, y or target; every other column a number, or one column of equally long lists,
      or texts, in one called text; a column test, true or false, if there is a test part.
    - idx, as MNIST is published: the file of pictures, its labels beside it, or the folder of both parts.
    - a data set of Hugging Face: its folder of .parquet files, or of .arrow files as `save_to_disk` writes them, called
      train… and test… or in folders of these names; or by name, hf://NAME, from its hub. Pictures are taken alone.
    - a folder CLASS/picture.png or .jpg, or train/ and test/ with these; a class may be empty, transparency is dropped.

    Bytes are scaled to [0, 1], other numbers and plain columns of a table kept. Labels count from 0; names of classes
    are numbered in alphabetical order. `classes` is their number in the whole network, of which this machine may lack
    some: by default one more than the largest label here. Names are numbered alike only where all are known, so with
    `classes` they must all be there. Labels that are real numbers, or several to a sample (0 and 1 for such as may go
    together), are learnt as numbers; `classes = 0` says so of whole ones. Texts become `length` tokens and a mask, by a
    vocabulary of so many word `pieces`, or by a `tokenizer` in a folder. Without a test part, the share `test` of every
    class is set aside, the same samples each time.
    """
    if not path:
        cure = "Name it with --dataset.path, or path under [dataset]."
        raise ConfigError("data set own has no dataset.path", expected=KINDS, got="nothing", cure=cure)
    check_settings(classes, test)
    source = fetched(path, **TABLES) if path.startswith(HUB) else find_path(folder, path, KINDS, Path.exists)
    found = _reader(source)(source)
    return assemble(found, str(source), source.stem or "own", classes, test, Words(length, pieces, tokenizer))


def _reader(source: Path) -> Callable[[Path], Found]:
    if source.is_dir():
        with reading(source, KINDS):
            return _idx_folder if picture_files(source) else read_tables if table_files(source) else read_pictures
    if source.suffix.lower() == ".npz":
        return _npz
    if source.suffix.lower() in (".parquet", ".pq"):
        return read_table
    if source.suffix.lower() == ".csv":
        return read_csv
    if PICTURES.fullmatch(source.name):
        return lambda pictures: Found(_idx_pair(pictures))
    cure = "Give the file the ending of its kind; of a pair of idx files, name the one of pictures."
    raise DataError("data of an unknown kind", expected=KINDS, got=source, cure=cure)


def _npz(path: Path) -> Found:
    cure = "Write it with numpy.savez(path, x=…, y=…), and x_test and y_test if there is a test part."
    with reading(path, "an .npz file of plain arrays"):
        found = members(path, ("x", "y", "x_test", "y_test", "x_train", "y_train"))
    x, y = found.get("x", found.get("x_train")), found.get("y", found.get("y_train"))
    if x is None or y is None or ("x_test" in found) != ("y_test" in found):
        expected = "arrays x and y, with x_test and y_test or without both"
        raise DataError(f"{path} is incomplete", expected=expected, got=", ".join(found) or "none of them", cure=cure)
    return Found((x, y), (found["x_test"], found["y_test"]) if "x_test" in found else None)


def _idx_pair(pictures: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    def read(file: Path) -> NDArray[Any]:
        with reading(file, "an idx file of bytes, compressed with gzip or not"):
            return decode(file.read_bytes())

    return read(pictures), read(labels_beside(pictures))


def _idx_folder(path: Path) -> Found:
    files = picture_files(path)
    test = [file for stem, file in files.items() if "test" in stem or "t10k" in stem]
    train = [file for file in files.values() if file not in test]
    if len(train) != 1 or len(test) > 1:
        expected = "one file of pictures to train on and at most one (t10k or test) to test on"
        cure = "Name the file rather than the folder, or move the others."
        raise DataError(
            f"idx files in {path}", expected=expected, got=", ".join(p.name for p in files.values()), cure=cure
        )
    return Found(_idx_pair(train[0]), _idx_pair(test[0]) if test else None)
