"""The local endpoint: its pages are there, and nothing that is sent to it does any harm."""

import asyncio
import json
import socket
from typing import Any

import pytest

from coterie.errors import PeerError
from coterie.net import web
from coterie.net.status import metrics, serve
from statuses import example, visiting


async def tell(server: web.Server, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes; the status, the headers and the body that come back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split(" ")[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, body


def request(path: str = "/status", method: str = "GET", host: str | None = "127.0.0.1", more: str = "") -> bytes:
    named = "" if host is None else f"Host: {host}\r\n"
    return f"{method} {path} HTTP/1.1\r\n{named}{more}\r\n".encode()


def test_the_pages_are_there() -> None:
    async def visit(server: web.Server) -> Any:
        return [await tell(server, request(path)) for path in ("/", "/status", "/status?x=1", "/metrics")]

    shown = example()
    index, status, with_query, numbers = visiting(visit, shown)
    assert [code for code, _, _ in (index, status, with_query, numbers)] == [200] * 4
    assert b"/metrics" in index[2]
    assert status[1]["content-type"] == "application/json"
    assert int(status[1]["content-length"]) == len(status[2])
    assert json.loads(status[2])["neighbours"]["carol"]["lag"] == 3
    assert "access-control-allow-origin" not in status[1]
    assert numbers[1]["content-type"].startswith("text/plain; version=0.0.4")
    assert numbers[2].decode() == metrics(shown)


def test_head_tells_the_length_and_nothing_else() -> None:
    async def visit(server: web.Server) -> Any:
        return await tell(server, request("/metrics", "HEAD"))

    status = example()
    code, headers, body = visiting(visit, status)
    assert (code, body) == (200, b"")
    assert int(headers["content-length"]) == len(metrics(status).encode())


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (request("/nowhere"), 404),
        (request("/../etc/passwd"), 404),
        (request(method="POST", more="Content-Length: 3\r\n") + b"abc", 405),
        (request(method="get"), 405),
        (b"GET /status\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\xa5\x01\x00 \xff\r\n\r\n", 400),
        (b"GET /status SMTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (request("/" + "a" * 9000), 414),
        (request("/" + "a" * 200_000), 414),
        (request(more=f"X: {'a' * 9000}\r\n"), 431),
        (request(more="X: y\r\n" * 100), 431),
        (request(host=None), 400),
        (request(more="Host: localhost\r\n"), 400),
        (request(host="evil.example"), 403),
        (request(host="localhost.evil.example:80"), 403),
        (request(host="127.0.0.1.evil.example"), 403),
        (request(host="192.168.1.7"), 403),
        (request(host=""), 403),
        (request(host="[::1]:80"), 200),
        (request(host="LocalHost:1234"), 200),
        (request(host="127.0.0.2:99"), 200),
    ],
)
def test_requests_get_what_they_deserve(sent: bytes, code: int) -> None:
    async def visit(server: web.Server) -> Any:
        first = await tell(server, sent)
        return first, await tell(server, request())

    (got, headers, body), after = visiting(visit)
    assert got == code
    assert (got == 200) == (b"neighbours" in body)
    assert ("allow" in headers) == (code == 405)
    assert after[0] == 200, "nothing that is sent stops the endpoint"


def test_any_host_may_be_named_where_others_are_let_in() -> None:
    async def visit(server: web.Server) -> Any:
        return await tell(server, request(host="peer.example"))

    assert visiting(visit, host="0.0.0.0")[0] == 200


def test_a_page_that_breaks_is_told_as_such() -> None:
    async def visit(server: web.Server) -> Any:
        return (await tell(server, request()))[0], (await tell(server, request("/metrics")))[0]

    status = example()
    status.seed = object()  # type: ignore[assignment]  # no JSON for this
    assert visiting(visit, status) == (500, 200)


def test_who_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PATIENCE", 0.05)

    async def visit(server: web.Server) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /status HT")
        answer = await reader.read()
        writer.close()
        return answer

    assert visiting(visit) == b""


def test_a_crowd_is_turned_away_and_let_in_again() -> None:
    async def visit(server: web.Server) -> Any:
        crowd = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(web.CROWD)]
        while len(server.busy) < web.CROWD:
            await asyncio.sleep(0)
        turned_away = await asyncio.gather(*(tell(server, b"") for _ in range(5)))
        for _, writer in crowd:
            writer.close()
        while server.busy:
            await asyncio.sleep(0)
        return [code for code, _, _ in turned_away], (await tell(server, request()))[0]

    assert visiting(visit) == ([503] * 5, 200)


def test_who_calls_at_the_last_moment_is_not_complained_of() -> None:
    """The loop may end before a caller's task has made its first step."""
    complaints: list[Any] = []

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        server = await web.serve({})
        callers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
        while not server.busy:
            await asyncio.sleep(0)
        server.close()
        for caller in callers:
            caller.close()

    for _ in range(20):
        asyncio.run(scene())
    assert not complaints


def test_closing_hangs_up_and_frees_the_port() -> None:
    async def visit(server: web.Server) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while not server.busy:
            await asyncio.sleep(0)
        server.close()
        assert all(task.cancelling() for task in server.busy), "nobody is waited for"
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        answer = await reader.read()
        writer.close()
        return answer, server.busy

    assert visiting(visit) == (b"", set())


def test_a_port_in_use_is_an_error_with_a_cure() -> None:
    async def visit(server: web.Server) -> Any:
        with pytest.raises(PeerError, match=r"Choose another port"):
            await serve(example(), port=server.port)

    visiting(visit)
