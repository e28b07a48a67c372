"""A browser to drive, and pages to look at with it."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.page.serving import Site

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-gpu",
)


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Debian's Chromium, if there is one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip("there is no browser here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=str(CHROMIUM), args=[*QUIET])
        yield made
        made.close()


class Watched:
    """A page in a browser; what goes wrong in it is kept."""

    def __init__(self, browser: Any, url: str, width: int = 1280, **context: Any) -> None:
        self.troubles: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 860}, **context)
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda said: self.troubles.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.goto(url)

    def drawn(self, selector: str = "canvas.network[data-drawn]") -> Any:
        """The page once its network is drawn."""
        self.page.wait_for_selector(selector)
        return self.page


@contextlib.contextmanager
def site(shown: Any) -> Iterator[str]:
    """Serve something meanwhile; gives its address."""
    import uvicorn

    from coterie.page.server import application

    place = Site()
    server = uvicorn.Server(place.settings(application(shown)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place.socket]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield place.url
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)


def answer(url: str, path: str, host: str | None = None, method: str = "GET", more: str = "") -> tuple[int, str, str]:
    """The status, the headers and the body of a request as it is written here, not as a client would mend it."""
    name, port = url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((name, int(port)), 20) as caller:
        said = f"{method} {path} HTTP/1.1\r\nHost: {host or f'{name}:{port}'}\r\nConnection: close\r\n{more}\r\n"
        caller.sendall(said.encode())
        text = b""
        while piece := caller.recv(65536):
            text += piece
    head, _, body = text.decode("utf-8", "replace").partition("\r\n\r\n")
    return int(head.split(" ")[1]), head, body
