"""The simulator: all nodes of a run in one machine's memory, advanced together."""

import gc
from dataclasses import dataclass, replace
from typing import Any, Literal

from coterie.engines._calibration import choose_mode
from coterie.engines._dealing import Dealer
from coterie.engines._groups import Mode
from coterie.engines._matrices import Matrices, Models
from coterie.engines._need import Need, stacked_need
from coterie.engines._scheduler import Scheduler
from coterie.engines._session import Engine
from coterie.engines._simulation import Simulation
from coterie.engines._workers import Processes, Workers
from coterie.job import Job, Samples
from coterie.node.placing import available
from coterie.processes import cores_here


@dataclass(frozen=True)
class Local(Engine):
    """Simulate all nodes here: worker processes with one thread each, rows stacked or looped over in each.

    `workers` 0 takes all cores; `mode` auto measures once per machine and model which is faster; `chunk` rows are
    stacked together (0: measured too).
    """

    workers: int = 0
    mode: Literal["auto", "stack", "loop"] = "auto"
    chunk: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.workers < 0 or self.chunk < 0:
            raise ValueError(f"workers and chunk are at least 0, not {self.workers} and {self.chunk}")
        available(self.device)

    def alone(self) -> "Local":
        """The first worker is the calling process."""
        return replace(self, workers=1)

    def open(self) -> "LocalSession":
        """Start the worker processes."""
        return LocalSession(self)


class LocalSession(Simulation):
    """The workers, which serve one job after the other, and the present job's models and scheduler."""

    def __init__(self, engine: Local) -> None:
        self.engine = engine
        self.workers: Workers = Processes((engine.workers or cores_here()) if engine.device == "cpu" else 1)
        self._samples: Samples | None = None
        # The objects of a round bring on a search for cyclic garbage every few rounds. With all objects of libraries to
        # look through, these took a tenth of a round of small models: what is there already is left out.
        gc.freeze()

    @property
    def plan(self) -> dict[str, Any]:
        modes = [{"stack": mode.stack, "chunk": mode.chunk} for mode in self._modes]
        return {"workers": self.workers.count, "modes": modes}

    def begin(self, job: Job, plan: dict[str, Any] | None = None) -> None:
        if plan is not None and plan["workers"] != self.workers.count:
            self.workers.close()
            self.workers = Processes(plan["workers"])
            self._samples = None
        self._load(job.samples)
        self.job = job
        self._modes = [Mode(**mode) for mode in (plan or self.choose(job))["modes"]]
        self.models: Models = Matrices(job, self._modes)
        self.models.show(self.workers)
        self._dealer = Dealer(job.roster, self._modes, self.models.costs, self.workers.count)
        self._scheduler = Scheduler(job, self.models, self.workers, self._dealer)
        self.ledger, self.traffic = self._scheduler.ledger, self._scheduler.traffic

    def choose(self, job: Job, times: int = 1) -> dict[str, Any]:
        asked = self.engine.mode, self.engine.chunk, self.workers.count, times

        def mode(group: int) -> Mode:
            def together(rows: int, most: float) -> float:
                self._load(job.samples)
                took: list[float] = self.workers.all("probe", job.roster, group, rows, most)
                return max(took)

            return choose_mode(job.roster, job.samples, group, *asked, together)

        self._modes = [mode(group) for group in range(len(job.roster.groups))]
        return self.plan

    def _load(self, samples: Samples) -> None:
        if self._samples is not samples:
            self.workers.all("load", samples)
            self._samples = samples

    def need(self, job: Job) -> Need:
        return stacked_need(job, self.workers.count, self.engine.device)

    def close(self) -> None:
        self.workers.close()
        gc.unfreeze()
