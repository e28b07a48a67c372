"""A page that is served beside a run by a process of its own, which ends with the one that asked for it."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from coterie.page.serving import Site


@contextlib.contextmanager
def served(folders: Sequence[Path], how: str = "runs") -> Iterator[str]:
    """Serve the page of some `runs`, of a `folder` of runs, or of `peers`, meanwhile; gives its address at once."""
    site = Site()
    words = [sys.executable, "-m", "coterie.page.beside", str(site.socket.fileno()), how, *map(str, folders)]
    # A session of its own: Ctrl-C asks the run to stop, which ends the page when it has.
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, pass_fds=[site.socket.fileno()], start_new_session=True, close_fds=True
    )
    site.socket.close()
    try:
        yield site.url
    finally:
        process.kill()  # it holds nothing
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _main(place: str, how: str, *names: str) -> None:
    os.nice(5)  # whoever computes goes first
    threading.Thread(target=_end_with_input, daemon=True).start()
    from coterie.page.peers import PeersShown
    from coterie.page.shown import Shown

    folders = [Path(name) for name in names]
    shown = PeersShown(folders) if how == "peers" else Shown(folders, listed=how == "folder")
    Site(inherited=int(place)).serve(shown)


def _end_with_input() -> None:
    """End when the process that holds the other end of our input does."""
    with contextlib.suppress(OSError):
        while sys.stdin.buffer.read(1):
            pass
    os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
