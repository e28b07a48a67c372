"""What a peer keeps: its records, which grow, and a checkpoint, which is one file with its model and words."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import polars as pl
from torch import Tensor

from coterie import files, records
from coterie.errors import PeerError, RunError
from coterie.mail.pace import Pace
from coterie.node.description import Description
from coterie.node.node import Node, restore, snapshot
from coterie.node.snapshot import diverged
from coterie.peers.journal import PeerJournal
from coterie.records import growing
from coterie.records.growing import GrowingTable
from coterie.records.models import described
from coterie.records.table import read_frame
from coterie.records.tensors import read_tensors, write_tensors

CHECKPOINT = "state.safetensors"
ROWS, MEASURES = "records.rows", "measures.rows"
"""Records and measures so far; the checkpoint says how many bytes of these files count."""
BEFORE = "state.before.safetensors"
"""The checkpoint before, which is taken if the newest is damaged."""
DAMAGED = "state.damaged.safetensors"
"""A checkpoint that was found damaged, out of the way."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
WHOLE = "What was written before is whole: mend it, then start the peer again."
"""The cure for what a disk refuses."""
BEGIN_AGAIN = f"Remove it and {BEFORE}: the peer then begins again with its first round."
"""The cure where no checkpoint is whole."""


class Keeper:
    """Keeps a peer's records as they grow, and after every round a checkpoint of all that it would go on with."""

    def __init__(self, folder: Path, method: str, seed: int, identity: str, node: Node, pace: Pace) -> None:
        self.folder, self.method, self.seed, self.identity = folder, method, seed, identity
        self.node, self.pace, self.job = node, pace, node.job
        self.rows = records.empty(node.job.roster.metrics)
        self.tables = {name: GrowingTable(folder / name) for name in (ROWS, MEASURES)}
        self.away = 0.0
        """Seconds since the checkpoint from which this process goes on."""
        self.measures = pl.DataFrame(schema=records.MEASURES) if node.job.measures else None

    def record(self, number: int) -> pl.DataFrame:
        """Write down what is known of this peer after a round; gives what is new."""
        about = self.method, self.seed, number, self.node.ledger
        fresh = records.rows(*about, self.job.members(number)).filter(pl.col("node") == self.node.node)
        self.rows = records.together([self.rows, fresh])
        self.tables[ROWS].add(fresh)
        if self.measures is not None:
            measured = records.measured(*about)
            self.measures = pl.concat([self.measures, measured])
            self.tables[MEASURES].add(measured)
        return fresh

    def save(self, number: int, journal: PeerJournal) -> None:
        """Take a checkpoint after a round, unless the model is not finite: then the one before stands."""
        state = snapshot([self.node])
        if diverged(state):
            raise RunError(f"the model is not finite after round {number}", cure="The checkpoint before it stands.")
        with files.disk(self.folder, WHOLE):
            lengths = {name: self._write(name, number, journal) for name in self.tables}
            about = {
                "round": str(number),
                "identity": self.identity,
                "columns": json.dumps(self.rows.columns),
                "method": self.method,
                "uptime": json.dumps(uptime()),
                "pace": json.dumps(self.pace.times.history),
                **lengths,
                **journal.checkpoint(number),
                **described({self.node.trainer.group: self._described}),
            }
            write_tensors(self.folder / CHECKPOINT, state, about, self.folder / BEFORE)

    def _write(self, name: str, number: int, journal: PeerJournal) -> str:
        """Get the rows of a table to the disk; how many bytes of it count."""
        whole = self.rows if name == ROWS else self.measures
        if not self.tables[name].write(pl.DataFrame() if whole is None else whole):
            journal.warn(f"{self.folder / name} was removed or cut short, and is written anew", number)
        return str(self.tables[name].length)

    @property
    def _described(self) -> Description:
        trainer, samples = self.node.trainer, self.job.samples
        choice = self.job.roster.models[trainer.group]
        return Description.of(trainer.architecture, choice, samples.shape, samples.answers)

    def restore(self, journal: PeerJournal) -> int | None:
        """Go on from the checkpoint; gives its round, None if there is none."""
        path = self.folder / CHECKPOINT
        if not has_checkpoint(self.folder):
            return None
        about, state = load_checkpoint(path)
        if about["identity"] != self.identity:
            raise PeerError(
                f"{path} is of another configuration, or another peer's",
                cure="Go on with the configuration it began with, or remove the file to begin again.",
            )
        journal.open(int(about["events"]), about["counts"])
        if damage := about.get("damage"):
            self._set_aside(path)
            journal.warn(damage, int(about["round"]))
        self.rows = self._recover(ROWS, about, records.types(json.loads(about["columns"])), journal)
        measures = self._recover(MEASURES, about, records.MEASURES, journal)
        self.measures = None if self.measures is None else measures
        restore([self.node], state)
        self.pace.times.history = json.loads(about.get("pace", "[[], []]"))
        self.away = since(json.loads(about["uptime"])) if "uptime" in about else 0.0
        return int(about["round"])

    def _recover(self, name: str, about: dict[str, str], types: dict[str, Any], journal: PeerJournal) -> pl.DataFrame:
        """The rows so far, and go on with their table; if some are damaged, with the others: the model needs none."""
        path, length = self.folder / name, int(about[name])
        found, self.tables[name] = growing.sift(path, length), GrowingTable(path, length)
        if found.lost:
            aside = path.with_name(f"damaged.{name}")
            with contextlib.suppress(OSError):  # a full disk: it is tried again when the peer starts the next time
                files.write(path, found.content, before=aside)
            where = f", as {aside.name} has it" if aside.exists() else ""
            journal.warn(f"{path} is damaged{where}: rows are lost: {'; '.join(found.lost)}", int(about["round"]))
        return growing.frame(found.rows, types)

    def _set_aside(self, path: Path) -> None:
        """Put a damaged checkpoint out of the way, so that the next does not keep it in place of the whole one."""
        with files.disk(self.folder, WHOLE):
            if path.exists():
                files.system.rename(path, self.folder / DAMAGED)

    def finish(self) -> None:
        """Write the records of a peer that has finished, and its measures if it took any."""
        with files.disk(self.folder, WHOLE):
            if self.measures is not None:
                records.write_frame(self.folder / records.MEASURED, self.measures)
            records.write_frame(self.folder / "records.parquet", self.rows)


