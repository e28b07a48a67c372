"""A run directory: configuration, environment, records, checkpoints. Everything is written whole or not at all.

config.toml          the resolved configuration
parts/               the texts of parts that were given as Python objects, if any were
environment.json     versions, machine, and how each job was computed
journal.jsonl        what happened, a line for each event
records.parquet      one row per method, seed, evaluated round and node
measures.parquet     what else was to be measured, one row per value
jobs/METHOD-SEED/    done.parquet, or the two latest checkpoints of a job under way
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl
import torch
from torch import Tensor

from coterie import files
from coterie.config.configuration import Configuration, read
from coterie.config.objects import take_again, texts
from coterie.errors import RunError
from coterie.records.frozen import frozen
from coterie.records.journal import FILE as JOURNAL
from coterie.records.models import NodeModels, Trained
from coterie.records.table import (
    MEASURED,
    as_parquet,
    beside,
    printable,
    read_frame,
    together,
    write_frame,
    write_tables,
)
from coterie.records.tensors import check_tensors, pieces, read_tensors
from coterie.version import __version__

DAMAGED = "Remove that folder: the job then starts again from its first round."
ANEW = "Remove it: versions and plans are then noted anew."
GENERATIONS = 2
"""How many checkpoints of a job are kept: if the newest is damaged, the one before it is taken."""

PARTS = "parts"
"""In a run's folder: the texts of parts that were given as Python objects."""
MODELS = "models.safetensors"
"""In a job's folder: the models at its end."""


