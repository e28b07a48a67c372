"""The commands of a peer: `coterie peer init`, `add`, `remove`, `move`, `rotate`, `run`, `export`."""

import asyncio
import contextlib
import gc
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from coterie import waiting
from coterie.app.terminal import console, print_paths
from coterie.app.watch_commands import watched
from coterie.errors import PeerError

if TYPE_CHECKING:
    from coterie.net.identity import Home

Folder = Annotated[str | None, Parameter(help="the peer's folder (else COTERIE_HOME, else coterie-peer)")]


def folder(home: str | None) -> Path:
    """The peer's folder: as given, else from the environment, else `coterie-peer`."""
    return Path(home or os.environ.get("COTERIE_HOME") or "coterie-peer")


def init(
    *,
    name: Annotated[str, Parameter(help="what neighbours call this peer, such as alice")],
    listen: Annotated[str, Parameter(help="HOST:PORT to listen on, such as 0.0.0.0:7001")],
    address: Annotated[str | None, Parameter(help="HOST:PORT that others dial (else found out)")] = None,
    home: Folder = None,
) -> int:
    """Make a peer: a folder with its key, and a card for its neighbours."""
    from coterie.net.identity import Home, check_name

    card = Path(f"{check_name(name)}.peer")
    Home.check_vacant(folder(home))
    if os.path.lexists(card):  # seen before the key is made, so that a failure leaves nothing behind
        raise PeerError(f"{card} is in the way", cure="Move it, or go to another folder.")
    if not os.access(".", os.W_OK):
        raise PeerError(f"cannot write {card} here", cure="Go to a folder of your own.")
    made = Home.create(folder(home), name, listen, address)
    made.card.write(card)
    print_paths({"card": card, "folder": made.path, "address": made.address, "fingerprint": made.card.fingerprints[0]})
    print("Next: `coterie peer invite` prints a ticket for one neighbour, who says `coterie peer join TICKET`.")
    print(
        f"Or give {card} to each, who says `coterie peer add {card}`, and add theirs the same way: a card is no secret,"
    )
    print(f"but see that it arrives unchanged. {made.path / 'key.pem'} never leaves this machine.")
    return 0


def add(
    card: Annotated[str, Parameter(help="a neighbour's card, such as bob.peer")],
    /,
    *more: Annotated[str, Parameter(help="more cards", negative=())],
    replace: Annotated[bool, Parameter(help="take another certificate of a known neighbour", negative=())] = False,
    home: Folder = None,
) -> int:
    """Make neighbours of the peers whose cards these are."""
    from coterie.net.identity import Card

    here, cards = _open(home), [Card.read(path) for path in (card, *more)]
    for each in cards:
        here.add(each, replace=replace)
        print_paths({each.name: f"{each.address}  {each.fingerprints[0]}"})
    return 0


def remove(name: Annotated[str, Parameter(help="a neighbour's name")], /, *, home: Folder = None) -> int:
    """Trust a neighbour no more."""
    here = _open(home)
    here.remove(name)
    print(f"{name} is no neighbour of {here.name} any more.")
    return 0


def move(
    *,
    address: Annotated[str, Parameter(help="HOST:PORT that others dial from now on")],
    listen: Annotated[str | None, Parameter(help="HOST:PORT to listen on, if that changes too")] = None,
    home: Folder = None,
) -> int:
    """Give the peer another address, and write the card that says so."""
    here = _open(home)
    card = Path(f"{here.name}.peer")
    here.move(address, listen).write(card)
    print_paths({"card": card, "listens on": here.listen, "address": here.address})
    print(f"Each neighbour says `coterie peer add {card}`; this peer is there from its next start on.")
    return 0


def rotate(
    *,
    finish: Annotated[
        bool, Parameter(help="use the new key, once all neighbours have the new card", negative=())
    ] = False,
    home: Folder = None,
) -> int:
    """Renew the peer's key in two steps, so that no neighbour is lost on the way."""
    here = _open(home)
    card = Path(f"{here.name}.peer")
    made = here.finish_rotation() if finish else here.rotate()
    made.write(card)
    print_paths({"card": card, "fingerprint": made.fingerprints[0]})
    if finish:
        print("The new key is in use from the peer's next start on. Neighbours may add the new card, but need not.")
    else:
        print(f"The old key is still in use. Each neighbour says `coterie peer add {card} --replace`;")
        print("when all have done so, and a round has passed, say `coterie peer rotate --finish`.")
    return 0


