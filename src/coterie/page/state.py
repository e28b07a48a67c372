"""How far a job of a run has come, as its journals tell it."""

from dataclasses import dataclass, field
from typing import Any

from coterie import records
from coterie.records.journal import Spot

MARKS = 400
"""How many events of a job are listed."""


@dataclass
class JobState:
    """How far a job has come, and where its journal tells what."""

    rounds: int = 0
    nodes: int = 0
    round: int = 0
    how: str = "waiting"
    began: float | None = None
    ended: float | None = None
    error: str = ""
    marks: list[dict[str, Any]] = field(default_factory=list)
    unlisted: int = 0
    """How many events are not among the marks because there are too many."""
    exchanges: dict[int, Spot] = field(default_factory=dict)
    faults: dict[int, Spot] = field(default_factory=dict)
    roles: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    """By role and round, which nodes had it."""
    reached: dict[int, float] = field(default_factory=dict)
    """When each round was done, by the first who did."""
    peers: dict[str, int] = field(default_factory=dict)
    """The number of each peer that has said something."""
    ends: dict[str, str] = field(default_factory=dict)
    """How each peer has ended that has."""
    laps: dict[str, dict[int, float]] = field(default_factory=dict)
    """When each peer had done which round."""
    told: dict[str, dict[int, Spot]] = field(default_factory=dict)
    """By peer and round, where it tells what it exchanged with whom."""
    neighbours: dict[str, list[str]] = field(default_factory=dict)
    """Whom each peer has to do with."""
    words: list[tuple[int, str, str, str]] = field(default_factory=list)
    """What peers said of neighbours: in which round, who, of whom, and whether `gone`, `back` or `refused`."""

    def reach(self, round: int, time: float, peer: str | None) -> None:
        """Note that a round is done."""
        self.round = max(self.round, round)
        self.reached[round] = min(time, self.reached.get(round, time))
        if peer is not None:
            self.laps.setdefault(peer, {})[round] = time

    def heed(self, event: records.Event) -> None:
        """Note what a peer says of its neighbours."""
        for kind in ("gone", "back", "refused"):
            self.words += [(event["round"], event["peer"], str(name), kind) for name in event.get(kind) or ()]

    def play(self, event: records.Event) -> None:
        """Note who was what in a round; a peer says it of itself."""
        said = event["roles"]
        told = said if isinstance(said, dict) else {role: [event.get("node", 0)] for role in said}
        for role, nodes in told.items():
            self.roles.setdefault(role, {}).setdefault(event["round"], []).extend(nodes)

    def mark(self, event: records.Event, text: str, **more: Any) -> None:
        """List something that happened, or will."""
        if len(self.marks) >= MARKS:
            self.unlisted += 1
            return
        said = {"kind": event.name, "round": event.get("round"), "time": event.time, "text": text[:300]}
        about = {"node": event["node"]} if isinstance(event.get("node"), int) else {}
        self.marks.append(said | about | more)

    def happened(self) -> list[dict[str, Any]]:
        """The marks, those that name no round at the last that was done by then."""
        return [m if m["round"] is not None else m | {"round": self._when(m["time"])} for m in self.marks]

    def _when(self, time: float) -> int:
        return max((round for round, done in self.reached.items() if done <= time), default=0)
