"""Commands that look at a peer."""

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
