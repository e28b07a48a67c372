"""What has come to one node, by round and tag, and what is refused. It reads no clock and no disk, and never waits."""

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from coterie.errors import Refused
from coterie.node.sums import Kept, Packet, Summed
from coterie.protocols import Heard

AHEAD = 1
"""How many rounds ahead of mine a neighbour may be: it can have ended my round, but not another without me."""


class Box:
    """The mail of one round and tag: added to sums as it comes if there are sums, kept otherwise."""

    def __init__(self, summed: Summed | None = None, half: bool = False) -> None:
        self.summed, self.half = summed, half
        self.packets: dict[int, Packet] = {}
        """The messages that are kept, by sender."""
        self.bytes: dict[int, int] = {}
        """How many bytes have come from each sender; 0 from those who had nothing to say."""
        self.closed = False

    @property
    def models(self) -> int:
        """How many have come that can be merged."""
        return len(self.packets) if self.summed is None else len(self.summed)

    def add(self, sender: int, packet: Packet | None) -> None:
        """Take in what a sender has to say (None: nothing); what cannot be added up is refused and leaves no trace."""
        if packet is not None and self.summed is None:
            self.packets[sender] = packet
        elif packet is not None and self.summed is not None:
            try:
                self.summed.add(packet)
            except Refused:
                raise
            except Exception as error:  # whatever it is, it costs the message, and not the peer
                raise Refused("fields", f"the rule cannot take them: {type(error).__name__}: {error}") from None
        self.bytes[sender] = packet.bytes(self.half) if packet is not None else 0

    def missing(self, senders: Collection[int]) -> list[int]:
        """Those of the senders from whom nothing has come."""
        return [s for s in senders if s not in self.bytes]

    def hand_out(self, senders: Collection[int]) -> Heard:
        """What has come from these senders; later mail for this box is refused."""
        self.closed = True
        if self.summed is not None:
            return self.summed
        return Kept({s: self.packets[s] for s in senders if s in self.packets})


class Mailbox:
    """The mail of a node whose rounds are closed: each message is taken once, in its own round or the one before."""

    def __init__(
        self,
        senders: Collection[int],
        rounds: int,
        sums: Callable[[int], Summed] | None = None,
        half: bool = False,
        most: float = math.inf,
    ) -> None:
        self.senders, self.rounds, self.round, self.half = senders, rounds, 0, half
        self.most = most
        """How many messages of a round each sender may send."""
        self.boxes: dict[tuple[int, str], Box] = {}
        """By round and tag."""
        self._sums = sums

    def begin(self, round: int) -> None:
        """Begin a round: older mail is of no use any more."""
        self.round = round
        self.boxes = {key: box for key, box in self.boxes.items() if key[0] >= round}

    def box(self, round: int, tag: str) -> Box:
        """The box of a round and tag; there is one from the first time that somebody asks for it."""
        if (round, tag) not in self.boxes:
            self.boxes[round, tag] = Box(self._sums(round) if self._sums is not None else None, self.half)
        return self.boxes[round, tag]

    def judge(self, sender: int, round: int, tag: str) -> None:
        """Refuse what comes twice, too late, too early, or from a stranger."""
        _check_range(round, self.rounds)
        if round < self.round:
            raise Refused("past", f"round {round}, mine is {self.round}")
        if round > max(self.round, 1) + AHEAD:
            raise Refused("future", f"round {round}, mine is {self.round}")
        box = self.boxes.get((round, tag))
        if box is not None and sender in box.bytes:
            raise Refused("duplicate", f"round {round} ({tag}), heard already")
        if box is not None and box.closed:
            raise Refused("past", f"round {round} ({tag}), already merged")
        if sender not in self.senders:
            raise Refused("stranger", "not a neighbour")
        if sum(number == round and sender in box.bytes for (number, _), box in self.boxes.items()) >= self.most:
            raise Refused("tag", f"more than {self.most:g} messages of round {round}")


class NewestMail:
    """The mail of a node that waits for nobody: the newest message of each sender, whatever round it is of."""

    def __init__(self, rounds: int, most: float = math.inf) -> None:
        self.rounds, self.most = rounds, most
        self._newest: dict[int, Packet] = {}
        self._last: dict[tuple[int, str], int] = {}

    def judge(self, sender: int, round: int, tag: str) -> None:
        """Refuse what is not newer than what came before."""
        _check_range(round, self.rounds)
        if round <= self._last.get((sender, tag), 0):
            raise Refused("duplicate", f"round {round} ({tag}), heard already or overtaken")
        if (sender, tag) not in self._last and sum(who == sender for who, _ in self._last) >= self.most:
            raise Refused("tag", f"more than {self.most:g} kinds of messages")

    def note(self, tag: str, packet: Packet) -> None:
        """Note that a message has come; its fields are kept by whoever has room for them."""
        self._last[packet.sender, tag] = packet.message.round
        if packet.message.fields:
            self._newest[packet.sender] = replace(packet, message=replace(packet.message, fields={}))

    def take(self, senders: Collection[int]) -> list[Packet]:
        """The newest of each of these senders, without its fields; each is given once."""
        return [self._newest.pop(s) for s in sorted(set(senders) & self._newest.keys())]


def _check_range(round: int, rounds: int) -> None:
    if not 1 <= round <= rounds:
        raise Refused("future" if round else "past", f"round {round} of {rounds}")
