"""Weights & Biases."""

from collections.abc import Mapping
from typing import Any

from coterie.records import Event
from coterie.trackers import job_name, means, needed


class WandB:
    """Logs the mean over nodes of every column: a run for each job, all in one group.

    What `wandb.init` takes (`mode="offline"`, `entity`, `dir`) is passed on to it.
    """

    def __init__(self, project: str = "coterie", group: str | None = None, config: Any = None, **options: Any) -> None:
        self._wandb = needed("wandb", "wandb")
        self.options: Mapping[str, Any] = {"project": project, "group": group, "config": config, **options}
        self._name = ""
        self._run: Any = None

    def event(self, event: Event) -> None:
        """Take note of an evaluation, of a warning, and of how a job ends."""
        if event.job is None or event.name not in ("evaluation", "warning", "end"):
            return
        if job_name(event) != self._name:
            self.close()
            self._name = job_name(event)
            self._run = self._wandb.init(name=self._name, reinit="finish_previous", **self.options)
        if self._run is None:
            return
        if event.name == "evaluation":
            self._run.log(dict(means(event)) | {"round": event["round"]}, step=event["round"])
        elif event.name == "warning":
            self._run.summary["warning"] = event["text"]
        else:
            self._run.summary["how"] = event["how"]

    def close(self) -> None:
        """The run is over."""
        if self._run is not None:
            self._run.finish()
        self._name, self._run = "", None
