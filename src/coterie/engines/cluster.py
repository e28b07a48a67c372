"""One simulation on many machines: workers placed by Ray, or started by torchrun, and rows between them by gloo."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from coterie import files, records
from coterie.engines import _cluster_need, _launchers
from coterie.engines._calibration import choose_mode
from coterie.engines._crew import Crew
from coterie.engines._dealing import Dealer
from coterie.engines._groups import Mode
from coterie.engines._launchers import ByProcesses, ByRay, ByTorchrun
from coterie.engines._launching import Launcher, Meeting
from coterie.engines._scheduler import Scheduler
from coterie.engines._session import Engine, JobRun, WorkerLostError
from coterie.engines._simulation import Simulation
from coterie.engines._spread import SpreadModels
from coterie.engines._task_workers import Lost, Returned, TaskWorker, TaskWorkers
from coterie.engines.local import Local
from coterie.errors import ConfigError, RunError
from coterie.job import Job, Samples
from coterie.network.placement import Placement, place
from coterie.node.cost import cost
from coterie.node.placing import available
from coterie.node.snapshot import KeptRows, Snapshot

begun_again, follow, follower = _launchers.begun_again, _launchers.follow, _launchers.follower
__all__ = [
    "Cluster",
    "ClusterSession",
    "Lost",
    "Returned",
    "TaskWorker",
    "TaskWorkers",
    "begun_again",
    "follow",
    "follower",
]
TRIES = 3
"""How many times in a row workers may be lost without a checkpoint in between."""


@dataclass(frozen=True)
class Cluster(Engine):
    """Simulate over many machines: each worker has the rows of some nodes, one core, and GPUs if asked for.

    `address` is that of a Ray cluster (else the one here, which is started if there is none); `workers` 0 takes every
    core that is free there, `gpus` is how many each has (on the device cuda 1, if nothing is said). `by` says who
    starts them: `auto` is torchrun within torchrun, else Ray; `processes` needs neither, on one machine. `memory` is
    how many GB of each machine may be used (0: all that is free).
    """

    address: str = ""
    workers: int = 0
    gpus: float = 0.0
    by: Literal["auto", "ray", "torchrun", "processes"] = "auto"
    mode: Literal["auto", "stack", "loop"] = "auto"
    chunk: int = 0
    placement: Literal["auto", "metis", "kernighan-lin"] = "auto"
    memory: float = 0.0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if min(self.workers, self.chunk, self.gpus, self.memory) < 0:
            got = f"{self.workers}, {self.chunk}, {self.gpus:g} and {self.memory:g}"
            raise ValueError(f"workers, chunk, gpus and memory are at least 0, not {got}")
        available(self.device)

    def alone(self) -> Engine:
        """What cannot go to other processes is computed in this one."""
        return Local(1, self.mode, self.chunk, self.device)

    def open(self) -> "ClusterSession":
        """Find those who start workers; these are started when the first job tells what they need."""
        by = self.by
        if by == "auto":
            by = "torchrun" if _launchers.within_torchrun() else "ray"
        if by == "torchrun" and not _launchers.within_torchrun():
            cure = "Say `torchrun --nproc-per-node 2 -m coterie run …`, or leave --engine.by out."
            raise ConfigError("this process was not started by torchrun", cure=cure)
        gpus = self.gpus or float(self.device.startswith("cuda"))
        launchers = {"ray": lambda: ByRay(self.address, gpus), "torchrun": ByTorchrun, "processes": ByProcesses}
        return ClusterSession(self, launchers[by]())


class ClusterSession(Simulation):
    """A crew of workers that serves one job after the other, and the present job's rows among them."""

    models: SpreadModels

    def __init__(self, engine: Cluster, launcher: Launcher) -> None:
        self.engine, self.launcher = engine, launcher
        self.crew: Crew | None = None
        self._samples: Samples | None = None
        self._most: int | None = None
        """How many workers there are to be from now on, after some were lost."""
        self._started, self._lost, self._wired, self._last = 0, 0, 0, -1
        self._announced: Any = None

    @property
    def plan(self) -> dict[str, Any]:
        modes = [{"stack": mode.stack, "chunk": mode.chunk} for mode in self._modes]
        where = {"by": self.placement.by, "cut": self.placement.cut, "links": self.placement.links}
        return {"workers": self.count, "modes": modes, "placement": where}

    def need(self, job: Job) -> None:
        return None

    def choose(self, job: Job, times: int = 1) -> dict[str, Any]:
        self.count = self._count(job)
        asked = self.engine.mode, self.engine.chunk, self.count, times
        self._modes = [choose_mode(job.roster, job.samples, g, *asked) for g in range(len(job.roster.groups))]
        self.placement = self._place(job)
        return self.plan

    def _count(self, job: Job) -> int:
        count = self._most or self.engine.workers or (self.crew.count if self.crew else self.launcher.free())
        if job.roster.nodes > 1 and not self.engine.workers:
            count = min(count, job.roster.nodes)
        if count > job.roster.nodes > 1:  # where all data are in one place, one of them has the node
            cure = f"Use --engine.workers {job.roster.nodes} or fewer."
            raise ConfigError("more workers than nodes", expected=f"up to {job.roster.nodes}", got=count, cure=cure)
        return max(count, 1)

    def _place(self, job: Job) -> Placement:
        work = np.ones(job.roster.nodes)
        for model, nodes in zip(job.roster.models, job.roster.groups, strict=True):
            each = 1 + cost(model, job.samples).flops
            work[nodes] = [each * max(job.roster.steps(int(n)), 1) for n in nodes]
        count = min(self.count, job.roster.nodes)
        return place(job.graph(1), work, count, job.roster.seed, self.engine.placement)

    def begin(self, job: Job, plan: dict[str, Any] | None = None) -> None:
        self.count = self._count(job)
        self._modes = [Mode(**mode) for mode in (plan or self.choose(job))["modes"]]
        self.placement = self._place(job)
        crew = self._crewed(job)
        owner = self.placement.owner
        self.needed = _cluster_need.needs(job, owner, self.count)
        _cluster_need.check(self.needed, crew.about, 1e9 * self.engine.memory)
        self.job, self.workers, self._wired = job, crew, 0
        self.models = SpreadModels(job, self._modes, crew, owner)
        self.models.show(crew)
        self._dealer = Dealer(job.roster, self._modes, self.models.costs, self.count, owner)
        self._scheduler = Scheduler(job, self.models, crew, self._dealer)
        self.ledger, self.traffic = self._scheduler.ledger, self._scheduler.traffic

    def _crewed(self, job: Job) -> Crew:
        """A crew of so many workers, with this data set."""
        if self.crew and (self.crew.spoilt or self.crew.count != self.count or self._samples is not job.samples):
            self._dismiss()
        if self.crew is None:
            meeting = Meeting(self.launcher.address, self.engine.device)
            try:
                self.launcher.start(meeting, self.count, job.samples)
                self.crew = Crew(self.launcher, *meeting.gather(self.launcher, self.count))
                self._started += 1
                self.crew.settle(f"crew {self._started}")
            except BaseException:
                self.launcher.stop()
                self.crew = None
                raise
            finally:
                meeting.close()
            self._meeting, self._samples = meeting, job.samples
        return self.crew

    def _dismiss(self) -> None:
        if self.crew is not None:
            self.crew.close()
            self.crew = None

    def close(self) -> None:
        self._dismiss()
        self.launcher.leave()

    # Checkpoints in shards.

    def sound(self, state: dict[str, Tensor]) -> bool:
        return all(self.workers.all("sound"))

    def divided(self) -> dict[str, Tensor]:
        """All but the rows, of which it names the nodes alone."""
        empty = {
            g: KeptRows(nodes, torch.zeros(len(nodes), 0), torch.zeros(len(nodes), 0, dtype=torch.int64), {}, {})
            for g, nodes in enumerate(self.job.roster.groups)
        }
        return self._snapshot(empty).tensors()

    def write_shards(self, folder: Path) -> int:
        token, secret = folder / "token", os.urandom(16)
        token.write_bytes(secret)
        sees = self.workers.all("sees", token, secret)
        token.unlink()
        paths = [records.shard(folder, worker) for worker in range(self.count)]
        for path, content in zip(paths, self.workers.each("write", list(zip(paths, sees, strict=True))), strict=True):
            if content is not None:
                files.put(path, *content)
        self._lost = 0
        return self.count

    def restore(self, state: dict[str, Tensor]) -> None:
        if any(tensor.numel() for name, tensor in state.items() if name.endswith("/matrix")):
            super().restore(state)
        else:
            self._restore(Snapshot.read(state))

    def read_shards(self, shards: Sequence[Path]) -> None:
        for path in shards:
            head = path.read_bytes()[:256]
            sees = self.workers.all("begins", path, head)
            content = None if all(sees) else path.read_bytes()
            self.workers.each("read", [(path, None if seen else content) for seen in sees])

    # Losses.

    def recover(self, error: WorkerLostError, task: JobRun) -> str:
        self._lost += 1
        self._dismiss()
        if self._lost > TRIES:
            cure = "Look whether its machine has memory enough; `coterie resume` goes on from the last checkpoint."
            raise RunError(f"{error}, for the {self._lost}th time in a row", cure=cure) from None
        left = self.launcher.settle(self.count)
        if left < 1:
            raise RunError(
                str(error), cure="No worker is left. `coterie resume` goes on when there are some."
            ) from None
        self._most = left
        kept = task.folder.latest_round(task.method, task.seed) if task.folder else 0
        return f"{error}: going on from round {kept} with {left} worker{'s' * (left != 1)}"

    # What there is to tell.

    def remarks(self) -> list[str]:
        """Where nodes are, and what it costs, in words."""
        assert self.crew is not None
        machines = sorted({a["machine"] for a in self.crew.about})
        lines = [f"{self.count} workers on {len(machines)} machine{'s' * (len(machines) > 1)}; {self.placement.words}"]
        lines.append(f"each worker needs up to {_cluster_need.size(max(self.needed))} for its rows and its neighbours'")
        return lines

    def told(self) -> dict[str, Any]:
        """The plan, the bytes between workers since it was told last, and how busy each was."""
        assert self.crew is not None
        planner, counts = self.models.planner, self.workers.all("counts")
        sent = sum(bytes for bytes, _ in counts)
        new, self._wired = sent - self._wired, sent
        busy, self.crew.seconds = self.crew.seconds, [0.0] * self.count
        return {
            "workers": [
                {"machine": a["machine"], "seconds": round(s, 3), "memory": peak}
                for a, s, (_, peak) in zip(self.crew.about, busy, counts, strict=True)
            ],
            "plan": planner.route_now.plan,
            "rows": {name: round(float(rows), 1) for name, rows in planner.route_now.rows.items()},
            "wire_bytes": new,
        }
