"""Tasks of studies, and the folder that keeps each once, as a run of its own."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from coterie import files, records
from coterie.config.configuration import Configuration
from coterie.config.slots import EXTRAS, SLOTS, as_table
from coterie.parts import find
from coterie.runs.exhibits import Results
from coterie.version import __version__

FAILED = "failed.txt"
"""Stands in the folder of a task that cannot be carried out, and says why."""


@dataclass(frozen=True)
class Task:
    """One method with one seed: what is run and kept once, however many exhibits show it."""

    name: str
    experiment: Configuration

    @cached_property
    def key(self) -> str:
        """A digest of what decides the numbers but the data: Coterie's version, settings, the text of users' own parts.

        What is at its default is left out: a setting that is added within a version does not discard what is kept.
        """
        settings = self.experiment.model_dump(exclude={"engine", "data_dir", "keep_models"}, exclude_defaults=True)
        for slot in SLOTS.keys() & settings.keys():
            settings[slot] = [_unusual(slot, table) for table in _listed(settings[slot])]
        if varied := settings.pop("augment", None):
            settings["augment"] = [_unusual("augment", as_table(a), "augmentations") for a in varied]
        metrics = [_unusual("metrics", as_table(m), "metrics") for m in settings.pop("metrics", ())]
        named = [m["name"] if len(m) == 1 else m for m in metrics]
        if named and named != list(Configuration.model_fields["metrics"].default):
            settings["metrics"] = named
        return hashlib.sha256(json.dumps([__version__, settings], sort_keys=True).encode()).hexdigest()[:20]


def _listed(tables: Any) -> list[dict[str, Any]]:
    return list(tables) if isinstance(tables, list | tuple) else [tables]


def _unusual(slot: str, table: Mapping[str, Any], room: str = "") -> dict[str, Any]:
    """A resolved slot without the settings that are at their default; so, too, the parts that it holds."""
    name = str(table["name"])
    part = find(room or SLOTS[slot], name)
    known = part.parameters | EXTRAS.get(slot, {})
    told = {key: value for key, value in table.items() if key != "name" and value != known.get(key, (None, None))[1]}
    told |= {key: _unusual(f"{slot}.{key}", told[key], inside) for key, inside in part.holds.items() if key in told}
    file = Path(name.rpartition(":")[0])
    return {"name": file.read_text("utf-8") + name if file.suffix == ".py" else name, **told}


class TaskStore:
    """The folder in which tasks are kept, each as a run of its own under its key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def holds(self, key: str) -> bool:
        """Whether this task is finished, well or badly."""
        folder = self.path / key
        return (folder / FAILED).is_file() or any(folder.glob("jobs/*/done.parquet"))

    def begun(self, runs: Mapping[str, Mapping[tuple[str, int], Task]]) -> dict[str, dict[tuple[str, int], Task]]:
        """Those of these tasks, run by run, of which something is recorded."""
        some = {
            run: {who: t for who, t in tasks.items() if any((self.path / t.key).glob("jobs/*/**/*.parquet"))}
            for run, tasks in runs.items()
        }
        return {run: tasks for run, tasks in some.items() if tasks}

    def results(self, runs: Mapping[str, Mapping[tuple[str, int], Task]]) -> Results:
        """What the tasks of some runs brought, under the names that the runs give their methods."""
        found: dict[str, pl.DataFrame] = {}
        measured: dict[str, pl.DataFrame] = {}
        for run, tasks in runs.items():
            for task in tasks.values():  # an earlier process may have ended just before it did so
                records.RunFolder(self.path / task.key).collect()
            frames = [self._read(t, method, records.load) for (method, _), t in tasks.items()]
            found[run] = records.together(frames)
            if next(iter(tasks.values())).experiment.measures:
                measured[run] = pl.concat(self._read(t, method, records.measures) for (method, _), t in tasks.items())
        return Results(found, measured)

    def _read(self, task: Task, method: str, load: Any) -> pl.DataFrame:
        frame: pl.DataFrame = load(self.path / task.key)
        return frame.with_columns(pl.lit(method).alias("method"))

    def begin(
        self, task: Task, workers: int, data_dir: str | None, device: str = "cpu"
    ) -> tuple[str, Configuration | None]:
        """The task's folder, and the experiment if it has to be begun there."""
        folder = self.path / task.key
        if (folder / "config.toml").is_file():
            return str(folder), None
        shutil.rmtree(folder, ignore_errors=True)  # a process may have ended before it wrote the configuration
        engine = {"name": "local", "workers": workers, "device": device}
        return str(folder), task.experiment.model_copy(
            update={"engine": engine, "data_dir": data_dir, "keep_models": False}
        )

    def fail(self, key: str, why: str) -> None:
        """Keep that a task cannot be carried out."""
        files.write(self.path / key / FAILED, why.encode())
