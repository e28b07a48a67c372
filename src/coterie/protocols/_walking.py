"""How a model is handed from node to node and none is lost: tokens, receipts, and what a node knows of the walk.

Tags name the distance along the path, or on a walk the hop, so that each is waited for by one node, of one node, and
once in a round.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from coterie.protocols import Adopt, Merge, Nodes, Place, Receive, Round, Send, Train

TELLS = {"token": 3, "home": 3, "got": 1, "past": 1, "home got": 1, "home past": 1, "done": 1}
"""What is said in whole numbers, and how many: tokens, and what is known to whoever has got one."""
MODELS = ("last", "older", "home last")
"""Under which names models travel."""
Giver = tuple[Nodes, str]
"""Who handed the model on, and the tag under which it waits for word."""


class Token(NamedTuple):
    """What is told with a model that is handed on."""

    turn: int
    """How many turns were taken on it, those of proxies too: of two models the one with more is the right one."""
    epochs: int
    """How many epochs it has behind it."""
    trained: int
    """How many nodes have trained in this round so far: two models travel once there are two."""


class WalkState:
    """What a node knows of the walk; kept in the counters of its place from round to round."""

    def __init__(self, place: Place, first: bool, aggregate: bool) -> None:
        self.kept, self.aggregate = place.counters, aggregate
        if not self.kept:
            self.kept |= {"holds": int(first), "done": 0, "turn": 0, "epochs": 0}
        self.holds, self.done = bool(self.kept["holds"]), bool(self.kept["done"])
        self.turn, self.epochs = self.kept["turn"], self.kept["epochs"]
        self.each = place.epochs or 0
        """Epochs of a turn."""
        self.most = self.furthest = 0
        """How many turns a model can have had when it comes to this node in this round, and when the round is over."""
        self.came = self.turn + (not self.done)
        """With so many turns or more others have a model that has gone past this node: those of the lap before have
        fewer.
        """
        self.trained = int(self.done)
        """How many nodes have trained in this round, as far as their models are at hand."""
        self.last: Any = None
        """The model that was trained last, as it came; None: the node's own."""
        self.older: Any = None
        """The one before it."""
        self.at = self.kept.get("at", 0)
        """Where on a walk that comes by more than once the model stays: it goes on from there."""
        self.given = False
        """Whether somebody has taken it that was offered last."""

    def keep(self) -> None:
        done = self.done and self.holds
        self.kept |= {"holds": int(self.holds), "done": int(done), "turn": self.turn, "epochs": self.epochs}
        if self.at:
            self.kept["at"] = self.at

    def believes(self, token: Token) -> bool:
        """Whether a model can have come so far by now: else those who add to such numbers would end by them."""
        turn, epochs, trained = token
        return self.turn < turn <= self.most and 0 <= epochs <= turn * self.each and 0 <= trained <= 2

    def take_up(self, turn: int) -> None:
        """Begin again with one's own model, with more turns than any other can have by now."""
        self.holds, self.done, self.turn = True, False, turn
        self.came, self.trained = turn, 0

    def take(self, token: Token, last: Any, older: Any) -> None:
        self.holds, self.done = True, False
        self.turn, self.epochs, self.trained = token
        self.came = self.turn
        self.last, self.older = last, older


def take(state: WalkState, earlier: dict[int, int]) -> Any:
    """Wait for the one before, and while nothing comes for those before it; gives the `Giver` of a model that was
    taken.
    """
    giver: Giver | None = None
    for step, node in earlier.items():
        one = np.array([node])
        heard: Any = (yield Receive(one, f"token {step}")) if giver is None else {}
        token = Token(*heard.numbers(node)) if node in heard else None
        last = (yield Receive(one, f"last {step}")) if token and state.believes(token) else None
        if token and last:
            older = (yield Receive(one, f"older {step}")) if state.aggregate and token.trained > 1 else None
            state.take(token, last[node], older[node] if older else None)
            yield Adopt(last[node])
            if older:
                yield Merge(last, older)
            giver = one, f"done {step}"
        yield Send(one, f"got {step}", numbers=(state.turn,) if last else ())
    yield from _tell_turn(state, "past", earlier)
    return giver


def turn(place: Place, state: WalkState, trains: bool) -> Round:
    """A turn: the node's own model is the last that was trained, unless it only passes on."""
    state.done, state.turn = True, state.turn + 1
    if trains:
        yield Train() if place.epochs is None else Train(state.epochs, place.epochs)
        state.epochs += place.epochs or 0
        state.trained, state.older, state.last = state.trained + 1, state.last, None


def hand_on(state: WalkState, later: dict[int, int], giver: Giver | None, returns: bool = False) -> Round:
    """Hand the model to the next who takes it; tell the others that nothing comes, and the giver that it may go.

    Where the next `returns` the model to this very node, it is held until that is done.
    """
    took = set[int]()
    for step, node in later.items():
        one = np.array([node])
        if not state.holds:
            yield Send(one, f"token {step}", numbers=())
            continue
        yield from _offer(state, one, "token", "last", step)
        got = yield Receive(one, f"got {step}")
        if giver is not None:  # also if the next is gone: those after it wait for word from all before them
            yield Send(*giver, numbers=(state.turn,))
            giver = None
        if got:
            took.add(step)
            if not returns and (yield Receive(one, f"done {step}")):
                state.holds = False
    if giver is not None:
        yield Send(*giver, numbers=(state.turn,))
    state.given = bool(took)
    yield from _look_past(state, "past", later, took)


