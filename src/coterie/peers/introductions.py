"""Who is introduced to a peer while it is at work, and whose card is taken away."""

import asyncio
import logging

from coterie.net.calls import Calls
from coterie.net.identity import Card, Home, trusted
from coterie.net.logs import say

GLANCE = 1.0
"""Seconds between two looks at the cards."""


class Introduced(Exception):
    """Neighbours have come or gone, or have newer cards: go on from the checkpoint with them."""


class Introductions:
    """Looks after the cards: who is removed is hung up on at once, who is new is met when that disturbs nobody.

    What is wrong with cards is told, and stops nobody.
    """

    def __init__(self, home: Home, links: Calls, log: logging.Logger) -> None:
        self.home, self.links, self.log = home, links, log
        self._others: list[str] = []
        """The neighbours to go on with, if these are not those of the present."""
        self._dropped = False
        self._stamp: dict[str, int] | None = None
        self._wrong: list[str] = []

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(GLANCE)
            self.look()

    def look(self) -> None:
        """See what has become of the cards."""
        try:
            before, self._stamp = self._stamp, self.home.stamp
        except OSError:  # a look tells which
            before = self._stamp = None
        if self._stamp is not None and self._stamp == before and not self._wrong:
            return
        cards, wrong = self.home.look()
        if wrong and wrong != self._wrong:
            say(self.log, logging.WARNING, "cannot use all cards", wrong=wrong)
        self._wrong = wrong
        self._compare(cards)

    def _compare(self, cards: dict[str, Card]) -> None:
        contacts = self.links.contacts
        for name in [name for name, card in contacts.cards.items() if not trusted(card, cards.get(name))]:
            say(self.log, logging.WARNING, "hung up: its card is gone", neighbour=name)
            self.links.drop(name)
            self._dropped = True
        self._others = sorted(cards) if self._dropped or cards != contacts.cards else []
        contacts.intake.changed.set()

    def heed(self) -> None:
        """Have whoever is at a place to do so go on with other neighbours, if there are others, and any at all."""
        if self._others:
            say(self.log, logging.INFO, "other neighbours", now=self._others)
            raise Introduced
