"""Parts as a user would bring them: rules that answer or remember, broken ones, lessons, a protocol, models."""

import os
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.contract import Data, Fields, Inbox, Me, Message, Rule, State, Term
from coterie.lessons import Classroom, Lesson, Look, Pupil, Said, Student
from coterie.parts import find, names
from coterie.protocols import Exercise, Merge, Place, Protocol, Receive, Round, Send, Train
from coterie.rules.cfa import CFA
from coterie.rules.cfa_ge import CFAGE
from coterie.rules.decavg import DecAvg


@dataclass(frozen=True)
class SilentAnswers(CFAGE):
    """Asked for an answer, it has nothing to say."""

    def answer(self, me: Me, theirs: Message, data: Data) -> Fields:
        return {}


@dataclass(frozen=True)
class BrokenAnswers(CFAGE):
    """Node 0 answers with numbers that are none."""

    def answer(self, me: Me, theirs: Message, data: Data) -> Fields:
        return {"gradient": torch.where(me.node == 0, float("nan"), torch.ones_like(theirs["w"]))}


@dataclass(frozen=True)
class Broken(CFA):
    """Node 0 sends numbers that are none."""

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {"w": torch.where(me.node == 0, float("nan"), params)}


@dataclass(frozen=True)
class Velocity(Rule):
    """A running mean of one's moves, averaged too: memory that is sent, changed by the merge, and counted."""

    def init(self, me: Me, params: Tensor) -> State:
        return {"v": torch.zeros_like(params), "merges": torch.zeros_like(me.size), "before": params.clone()}

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {"w": params, "v": state["v"], "merges": state["merges"]}

    def lift(self, message: Message) -> dict[str, Term]:
        return {
            "w": Term(message["w"], message.size),
            "v": Term(message["v"]),
            "merges": Term(message["merges"]),
        }

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        average = inbox.mean("w", own=True)
        v = 0.5 * inbox.mean("v", own=True) + 0.1 * (average - state["before"])
        told = inbox.sum("merges", own=True)
        return average + v / (1 + told), {"v": v, "merges": state["merges"] + 1, "before": average}


@dataclass(frozen=True)
class Counting(Rule):
    """Counts whom it could have heard so far."""

    observes = True

    def init(self, me: Me, params: Tensor) -> State:
        return {"met": torch.zeros_like(me.size)}

    def observe(self, me: Me, params: Tensor, state: State, data: Data) -> State:
        return {"met": state["met"] + me.degree}


@dataclass(frozen=True)
class WholeVelocity(Velocity):
    """The same by whole rows."""

    span = "model"


@dataclass(frozen=True)
class RawVelocity(WholeVelocity):
    """The same with all neighbours' models kept, so that rows are merged in groups that heard equally many."""

    raw = True

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        assert inbox.rows("v", own=True).shape[-2] == inbox.count.reshape(-1)[0] + 1
        v = inbox.rows("v", own=True).mean(dim=-2) + 0.1 * params
        return inbox.rows("w", own=True).mean(dim=-2) + 0.1 * v, {**state, "v": v, "merges": state["merges"] + 1}


@dataclass(frozen=True)
class Nostalgic(Rule):
    """Takes turns between two models, keeping what it is given: nothing that it returns is a copy."""

    observes = True

    def init(self, me: Me, params: Tensor) -> State:
        return {"first": params, "trained": params, "merged": params}

    def observe(self, me: Me, params: Tensor, state: State, data: Data) -> State:
        return {**state, "trained": params}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        swapped = {"first": state["trained"], "trained": state["merged"], "merged": params}
        return (state["first"] if me.round % 2 else inbox.mean("w")), swapped


for _name in names("rules"):  # every coordinate-wise rule again, by whole rows
    _rule = find("rules", _name).target
    if _rule.span == "coordinate":  # type: ignore[attr-defined]
        globals()[f"Whole_{_name}"] = type(f"Whole_{_name}", (_rule,), {"span": "model"})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Mutual(Lesson):
    """A few steps in which all pupils learn from the teacher's data and from each other."""

    steps: int = 3

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        params = {n: p.params.clone() for n, p in pupils.items()}
        x, y = data.inputs[:24], data.targets[:24]
        for _ in range(self.steps):
            leaves = {n: w.detach().requires_grad_() for n, w in params.items()}
            logits = {n: pupils[n].forward(w, x) for n, w in leaves.items()}
            for n, z in logits.items():
                teachers = [F.softmax(logits[m].detach(), -1) for m in pupils if m != n]
                divergence = sum(F.kl_div(F.log_softmax(z, -1), t, reduction="batchmean") for t in teachers)
                (gradient,) = torch.autograd.grad(F.cross_entropy(z, y) + divergence / len(teachers), leaves[n])
                params[n] = params[n] - 0.1 * gradient
        return params


@dataclass(frozen=True)
class Backwards(Lesson):
    """Everyone's own model back a little smaller, handed out in falling order of nodes."""

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        return {n: 0.9 * pupils[n].params for n in sorted(pupils, reverse=True)}