def uptime() -> tuple[str, float]:
    """Which start of this machine it is, as far as that is known, and the seconds since: no clock that can be set."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    try:
        start = BOOT.read_text().strip()
    except OSError:
        start = ""
    return start, time.monotonic() if clock is None else time.clock_gettime(clock)


def since(then: tuple[str, float]) -> float:
    """The seconds since an uptime; if the machine has been started anew meanwhile, those since it was."""
    (start, before), (now_start, now) = then, uptime()
    return now - before if start == now_start and now >= before else now


def has_checkpoint(folder: Path) -> bool:
    """Whether a peer has come to the end of a round here."""
    return (folder / CHECKPOINT).exists() or (folder / BEFORE).exists()


def load_checkpoint(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What a checkpoint says of itself, and its tensors.

    If it is damaged or gone, they are those of the one before it, which then says so under `damage`.
    """
    try:
        return _load(path)
    except RunError as error:
        before = path.with_name(BEFORE)
        if not before.exists():
            raise
        try:
            about, state = _load(before)
        except RunError:
            raise error from None
        damage = str(error).removesuffix(f". {BEGIN_AGAIN}")
        about["damage"] = f"{damage}: going on from the checkpoint before, of round {about['round']}"
        return about, state


def _load(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with files.undamaged(path, BEGIN_AGAIN):
        state, about = read_tensors(path)
        _ = [int(about[name]) for name in ("round", "events", ROWS, MEASURES)], about["identity"]
        _ = records.types(json.loads(about["columns"]))
    return about, state


def kept_rows(folder: Path) -> pl.DataFrame:
    """The records of a peer that has not finished, as far as its checkpoint goes."""
    if not has_checkpoint(folder):
        return records.empty()
    about, _ = load_checkpoint(folder / CHECKPOINT)
    return _read(folder / ROWS, about, records.types(json.loads(about["columns"])))


def kept_measures(folder: Path) -> pl.DataFrame | None:
    """The measures of a peer, as far as its checkpoint goes if it has not finished; None if it was to take none."""
    finished = folder / records.MEASURED
    if finished.is_file():
        return read_frame(finished)
    if not has_checkpoint(folder):
        return None
    measures = _read(folder / MEASURES, load_checkpoint(folder / CHECKPOINT)[0], records.MEASURES)
    return None if measures.is_empty() else measures


def _read(path: Path, about: dict[str, str], types: dict[str, Any]) -> pl.DataFrame:
    with files.undamaged(path, "Start the peer: it goes on with the rows that are whole, and puts these aside."):
        return growing.read(path, int(about[path.name]), types)
