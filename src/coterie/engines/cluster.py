"""One simulation on many machines: workers placed by Ray, or started by torchrun, and rows between them by gloo."""

from dataclasses import dataclass
from typing import Any, Literal

from coterie.engines._calibration import choose_mode
from coterie.engines._crew import Crew
from coterie.engines._dealing import Dealer
from coterie.engines._groups import Mode
from coterie.engines._launching import ByProcesses, Launcher, Meeting
from coterie.engines._placement import Placement, loads, place
from coterie.engines._scheduler import Scheduler
from coterie.engines._session import Engine
from coterie.engines._simulation import Simulation
from coterie.engines._spread import SpreadModels
from coterie.engines.local import Local
from coterie.errors import ConfigError
from coterie.job import Job, Samples
from coterie.processes import cores_here


@dataclass(frozen=True)
class Cluster(Engine):
    """Simulate over many machines: each worker has the rows of some nodes, one core, and GPUs if asked for.

    `address` is that of a Ray cluster (else the one here, which is started if there is none); `workers` 0 takes every
    core that is free there, `gpus` is how many each has. `by` says who starts them: `auto` is torchrun within
    torchrun, else Ray; `processes` needs neither, on one machine.
    """

    address: str = ""
    workers: int = 0
    gpus: float = 0.0
    by: Literal["auto", "ray", "torchrun", "processes"] = "auto"
    mode: Literal["auto", "stack", "loop"] = "auto"
    chunk: int = 0
    placement: Literal["auto", "metis", "kernighan-lin"] = "auto"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if min(self.workers, self.chunk, self.gpus) < 0:
            got = f"{self.workers}, {self.chunk} and {self.gpus:g}"
            raise ValueError(f"workers, chunk and gpus are at least 0, not {got}")

    def alone(self) -> Engine:
        """What cannot go to other processes is computed in this one."""
        return Local(1, self.mode, self.chunk, self.device)

    def open(self) -> "ClusterSession":
        """Workers are started when the first job tells what they need."""
        return ClusterSession(self)


class ClusterSession(Simulation):
    """A crew of workers that serves one job after the other, and the present job's rows among them."""

    def __init__(self, engine: Cluster) -> None:
        self.engine = engine
        self.launcher: Launcher = ByProcesses()
        self.crew: Crew | None = None
        self._samples: Samples | None = None
        self._started = 0

    @property
    def plan(self) -> dict[str, Any]:
        modes = [{"stack": mode.stack, "chunk": mode.chunk} for mode in self._modes]
        where = {"by": self.placement.by, "cut": self.placement.cut, "links": self.placement.links}
        return {"workers": self.count, "modes": modes, "placement": where}

    def choose(self, job: Job) -> dict[str, Any]:
        self.count = self._count(job)
        asked = self.engine.mode, self.engine.chunk, self.count
        self._modes = [choose_mode(job.roster, job.samples, g, *asked) for g in range(len(job.roster.groups))]
        self.placement = self._place(job)
        return self.plan

    def _count(self, job: Job) -> int:
        count = self.engine.workers or min(cores_here(), job.roster.nodes)
        if count > job.roster.nodes:
            cure = f"Use --engine.workers {job.roster.nodes} or fewer."
            raise ConfigError("more workers than nodes", expected=f"up to {job.roster.nodes}", got=count, cure=cure)
        return count

    def _place(self, job: Job) -> Placement:
        from coterie.node.cost import cost

        costs = [cost(model, job.samples).flops for model in job.roster.models]
        work = loads(job.roster, costs)
        return place(job.graph(1), work, self.count, job.roster.seed, self.engine.placement)

    def begin(self, job: Job, plan: dict[str, Any] | None = None) -> None:
        self.count = self._count(job)
        self._modes = [Mode(**mode) for mode in (plan or self.choose(job))["modes"]]
        self.placement = self._place(job)
        self._start(job)
        assert self.crew is not None
        self.job, self.workers = job, self.crew
        self.models = SpreadModels(job, self._modes, self.crew, self.placement.owner)
        self.models.show(self.crew)
        owner = self.placement.owner
        self._dealer = Dealer(job.roster, self._modes, self.models.costs, self.count, owner)
        self._scheduler = Scheduler(job, self.models, self.crew, self._dealer)
        self.ledger, self.traffic = self._scheduler.ledger, self._scheduler.traffic

    def _start(self, job: Job) -> None:
        """Have a crew of so many workers, with this data set."""
        if self.crew and (self.crew.spoilt or self.crew.count != self.count or self._samples is not job.samples):
            self.close()
        if self.crew is None:
            meeting = Meeting(self.launcher.address)
            try:
                self.launcher.start(meeting, self.count, job.samples)
                self.crew = Crew(self.launcher, *meeting.gather(self.launcher, self.count))
                self._started += 1
                self.crew.settle(f"crew {self._started}")
            finally:
                meeting.close()
            self._meeting, self._samples = meeting, job.samples

    def close(self) -> None:
        if self.crew is not None:
            self.crew.close()
            self.crew = None
