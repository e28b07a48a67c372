"""Protocols: who trains, sends and merges when. One file each; found by looking.

A protocol is one generator per node per round. It yields what to do and is handed the result; it moves no bytes and
touches no tensor, so the simulator, the in-memory peers and a real network run it unchanged. Rounds are closed: what is
sent in a round is received in it, or lost. Places and operations are made anew for every node in every round, and
frozen dataclasses take several times as long to make: they are not frozen, but nobody changes them.

What is to be done with tensors beyond training and merging stands in methods of the protocol's own, its exercises:
engines call them where the node lives, with all that the node has (`coterie.lessons.Student`), and make packets of what
they say.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.contract import Rule
from coterie.lessons import Lesson
from coterie.network.graph import Graph

Nodes = NDArray[np.int64]
NOBODY: Nodes = np.empty(0, np.int64)


@dataclass(slots=True)
class Place:
    """Where a node stands: whom it hears, who hears it, and which round it is."""

    node: int
    neighbours: Nodes
    audience: Nodes
    round: int
    seed: int
    counters: dict[str, int] = field(default_factory=dict)
    """The protocol's integers at this node, kept from round to round and in checkpoints."""
    identity: int = 0
    """What all nodes call this one: its number where nodes are numbered, and else made of its name."""
    graph: Graph | None = None
    """The network of this round, where it is known as a whole: not to peers that know their neighbours alone."""
    epochs: int | None = None
    """For how many epochs a node trains at a time; None if it is for some mini-batches."""
    remarks: list[str] = field(default_factory=list)
    """Where the protocol writes what a person should know of this round: it becomes a warning in the journal."""
    roles: list[str] = field(default_factory=list)
    """Where it writes what this node was in this round that not all were, such as the aggregator."""

    @property
    def partners(self) -> Nodes:
        """Whom it hears and who hear it."""
        return np.intersect1d(self.neighbours, self.audience)


class Heard(Mapping[int, Any]):
    """The packets a `Receive` brought, by sender; engines subclass it with what they keep in hand."""

    def numbers(self, sender: int) -> tuple[int, ...]:
        """The whole numbers that this sender's packet says, if it says any (`Send.numbers`)."""
        raise TypeError("what is added up on arrival is not kept: the protocol must say that it keeps packets")


@dataclass(slots=True)
class Train:
    """Train one's model on one's own data."""

    doing: ClassVar[str] = "training"
    """What an error says that nodes were at; other operations have the same."""
    start: int | None = None
    """How many epochs the model has behind it, whoever trained it: orders and schedules go by that count.

    None: they go by the node's own epochs.
    """
    epochs: int | None = None
    """For how many epochs; None: as many as the method has in a round."""


@dataclass(slots=True)
class Observe:
    """Let the rule look at one's own data."""

    doing: ClassVar[str] = "observing the data of"


@dataclass(slots=True)
class Send:
    """Send a packet to some nodes: the rule's message if `packet` is None, else one from elsewhere.

    `model` sends the bare parameters instead of what the rule says, and `numbers` whole numbers instead of tensors:
    what protocols have to arrange among themselves. None at all, `()`, says that there is nothing to say.
    """

    doing: ClassVar[str] = "sending from"
    to: Nodes
    tag: str = "model"
    packet: Any = None
    model: bool = False
    numbers: tuple[int, ...] | None = None


@dataclass(slots=True)
class Receive:
    """Wait for packets with this tag from these nodes, or until the deadline; gives what came (`Heard`)."""

    doing: ClassVar[str] = "receiving at"
    senders: Nodes
    tag: str = "model"


@dataclass(slots=True)
class Answer:
    """Let the rule answer everyone heard; gives one packet per neighbour."""

    doing: ClassVar[str] = "answering at"
    heard: Heard


@dataclass(slots=True)
class Merge:
    """Let the rule merge what was heard, and the answers if there are any."""

    doing: ClassVar[str] = "merging at"
    heard: Heard
    answers: Heard | None = None


@dataclass(slots=True)
class Adopt:
    """Take a packet's parameters for one's own, and let the lesson that made them keep of them what it wants to.

    `lesson` is the name of the protocol's field that holds it, and `turn` the lesson's; None: no lesson made them.
    """

    doing: ClassVar[str] = "taking a model at"
    packet: Any
    turn: int | None = None
    lesson: str = "lesson"


@dataclass(slots=True)
class Teach:
    """Apply a lesson to the models heard and one's own; gives one packet per node that it teaches.

    `lesson` is the name of the protocol's field that holds it, and `turn` counts the lessons that came before.
    """

    doing: ClassVar[str] = "the lesson of"
    heard: Mapping[int, Any]
    lesson: str = "lesson"
    turn: int = 0


