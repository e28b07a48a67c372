"""Peers that neighbours have introduced: kept until somebody here approves, unless a policy does."""

import contextlib
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from coterie import files
from coterie.errors import PeerError
from coterie.net.identity import Card, Home

POLICY = "policy.toml"
FOLDER = "introduced"
EACH, MOST = 4, 64
"""Introductions that are kept, of one neighbour and of all; nor does a policy take in more, for each is a new start."""
Decision = Literal["ask", "accept", "refuse"]


@dataclass(frozen=True)
class Acquaintance:
    """Somebody whom a neighbour introduced."""

    card: Card
    by: str
    refused: bool = False


class Reply(NamedTuple):
    """What becomes of an introduction."""

    asks: bool = True
    """Whether a person is asked first."""
    reason: str = ""
    """Why it comes to nothing, if it does."""
    new: bool = False
    """Whether it was not known before: of the three this is for our own log alone."""


class Acquaintances:
    """Whom a peer was introduced to, each a small file in its home."""

    def __init__(self, home: Home) -> None:
        self.home, self.folder = home, home.path / FOLDER

    def hear(self, card: Card, by: str) -> Reply:
        """A neighbour introduces somebody. The answer does not tell whom this peer knows already."""
        decision = self.policy(by)
        if decision == "refuse":
            return Reply(asks=False, reason="policy")
        neighbours = self.home.look()[0]
        known = neighbours.get(card.name)
        if known and set(card.fingerprints) <= set(known.fingerprints):  # not even with another address
            return Reply(asks=decision == "ask")
        if decision == "accept" and len(neighbours) < MOST:
            with contextlib.suppress(PeerError):  # who cannot simply be added is for a person to see
                self.home.add(card)
                return Reply(asks=False, new=True)
        there = self.everyone()
        if card.fingerprints[0] in there:
            return Reply()
        by_each = Counter(each.by for each in there.values())
        if by_each[by] >= EACH or len(there) >= MOST or card.fingerprints[0] in self.home.card.fingerprints:
            return Reply(reason="too-many")
        self._keep(Acquaintance(card, by))
        return Reply(new=True)

    def policy(self, by: str) -> Decision:
        """What is done with a neighbour's introductions."""
        path = self.home.path / POLICY
        if not path.exists():
            return "ask"
        try:
            table: dict[str, Any] = tomllib.loads(files.content(path).decode())
        except files.UNREADABLE:
            return "ask"
        said, whose = table.get("introductions", "ask"), table.get("from")
        if said == "refuse" or (said == "accept" and (whose is None or (isinstance(whose, list) and by in whose))):
            return "refuse" if said == "refuse" else "accept"
        return "ask"

    def everyone(self) -> dict[str, Acquaintance]:
        """All that are kept, by fingerprint."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(PeerError, *files.UNREADABLE):
                said = files.read_json(path)
                each = Acquaintance(Card.parse(str(said["card"]).encode()), str(said["by"]), bool(said["refused"]))
                found[each.card.fingerprints[0]] = each
        return found

    def waiting(self) -> list[Acquaintance]:
        """Those about whom nobody has decided."""
        return sorted((e for e in self.everyone().values() if not e.refused), key=lambda each: each.card.name)

    def approve(self, name: str) -> Card:
        """Make a neighbour of somebody; of two with one name, the one whose fingerprint begins like that."""
        found = self._find(name)
        self.home.add(found.card)
        self._path(found.card).unlink(missing_ok=True)
        return found.card

    def refuse(self, name: str) -> Card:
        """Never hear of somebody again."""
        found = self._find(name)
        self._keep(Acquaintance(found.card, found.by, refused=True))
        return found.card

    def leave(self, third: Card, to: str) -> None:
        """Keep an introduction for a neighbour that we cannot dial, until it asks."""
        self._write(self._left_for(to) / f"{third.fingerprints[0][:32]}.json", {"card": third.text})

    def left(self, to: str) -> list[Card]:
        """What was kept for a neighbour, who has it now."""
        found = []
        for path in sorted(self._left_for(to).glob("*.json")):
            with contextlib.suppress(PeerError, *files.UNREADABLE):
                found.append(Card.parse(str(files.read_json(path)["card"]).encode()))
            path.unlink(missing_ok=True)
        return found

    def _left_for(self, to: str) -> Path:
        return self.home.path / "introducing" / to

    def _find(self, name: str) -> Acquaintance:
        begins = name.lower() if len(name) >= 8 else "-"
        found = [e for e in self.waiting() if name == e.card.name or e.card.fingerprints[0].startswith(begins)]
        if len(found) == 1:
            return found[0]
        there = ", ".join(f"{e.card.name} ({e.card.fingerprints[0][:16]}…)" for e in (found or self.waiting()))
        cure = "Name one, by the beginning of its fingerprint if names are alike."
        raise PeerError("whom?", expected=there or "somebody introduced (there is nobody)", got=name, cure=cure)

    def _keep(self, who: Acquaintance) -> None:
        self._write(self._path(who.card), {"card": who.card.text, "by": who.by, "refused": who.refused})

    def _write(self, path: Path, said: dict[str, Any]) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.disk(path.parent, "Make room on the disk, then say it again."):
            files.write_json(path, said)

    def _path(self, card: Card) -> Path:
        return self.folder / f"{card.fingerprints[0][:32]}.json"
