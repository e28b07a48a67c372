"""Serve a page: at a loopback address, or elsewhere for those who know a token."""

import contextlib
import ipaddress
import secrets
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from coterie.errors import CoterieError

MISSING = "Install it with `pip install 'coterie[web]'`."


def check_installed() -> None:
    """Say at once if what serves the page is not installed."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise CoterieError("the page needs the extra `web`", cure=MISSING)


class Site:
    """A place where a page is served: bound, so that its address is known, and not yet answering."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, inherited: int | None = None) -> None:
        check_installed()
        self.socket = _bound(host, port) if inherited is None else socket.socket(fileno=inherited)
        self.host, self.port = self.socket.getsockname()[:2]
        self.token = None if ipaddress.ip_address(self.host).is_loopback else secrets.token_urlsafe(18)

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names by which it may be asked for, beside those of the loopback."""
        return () if self.token is None else (self.host, *_own_names())

    def serve(self, shown: Any) -> None:
        """Answer until Ctrl-C."""
        import uvicorn

        from coterie.page.server import application

        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(self.settings(application(shown, self.token, self.hosts))).run(sockets=[self.socket])

    @staticmethod
    def settings(app: Any) -> Any:
        """How it is served: nothing is logged, and nobody is waited for at the end."""
        import uvicorn

        return uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            limit_concurrency=64,
            server_header=False,
        )


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=64)
    except OSError as error:
        cure = "Choose another --port or --host."
        raise CoterieError(f"cannot serve at {host}:{port} ({error.strerror or error})", cure=cure) from None


def _own_names() -> Iterator[str]:
    """What this machine is called, and its addresses."""
    name = socket.gethostname().lower()
    yield name
    yield socket.getfqdn().lower()
    with contextlib.suppress(OSError):
        yield from {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))  # sends nothing: it tells the address that others would see
        yield asked.getsockname()[0]
