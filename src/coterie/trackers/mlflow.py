"""MLflow."""

from collections.abc import Mapping
from typing import Any

from coterie.records import Event
from coterie.trackers import job_name, means, needed


class MLflow:
    """Logs the mean over nodes of every column: a run for each job, in an experiment of this name."""

    def __init__(
        self, experiment: str = "coterie", uri: str | None = None, parameters: Mapping[str, Any] | None = None
    ) -> None:
        needed("mlflow", "mlflow")
        self._client = needed("mlflow.tracking", "mlflow").MlflowClient(uri)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = found.experiment_id if found else self._client.create_experiment(experiment)
        self.parameters = parameters or {}
        self._runs: dict[str, str] = {}

    def event(self, event: Event) -> None:
        """Take note of an evaluation, and of how a job ends."""
        if event.job is None or event.name not in ("evaluation", "end"):
            return
        name = job_name(event)
        if name not in self._runs:
            self._runs[name] = self._client.create_run(self._experiment, run_name=name).info.run_id
            for key, value in {"method": event["method"], "seed": event["seed"], **self.parameters}.items():
                self._client.log_param(self._runs[name], key, value)
        if event.name == "end":
            self._client.set_terminated(self._runs.pop(name), "FINISHED" if event["how"] == "done" else "FAILED")
            return
        for column, value in means(event):
            self._client.log_metric(self._runs[name], column, value, int(1000 * event.time), event["round"])

    def close(self) -> None:
        """What has not ended by now was interrupted."""
        for run in self._runs.values():
            self._client.set_terminated(run, "KILLED")
