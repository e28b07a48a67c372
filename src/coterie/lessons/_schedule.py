"""How much a lesson distils in each turn: cycles that begin with supervision and grow longer."""

import math
from dataclasses import dataclass
from typing import Literal

ScheduleShape = Literal["cycle", "half", "fixed", "falling"]


@dataclass(frozen=True)
class Schedule:
    """The weight of distillation by turn, counted from 0.

        cycle:   α = low + ½ (high − low) (1 − cos(2π τ / P)),   τ = 0 … P−1
        half:    α = low + ½ (high − low) (1 − cos(π τ / P)),    τ = 0 … P
        falling: α = high (1 − turn / rounds);     fixed: α = high

    P is `period` in the first cycle, and `growth` more in each that follows.

    Reference: Khalil et al., DFML: Decentralized Federated Mutual Learning, 2024, Equation 4, which begins high as
    printed, while the figures begin low
    """

    shape: ScheduleShape
    low: float
    high: float
    period: int
    growth: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise ValueError(f"low and high are from 0 to 1, and low is not above high: not {self.low} and {self.high}")
        if self.period < 2 or self.growth < 0:
            raise ValueError(f"period is at least 2 and growth at least 0, not {self.period} and {self.growth}")
        if self.shape == "cycle" and (self.period % 2 or self.growth % 2):
            odd = f"{self.period} and {self.growth}"
            raise ValueError(f"period and growth are even, or cycles would miss their maximum: not {odd}")

    def place(self, turn: int) -> tuple[int, int]:
        """Where a turn stands in its cycle, and the period of that cycle."""
        period = self.period
        while turn >= self._length(period):
            turn -= self._length(period)
            period += self.growth
        return turn, period

    def starts(self, turns: int) -> list[int]:
        """With which of so many turns a cycle begins; none where there are no cycles."""
        found: list[int] = []
        turn, period = 0, self.period
        while self.shape in ("cycle", "half") and turn < turns:
            found.append(turn)
            turn, period = turn + self._length(period), period + self.growth
        return found

    def _length(self, period: int) -> int:
        return period + 1 if self.shape == "half" else period

    def _at(self, step: int, period: int) -> float:
        angle = math.pi * step / period * (1 if self.shape == "half" else 2)
        return self.low + 0.5 * (self.high - self.low) * (1 - math.cos(angle))

    def alpha(self, turn: int, rounds: int) -> float:
        """The weight of distillation in a turn."""
        if self.shape == "fixed":
            return self.high
        if self.shape == "falling":
            return self.high * (1 - turn / max(rounds, 1))
        return self._at(*self.place(turn))

    @property
    def first_peak(self) -> int:
        """The turn of the first maximum."""
        return {"cycle": self.period // 2, "half": self.period}.get(self.shape, 0)

    def among_highest(self, turn: int, count: int) -> bool:
        """Whether a turn has one of the so many highest weights of its cycle."""
        if self.shape in ("fixed", "falling"):
            return True
        step, period = self.place(turn)
        every = sorted((self._at(s, period) for s in range(self._length(period))), reverse=True)
        return self._at(step, period) >= every[min(count, len(every)) - 1] - 1e-9