def _open(home: str | None) -> "Home":
    from coterie.net.identity import Home

    return Home(folder(home))


def run(
    file: Annotated[str, Parameter(help="a TOML file with settings, the same for all peers")],
    /,
    *,
    data: Annotated[str | None, Parameter(help="this peer's data: .npz, Parquet, idx files, or images")] = None,
    method: Annotated[str | None, Parameter(help="which method, if the file has several")] = None,
    architecture: Annotated[int, Parameter(help="which model, if the file has a list of them (0 is the first)")] = 0,
    device: Annotated[
        str | None, Parameter(help="where this peer computes, such as cuda (else as the file says)")
    ] = None,
    status_port: Annotated[int, Parameter(help="loopback port of the status page (else one that is free)")] = 0,
    quiet: Annotated[bool, Parameter(help="only warnings", negative=())] = False,
    watch: Annotated[bool, Parameter(help="serve a page that shows it, meanwhile", negative=())] = False,
    home: Folder = None,
) -> int:
    """Train with whoever is there, from the beginning or from where this peer was."""
    from coterie.app.peer_screen import PeerScreen
    from coterie.config.layers import for_peers
    from coterie.peers import deployment, founding, runtime
    from coterie.peers.checkpoint import CHECKPOINT
    from coterie.peers.introductions import Introduced
    from coterie.processes import asked_to_stop

    here, given, done = _open(home), None, None
    with deployment.alone(here), watched(watch, [here.path], "peers"):
        _await_the_first(here)
        waiting.tell("reading the data")
        while given is None or done is None:
            try:
                with asked_to_stop(signal.default_int_handler):  # before and after the rounds, too
                    given = None
                    gc.collect()  # the parts of a peer know each other: what it was, with its data, would linger
                    who = here, data, method, architecture
                    given = deployment.peer_config(for_peers(Path(file)), *who, status_port, not quiet, device)
                    with PeerScreen(console(stderr=True), quiet) as screen:
                        done = founding.run(replace(given, onlooker=screen.attend))
            except Introduced:
                continue
            except (runtime.Stopped, KeyboardInterrupt):
                kept = (here.path / deployment.RUN / CHECKPOINT).exists()
                model = "; the model so far: `coterie peer export`" if kept else ""
                with contextlib.suppress(OSError):  # the terminal may be gone
                    print(f"Stopped. Go on with the same command{model}.", flush=True)
                os._exit(0)  # a training step under way is not waited for: the checkpoint of the last round stands
    print(_ended(done.row(-1, named=True)))
    print_paths({"records": given.folder / "records.parquet", "log": given.folder / "log.jsonl"})
    return 0


def _ended(last: dict[str, Any]) -> str:
    """How a peer has ended: by the number that `collect` and the status have, and that after the merge if asked."""
    name = next(key.removeprefix("merged_") for key in last if key.startswith("merged_"))
    trained, merged = last.get(f"test_{name}"), last[f"merged_{name}"]
    said = f"Finished: round {last['round']}, test {name} here {trained:.3f} after its training, as `collect` shows it"
    if merged is None or not math.isfinite(merged):
        return f"{said}."
    return f"{said}; {merged:.3f} after the merge: the model that is exported."


def _await_the_first(here: "Home") -> None:
    """Who has no neighbour yet, but has given tickets, waits for the first to come."""
    from coterie.net import joining
    from coterie.net.tickets import Tickets

    if here.look()[0] or not Tickets(here).pending():
        return
    print("No neighbour yet: waiting for the first to come with a ticket (Ctrl-C stops).", flush=True)
    try:
        asyncio.run(joining.receive(here, lambda what, name: print(f"{name}: {what}", flush=True)))
    except KeyboardInterrupt:
        raise PeerError("stopped before anybody came", cure="Start it again: tickets count on.") from None


def export(
    file: Annotated[str, Parameter(help="where to write it, such as model.safetensors")],
    /,
    *,
    peak: Annotated[bool, Parameter(help="the peak that a lesson kept beside the present model", negative=())] = False,
    best: Annotated[bool, Parameter(help="the best so far, if keep_models is best", negative=())] = False,
    home: Folder = None,
) -> int:
    """Write the peer's model as named tensors, for PyTorch without Coterie."""

    from coterie.peers import deployment

    said = deployment.export(_open(home), Path(file), "best" if best else "peak" if peak else "")
    when = {"after round": said["round"]} if "round" in said else {"kept as": said["kept"]}
    print_paths({"model": file, "is": said["model"], **when})
    return 0
