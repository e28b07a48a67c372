"""The tables of a run: one row per node and evaluated round, and one per value that was measured beside."""

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from coterie import files
from coterie.job import Ledger
from coterie.metrics import DEFAULT, columns
from coterie.node.measures import EPOCHS
from coterie.parts import Choice

MEASURED = "measures.parquet"
"""The file of a run, or of a peer, with the measures that were asked for."""


AGAIN = "Remove it, then go on with `coterie resume`: what is missing is computed again."
KEYS = ("method", "seed", "round", "node")
WHOLE = ("seed", "round", "node", "sent_bytes", "received_bytes", "batches", "flops")
"""Columns of whole numbers."""


def schema(metrics: tuple[Choice, ...] = DEFAULT) -> dict[str, Any]:
    """Columns of the records of a run that is judged by these metrics, with their types.

    Bytes, batches and seconds are totals up to and including the round.
    """
    return types((*KEYS, *columns(metrics), *Ledger.OTHERS, *Ledger.TOTALS))


def types(columns: Iterable[str]) -> dict[str, Any]:
    """The types of columns of records."""
    known = {"method": pl.String, **dict.fromkeys(WHOLE, pl.Int64)}
    return {name: known.get(name, pl.Float64) for name in columns}


MEASURES: dict[str, Any] = {
    "method": pl.String,
    "seed": pl.Int64,
    "round": pl.Int64,
    "node": pl.Int64,
    "layer": pl.String,
    "epoch": pl.Int64,
    "measure": pl.String,
    "value": pl.Float64,
}
"""Columns of the measures. Values of the whole network have no node, those of the whole model no layer.

Those of training have an epoch: how many the model had behind it.
"""


def rows(method: str, seed: int, round: int, ledger: Ledger, there: NDArray[np.bool_] | None = None) -> pl.DataFrame:
    """One row per node that is there (all, if not said): what the ledger holds now."""
    columns = {"node": np.arange(ledger.nodes)} | {k: v.copy() for k, v in (ledger.latest | ledger.totals).items()}
    frame = pl.DataFrame(columns).with_columns(
        pl.lit(method).alias("method"), pl.lit(seed).alias("seed"), pl.lit(round).alias("round")
    )
    kept = frame if there is None else frame.filter(pl.Series(there))
    return kept.select(pl.col(name).cast(kind) for name, kind in schema(ledger.metrics).items()).fill_nan(None)


def empty(metrics: tuple[Choice, ...] = DEFAULT) -> pl.DataFrame:
    """Records without a row."""
    return pl.DataFrame(schema=schema(metrics))


def together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Records of several jobs or peers as one; where some were judged by a metric and others not, these have nulls."""
    found = [frame for frame in frames if not frame.is_empty()]
    return pl.concat(found, how="diagonal") if found else empty()


def measured(
    method: str, seed: int, round: int, ledger: Ledger, there: NDArray[np.bool_] | None = None
) -> pl.DataFrame:
    """A row per value that was noted in this round, by node, the whole network last; the ledger is ready for more."""
    counts = np.ones(ledger.nodes + 1, np.bool_) if there is None else np.append(there, True)
    frames = []
    for (measure, layer), values in ledger.noted.items():
        where = np.flatnonzero(np.isfinite(values) & counts)
        node = pl.Series("node", where).replace(ledger.nodes, None)
        columns = {"layer": layer, "epoch": None, "measure": measure}
        frames.append(pl.DataFrame({"node": node, "value": values[where]}).with_columns(_constant(columns)))
    points = [(node, epoch, loss) for node, own in ledger.curves.items() if counts[node] for epoch, loss in own.items()]
    drawn = pl.DataFrame(points, schema={"node": pl.Int64, "epoch": pl.Int64, "value": pl.Float64}, orient="row")
    frames.append(drawn.with_columns(_constant({"layer": None, "measure": EPOCHS[0]})).sort("node", "epoch"))
    about = _constant({"method": method, "seed": seed, "round": round})
    found = [
        frame.with_columns(about).select(pl.col(name).cast(kind) for name, kind in MEASURES.items()) for frame in frames
    ]
    ledger.noted, ledger.curves = {}, {}
    return pl.concat(found).sort("node", nulls_last=True, maintain_order=True)


def _constant(columns: Mapping[str, Any]) -> list[pl.Expr]:
    return [pl.lit(value, MEASURES[name]).alias(name) for name, value in columns.items()]


def as_lists(rows: pl.DataFrame) -> dict[str, list[Any]]:
    """Records of one job and round as an event tells them: a list for each column with anything in it, by node."""
    told = rows.drop("method", "seed", "round")
    found: dict[str, list[Any]] = told.select(c for c in told if c.null_count() < len(c)).to_dict(as_series=False)
    return found


def beside(rows: Path) -> Path:
    """Where the measures lie that belong to a file of records."""
    return rows.with_suffix(".measures.parquet")


def write_tables(path: Path, done: pl.DataFrame, measures: pl.DataFrame | None) -> None:
    """Write records, and before them the measures: where the records are whole, so are they."""
    if measures is not None:
        write_frame(beside(path), measures)
    write_frame(path, done)


def write_frame(path: Path, frame: pl.DataFrame) -> None:
    """Write a table, with its checksum."""
    files.make_folder(path.parent)
    files.write(path, as_parquet(frame))


def as_parquet(frame: pl.DataFrame) -> bytes:
    """A table as a Parquet file, whose checksum is among what its footer says."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, metadata={files.MARKED: files.MARK})
    return files.sealed(buffer.getvalue())


def printable(frame: pl.DataFrame) -> pl.DataFrame:
    """The same with signs in place of control characters: names in records that others give steer no terminal."""
    return frame.with_columns(
        column.str.replace_all(r"\p{C}", "�")
        for column in frame.select(pl.col(pl.String))
        if column.unique().str.contains(r"\p{C}").any()  # names are few, rows many
    )


def read_frame(path: Path, named: Path | None = None, cure: str = AGAIN) -> pl.DataFrame:
    """Read a table; an error over a damaged one names it, or what it is a part of, and the cure."""
    with files.undamaged(named or path, cure):
        return pl.read_parquet(io.BytesIO(files.read(path)))
