"""A run directory: configuration, environment, records and checkpoints. Whatever is written is written whole or not at all.

    config.toml          the resolved configuration
    environment.json     versions, machine, and how each job was computed
    records.parquet      one row per method, seed, evaluated round and node
    jobs/METHOD-SEED/    done.parquet, or the latest checkpoint of a job under way
"""

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from coterie import __version__
from coterie.engines import Ledger
from coterie.errors import RunError
from coterie.experiment import Experiment, read

SCHEMA: dict[str, Any] = {
    "method": pl.String,
    "seed": pl.Int64,
    "round": pl.Int64,
    "node": pl.Int64,
    **dict.fromkeys(Ledger.LATEST, pl.Float64),
    "sent_bytes": pl.Int64,
    "received_bytes": pl.Int64,
    "batches": pl.Int64,
    "train_seconds": pl.Float64,
    "merge_seconds": pl.Float64,
    "evaluate_seconds": pl.Float64,
}
"""Columns of the records. Bytes, batches and seconds are totals up to and including the round."""


def rows(method: str, seed: int, round: int, ledger: Ledger) -> pl.DataFrame:
    """One row per node: what the ledger holds now."""
    columns = {"node": np.arange(ledger.nodes)} | {k: v.copy() for k, v in (ledger.latest | ledger.totals).items()}
    frame = pl.DataFrame(columns).with_columns(
        pl.lit(method).alias("method"), pl.lit(seed).alias("seed"), pl.lit(round).alias("round")
    )
    return frame.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items()).fill_nan(None)


def empty() -> pl.DataFrame:
    return pl.DataFrame(schema=SCHEMA)


