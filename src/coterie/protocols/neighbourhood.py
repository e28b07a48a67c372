"""Everyone trains, tells the neighbours, and merges what was heard."""

from dataclasses import dataclass

from coterie.contract import Rule
from coterie.protocols import Answer, Merge, Observe, Place, Protocol, Receive, Round, Send, Train


@dataclass(frozen=True)
class Neighbourhood(Protocol):
    """Train, send to the neighbours, merge what arrives; with a merge before the first training if so started.

        round:  w ← train(w);  send to all who hear me;  w ← merge(w, what I heard)

    Reference: Valerio et al., Coordination-free Decentralised Federated Learning on Complex Networks, 2023, Algorithm 1
    """

    keeps, local, tags = False, True, ("start", "model", "start answer", "model answer")
    tells_trained = True

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        if place.round == 1 and merge_first:
            yield from self._exchange(place, rule, "start")
        yield Train()
        if rule.observes:
            yield Observe()
        yield from self._exchange(place, rule, "model")

    def _exchange(self, place: Place, rule: Rule, tag: str) -> Round:
        yield Send(place.audience, tag)
        heard = yield Receive(place.neighbours, tag)
        answers = None
        if rule.answers:
            for neighbour, packet in (yield Answer(heard)).items():
                yield Send(place.audience[place.audience == neighbour], f"{tag} answer", packet)
            answers = yield Receive(place.neighbours, f"{tag} answer")
        if heard:
            yield Merge(heard, answers)
