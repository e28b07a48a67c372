"""Every node has its neighbours' models teach its own, all at once; no model comes back."""

from dataclasses import dataclass

from coterie.contract import Rule
from coterie.lessons import Lesson
from coterie.lessons.mutual import Mutual
from coterie.protocols import Adopt, Place, Protocol, Receive, Round, Send, Teach, Train


@dataclass(frozen=True)
class Mentors(Protocol):
    """Everyone sends its model to the neighbours, and has what came teach its own.

        round:  w_i ← train(w_i);  w_i ← lesson of i ({w_j}, j ∈ N(i) ∪ {i})

    Every node is an aggregator in every round, and as models do not come back, a link carries half of what a meeting
    over it would. Of what a lesson makes of others' models nothing is kept, so let it teach one's own alone.

    Reference: ours
    """

    lesson: Lesson = Mutual(learners="own")

    judged, in_step, local, tags = "last", True, True, ("model",)

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        yield Train()
        yield Send(place.audience, "model", model=True)
        heard = yield Receive(place.neighbours, "model")
        if heard:
            taught = yield Teach(heard, turn=place.round - 1)
            if place.node in taught:
                yield Adopt(taught[place.node], place.round - 1)
