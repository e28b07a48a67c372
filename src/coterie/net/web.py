"""A very small web server: a few pages to read, for one machine's own eyes."""

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

Page = Callable[[], tuple[str, str]]
"""Makes a page when it is asked for: its media type and its text."""

LINE = 8192
"""The longest line of a request, in bytes."""

HEADERS = 64
PATIENCE = 5.0
"""Seconds a request and its answer may take."""

CROWD = 16
"""How many may be served at once."""


@dataclass(frozen=True)
class Response:
    """What goes back: a status, a media type, a text, and whether the text itself was asked for."""

    status: HTTPStatus
    media: str = "text/plain; charset=utf-8"
    text: str = ""
    with_text: bool = True

    def encoded(self) -> bytes:
        """The answer as it goes over the wire."""
        body = (self.text or f"{self.status.value} {self.status.phrase}\n").encode()
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.media}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if self.status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        return "\r\n".join([*lines, "", ""]).encode() + (body if self.with_text else b"")


class _Refusal(Exception):
    """A request that gets no page."""

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status


class Server:
    """Serves pages until it is closed; `serve` makes one."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self.host, self.port, self.local = "", 0, True
        self.busy: set[asyncio.Task[None]] = set()
        self.sent_away: set[asyncio.Task[None]] = set()
        self.listener: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one."""
        self.listener = await asyncio.start_server(self._greet, host, port, limit=LINE, backlog=CROWD)
        names = [socket.getsockname() for socket in self.listener.sockets]
        self.host, self.port = str(names[0][0]), int(names[0][1])
        self.local = all(ipaddress.ip_address(name[0]).is_loopback for name in names)

    def close(self) -> None:
        """Listen no more, and hang up on whoever is being served."""
        if self.listener is not None:
            self.listener.close()
        for task in self.busy | self.sent_away:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until everybody has gone."""
        await asyncio.gather(*self.busy, *self.sent_away, return_exceptions=True)

    def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a caller in a task of our own: the streams of 3.11 report one that is cancelled as an error."""
        crowded = len(self.busy) >= CROWD
        if crowded and len(self.sent_away) >= CROWD:  # nobody holds more than that, not even to hear a refusal
            writer.transport.abort()
            return
        among = self.sent_away if crowded else self.busy
        task = asyncio.create_task(self._meet(reader, writer, crowded))
        among.add(task)

        def done(task: asyncio.Task[None]) -> None:
            among.discard(task)
            writer.transport.abort()  # for one who does not read; where all is said it does nothing

        task.add_done_callback(done)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, crowded: bool) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE):
                await self._serve(reader, writer, crowded)
                writer.close()
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, crowded: bool) -> None:
        try:
            if crowded:
                raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE)
            answer = self._answer(*await _request(reader))
        except _Refusal as refusal:
            answer = Response(refusal.status)
        writer.write(answer.encoded())
        await writer.drain()
        if answer.status >= 400 and not crowded:
            await _hear_out(reader, writer)

    def _answer(self, method: str, target: str, hosts: list[str]) -> Response:
        if len(hosts) != 1:
            raise _Refusal(HTTPStatus.BAD_REQUEST)
        # A page elsewhere may give its own name this machine's address, and so have a browser ask in its name.
        if self.local and not _loopback(hosts[0]):
            raise _Refusal(HTTPStatus.FORBIDDEN)
        page = self.pages.get(target.partition("?")[0])
        if page is None:
            raise _Refusal(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            media, text = page()
        except Exception as error:  # whatever is wrong with a page, the peer goes on
            raise _Refusal(HTTPStatus.INTERNAL_SERVER_ERROR) from error
        return Response(HTTPStatus.OK, media, text, with_text=method == "GET")


async def serve(pages: Mapping[str, Page], host: str = "127.0.0.1", port: int = 0) -> Server:
    """Serve these pages, by path, at an address; port 0 takes a free one."""
    server = Server(pages)
    await server.start(host, port)
    return server


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, list[str]]:
    """The method, the target and the `Host` headers of a request."""
    words = (await _line(reader, HTTPStatus.REQUEST_URI_TOO_LONG)).split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _Refusal(HTTPStatus.BAD_REQUEST)
    hosts: list[str] = []
    for _ in range(HEADERS + 1):
        line = await _line(reader, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if not line:
            return words[0], words[1], hosts
        name, _, value = line.partition(":")
        if name.lower() == "host":
            hosts.append(value.strip())
    raise _Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)


async def _line(reader: asyncio.StreamReader, too_long: HTTPStatus) -> str:
    try:
        return (await reader.readuntil(b"\n")).rstrip(b"\r\n").decode("latin-1")
    except asyncio.LimitOverrunError as error:
        raise _Refusal(too_long) from error


async def _hear_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what else a refused client sends: to hang up earlier may take the answer from it."""
    writer.write_eof()
    while await reader.read(LINE):
        pass


def _loopback(host: str) -> bool:
    """Whether a `Host` header names this machine from within."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