class RunFolder:
    """The directory of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def create(self, experiment: Configuration, cure: str = "") -> None:
        """Begin a run here; the directory must not hold one."""
        self.adopt(frozen(experiment), cure)
        with files.disk(self.path):
            for name, text in texts(experiment.model_dump()).items():
                files.make_folder(self.path / PARTS)
                files.write(self.path / PARTS / name, text.encode())

    def adopt(self, configuration: str, cure: str = "") -> None:
        """Begin a run whose configuration was written down with every setting; the directory must not hold one."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            cure = cure or "Choose another --out, or go on with it by `coterie resume`."
            raise RunError("the run directory exists", expected="a new directory", got=str(self.path), cure=cure)
        with files.disk(self.path):
            files.make_folder(self.path)
            files.write(self.path / "config.toml", configuration.encode())
            files.write_json(self.path / "environment.json", self._environment())

    def discard(self) -> None:
        """Make room for another try, if no job has kept anything here: there is nothing to lose."""
        if (self.path / "jobs").exists():
            return
        with files.disk(self.path):
            for name in ("config.toml", "environment.json", "lock", JOURNAL):
                (self.path / name).unlink(missing_ok=True)
            shutil.rmtree(self.path / PARTS, ignore_errors=True)
            with contextlib.suppress(OSError):  # someone else's file in it: it stays
                self.path.rmdir()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; released by the system however the process ends."""
        with files.disk(self.path):
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        with open(handle) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(
                    f"{self.path} is being run by another process", cure="Wait for it, or stop it."
                ) from None
            yield

    @property
    def identity(self) -> str:
        """A digest of the configuration: checkpoints of another are refused."""
        return hashlib.sha256((self.path / "config.toml").read_bytes()).hexdigest()[:16]

    def job(self, method: str, seed: int) -> Path:
        return self.path / "jobs" / f"{quote(method, safe=' ')}-{seed}"

    def finished(self, method: str, seed: int) -> bool:
        return (self.job(method, seed) / "done.parquet").is_file()

    def finish(self, method: str, seed: int, done: pl.DataFrame, measures: pl.DataFrame | None = None) -> None:
        """A job's records, and its measures if there are any, are complete: its checkpoints may go."""
        with files.disk(self.path):
            write_tables(self.job(method, seed) / "done.parquet", done, measures)
            self.tidy(method, seed)
            self.collect()

    def keep_models(self, method: str, seed: int, trained: Trained, round: int) -> None:
        """Keep the models that a job has trained."""
        with files.disk(self.path):
            files.make_folder(self.job(method, seed))
            trained.write(self.job(method, seed) / MODELS, round=str(round))

    def models(self, method: str, seed: int) -> NodeModels:
        """The models that a job has trained: kept at its end, or by each of its peers."""
        about, folder = {"method": method, "seed": str(seed)}, self.job(method, seed)
        if (folder / MODELS).is_file():
            return NodeModels.read(folder / MODELS, **about)
        found = [NodeModels.read(path, **about) for path in sorted(folder.glob("peers/*/state.safetensors"))]
        if not found:
            cure = "They are kept when a job has finished, unless keep_models is false: `coterie resume` goes on."
            raise RunError(f"{self.path} has no models of {method}, seed {seed}", cure=cure)
        return NodeModels(pair for models in found for pair in models.items())

    def tidy(self, method: str, seed: int) -> None:
        """Remove what a finished job needs no more; the process that finished it may have ended before."""
        folder = self.job(method, seed)
        for file in (folder / "broken.parquet", beside(folder / "broken.parquet")):
            if file.exists():
                files.system.remove(file)
        for old in [*folder.glob("round-*"), *folder.glob("damaged-*"), *folder.glob("making")]:
            files.system.remove(old)

    def checkpoint(
        self,
        method: str,
        seed: int,
        round: int,
        state: dict[str, Tensor],
        done: pl.DataFrame,
        plan: dict[str, Any],
        measures: pl.DataFrame | None = None,
        events: int = 0,
        shards: Callable[[Path], int] = lambda folder: 0,
    ) -> None:
        """Everything needed to go on after `round`: made beside, then renamed, then the oldest removed.

        `events` is how many events of the job the journal has until then; `shards` writes files with parts of the
        state, each named as `shard` names it, and gives their number.
        """
        folder, note = self.job(method, seed), {"identity": self.identity, "round": round, "plan": plan}
        with files.disk(self.path):
            making = folder / "making"
            if making.exists():  # a process may have ended in the middle of it
                files.system.remove(making)
            files.make_folder(making)
            try:
                files.put(making / "state.safetensors", *pieces(state))
                files.put(making / "rows.parquet", as_parquet(done))
                if measures is not None:
                    files.put(beside(making / "rows.parquet"), as_parquet(measures))
                note |= {"events": events, "shards": shards(making)}
                files.put(making / "checkpoint.json", files.as_json(note))
                files.system.sync_folder(making)
                files.system.rename(making, folder / f"round-{round:09d}")
                files.system.sync_folder(folder)
            except BaseException:
                shutil.rmtree(making, ignore_errors=True)
                raise
            for old in self._checkpoints(method, seed)[GENERATIONS:]:
                files.system.remove(old)
            self.collect()

    def _checkpoints(self, method: str, seed: int) -> list[Path]:
        """The checkpoints of a job, the newest first."""
        return sorted(self.job(method, seed).glob("round-*"), reverse=True)

    def set_damaged_aside(self, method: str, seed: int) -> list[str]:
        """Leave the newest checkpoint of a job that is whole as its newest; says what was damaged, and how.

        If none is whole they stay where they are, and the newest is refused when it is read.
        """
        found, damaged = self._checkpoints(method, seed), []
        for path in found:
            try:
                _read_checkpoint(path)
                break
            except RunError as error:
                damaged.append((path, str(error).removesuffix(f". {DAMAGED}")))
        else:
            return []
        with files.disk(self.path):
            for old, _ in damaged:
                aside = old.with_name(f"damaged-{old.name}")
                if aside.exists():
                    files.system.remove(aside)
                files.system.rename(old, aside)
        whole = found[len(damaged)].name
        return [f"{why}: going on from {whole}, the one before" for _, why in damaged]

    def keep_rows(self, method: str, seed: int, done: pl.DataFrame, measures: pl.DataFrame | None = None) -> None:
        """Keep the records and measures of a job that cannot go on."""
        with files.disk(self.path):
            write_tables(self.job(method, seed) / "broken.parquet", done, measures)
            self.collect()

    def latest(self, method: str, seed: int) -> tuple[int, dict[str, Tensor], pl.DataFrame, dict[str, Any]] | None:
        """(round, state, records so far, plan) of the newest checkpoint of a job."""
        found = self._checkpoints(method, seed)
        if not found:
            return None
        note, state, done = _read_checkpoint(found[0])
        if note["identity"] != self.identity:
            raise RunError(
                f"the checkpoint {found[0]} is of another configuration",
                expected=self.identity,
                got=note["identity"],
                cure="Put the original config.toml back, or start a new run.",
            )
        return note["round"], state, done, note["plan"]

    def shards(self, method: str, seed: int) -> list[Path]:
        """The files with parts of the state of the newest checkpoint of a job, if it has such."""
        found = self._checkpoints(method, seed)
        return [shard(found[0], n) for n in range(_read_note(found[0]).get("shards", 0))] if found else []

    def latest_round(self, method: str, seed: int) -> int:
        """The round of the newest checkpoint of a job, 0 if there is none."""
        found = self._checkpoints(method, seed)
        return int(_read_note(found[0])["round"]) if found else 0

    def journalled(self, method: str, seed: int) -> int:
        """How many events of a job the journal had at its newest checkpoint."""
        found = self._checkpoints(method, seed)
        return int(_read_note(found[0])["events"]) if found else 0

    def latest_measures(self, method: str, seed: int) -> pl.DataFrame | None:
        """The measures so far of the newest checkpoint of a job, if there are any."""
        found = self._checkpoints(method, seed)
        file = beside(found[0] / "rows.parquet") if found else None
        return read_frame(file) if file and file.is_file() else None

    def plans(self) -> dict[tuple[str, int], dict[str, Any]]:
        """How jobs are computed, as it was chosen when the run began."""
        known = environment(self.path).get("jobs", {})
        with files.undamaged(self.path / "environment.json", ANEW):
            named = ((name.rpartition("-"), dict(plan)) for name, plan in known.items())
            return {(method, int(seed)): plan for (method, _, seed), plan in named}

    def note_plans(self, plans: Mapping[tuple[str, int], dict[str, Any]]) -> None:
        """Write down how jobs are computed."""
        known = environment(self.path) or self._environment()
        known["jobs"] = {f"{method}-{seed}": plan for (method, seed), plan in plans.items()}
        with files.disk(self.path):
            files.write_json(self.path / "environment.json", known)

    def _environment(self) -> dict[str, Any]:
        return {**environment_here(), "configuration": self.identity}

    def check_configuration(self) -> None:
        """Refuse to go on with another configuration than the run began with, by whom- or whatever it was changed."""
        began = environment(self.path).get("configuration", self.identity)
        if began != self.identity:
            cure = "Put the original config.toml back, or start a new run."
            what = f"{self.path / 'config.toml'} is another configuration than the run began with"
            raise RunError(what, expected=began, got=self.identity, cure=cure)

    def collect(self) -> pl.DataFrame:
        """Bring all jobs' records together in records.parquet, and their measures in measures.parquet."""
        jobs, chosen = self.path / "jobs", []
        for folder in sorted(jobs.iterdir()) if jobs.is_dir() else []:
            finished = folder / "done.parquet"
            under_way = [folder / "broken.parquet", *sorted(folder.glob("round-*/rows.parquet"))]
            kept = [(f, read_frame(f)) for f in ([finished] if finished.is_file() else under_way) if f.is_file()]
            chosen += sorted(kept, key=lambda one: len(one[1]))[-1:]
        whole = together(frame for _, frame in chosen)
        write_frame(self.path / "records.parquet", whole)
        if measures := [read_frame(beside(file)) for file, _ in chosen if beside(file).is_file()]:
            write_frame(self.path / MEASURED, pl.concat(measures))
        return whole


