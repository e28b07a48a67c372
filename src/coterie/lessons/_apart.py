from dataclasses import dataclass

from torch import Tensor

from coterie.lessons import Classroom, Lesson, Pupil


@dataclass(frozen=True)
class Apart(Lesson):
    """A lesson for others alone: who gives it, and does not train, goes home with what one of its kind is given."""

    of: Lesson

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        others = {node: pupil for node, pupil in pupils.items() if node != data.node}
        taught = self.of.teach(others, data)
        own = pupils[data.node].architecture
        if alike := [params for node, params in taught.items() if pupils[node].architecture == own]:
            taught[data.node] = alike[0]
        return taught
