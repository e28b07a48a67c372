"""The page over HTTP: an application that answers GET alone, with data and with files of its own."""

import asyncio
import hmac
import ipaddress
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coterie.errors import CoterieError
from coterie.page import STATIC
from coterie.page.shown import Shown, told

MEDIA = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SEALED = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
COOKIE = "coterie"
PAUSE = 1.0
"""Seconds between two looks at a run that is followed."""
SHARE = 0.01
"""The part of the time that looking may take."""
FOLLOWERS = 16
"""How many may follow at once."""


def application(shown: Any, token: str | None = None, hosts: tuple[str, ...] = ()) -> FastAPI:
    """The page of what is shown: with a token everybody must know that, else only this machine's names are answered."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=1)
    app.add_middleware(_Guard, token=token, hosts=hosts)
    app.state.followers = 0

    @app.exception_handler(CoterieError)
    async def explained(request: Request, error: CoterieError) -> Response:
        return JSONResponse({"error": str(error)}, 404)

    @app.get("/")
    def index() -> Response:
        return HTMLResponse((STATIC / "index.html").read_text("utf-8"))

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        found = {each.name: each for each in STATIC.iterdir() if each.is_file()}
        suffix = name[name.rfind(".") :]
        if name not in found or suffix not in MEDIA:
            return PlainTextResponse("not found\n", 404)
        return Response(found[name].read_bytes(), media_type=f"{MEDIA[suffix]}; charset=utf-8")

    @app.get("/api/runs")
    def runs() -> Response:
        return _data(shown.listing())

    @app.get("/api/overview")
    def whole(request: Request) -> Response:
        return _data(shown.overview(request.query_params.getlist("run")))

    @app.get("/api/job")
    def job(request: Request) -> Response:
        return _data(told(shown, request.query_params))

    @app.get("/api/stream")
    async def stream(request: Request) -> Response:
        if app.state.followers >= FOLLOWERS:
            return PlainTextResponse("too many follow already\n", 503)
        asked = request.query_params.getlist("run")
        return StreamingResponse(_versions(app, shown, asked), media_type="text/event-stream")

    return app


class _Guard:
    """Turns away who may not ask, and says with every answer what a browser may do with it."""

    def __init__(self, app: ASGIApp, token: str | None, hosts: tuple[str, ...]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SEALED.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = _refused(Request(scope), self.token, self.hosts) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, sealed)


async def _versions(app: FastAPI, shown: Shown, runs: list[str]) -> AsyncIterator[str]:
    """A line whenever there is something new, looked for so seldom that it costs next to nothing."""
    app.state.followers += 1
    last, silent = -1, 0.0
    try:
        while True:
            began = time.monotonic()
            version = await asyncio.to_thread(shown.version, runs)
            cost = time.monotonic() - began
            if version != last or silent > 15:
                yield f"data: {json.dumps({'version': version})}\n\n"
                last, silent = version, 0.0
            pause = max(PAUSE, cost / SHARE)
            silent += pause
            await asyncio.sleep(min(pause, 30))
    except CoterieError:
        return
    finally:
        app.state.followers -= 1


def _data(view: Any) -> Response:
    return Response(json.dumps(view, allow_nan=False, separators=(",", ":")), media_type="application/json")


def _refused(request: Request, token: str | None, hosts: tuple[str, ...]) -> Response | None:
    """The answer to a request that gets none, or gets a cookie first."""
    if request.method not in ("GET", "HEAD"):
        return PlainTextResponse("read-only\n", 405, {"Allow": "GET, HEAD"})
    named = request.headers.getlist("host")
    # A page elsewhere may give its own name this machine's address, and so have a browser ask in its name.
    if len(named) != 1 or not (_loopback(_name(named[0])) or _name(named[0]) in hosts):
        return PlainTextResponse("this host is not known here\n", 403)
    if token is None:
        return None
    given = request.query_params.get("token")
    if given is not None and hmac.compare_digest(given.encode(), token.encode()):
        response = RedirectResponse(request.url.remove_query_params("token").path or "/", 303)
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return response
    if not hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), token.encode()):
        return PlainTextResponse("the token that was printed with the address is missing\n", 401)
    return None


def _name(host: str) -> str:
    return (host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]).lower()


def _loopback(name: str) -> bool:
    """Whether a `Host` header names this machine from within."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