def load(folder: str | Path) -> pl.DataFrame:
    """The records of a run."""
    file = _existing(folder) / "records.parquet"
    if not file.is_file():
        raise RunError(f"{folder} has no records yet", cure=f"Go on with `coterie resume {folder}`.")
    return printable(read_frame(file))


def measures(folder: str | Path) -> pl.DataFrame:
    """The measures of a run, which must have been asked for."""
    file = _existing(folder) / MEASURED
    if not file.is_file():
        cure = "Run it with --measures, for example --measures spread,steps,rule."
        raise RunError(f"{folder} has no measures", expected=f"the file {MEASURED}", cure=cure)
    return printable(read_frame(file))


def configuration(folder: str | Path, parts: Sequence[Any] = ()) -> Configuration:
    """The configuration of a run; of one that had Python objects for parts these are handed over again."""
    settings = read(_existing(folder) / "config.toml")
    take_again(settings, parts)
    return Configuration(**settings)


def configuration_text(folder: str | Path) -> str:
    """The configuration of a run as it was written down: for those who show it, and import no part that it names."""
    file = _existing(folder) / "config.toml"
    with files.undamaged(file, "Bring it back from a backup, or leave that run out."):
        return files.read(file).decode()


def environment(folder: str | Path) -> dict[str, Any]:
    """Versions, machine and plans of a run."""
    file = _existing(folder) / "environment.json"
    if not file.is_file():  # the process ended before it was written
        return {}
    with files.undamaged(file, ANEW):
        return files.read_json(file)


def environment_here() -> dict[str, Any]:
    """Versions and machine of this process."""
    import scipy

    return {
        "coterie": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "polars": pl.__version__,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
    }


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor], pl.DataFrame]:
    """What a checkpoint says of itself, its state, and the records so far; all of its files are whole."""
    note = _read_note(path)
    with files.undamaged(path, DAMAGED):
        state, _ = read_tensors(path / "state.safetensors")
        for number in range(note.get("shards", 0)):
            check_tensors(shard(path, number))
    done, measures = path / "rows.parquet", beside(path / "rows.parquet")
    if measures.is_file():
        read_frame(measures, path, DAMAGED)
    return note, state, read_frame(done, path, DAMAGED)


def shard(checkpoint: Path, number: int) -> Path:
    """The file with one part of a checkpoint's state."""
    return checkpoint / f"shard-{number:05d}.safetensors"


def _read_note(path: Path) -> dict[str, Any]:
    with files.undamaged(path, DAMAGED):
        note = files.read_json(path / "checkpoint.json")
        kinds = {"identity": str, "round": int, "plan": dict, "events": int}
        if wrong := [key for key, kind in kinds.items() if not isinstance(note[key], kind)]:
            raise ValueError(f"checkpoint.json says {note[wrong[0]]!r} for {wrong[0]}")
    return note


def _existing(folder: str | Path) -> Path:
    path = Path(folder)
    if not (path / "config.toml").is_file():
        cure = "Name the folder given as --out, for example runs/default-1."
        raise RunError("not a run directory", expected="a folder with config.toml", got=str(folder), cure=cure)
    return path
