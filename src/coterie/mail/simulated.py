"""The simulator's mail: who sent what to whom in this round, kept as arrays so that a thousand nodes cost no loop."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coterie.job import Indices
from coterie.network.graph import Graph
from coterie.node.bundles import NONE, Bundle
from coterie.protocols import Heard


@dataclass(frozen=True)
class RowPacket:
    """One message in a node's hands: a row of a bundle."""

    bundle: int
    row: int
    sender: int


class Indexed(Heard):
    """What a node heard, as indices into the mail of the round."""

    def __init__(self, mail: "Mail", mails: Indices) -> None:
        self.mail, self.mails = mail, mails

    def __len__(self) -> int:
        return len(self.mails)

    def __iter__(self) -> Iterator[int]:
        return iter(self.mail.source[self.mails].tolist())

    def __getitem__(self, sender: int) -> RowPacket:
        for m in self.mails:
            if self.mail.source[m] == sender:
                return RowPacket(int(self.mail.bundle[m]), int(self.mail.row[m]), sender)
        raise KeyError(sender)

    def numbers(self, sender: int) -> tuple[int, ...]:
        packet = self[sender]
        return self.mail.bundles[packet.bundle].numbers[packet.row]


class Mail:
    """All mail of one round."""

    def __init__(self, graph: Graph, active: np.ndarray | None) -> None:
        self.graph, self.active = graph, active
        self.codes = graph.targets * graph.nodes + graph.sources  # sorted: the graph's arcs are
        self.bundles: list[Bundle] = []
        empty = np.empty(0, np.int64)
        self.source, self.target, self.bundle, self.row, self.tag = empty, empty, empty, empty, empty
        self.weight, self.open, self.void = np.empty(0), np.empty(0, bool), np.empty(0, bool)
        self._tags: dict[str, int] = {}

    def add(self, bundle: Bundle) -> int:
        """Keep a bundle, so that messages of it can be sent; gives its number."""
        self.bundles.append(bundle)
        return len(self.bundles) - 1

    def tell(self, numbers: list[tuple[int, ...]], round: int) -> Indices:
        """Keep whole numbers, a message each; gives the number of their bundle, −1 for those that say nothing."""
        nothing = np.empty(0, np.int64)
        made = self.add(Bundle(NONE, {}, np.ones((len(numbers), 1)), round, nothing, numbers))
        return np.array([made if said else -1 for said in numbers])

    def put(self, source: Indices, target: Indices, tag: str, bundle: Indices, row: Indices) -> tuple[Indices, Indices]:
        """Post mail along arcs; gives source and target of what goes through.

        What does not (the link is down, the numbers are not finite, or there is nothing to say: bundle −1) is void: the
        receiver knows that it need not wait for it, as both ends of a real link would.
        """
        code = target * self.graph.nodes + source
        at = np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)
        if len(strangers := np.flatnonzero(self.codes[at] != code)):
            a, b = int(source[strangers[0]]), int(target[strangers[0]])
            raise RuntimeError(f"the protocol sends from node {a} to node {b}, which are not linked")
        void = bundle < 0
        if self.active is not None:
            void |= ~self.active[at]
        for number in np.unique(bundle[bundle >= 0]):
            if len(self.bundles[number].refused):
                void |= (bundle == number) & np.isin(row, self.bundles[number].refused)
        self.source = np.concatenate([self.source, source])
        self.target = np.concatenate([self.target, target])
        self.bundle = np.concatenate([self.bundle, bundle])
        self.row = np.concatenate([self.row, row])
        self.weight = np.concatenate([self.weight, self.graph.weights[at]])
        self.tag = np.concatenate([self.tag, np.full(len(source), self._tags.setdefault(tag, len(self._tags)))])
        self.void = np.concatenate([self.void, void])
        self.open = np.concatenate([self.open, ~void])
        return source[~void], target[~void]

    def showing(self, group: int, rows: Indices, using: Indices | None = None) -> list[Bundle]:
        """Bundles that show these rows of an architecture live, and of which some mail is unread, `using` aside."""
        found = []
        for number, bundle in enumerate(self.bundles):
            if bundle.group != group or not bundle.aliases:
                continue
            unread = self.open & (self.bundle == number) & np.isin(self.row, rows)
            if using is not None:
                unread[using] = False
            if unread.any():
                found.append(bundle)
        return found

    def collect(self, receivers: list[int], wanted: list[Indices], tag: str, deadline: bool) -> list[Indexed | None]:
        """For each receiver what has come of what it wants; None if it should wait for more (no deadline yet)."""
        mails = np.flatnonzero(self.tag == self._tags.get(tag, -1))
        code = self.target[mails] * self.graph.nodes + self.source[mails]
        order = np.argsort(code, kind="stable")
        mails, code = mails[order], code[order]
        lengths = np.array([len(w) for w in wanted])
        asked = np.repeat(np.array(receivers), lengths) * self.graph.nodes + np.concatenate(wanted)
        at = np.minimum(np.searchsorted(code, asked), max(len(code) - 1, 0))
        found = code[at] == asked if len(code) else np.zeros(len(asked), bool)
        first = np.concatenate([[0], np.cumsum(lengths)])
        here = np.concatenate([[0], np.cumsum(found)])
        came = mails[at[found]]
        kept = ~self.void[came]
        told = np.concatenate([[0], np.cumsum(kept)])[here][first].tolist()
        complete = deadline | (np.diff(here[first]) == lengths)
        heard = came[kept]
        each = zip(complete.tolist(), told, told[1:], strict=False)
        return [Indexed(self, heard[start:end]) if done else None for done, start, end in each]
