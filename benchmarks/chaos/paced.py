"""Averaging that is in no hurry, as a user would bring it."""

import time
from dataclasses import dataclass

from torch import Tensor

from coterie.contract import Inbox, Me, State
from coterie.rules.decavg import DecAvg


@dataclass(frozen=True)
class Paced(DecAvg):
    """Averaging that takes its time, so that rounds take about as long on fast machines as on slow ones."""

    seconds: float = 0.0

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        time.sleep(self.seconds)
        return super().merge(me, params, state, inbox)