class RunFolder:
    """The directory of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def create(self, experiment: Experiment) -> None:
        """Begin a run here; the directory must not hold one."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            cure = "Choose another --out, or go on with it by `coterie resume`."
            raise RunError("the run directory exists", expected="a new directory", got=str(self.path), cure=cure)
        with disk(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            _write(self.path / "config.toml", frozen(experiment).encode())
            _write(self.path / "environment.json", json.dumps(environment_here(), indent=1).encode())

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; released by the system however the process ends."""
        with disk(self.path), open(self.path / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"{self.path} is being run by another process", cure="Wait for it, or stop it.") from None
            yield

    @property
    def identity(self) -> str:
        """A digest of the configuration: checkpoints of another are refused."""
        return hashlib.sha256((self.path / "config.toml").read_bytes()).hexdigest()[:16]

    def job(self, method: str, seed: int) -> Path:
        return self.path / "jobs" / f"{method.replace('/', '_')}-{seed}"

    def finished(self, method: str, seed: int) -> bool:
        return (self.job(method, seed) / "done.parquet").is_file()

    def finish(self, method: str, seed: int, done: pl.DataFrame) -> None:
        """A job's records are complete: its checkpoints may go."""
        with disk(self.path):
            _write_frame(self.job(method, seed) / "done.parquet", done)
            (self.job(method, seed) / "broken.parquet").unlink(missing_ok=True)
            for old in self.job(method, seed).glob("round-*"):
                shutil.rmtree(old)
            self.collect()

    def checkpoint(
        self, method: str, seed: int, round: int, state: dict[str, Tensor], done: pl.DataFrame, plan: dict[str, Any]
    ) -> None:
        """Everything needed to go on after `round`: made beside, then renamed, then the older one removed."""
        folder = self.job(method, seed)
        with disk(self.path):
            making = folder / f"making-{os.getpid()}"
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            try:
                save_file({k: t.detach().cpu().contiguous() for k, t in state.items()}, making / "state.safetensors")
                done.write_parquet(making / "rows.parquet")
                note = {"identity": self.identity, "round": round, "plan": plan}
                (making / "checkpoint.json").write_text(json.dumps(note))
                os.replace(making, folder / f"round-{round:09d}")
            except BaseException:
                shutil.rmtree(making, ignore_errors=True)
                raise
            for old in sorted(folder.glob("round-*"))[:-1]:
                shutil.rmtree(old)
            self.collect()

    def keep_rows(self, method: str, seed: int, done: pl.DataFrame) -> None:
        """Keep the records of a job that cannot go on."""
        with disk(self.path):
            _write_frame(self.job(method, seed) / "broken.parquet", done)
            self.collect()

    def latest(self, method: str, seed: int) -> tuple[int, dict[str, Tensor], pl.DataFrame, dict[str, Any]] | None:
        """(round, state, records so far, plan) of the newest checkpoint of a job."""
        found = sorted(self.job(method, seed).glob("round-*"))
        if not found:
            return None
        note = json.loads((found[-1] / "checkpoint.json").read_text())
        if note["identity"] != self.identity:
            raise RunError(
                f"the checkpoint {found[-1]} is of another configuration",
                expected=self.identity,
                got=note["identity"],
                cure="Put the original config.toml back, or start a new run.",
            )
        state = load_file(found[-1] / "state.safetensors")
        return note["round"], state, pl.read_parquet(found[-1] / "rows.parquet"), note["plan"]

    def note_plan(self, method: str, seed: int, plan: dict[str, Any]) -> None:
        """Write down how a job is computed."""
        known = json.loads((self.path / "environment.json").read_text())
        known.setdefault("jobs", {})[f"{method}-{seed}"] = plan
        with disk(self.path):
            _write(self.path / "environment.json", json.dumps(known, indent=1).encode())

    def collect(self) -> pl.DataFrame:
        """Bring all jobs' records together in records.parquet."""
        jobs, found = self.path / "jobs", []
        for folder in sorted(jobs.iterdir()) if jobs.is_dir() else []:
            checkpoints = [f / "rows.parquet" for f in sorted(folder.glob("round-*"), reverse=True)]
            candidates = [folder / "done.parquet", folder / "broken.parquet", *checkpoints]
            found += [f for f in candidates if f.is_file()][:1]
        frames = [pl.read_parquet(f) for f in found]
        whole = pl.concat([empty(), *frames])
        _write_frame(self.path / "records.parquet", whole)
        return whole


def frozen(experiment: Experiment) -> str:
    """The configuration with every setting written out: presets may change, a run may not."""
    methods = experiment.resolved
    whole = experiment.model_copy(update={"methods": {}})._fill()
    base = whole.model_dump()
    own = {
        name: {k: v for k, v in m.model_dump().items() if k == "rule" or (v != base[k] and v is not None)}
        for name, m in methods.items()
    }
    return whole.model_copy(update={"methods": own}).to_toml()


def load(folder: str | Path) -> pl.DataFrame:
    """The records of a run."""
    file = _existing(folder) / "records.parquet"
    if not file.is_file():
        raise RunError(f"{folder} has no records yet", cure=f"Go on with `coterie resume {folder}`.")
    return pl.read_parquet(file)


def configuration(folder: str | Path) -> Experiment:
    """The configuration of a run."""
    return Experiment(**read(_existing(folder) / "config.toml"))


def environment(folder: str | Path) -> dict[str, Any]:
    """Versions, machine and plans of a run."""
    known: dict[str, Any] = json.loads((_existing(folder) / "environment.json").read_text())
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


@contextlib.contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn a disk's refusal into an error with a cure; what was written before stays whole."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = f"the disk is full: cannot write to {path}" if full else f"cannot write to {path} ({error.strerror or error})"
        cure = f"Earlier records and checkpoints are whole: mend it, then `coterie resume {path}`."
        raise RunError(what, cure=cure) from error


def _existing(folder: str | Path) -> Path:
    path = Path(folder)
    if not (path / "config.toml").is_file():
        cure = "Name the folder given as --out, for example runs/default-1."
        raise RunError("not a run directory", expected="a folder with config.toml", got=str(folder), cure=cure)
    return path


def _write(path: Path, content: bytes) -> None:
    making = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(making, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(making, path)
    finally:
        making.unlink(missing_ok=True)


def _write_frame(path: Path, frame: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, buffer.getvalue())