@dataclass(slots=True)
class Exercise:
    """Let an exercise look at one's own model, data and notes, and at what was heard; gives a packet for each of `to`.

    `name` is that of the protocol's method. With `trains` it is the node's training of the round, and is measured so.
    """

    doing: ClassVar[str] = "an exercise of"
    name: str
    heard: Mapping[int, Any] | None = None
    to: Nodes = field(default_factory=lambda: NOBODY)
    trains: bool = False


Op = Train | Observe | Send | Receive | Answer | Merge | Adopt | Teach | Exercise
Round = Generator[Op, Any, None]


class Protocol(ABC):
    """Who trains, sends and merges when: a frozen dataclass whose fields are the settings."""

    room: ClassVar[str] = "protocols"
    keeps: ClassVar[bool] = True
    """Whether it does more with what it receives than merge it: else a peer adds models up as they arrive."""
    in_step: ClassVar[bool] = False
    """Whether it is for nodes that are in the same round only, so not for asynchronous peers."""
    judged: ClassVar[Literal["trained", "last"]] = "trained"
    """Whether models are what their training has made of them, or what they are at the end of the round."""
    samples: ClassVar[tuple[str, ...]] = ()
    """Tags under which exercises send samples: a peer holds them to the range of its own."""
    models: ClassVar[tuple[str, ...]] = ()
    """Fields in which exercises send models that they note under these names: a peer holds them to its own."""
    tells_trained: ClassVar[bool] = False
    """Whether everyone, once trained, tells all its audience what the rule says: it may be on its way before others'.
    """
    counts_epochs: ClassVar[bool] = False
    """Whether epochs are counted along the way of a model: then peers must agree on how many one trains at a time."""

    @abstractmethod
    def round(self, place: Place, rule: Rule, merge_first: bool) -> Round:
        """What one node does in one round."""

    @property
    def tags(self) -> tuple[str, ...] | None:
        """All tags it uses, if it says so: a peer then takes nothing else in."""
        return None

    @property
    def local(self) -> bool:
        """Whether the numbers of nodes are names of one's neighbours and no more: then peers that know nobody else can
        follow it, too.
        """
        return False

    def among(self, me: str, numbers: Mapping[str, int]) -> "Protocol":
        """The same for a peer, number 0, that knows its neighbours by name and by these numbers alone."""
        return self

    def out_of_step(self) -> "Protocol":
        """The same for asynchronous peers, who are in different rounds."""
        return self

    def says(self, shape: Any, classes: int) -> dict[str, dict[str, int]]:
        """For each tag under which exercises speak, every field that can occur, with its number of elements.

        `shape` is that of one sample, or a dict or tuple of such; `classes` is 0 where targets are no class labels.
        """
        return {}

    def forget(self, notes: dict[str, Tensor], node: int) -> set[int]:
        """Strike what others have told out of a node's notes, after training on it has failed; gives who they are."""
        return set()

    @property
    def lessons(self) -> list[Lesson]:
        """The lessons that it holds."""
        return [lesson for lesson in vars(self).values() if isinstance(lesson, Lesson)]

    def cycles(self, rounds: int) -> list[int]:
        """In which of so many rounds a cycle of a lesson begins."""
        return sorted({start for lesson in self.lessons for start in lesson.cycles(rounds)})

    @property
    def informed(self) -> bool:
        """Whether models are to come with the label shares of their nodes."""
        return any(lesson.informed for lesson in self.lessons)

    def suits(self, graph: Graph) -> None:  # noqa: B027  any suits most protocols
        """Refuse a network, that of the first round if it changes, which the settings do not suit."""

    def turns(self, nodes: int, rounds: int) -> int:
        """How many times in a row a model is trained: among so many a budget of epochs is shared out."""
        return rounds

    def trainers(self, graph: Graph, round: int) -> list[tuple[int, ...]]:
        """Who trains in a round in which nothing fails: those who do so at once together, one after the other."""
        return [tuple(range(graph.nodes))]

    def in_turn(self, nodes: int) -> int:
        """How many nodes work one after the other in a round: so much longer is a deadline."""
        return 1

    def waits(self, node: int, graph: Graph) -> bool:
        """Whether a node that has lost a neighbour had better wait for it a while: without it there is no model."""
        return self.in_turn(graph.nodes) > 1

    def tells(self, nodes: int) -> dict[str, int]:
        """For each tag under which it sends whole numbers among so many nodes, how many."""
        return {}

    def fits(self, nodes: int, passing: Collection[int] = ()) -> None:  # noqa: B027  all suit most protocols
        """Refuse a number of nodes, or nodes that come and go (`passing`), that the settings do not suit."""


BASE = Protocol
