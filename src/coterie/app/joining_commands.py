"""Commands by which peers become neighbours: `coterie peer invite`, `join`, `introduce`, `approve`, `refuse`."""

import asyncio
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from coterie.app.peer_commands import Folder, folder
from coterie.app.terminal import print_paths
from coterie.errors import PeerError

if TYPE_CHECKING:
    from coterie.net.identity import Home


def _open(home: str | None) -> "Home":
    from coterie.net.identity import Home

    return Home(folder(home))


def invite(
    *,
    hours: Annotated[float, Parameter(help="how long the ticket counts")] = 24.0,
    address: Annotated[str | None, Parameter(help="HOST:PORT that the other dials (else that of the card)")] = None,
    wait: Annotated[bool, Parameter(help="wait here until it has been used", negative=())] = False,
    withdraw: Annotated[bool, Parameter(help="no ticket given so far counts any more", negative=())] = False,
    home: Folder = None,
) -> int:
    """Print a ticket, one line with which one other peer becomes a neighbour, once."""
    from coterie.net import joining
    from coterie.net.tickets import Tickets

    here = _open(home)
    here.check()
    if withdraw:
        print(f"Withdrawn: {Tickets(here).withdraw()} open tickets of {here.name}.")
        return 0
    ticket = Tickets(here).issue(hours, address)
    print(ticket.line, flush=True)
    until = datetime.fromtimestamp(ticket.ends, UTC)
    _say(f"Whoever says `coterie peer join` with this line before {until:%Y-%m-%d %H:%M} UTC is your neighbour, once.")
    _say("Send it as you would a password. It is of use while this peer runs, or waits: `coterie peer invite --wait`.")
    if not wait:
        return 0
    _say(f"Waiting at {here.listen} (Ctrl-C stops; the ticket counts on).")
    if not asyncio.run(joining.receive(here, _tell, ticket)):
        raise PeerError("nobody has come with this ticket", cure="Give another: `coterie peer invite --wait`.")
    _say(f"{here.name} has a new neighbour: {', '.join(here.neighbours)}.")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tell(what: str, about: str) -> None:
    if what == "joined":
        _say(f"{about} has joined.")


def join(
    ticket: Annotated[str, Parameter(help="the line that `coterie peer invite` printed")],
    /,
    *,
    patience: Annotated[float, Parameter(help="seconds to try again while nobody answers there")] = 20.0,
    replace: Annotated[bool, Parameter(help="take another certificate of a known neighbour", negative=())] = False,
    home: Folder = None,
) -> int:
    """Become a neighbour of who gave the ticket, and make it one of ours."""
    from coterie.net import joining
    from coterie.net.tickets import Ticket

    here, read, end = _open(home), Ticket.read(ticket), time.monotonic() + patience
    here.check()
    while True:
        try:
            card = asyncio.run(joining.join(here, read, replace))
            break
        except joining.Nobody:
            if time.monotonic() > end:
                raise
            time.sleep(1.0)  # it may just go on with other neighbours, or see its tickets a second later
    print_paths({card.name: f"{card.address}  {card.fingerprints[0]}"})
    print(f"{here.name} and {card.name} are neighbours.")
    return 0


def introduce(
    one: Annotated[str, Parameter(help="a neighbour")],
    other: Annotated[str, Parameter(help="another neighbour")],
    /,
    *,
    home: Folder = None,
) -> int:
    """Bring two neighbours together: each is told of the other, and both must approve."""
    from coterie.net import joining
    from coterie.net.acquaintances import Acquaintances

    here = _open(home)
    cards = here.neighbours
    for name in (one, other):
        if name not in cards:
            raise PeerError("no such neighbour", expected=", ".join(cards) or "a neighbour (there is none)", got=name)
    if one == other:
        raise PeerError("two neighbours are brought together", got=f"{one} twice")
    failed = False
    for to, third in ((one, other), (other, one)):
        try:
            answer = asyncio.run(joining.introduce(here, cards[to], cards[third]))
        except joining.Nobody:
            Acquaintances(here).leave(cards[third], to)
            print(f"{to} cannot be dialled: it is told of {third} when it calls this peer, which it does by itself.")
            continue
        told = f"{to} has {third} as a neighbour now" if not answer.asks else f"{to}: `coterie peer approve {third}`"
        refused = {"policy": "does not want introductions", "too-many": "has too many introductions open"}
        print(f"{to} {refused.get(answer.reason, 'cannot read the card')}." if answer.reason else f"{told}.")
        failed |= bool(answer.reason)
    return 1 if failed else 0


def approve(
    name: Annotated[str | None, Parameter(help="who was introduced (else: list them)")] = None,
    /,
    *,
    home: Folder = None,
) -> int:
    """Make a neighbour of somebody whom a neighbour introduced, or list those who wait for it."""
    from coterie.net.acquaintances import Acquaintances

    here = _open(home)
    known = Acquaintances(here)
    if name is None:
        for each in known.waiting():
            print_paths({each.card.name: f"{each.card.address}  {each.card.fingerprints[0]}  by {each.by}"})
        if not known.waiting():
            print("Nobody waits for approval.")
        return 0
    card = known.approve(name)
    print_paths({card.name: f"{card.address}  {card.fingerprints[0]}"})
    return 0


def refuse(name: Annotated[str, Parameter(help="who was introduced")], /, *, home: Folder = None) -> int:
    """Do not hear again of somebody whom a neighbour introduced."""
    from coterie.net.acquaintances import Acquaintances

    card = Acquaintances(_open(home)).refuse(name)
    print(f"{card.name} is not made a neighbour, whoever introduces it with this key.")
    return 0
