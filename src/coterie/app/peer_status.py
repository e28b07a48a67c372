"""Commands that look at a peer."""

from rich.text import Text

from coterie.app import formats
from coterie.app.peer_commands import Folder, folder
from coterie.app.terminal import console
from coterie.errors import PeerError


def status(
    *,
    home: Folder = None,
) -> int:
    """Show how the peer on this machine is doing, and its neighbours; with --json or --csv for other programs."""
    from coterie.app.watch import table
    from coterie.net.status import read  # and not what needs torch: this is asked often

    place = folder(home)
    if not (place / "peer.toml").is_file():
        cure = "Name its folder with --home, or make one with `coterie peer init`."
        raise PeerError("no peer lives here", expected="a folder with peer.toml", got=str(place), cure=cure)
    known = read(place / "run")
    if known is None:
        from coterie.peers.deployment import last_words

        raise PeerError(f"the peer in {place} does not answer", cure=last_words(place))
    rows = [{"neighbour": name, **about} for name, about in known["neighbours"].items()]
    if not formats.write(rows if formats.asked == "csv" else known):
        console().print(table(known))
    return 0


def doctor(*, home: Folder = None) -> int:
    """Look for what keeps this peer from working with its neighbours, and say what to do."""
    import asyncio

    from rich.table import Table

    from coterie.net.identity import Home
    from coterie.peers.doctor import examine

    found = asyncio.run(examine(Home(folder(home))))
    table = Table.grid(padding=(0, 2))
    for each in found:
        colour = {"ok": "green", "look": "yellow", "fail": "red"}[each.state]
        table.add_row(Text(each.state, style=colour), each.about, Text(each.text))
        if each.cure:
            table.add_row("", "", Text(f"→ {each.cure}", style="dim"))
    console().print(table)
    return 1 if any(each.state == "fail" for each in found) else 0
