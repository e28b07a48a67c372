"""Data sets as Hugging Face keeps them: folders of Parquet or Arrow files in parts."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from PIL import Image

from coterie.datasets._arrays import Found
from coterie.datasets._files import check_size, reading
from coterie.datasets._pictures import DEEP, GREY
from coterie.datasets._table import LABELS, from_frame
from coterie.errors import DataError

TABLES = {"repo_type": "dataset", "revision": "refs/convert/parquet", "allow_patterns": "*.parquet"}
"""Where the hub has every data set as Parquet files."""
PART = re.compile(r"(train|test|validation|valid|dev)(?![a-z])")
TESTS = ("test", "validation", "valid", "dev")
"""What may serve for testing, the best first."""
LAYOUT = "Parquet or Arrow files called train… and test…, or in folders of these names"
PICTURE = {"bytes", "path"}


def table_files(folder: Path) -> list[Path]:
    """The tables below a folder, in order."""
    found = [file for file in folder.rglob("*") if file.suffix in (".parquet", ".arrow") and file.is_file()]
    return sorted(f for f in found if not any(p.startswith((".", "cache-")) for p in f.relative_to(folder).parts))


def read_tables(folder: Path) -> Found:
    """The samples of a folder of tables."""
    parts: dict[str, dict[str, list[Path]]] = {}
    for file in table_files(folder):
        places = file.relative_to(folder).parts
        named = [(i, m[1]) for i, place in enumerate(places) if (m := PART.match(place))]
        at, part = named[-1] if named else (len(places) - 1, "train" if len(table_files(folder)) == 1 else "")
        kind = "/".join(place for place in places[:at] if place != "data")
        if part:
            parts.setdefault(kind, {}).setdefault(part, []).append(file)
    if len(parts) != 1:
        got = ", ".join(sorted(filter(None, parts))) or "none of these"
        cure = f"Name one of them: --dataset.path {folder / sorted(parts)[0]}." if parts else "Check dataset.path."
        raise DataError(f"{folder} has several data sets, or none", expected=LAYOUT, got=got, cure=cure)
    (files,) = parts.values()
    if "train" not in files:
        raise DataError(f"{folder} has nothing to train on", expected=LAYOUT, got=", ".join(files))
    train = _read(files["train"])
    for name in (name for name in TESTS if name in files):
        test = _read(files[name])
        if not _hidden(test):
            both = pl.concat([train.with_columns(test=False), test.with_columns(test=True)], how="vertical_relaxed")
            return _samples(str(folder), both)
    return _samples(str(folder), train)


def _read(files: Sequence[Path]) -> pl.DataFrame:
    frames = []
    for file in files:
        with reading(file, "a table as Hugging Face keeps it", pl.exceptions.PolarsError):
            if file.suffix == ".arrow":
                frames.append(pl.read_ipc_stream(file))
                continue
            promised = pl.scan_parquet(file, glob=False)
            rows = int(promised.select(pl.len()).collect().item())
            check_size(rows * len(promised.collect_schema()), file.stat().st_size)
            frames.append(pl.read_parquet(file, glob=False))
    return pl.concat(frames, how="vertical_relaxed")


def _hidden(frame: pl.DataFrame) -> bool:
    """Whether the labels of a part are kept from everybody, as those of competitions are: all are −1."""
    labels = [frame[name] for name in frame.columns if name in LABELS and frame[name].dtype.is_integer()]
    return any(bool((column == -1).all()) for column in labels)


def _samples(source: str, frame: pl.DataFrame) -> Found:
    """The samples of a table, of which a column may hold pictures."""
    kinds = frame.schema.items()
    pictures = [n for n, kind in kinds if isinstance(kind, pl.Struct) and {f.name for f in kind.fields} == PICTURE]
    if not pictures:
        return from_frame(source, frame)
    beside = [name for name in frame.columns if name in (*LABELS, "test")]
    found = from_frame(source, frame.select(*beside, pl.int_range(pl.len()).alias("row")))
    pixels = _decoded(source, [cell["bytes"] for cell in frame[pictures[0]]])

    def part(some: tuple[NDArray[Any], NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        return pixels[some[0].ravel().astype(np.int64)], some[1]

    return Found(part(found.train), part(found.test) if found.test else None, found.names)


def _decoded(source: str, contents: Sequence[bytes]) -> NDArray[np.uint8]:
    """Pictures of one size, `[N, channels, height, width]`: grey if all of them are."""
    with reading(Path(source), "PNG or JPEG pictures", Image.DecompressionBombError, TypeError):
        opened = [Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) for content in contents]
        for row, picture in enumerate(opened):
            if picture.size != opened[0].size or picture.mode in DEEP:
                expected = f"{opened[0].size[0]}×{opened[0].size[1]} pixels of 8 bits a channel"
                got = f"{picture.size[0]}×{picture.size[1]}, mode {picture.mode}, in row {row}"
                cure = "Scale or crop all pictures to one size."
                raise DataError(f"pictures in {source}", expected=expected, got=got, cure=cure)
        grey = all(picture.mode in GREY for picture in opened)
        arrays = [np.asarray(picture.convert("L" if grey else "RGB")) for picture in opened]
    stacked = np.stack(arrays)
    return stacked[:, None] if grey else np.moveaxis(stacked, -1, 1)
