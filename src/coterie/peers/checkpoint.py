"""What a peer keeps: its records, and a checkpoint, which is one file with its model, its records so far, and words."""

import io
import json
from pathlib import Path

import polars as pl
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from coterie import files, records
from coterie.errors import PeerError
from coterie.mail.pace import Pace
from coterie.node.description import Description
from coterie.node.node import Node, restore, snapshot
from coterie.peers.journal import PeerJournal
from coterie.records.models import described

CHECKPOINT = "state.safetensors"
MEASURES = "measures"
"""The checkpoint's tensor with the measures so far: the bytes of a Parquet file."""
WHOLE = "What was written before is whole: mend it, then start the peer again."
"""The cure for what a disk refuses."""


class Keeper:
    """Keeps a peer's records as they grow, and after every round a checkpoint of all that it would go on with."""

    def __init__(self, folder: Path, method: str, seed: int, identity: str, node: Node, pace: Pace) -> None:
        self.folder, self.method, self.seed, self.identity = folder, method, seed, identity
        self.node, self.pace, self.job = node, pace, node.job
        self.rows = records.empty(node.job.roster.metrics)
        self.measures = pl.DataFrame(schema=records.MEASURES) if node.job.measures else None

    def record(self, number: int) -> pl.DataFrame:
        """Write down what is known of this peer after a round; gives what is new."""
        about = self.method, self.seed, number, self.node.ledger
        fresh = records.rows(*about, self.job.members(number)).filter(pl.col("node") == self.node.node)
        self.rows = records.together([self.rows, fresh])
        if self.measures is not None:
            self.measures = pl.concat([self.measures, records.measured(*about)])
        return fresh

    def save(self, number: int, journal: PeerJournal) -> None:
        """Take a checkpoint after a round."""
        about = {
            "round": str(number),
            "identity": self.identity,
            "rows": self.rows.write_json(),
            "columns": json.dumps(self.rows.columns),
            "method": self.method,
            "pace": json.dumps(self.pace.times.history),
            **journal.checkpoint(number),
            **described({self.node.trainer.group: self._described}),
        }
        state = snapshot([self.node])
        if self.measures is not None:
            state[MEASURES] = packed(self.measures)
        with files.disk(self.folder, WHOLE):
            files.write(self.folder / CHECKPOINT, save(state, about))

    @property
    def _described(self) -> Description:
        trainer, samples = self.node.trainer, self.job.samples
        choice = self.job.roster.models[trainer.group]
        return Description.of(trainer.architecture, choice, samples.shape, samples.answers)

    def restore(self, journal: PeerJournal) -> int | None:
        """Go on from the checkpoint; gives its round, None if there is none."""
        path = self.folder / CHECKPOINT
        if not path.exists():
            return None
        about, state, self.rows = load_checkpoint(path)
        if about["identity"] != self.identity:
            raise PeerError(
                f"{path} is of another configuration, or another peer's",
                cure="Go on with the configuration it began with, or remove the file to begin again.",
            )
        journal.open(int(about["events"]), about["counts"])
        if self.measures is not None and MEASURES in state:
            self.measures = unpacked(state[MEASURES])
        restore([self.node], state)
        self.pace.times.history = json.loads(about.get("pace", "[[], []]"))
        return int(about["round"])

    def finish(self) -> None:
        """Write the records of a peer that has finished, and its measures if it took any."""
        with files.disk(self.folder, WHOLE):
            if self.measures is not None:
                records.write_frame(self.folder / records.MEASURED, self.measures)
            records.write_frame(self.folder / "records.parquet", self.rows)


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