def wander(place: Place, state: WalkState, path: tuple[int, ...], trains: bool) -> Round:
    """A round on a walk that comes by nodes more than once: the first time they train, and later they pass models on.

    Who hands on to one that can only return the model holds it meanwhile; if it does not come back, the walk goes on
    with what is held. Tags name the hop, counted from the first.
    """
    near, given = {*place.partners.tolist()}, False
    visits = [at for at, node in enumerate(path) if node == place.node]
    state.at = min(state.at, visits[-1])
    for count, at in enumerate(visits):
        earlier = {at: path[at - 1]} if at and path[at - 1] in near else {}
        later = {at + 1: path[at + 1]} if at + 1 < len(path) and path[at + 1] in near else {}
        state.most = state.furthest - len(path) + at
        giver = yield from take(state, earlier)
        state.at = at if giver else state.at
        if state.holds and not state.done and (at + 1 < len(path) or not count):
            yield from turn(place, state, trains and not count)
        elif state.holds and state.done and at > state.at:  # offered before: count above what may have come of that
            state.turn, state.at = state.turn + 1, at
        if state.holds and at < state.at:
            yield Send(np.array([*later.values()], np.int64), f"token {at + 1}", numbers=())
        else:
            waits = giver if path[at - 1 : at] != path[at + 1 : at + 2] else None  # else the model itself is the word
            yield from hand_on(state, later, waits, returns=path[at + 2 : at + 3] == (place.node,))
        given |= state.given
    if path[0] == path[-1] == place.node:  # the lap is over, unless nobody at all has taken the model
        state.given, state.at, state.done = given, 0, state.done and not given


def go_home(state: WalkState, step: int, first: int, giver: Giver | None) -> Round:
    """Bring the model to the first, if it has come to its end here; then the giver may go."""
    one = np.array([first])
    if not state.holds:
        yield Send(one, f"home {step}", numbers=())
    else:
        yield from _offer(state, one, "home", "home last", step)
        if (yield Receive(one, f"home got {step}")):
            state.holds = False
    if giver is not None:
        yield Send(*giver, numbers=(state.turn,))
    yield from _look_past(state, "home past", {step: first}, set())


def come_home(state: WalkState, others: dict[int, int]) -> Round:
    """Wait for the last, and those before it: who has come to an end brings the model."""
    state.most = state.furthest
    for step, node in others.items():
        one = np.array([node])
        heard = yield Receive(one, f"home {step}")
        token = Token(*heard.numbers(node)) if node in heard else None
        last = (yield Receive(one, f"home last {step}")) if token and state.believes(token) else None
        if token and last:
            state.take(token, None, None)
            yield Adopt(last[node])
        yield Send(one, f"home got {step}", numbers=(state.turn,) if last else ())
    yield from _tell_turn(state, "home past", others)


def remark(place: Place, state: WalkState, path: Sequence[int], ring: bool) -> str | None:
    """What a person should know of a walk that was interrupted in this round, before that is kept; told once."""
    held, waited = place.counters["holds"], place.counters["done"]
    end = place.node == (path[0] if ring else path[-1])
    if state.holds and state.done and not state.given and not waited and len(path) > 1 and (ring or not end):
        return "nobody could take the model on: the walk stays here, and goes on from here in a later round"
    if end and not state.holds and (held if ring else place.round == 1 and not state.turn):
        return "the model has not come to the end of its walk in this round: it stays with another, or is lost with one"
    return None


def _offer(state: WalkState, to: Nodes, tag: str, last: str, step: int) -> Round:
    two = state.aggregate and tag == "token" and state.trained > 1 and state.older is not None
    yield Send(to, f"{tag} {step}", numbers=Token(state.turn, state.epochs, 2 if two else min(state.trained, 1)))
    yield Send(to, f"{last} {step}", state.last, model=state.last is None)
    if two:
        yield Send(to, f"older {step}", state.older)


def _tell_turn(state: WalkState, tag: str, others: dict[int, int]) -> Round:
    """Tell how far the walk has come as far as this node knows, once it has taken what it will take in this round."""
    for step, node in others.items():
        yield Send(np.array([node]), f"{tag} {step}", numbers=(state.turn,))


def _look_past(state: WalkState, tag: str, others: dict[int, int], took: set[int]) -> Round:
    """See whether the walk has gone past a node that still holds the model: one that was slow, or has begun again.

    Those who `took` the model and were then heard no more say nothing about that.
    """
    for step, node in others.items():
        said = yield Receive(np.array([node]), f"{tag} {step}")
        if node in said and step not in took and state.came <= said.numbers(node)[0] <= state.furthest:
            state.holds = False
