"""How much trouble there is, and what was done to the peers."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from coterie.runs.experiment import Experiment


@dataclass(frozen=True)
class Plan:
    """How long, how many, how much trouble. Troubles begin by the round of the foremost honest peer."""

    seed: int = 0
    nodes: int = 8
    neighbours: int = 4
    rounds: int = 300
    epochs: int = 6
    first: int = 10
    """The round of the first kill: before it nobody has a reason to skip one, but for what a liar says."""
    every: tuple[int, int] = (6, 12)
    """Rounds between kills, of two peers each, at least and at most."""
    until: int = 230
    """The last round in which anybody is killed: who dies at the very end finds nobody to learn from."""
    stop: int = 15
    """The round in which one peer is stopped; after that comes the next trouble, but not before its round."""
    cut: int = 90
    """The round in which the network is cut in two, which also kills a peer of each half."""
    full: int = 160
    """The round in which one peer's disk is full, and it is killed."""
    lasts: int = 25
    """Rounds that each of these three lasts, at least."""
    pause: float = 10.0
    """Seconds that each of them lasts, at least: longer than anybody takes to find out."""
    pace: float = 0.2
    """Seconds that a peer takes to merge, so that these are no more rounds than there are."""
    silent: int = 1200
    """Connections of strangers who say nothing, to one peer at a time."""
    dawdle: float = 0.7
    """Seconds into a round after which the hostile peer says that it has no model: others wait for it so long."""
    points: float = 0.02
    """How much accuracy all that may cost."""
    patience: float = 1800.0
    """Seconds after which the run has failed."""
    plain: bool = False
    """Whether to do without network namespaces and mounts even where they can be made."""

    @property
    def engine(self) -> dict[str, Any]:
        return {"name": "peer", "restarts": 1000, "deadline": 10.0, "wait": 20.0}

    def experiment(self, engine: dict[str, Any], rule: Any = "decavg") -> Experiment:
        """What is run."""
        return Experiment(
            nodes=self.nodes,
            rounds=self.rounds,
            epochs=self.epochs,
            evaluate=1,  # so that every round leaves a record and a line in the log
            seeds=(self.seed,),
            topology={"name": "regular", "k": self.neighbours},
            partition={"name": "dirichlet", "alpha": 2.0, "min_samples": 10},  # the hostile node's data can be missed
            rule=rule,
            engine=engine,
        )


@dataclass
class Spell:
    """Something that was done to some peers, and between which rounds of the foremost."""

    who: tuple[str, ...] = ()
    begun: int = 0
    ended: int = 0
    killed: int = 0
    """Peers that were killed meanwhile."""


@dataclass
class Story:
    """What was done to the peers, and what was seen of them."""

    plan: Plan
    hostile: int
    statuses: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """The latest status of every process of every peer: a new process begins to count at zero."""
    kills: Counter[str] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)
    """Checkpoints that could not be read right after a kill."""
    stopped: Spell = field(default_factory=Spell)
    cut: Spell = field(default_factory=Spell)
    full: Spell = field(default_factory=Spell)
    unsaved: range = range(0)
    """The rounds that the peer with the full disk could not keep."""
    lead: int = 0
    """How far ahead of all other honest peers one was that had skipped rounds, at most."""
    broken: str = ""
    """Why no more trouble could be made, and the run was ended."""
    seconds: float = 0.0
    network: str = ""
    disk: str = ""
