"""A run directory: configuration, environment, records, checkpoints. Everything is written whole or not at all.

config.toml          the resolved configuration
environment.json     versions, machine, and how each job was computed
journal.jsonl        what happened, a line for each event
records.parquet      one row per method, seed, evaluated round and node
measures.parquet     what else was to be measured, one row per value
jobs/METHOD-SEED/    done.parquet, or the latest checkpoint of a job under way
"""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from coterie import files
from coterie.config.configuration import Configuration, read
from coterie.errors import RunError
from coterie.records.journal import FILE as JOURNAL
from coterie.records.models import Models, Trained
from coterie.records.table import MEASURED, beside, read_frame, together, write_frame, write_tables
from coterie.version import __version__

DAMAGED = "Remove that folder: the job then starts again from its first round."


MODELS = "models.safetensors"
"""In a job's folder: the models at its end."""


class RunFolder:
    """The directory of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def create(self, experiment: Configuration, cure: str = "") -> None:
        """Begin a run here; the directory must not hold one."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            cure = cure or "Choose another --out, or go on with it by `coterie resume`."
            raise RunError("the run directory exists", expected="a new directory", got=str(self.path), cure=cure)
        with files.disk(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            files.write(self.path / "config.toml", frozen(experiment).encode())
            files.write(self.path / "environment.json", json.dumps(environment_here(), indent=1).encode())

    def discard(self) -> None:
        """Make room for another try, if no job has begun here: there is nothing to lose."""
        if (self.path / "jobs").exists() or "jobs" in environment(self.path):
            return
        with files.disk(self.path):
            for name in ("config.toml", "environment.json", "lock", JOURNAL):
                (self.path / name).unlink(missing_ok=True)
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
            self.job(method, seed).mkdir(parents=True, exist_ok=True)
            trained.write(self.job(method, seed) / MODELS, round=str(round))

    def models(self, method: str, seed: int) -> Models:
        """The models that a job has trained: kept at its end, or by each of its peers."""
        about, folder = {"method": method, "seed": str(seed)}, self.job(method, seed)
        if (folder / MODELS).is_file():
            return Models.read(folder / MODELS, **about)
        found = [Models.read(path, **about) for path in sorted(folder.glob("peers/*/state.safetensors"))]
        if not found:
            cure = "They are kept when a job has finished, unless keep_models is false: `coterie resume` goes on."
            raise RunError(f"{self.path} has no models of {method}, seed {seed}", cure=cure)
        return Models(pair for models in found for pair in models.items())

    def tidy(self, method: str, seed: int) -> None:
        """Remove what a finished job needs no more; the process that finished it may have ended before."""
        folder = self.job(method, seed)
        for file in (folder / "broken.parquet", beside(folder / "broken.parquet")):
            file.unlink(missing_ok=True)
        for old in [*folder.glob("round-*"), *folder.glob("making")]:
            shutil.rmtree(old)

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
    ) -> None:
        """Everything needed to go on after `round`: made beside, then renamed, then the older one removed.

        `events` is how many events of the job the journal has until then.
        """
        folder = self.job(method, seed)
        with files.disk(self.path):
            making = folder / "making"
            shutil.rmtree(making, ignore_errors=True)  # a process may have ended in the middle of it
            making.mkdir(parents=True)
            try:
                save_file({k: t.detach().cpu().contiguous() for k, t in state.items()}, making / "state.safetensors")
                done.write_parquet(making / "rows.parquet")
                if measures is not None:
                    measures.write_parquet(beside(making / "rows.parquet"))
                note = {"identity": self.identity, "round": round, "plan": plan, "events": events}
                (making / "checkpoint.json").write_text(json.dumps(note))
                _settle(making)
                os.replace(making, folder / f"round-{round:09d}")
            except BaseException:
                shutil.rmtree(making, ignore_errors=True)
                raise
            for old in sorted(folder.glob("round-*"))[:-1]:
                shutil.rmtree(old)
            self.collect()

    def keep_rows(self, method: str, seed: int, done: pl.DataFrame, measures: pl.DataFrame | None = None) -> None:
        """Keep the records and measures of a job that cannot go on."""
        with files.disk(self.path):
            write_tables(self.job(method, seed) / "broken.parquet", done, measures)
            self.collect()

    def latest(self, method: str, seed: int) -> tuple[int, dict[str, Tensor], pl.DataFrame, dict[str, Any]] | None:
        """(round, state, records so far, plan) of the newest checkpoint of a job."""
        found = sorted(self.job(method, seed).glob("round-*"))
        if not found:
            return None
        with files.undamaged(found[-1], DAMAGED):
            note = json.loads((found[-1] / "checkpoint.json").read_text())
            # copied, because sums over tensors that lie askew in a file may differ in their last bits
            state = {name: tensor.clone() for name, tensor in load_file(found[-1] / "state.safetensors").items()}
            done = pl.read_parquet(found[-1] / "rows.parquet")
            whole = note["identity"], note["round"], note["plan"]
        if whole[0] != self.identity:
            raise RunError(
                f"the checkpoint {found[-1]} is of another configuration",
                expected=self.identity,
                got=whole[0],
                cure="Put the original config.toml back, or start a new run.",
            )
        return whole[1], state, done, whole[2]

    def journalled(self, method: str, seed: int) -> int:
        """How many events of a job the journal had at its newest checkpoint."""
        found = sorted(self.job(method, seed).glob("round-*"))
        if not found:
            return 0
        with files.undamaged(found[-1], DAMAGED):
            return int(json.loads((found[-1] / "checkpoint.json").read_text())["events"])

    def latest_measures(self, method: str, seed: int) -> pl.DataFrame | None:
        """The measures so far of the newest checkpoint of a job, if there are any."""
        found = sorted(self.job(method, seed).glob("round-*"))
        file = beside(found[-1] / "rows.parquet") if found else None
        return read_frame(file) if file and file.is_file() else None

    def note_plan(self, method: str, seed: int, plan: dict[str, Any]) -> None:
        """Write down how a job is computed."""
        known = environment(self.path) or environment_here()
        known.setdefault("jobs", {})[f"{method}-{seed}"] = plan
        with files.disk(self.path):
            files.write(self.path / "environment.json", json.dumps(known, indent=1).encode())

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


