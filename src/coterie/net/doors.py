"""The door of a peer: the port where it listens, and what keeps strangers from holding it open."""

import time
from typing import Any

import grpc

from coterie.errors import PeerError
from coterie.net import descriptors
from coterie.net.contacts import ALIVE, SERVICE
from coterie.net.identity import Home
from coterie.net.tickets import Tickets
from coterie.net.tls import server_credentials

HANDSHAKE = 10.0
"""Seconds in which a caller must have shown who it is; until then anybody may be calling."""
IDLE = 30.0
"""Seconds after which a connection without calls is closed, even if it is a neighbour's."""
CALLS = 8
"""Calls that one connection may have under way."""


class Door:
    """A gRPC server that speaks to neighbours, and to who shows a ticket."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._server: Any = None

    async def open(self, handlers: dict[str, Any], neighbours: int) -> None:
        """Listen; handlers by the names of calls."""
        most = descriptors.connections(descriptors.raise_limit(), neighbours)
        limits = {
            "grpc.max_concurrent_streams": CALLS,
            "grpc.max_allowed_incoming_connections": most,
            "grpc.server_handshake_timeout_ms": int(1000 * HANDSHAKE),
            "grpc.max_connection_idle_ms": int(1000 * IDLE),
        }
        self._server = grpc.aio.server(options=[*ALIVE, ("grpc.so_reuseport", 0), *limits.items()])
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            self._server.add_secure_port(self.home.listen, server_credentials(self.home, self._invited()))
        except RuntimeError:
            cure = "Is this peer running already, or the port taken? `coterie peer move` changes the address."
            raise PeerError(f"cannot listen on {self.home.listen}", cure=cure) from None
        await self._server.start()

    async def close(self) -> None:
        """Hang up."""
        if self._server is not None:
            await self._server.stop(0.2)

    def _invited(self) -> "Invited":
        return Invited(Tickets(self.home))


class Invited:
    """Certificates of tickets that count now; looked up once a second at most, however many callers there are."""

    EVERY = 1.0

    def __init__(self, tickets: Tickets) -> None:
        self._tickets, self._next = tickets, 0.0
        self._stamp: dict[str, int] = {}
        self._ends = float("inf")
        self.certificates: tuple[str, ...] = ()

    def look(self) -> bool:
        """Look for tickets that are new, used, withdrawn or over; whether there are others than before."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self.EVERY
        stamp = self._tickets.stamp
        if stamp == self._stamp and time.time() < self._ends:
            return False
        pending = self._tickets.pending().values()
        self._stamp, before = stamp, self.certificates
        self._ends = min((ticket.ends for ticket in pending), default=float("inf"))
        self.certificates = tuple(ticket.certificate for ticket in pending)
        return self.certificates != before
