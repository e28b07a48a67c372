"""What is shown of real peers: what each knows of itself and its neighbours, and no more."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.errors import PeerError
from coterie.net import status
from coterie.page.job import node_view
from coterie.page.overview import View
from coterie.page.run import RunReader

RUN = "run"
MARKED = 60
"""Events that are listed of each peer."""


class PeersShown:
    """Answers what a page asks of peers whose folders were named when it was made."""

    def __init__(self, homes: Sequence[Path]) -> None:
        for home in homes:
            if not (home / "peer.toml").is_file():
                cure = "Name the folder that `coterie peer init` made; a card alone does not say how its peer is doing."
                raise PeerError("no peer lives here", expected="a folder with peer.toml", got=str(home), cure=cure)
        self._looked = 0
        self._readers = [RunReader(home / RUN, home.name) for home in homes]

    def listing(self) -> View:
        """That peers are shown here."""
        return {"peers": True, "runs": [{"label": reader.label} for reader in self._readers]}

    def version(self, runs: Sequence[str]) -> int:
        """A number that is another one each time: peers are looked at anew."""
        self._looked += 1
        return self._looked

    def overview(self, runs: Sequence[str]) -> View:
        """How the peers are now, what each has learnt, and what happened to it."""
        return {"peers": [_peer(reader) for reader in self._readers]}

    def job(self, name: str, **asked: Any) -> View:
        """Peers are shown as a whole."""
        raise PeerError("of peers there is the overview alone")


def _peer(reader: RunReader) -> View:
    """One peer: its status if it answers, its curve and its journal in any case."""
    reader.refresh()
    known = status.read(reader.folder)
    key = max(reader.jobs, key=lambda job: reader.jobs[job].began or 0, default=None)
    return {
        "label": reader.label,
        "status": known and status.plain(known),
        "curve": node_view(reader, key, None) if key else {"round": [], "columns": {}},
        "job": f"{key[0]}, seed {key[1]}" if key else "",
        "done": key is not None and "done" in reader.jobs[key].ends.values(),
        "round": reader.jobs[key].round if key else 0,
        "marks": reader.jobs[key].happened()[-MARKED:] if key else [],
    }
