"""One node gathers everyone's models, teaches or averages them, and gives them back."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from coterie.contract import Rule
from coterie.errors import ConfigError
from coterie.lessons import Lesson
from coterie.lessons.average import Average
from coterie.protocols import Adopt, Place, Protocol, Receive, Round, Send, Teach, Train


@dataclass(frozen=True)
class Aggregator(Protocol):
    """Everyone trains, hands the model to one node, and takes back what its lesson made of it.

        round:  w_i ← train(w_i);  the hub:  {w_i} ← lesson({w_i});  w_i ← what came back

    With the lesson `average` this is FedAvg, the hub being one of the trainers; the numbers are those of DecAvg on the
    complete graph. Nodes out of the hub's reach, or unheard, keep their own model.

    Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017
    """

    hub: int = 0
    lesson: Lesson = Average()

    def fits(self, nodes: int, passing: Collection[int] = ()) -> None:
        """Refuse a hub that is not there, or not always: nobody would then hear of another."""
        if not 0 <= self.hub < nodes:
            cure = "Choose one of the nodes, which are counted from 0."
            raise ConfigError("protocol.hub", expected=f"0 to {nodes - 1}", got=self.hub, cure=cure)
        if self.hub in passing:
            cure = "Choose a hub that neither joins nor leaves."
            raise ConfigError("protocol.hub", expected="a node that is always there", got=self.hub, cure=cure)

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        hub = np.array([self.hub])
        if place.round == 1 and merge_first:
            yield from self._exchange(place, hub, "start")
        yield Train()
        yield from self._exchange(place, hub, "model")

    def _exchange(self, place: Place, hub: np.ndarray, tag: str) -> Round:
        if place.node != self.hub:
            if self.hub in place.audience:
                yield Send(hub, tag, model=True)
                back = (yield Receive(hub, f"{tag} back")) if self.hub in place.neighbours else None
                if back:
                    yield Adopt(back[self.hub])
            return
        heard = yield Receive(place.neighbours, tag)
        if heard:
            taught = yield Teach(heard)
            for node, packet in taught.items():
                if node == self.hub:
                    yield Adopt(packet)
                elif node in place.audience:  # where links have a direction it may have no way back
                    yield Send(np.array([node]), f"{tag} back", packet)