def frozen(experiment: Configuration) -> str:
    """The configuration with every setting written out: presets may change, a run may not."""
    methods = {name: method.model_dump() for name, method in experiment.resolved.items()}
    whole = experiment.model_copy(update={"methods": {}})._fill()
    shared = whole.model_dump()
    for key, field in Configuration.model_fields.items():
        # TOML cannot say None: what some method must not inherit is not shared, and the others say it themselves
        if any(_unsays(method[key], shared[key]) for method in methods.values()):
            shared[key] = field.default
    own = {
        name: {k: v for k, v in method.items() if k == "rule" or (v != shared[k] and v is not None)}
        for name, method in methods.items()
    }
    return whole.model_copy(update={**shared, "methods": own}).to_toml()


def _unsays(own: Any, shared: Any) -> bool:
    """Whether a method has nothing where the others have something."""
    if isinstance(own, dict) and isinstance(shared, dict) and own.get("name") == shared.get("name"):
        return any(_unsays(own[key], shared.get(key)) for key in own)
    return own is None and shared is not None


def load(folder: str | Path) -> pl.DataFrame:
    """The records of a run."""
    file = _existing(folder) / "records.parquet"
    if not file.is_file():
        raise RunError(f"{folder} has no records yet", cure=f"Go on with `coterie resume {folder}`.")
    return read_frame(file)


def measures(folder: str | Path) -> pl.DataFrame:
    """The measures of a run, which must have been asked for."""
    file = _existing(folder) / MEASURED
    if not file.is_file():
        cure = "Run it with --measures, for example --measures spread,steps,rule."
        raise RunError(f"{folder} has no measures", expected=f"the file {MEASURED}", cure=cure)
    return read_frame(file)


def configuration(folder: str | Path) -> Configuration:
    """The configuration of a run."""
    return Configuration(**read(_existing(folder) / "config.toml"))


def environment(folder: str | Path) -> dict[str, Any]:
    """Versions, machine and plans of a run."""
    file = _existing(folder) / "environment.json"
    if not file.is_file():  # the process ended before it was written
        return {}
    with files.undamaged(file, "Remove it: versions and plans are then noted anew."):
        known: dict[str, Any] = json.loads(file.read_text())
        return known


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


def _settle(folder: Path) -> None:
    """Wait until the files of a folder are on the disk: a name must not get there before the content."""
    for path in folder.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def _existing(folder: str | Path) -> Path:
    path = Path(folder)
    if not (path / "config.toml").is_file():
        cure = "Name the folder given as --out, for example runs/default-1."
        raise RunError("not a run directory", expected="a folder with config.toml", got=str(folder), cure=cure)
    return path
