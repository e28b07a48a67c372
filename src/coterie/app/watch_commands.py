"""Commands that show runs and peers in a browser."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from coterie.app.terminal import print_paths
from coterie.errors import RunError


def watch(
    folder: Annotated[str, Parameter(help="a run, or a folder of runs, or with --peers a peer's folder")],
    /,
    *more: Annotated[str, Parameter(help="more of them, to compare", negative=())],
    peers: Annotated[bool, Parameter(help="the folders are those of peers on this machine", negative=())] = False,
    port: Annotated[int, Parameter(help="where to serve (else a free port)")] = 0,
    host: Annotated[str, Parameter(help="address to serve at; others than loopback ask for a token")] = "127.0.0.1",
) -> int:
    """Show runs in a browser: finished, killed, or while they run.

    For example:
      coterie watch runs/default-1
      coterie watch runs/a runs/b          compared
      coterie watch runs                   a list to choose from
      coterie watch --peers alice bob      peers on this machine
    """
    from coterie.page.peers import PeersShown
    from coterie.page.serving import Site
    from coterie.page.shown import Shown

    folders = [Path(name) for name in (folder, *more)]
    if peers or all((each / "peer.toml").is_file() for each in folders):
        shown: Shown | PeersShown = PeersShown(folders)
    else:
        shown = Shown(folders)
        if shown.listed and not folders[0].is_dir():
            raise RunError("no such folder", expected="a run, or a folder of runs", got=folder)
    site = Site(host, port)
    print_paths({"watch at": site.url})
    print("Ctrl-C ends this.", flush=True)
    site.serve(shown)
    return 0


def report(
    folder: Annotated[str, Parameter(help="a run directory")],
    /,
    *more: Annotated[str, Parameter(help="more of them, to compare", negative=())],
    out: Annotated[str | None, Parameter(help="the file (else report.html in the run, or here)")] = None,
) -> int:
    """Write the page of one run, or of several together, as one file that needs no network."""
    from coterie import records
    from coterie.page.single import write_page

    folders = [Path(name) for name in (folder, *more)]
    for each in folders:
        records.load(each)
    print_paths({"report": write_page(folders, Path(out or ("report.html" if more else f"{folder}/report.html")))})
    return 0


@contextlib.contextmanager
def watched(wanted: bool, folders: Sequence[Path], how: str = "runs") -> Iterator[None]:
    """Serve the page of a run while it goes on, if that is wanted, and say where."""
    if not wanted:
        yield
        return
    from coterie.page.beside import served

    with served(folders, how) as url:
        print_paths({"watch at": url})
        yield
