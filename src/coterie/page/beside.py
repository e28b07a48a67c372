"""A page that is served beside a run by a process of its own, which ends with the one that asked for it."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from coterie.page.peers import PeersShown
from coterie.page.serving import Site, check_installed
from coterie.page.shown import Shown


@contextlib.contextmanager
def served(folders: Sequence[Path], how: str = "runs") -> Iterator[str]:
    """Serve the page of some `runs`, of a `folder` of runs, or of `peers`, meanwhile; gives its address."""
    check_installed()
    words = [sys.executable, "-m", "coterie.page.beside", how, *map(str, folders)]
    # A session of its own: Ctrl-C asks the run to stop, which ends the page when it has.
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.stdout.close()
        process.wait()


def _main(how: str, *names: str) -> None:
    os.nice(5)  # whoever computes goes first
    folders = [Path(name) for name in names]
    shown = PeersShown(folders) if how == "peers" else Shown(folders, listed=how == "folder")
    site = Site()
    print(site.url, flush=True)
    threading.Thread(target=_end_with_input, daemon=True).start()
    site.serve(shown)


def _end_with_input() -> None:
    """End when the process that holds the other end of our input does."""
    with contextlib.suppress(OSError):
        while sys.stdin.buffer.read(1):
            pass
    os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
