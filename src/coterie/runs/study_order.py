"""What a user asks of a study: which exhibits, at which scale, with which seeds."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.config.configuration import Configuration
from coterie.engines import Engine
from coterie.engines.cluster import Cluster
from coterie.errors import ConfigError
from coterie.parts import find, unknown
from coterie.runs.exhibits import SCALES, Exhibit, matching
from coterie.runs.task_store import Task


def spreads(engine: Engine | None) -> bool:
    """Whether whole runs go to the machines of a Ray cluster."""
    return isinstance(engine, Cluster) and engine.by in ("auto", "ray")


AGAIN = "Mend it, then say the same command again: runs that are done are kept."
"""The cure for what stops a study."""


class Commission(ABC):
    """What is to be carried out: exhibits, with which seeds, from which data, and how many runs at a time."""

    seeds: tuple[int, ...] | None
    """Instead of the experiments' own."""
    data_dir: str | None
    jobs: int
    """How many tasks are run at a time; 0: as many as there are cores."""
    cluster: str = ""
    """What runs tasks as jobs of its own, such as `slurm`; nothing: this machine."""
    cluster_settings: Mapping[str, Any] = {}

    def engine(self) -> Engine | None:
        """What the runs are spread over, if they are to be computed elsewhere."""
        return None

    @abstractmethod
    def exhibits(self) -> dict[str, Exhibit]:
        """The exhibits asked for."""

    def asks_for(self, method: str, exhibits: Mapping[str, Exhibit]) -> bool:
        """Whether runs of this method are wanted."""
        return True

    def wanted(self, exhibit: Exhibit, exhibits: Mapping[str, Exhibit]) -> dict[str, dict[tuple[str, int], Task]]:
        """The tasks that an exhibit waits for, by run: those of methods asked for; all, if it shows what there is."""
        asked = self.runs(exhibits)
        every = {run: self.tasks(run, one) for run, one in exhibit.runs.items() if not asked or run in asked}
        some = {
            run: {who: t for who, t in tasks.items() if exhibit.so_far or self.asks_for(who[0], exhibits)}
            for run, tasks in every.items()
        }
        return {run: tasks for run, tasks in some.items() if tasks}

    def runs(self, exhibits: Mapping[str, Exhibit]) -> set[str]:
        """The runs asked for by name; none: all."""
        return set()

    def check(self) -> None:
        """Refuse what makes no sense."""
        if self.jobs < 0:
            raise ConfigError("jobs", expected="at least 0", got=self.jobs)
        if self.cluster and spreads(self.engine()):
            raise ConfigError(f"--cluster {self.cluster} and --engine cluster are two ways", cure="Say one of them.")

    def tasks(self, run: str, experiment: Configuration) -> dict[tuple[str, int], Task]:
        """The tasks of a run, by method and seed."""
        seeds = self.seeds or experiment.seeds
        return {
            (method, seed): Task(f"{run}: {method}, seed {seed}", settled.model_copy(update={"seeds": (seed,)}))
            for seed in seeds
            for method, settled in experiment.resolved.items()
        }


@dataclass(frozen=True)
class Order(Commission):
    """What a user asked of a study."""

    study: str
    scale: str = "laptop"
    figures: Sequence[str] = ()
    tables: Sequence[str] = ()
    only: Sequence[str] = ()
    """Only these cells of the scale `full`, and of any exhibit only these runs and methods."""
    seeds: tuple[int, ...] | None = None
    data_dir: str | None = None
    jobs: int = 0
    over: Engine | None = None

    def __post_init__(self) -> None:
        self.check()

    def engine(self) -> Engine | None:
        return self.over

    def exhibits(self) -> dict[str, Exhibit]:
        if self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)
        made: dict[str, Exhibit] = find("studies", self.study).make()(self.scale)
        if not made:
            raise ConfigError(f"the study {self.study} has no cells at the scale {self.scale}", cure="Take paper.")
        chosen, missing = matching(made, self.figures, self.tables)
        if missing:
            kind, _, name = missing[0].partition(" ")
            known = [k.removeprefix(f"{kind} ") for k in made if k.startswith(f"{kind} ")]
            raise unknown(
                f"{kind} of the study {self.study}", name, known, f"`coterie show study {self.study}` shows all."
            )
        cells, methods = self._only(made)
        methods -= self.runs({label: made[label] for label in chosen})
        if unmet := methods - {m for label in chosen for run in made[label].runs.values() for m in run.resolved}:
            known = [label.removeprefix("cell ") for label in made if label.startswith("cell ")]
            known += [run for label in chosen for run in made[label].runs]
            known += [m for label in chosen for run in made[label].runs.values() for m in run.resolved]
            raise unknown(f"cell, run or method of the study {self.study}", min(unmet), list(dict.fromkeys(known)))
        return {label: made[label] for label in chosen if not cells or label in cells}

    def _only(self, made: Mapping[str, Exhibit]) -> tuple[set[str], set[str]]:
        """The cells among what is wanted only, and the rest, which names methods."""
        cells = {f"cell {word}" for word in self.only} & made.keys()
        return cells, {word for word in self.only if f"cell {word}" not in made}

    def asks_for(self, method: str, exhibits: Mapping[str, Exhibit]) -> bool:
        """Whether runs of this method are wanted."""
        _, methods = self._only(exhibits)
        methods -= self.runs(exhibits)
        return not methods or method in methods

    def runs(self, exhibits: Mapping[str, Exhibit]) -> set[str]:
        """The runs asked for by name, such as `mnist 0.5`; none: all."""
        return {word for word in self.only for exhibit in exhibits.values() if word in exhibit.runs}
