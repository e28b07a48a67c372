"""The checkpoint of a peer: one file with its model, its records so far, and words about them."""

import io
import json
from pathlib import Path

import polars as pl
import torch
from safetensors import safe_open
from torch import Tensor

from coterie import files, records

CHECKPOINT = "state.safetensors"
MEASURES = "measures"
"""The checkpoint's tensor with the measures so far: the bytes of a Parquet file."""
WHOLE = "What was written before is whole: mend it, then start the peer again."
"""The cure for what a disk refuses."""


def load_checkpoint(path: Path) -> tuple[dict[str, str], dict[str, Tensor], pl.DataFrame]:
    """What a checkpoint says of itself, its tensors, and the records so far."""
    with files.undamaged(path, "Remove it: the peer then begins again with its first round."):
        with safe_open(path, "pt") as file:
            about: dict[str, str] = file.metadata()
            state = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        rows = pl.read_json(about["rows"].encode(), schema=records.types(json.loads(about["columns"])))
        int(about["round"]), about["identity"]
    return about, state, rows


def kept_rows(folder: Path) -> pl.DataFrame:
    """The records of a peer that has not finished, as far as its checkpoint goes."""
    path = folder / CHECKPOINT
    return load_checkpoint(path)[2] if path.exists() else records.empty()


def kept_measures(folder: Path) -> pl.DataFrame | None:
    """The measures of a peer, as far as its checkpoint goes if it has not finished; None if it was to take none."""
    finished, path = folder / records.MEASURED, folder / CHECKPOINT
    if finished.is_file():
        return pl.read_parquet(finished)
    state = load_checkpoint(path)[1] if path.exists() else {}
    return unpacked(state[MEASURES]) if MEASURES in state else None


def packed(frame: pl.DataFrame) -> Tensor:
    """A table as a tensor of bytes, so that it can be in a checkpoint."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def unpacked(packed: Tensor) -> pl.DataFrame:
    """A table from a checkpoint."""
    return pl.read_parquet(io.BytesIO(packed.numpy().tobytes()))


def write_records(folder: Path, rows: pl.DataFrame, measures: pl.DataFrame | None) -> None:
    """Write the records of a peer that has finished, and its measures if it took any."""
    with files.disk(folder, WHOLE):
        if measures is not None:
            records.write_frame(folder / records.MEASURED, measures)
        records.write_frame(folder / "records.parquet", rows)