@dataclass(frozen=True)
class Spoilt(Lesson):
    """Node 2 is handed numbers that are none."""

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        return {n: p.params * (float("nan") if n == 2 else 1.0) for n, p in pupils.items()}


@dataclass(frozen=True)
class Momentum(Lesson):
    """The average of all models, carried on by what it changed in the last round: the aggregator remembers it."""

    beta: float = 0.5

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        mean = torch.stack([pupils[n].params for n in sorted(pupils)]).mean(0)
        last = data.notes.get("last", mean)
        data.notes["last"] = mean
        return dict.fromkeys(pupils, mean + self.beta * (mean - last))


@dataclass(frozen=True)
class Where(Lesson):
    """Changes nothing, and notes in which process it was given."""

    def teach(self, pupils: dict[int, Pupil], data: Classroom) -> dict[int, Tensor]:
        data.notes["process"] = torch.tensor([os.getpid()])
        return {}


@dataclass(frozen=True)
class Twice(Protocol):
    """Two exchanges in a round, the second before anyone trains: counters and tags of its own."""

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        place.counters["rounds"] = place.counters.get("rounds", 0) + 1
        for tag in ("first", "second"):
            yield Send(place.audience, tag)
            heard = yield Receive(place.neighbours, tag)
            if heard:
                yield Merge(heard)
        yield Train()


@dataclass(frozen=True)
class Uneven(Protocol):
    """Everyone's model has its own past and trains for its own time; some train as the method has it."""

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        turns = (Train(), Train(start=5), Train(epochs=2), Train(3, 1), Train(0, 3))
        yield turns[place.node % 5]
        yield Send(place.audience)
        heard = yield Receive(place.neighbours)
        if heard:
            yield Merge(heard)


@dataclass(frozen=True)
class Meme(Protocol):
    """Each node has a private model beside the one that is merged, and the two learn from each other."""

    tags = ("model", "word")

    def says(self, shape: tuple[int, ...], classes: int) -> dict[str, dict[str, int]]:
        return {"word": {"confidence": classes}}

    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        words = yield Exercise("speak", to=place.audience)
        for to in place.audience:
            yield Send(place.audience[place.audience == to], "word", words[int(to)])
        yield Exercise("learn", (yield Receive(place.neighbours, "word")), trains=True)
        yield Send(place.audience)
        heard = yield Receive(place.neighbours)
        if heard:
            yield Merge(heard)

    def speak(self, student: Student) -> Said:
        """To nodes of an even number how sure the model is on average."""
        said = {"confidence": student.look(student.data.inputs)[1].softmax(-1).mean(0)}
        return {to: said for to in student.to if to % 2 == 0}

    def learn(self, student: Student) -> Said:
        forward, row = student.pupil.forward, student.pupil.params
        private = student.notes.get("private", 0.5 * row.clone())
        words = [message["confidence"] for message in student.heard.values()]
        mean = torch.stack(words).mean(0) if words else torch.full((student.classes,), 1 / student.classes)

        def loss(look: Look, x: Tensor, y: Tensor) -> Tensor:
            nonlocal private
            features, logits = look(x)
            leaf = private.detach().requires_grad_()
            own = forward(leaf, x)
            (gradient,) = torch.autograd.grad(F.cross_entropy(own, y) + _apart(own, logits.detach()), leaf)
            private = leaf.detach() - 0.1 * gradient
            pull = (logits.softmax(-1).mean(0) - mean).square().sum() + 1e-3 * features.square().mean()
            return F.cross_entropy(logits, y) + _apart(logits, own.detach()) + pull

        student.train(loss)
        student.notes["private"] = private
        return {}


def _apart(logits: Tensor, teacher: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(logits, -1), F.softmax(teacher, -1), reduction="batchmean")


def dropout(shape: tuple[int, ...], classes: int, *, p: float = 0.3) -> nn.Module:
    """A small net with dropout."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Dropout(p), nn.Linear(12, classes))


class _Moody(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.bright, self.dark = nn.Linear(64, classes), nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.bright(x) if x.mean() > 0.3 else self.dark(x)


def moody(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A net that looks at its batch before it decides which layer to use."""
    return _Moody(classes)


def batch_statistics(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Batch norm that keeps no statistics: it has no buffers, and yet samples of a batch depend on each other."""
    norm = nn.BatchNorm1d(12, track_running_stats=False)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), norm, nn.ReLU(), nn.Linear(12, classes))


class _Scaled(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(64, classes), nn.Parameter(torch.tensor(1.5))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.linear(x.flatten(1))


def scaled(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A net with a parameter and a buffer that have no dimension."""
    return _Scaled(classes)


@dataclass(frozen=True)
class Lazy(DecAvg):
    """A rule of the user's own with a setting, that stays where it is half of the way."""

    share: float = 0.5

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        return torch.lerp(params, inbox.mean("w", own=True), self.share), state
