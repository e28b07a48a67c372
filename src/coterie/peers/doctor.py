"""Looks for what keeps a peer from working with its neighbours, from here and from there."""

import asyncio
import os
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from coterie.errors import PeerError
from coterie.net import status
from coterie.net.addresses import split_address
from coterie.net.certificates import SKEW, parsed
from coterie.net.dialling import WORDS, Dialling, ask_back, reach
from coterie.net.doors import Door
from coterie.net.identity import Card, Home
from coterie.net.tickets import Tickets

LITTLE = 1 << 30
"""Bytes of disk or memory below which it is said that they are few: a process with PyTorch has a third of that."""
APART = 60.0
"""Seconds that clocks may be apart without a word."""

Health = Literal["ok", "look", "fail"]


@dataclass(frozen=True)
class Finding:
    """What was found, and what to do about it."""

    about: str
    state: Health
    text: str
    cure: str = ""


async def examine(home: Home) -> list[Finding]:
    """Look at this machine, then at each neighbour from both sides."""
    known, cards = status.read(home.path / "run"), home.look()[0]
    found = [*_certificate(home), _disk(home), _memory()]
    door = Door(home)
    try:
        found.insert(0, await _listening(home, door, cards, known))
        if not cards:
            cure = "Give one a ticket, with `coterie peer invite`, or take one, with `coterie peer join TICKET`."
            return [*found, Finding("neighbours", "fail", "there are none", cure)]
        alive = {name for name, each in (known or {}).get("neighbours", {}).items() if each.get("alive")}
        for findings in await asyncio.gather(*(_neighbour(home, card, card.name in alive) for card in cards.values())):
            found += findings
    finally:
        await door.close()
    return found


async def _listening(home: Home, door: Door, cards: dict[str, Card], known: dict[str, Any] | None) -> Finding:
    """Whether this peer can be called; if it does not run, the doctor listens in its place."""
    if known is not None:
        return Finding("listens", "ok", f"{home.listen} (the peer is running, in round {known.get('round')})")
    if not cards and not Tickets(home).pending():
        return Finding("listens", "look", f"{home.listen}, once there are neighbours")
    try:
        await door.open(Dialling(home, cards).handlers(), len(cards))
    except PeerError:
        port = split_address(home.listen)[1]
        cure = f"Find who has it (`ss -ltnp 'sport = :{port}'`), or choose another: `coterie peer move`."
        return Finding("listens", "fail", f"{home.listen} is taken, or not an address of this machine", cure)
    return Finding("listens", "ok", f"{home.listen} is free (the peer is not running)")


def _certificate(home: Home) -> list[Finding]:
    try:
        warnings = home.check()
    except PeerError as error:
        return [Finding("certificate", "fail", str(error))]
    until = parsed(home.certificate).not_valid_after_utc
    own = Finding("certificate", "ok", f"{home.name}'s counts until {until:%Y-%m-%d}")
    return [own, *(Finding("cards", "look", text) for text in warnings)]


def _disk(home: Home) -> Finding:
    free = shutil.disk_usage(home.path).free
    text, cure = f"{free / 1e9:.1f} GB free", "Make room: a peer keeps two checkpoints, its records and its log."
    try:
        probe = home.path / f".doctor-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        return Finding("disk", "fail", f"cannot write to {home.path}: {error.strerror}", cure)
    return Finding("disk", "ok", text) if free >= LITTLE else Finding("disk", "look", text, cure)


def _memory() -> Finding:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return Finding("memory", "ok", "not known on this system")
    text = f"{free / 1e9:.1f} GB available"
    cure = (
        "A peer needs a third of a gigabyte and about ten times its model: end what else runs, or take a smaller one."
    )
    return Finding("memory", "ok", text) if free >= LITTLE else Finding("memory", "look", text, cure)


async def _neighbour(home: Home, card: Card, alive: bool) -> list[Finding]:
    there = f"{card.name}, from here"
    trouble = await reach(home, card)
    if trouble:
        if alive:  # it has come to us, and lent us what we need
            text = f"{card.address}: {WORDS[trouble]}; it calls us instead, and takes part"
            return [Finding(there, "ok", text)]
        return [Finding(there, "fail", f"{card.address}: {WORDS[trouble]}", _cure_there(card, trouble))]
    found, before = [Finding(there, "ok", f"{card.address} answers")], time.time()
    back = f"{card.name}, to here"
    try:
        answer = await ask_back(home, card)
    except PeerError as error:
        return [*found, Finding(back, "look", str(error), "Ask again when it has the same version and is running.")]
    apart = answer.clock - (before + time.time()) / 2
    if not abs(apart) <= APART + (time.time() - before):
        state: Health = "look" if abs(apart) < SKEW.total_seconds() else "fail"
        text = f"{card.name}'s says {_moment(answer.clock)}, {abs(apart) / 60:.0f} minutes from ours"
        found.append(Finding("clock", state, text, "Set the one that is wrong; certificates bear a day."))
    word = WORDS.get(answer.trouble, WORDS["another"])
    if not answer.trouble:
        return [*found, Finding(back, "ok", f"it reaches us at {home.address}")]
    if answer.trouble == "too-many":
        return [*found, Finding(back, "look", word)]
    told = "" if answer.address == home.address else f" (its card of us says so; ours says {home.address})"
    return [*found, Finding(back, "look", f"it does not reach {answer.address[:80]}{told}: {word}", _cure_here(home))]


def _moment(clock: float) -> str:
    """A time in words; a neighbour may say any."""
    try:
        return f"{datetime.fromtimestamp(clock, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return "a time that cannot be"


def _cure_there(card: Card, trouble: str) -> str:
    port = split_address(card.address)[1]
    if trouble in ("stranger", "another"):
        return "Exchange cards anew: `coterie peer invite` there, `coterie peer join TICKET --replace` here."
    if trouble == "closed":
        return f"There: is `coterie peer run` running, and does the firewall let TCP port {port} in?"
    if trouble == "name":
        return "Is the address right? There: `coterie peer move --address HOST:PORT`, and its new card here."
    return (
        f"There: let TCP port {port} in. If it is behind a router (NAT), it reaches us by itself as long as we are "
        "reachable; if we are behind one, too: forward a port on one side, or use a VPN."
    )


def _cure_here(home: Home) -> str:
    port = split_address(home.listen)[1]
    return (
        f"Behind a router (NAT) that is to be expected, and nothing need be done: this peer uses its own calls. "
        f"Else let TCP port {port} in, and see that the address is one of this machine's: `coterie peer move`."
    )
