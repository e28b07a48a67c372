"""TensorBoard."""

from pathlib import Path
from typing import Any

import numpy as np

from coterie.records import Event
from coterie.trackers import job_name, means, needed


class TensorBoard:
    """Writes the mean over nodes of every column, and the nodes' accuracies as a histogram, by job into a folder."""

    def __init__(self, folder: str | Path) -> None:
        self._writer = needed("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self.folder = Path(folder)
        self._open: dict[str, Any] = {}

    def event(self, event: Event) -> None:
        """Take note of an evaluation."""
        if event.name != "evaluation" or event.job is None:
            return
        name = job_name(event)
        if name not in self._open:
            self._open[name] = self._writer(str(self.folder / name.replace("/", "_")))
        writer, step = self._open[name], event["round"]
        for column, value in means(event):
            writer.add_scalar(column, value, step, walltime=event.time)
        first = next((c for c in event.data if c.startswith("test_")), None)
        if first and len(event[first]) > 1:
            nodes = np.array([v for v in event[first] if v is not None])
            writer.add_histogram(f"{first} of nodes", nodes, step, walltime=event.time)

    def close(self) -> None:
        """Write what is left."""
        for writer in self._open.values():
            writer.close()
