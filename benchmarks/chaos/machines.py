"""Where peers in trouble live, so that their network can be cut: namespaces of their own or, without the right to make
them, loopback with a proxy on every link."""

import asyncio
import contextlib
import ctypes
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import namespaces
from coterie.engines.peer import free_ports
from coterie.job import Job
from coterie.net.addresses import split_address
from coterie.net.identity import Home

NEW_NETWORK = 0x40000000
"""`CLONE_NEWNET`: what of a process is to be in another namespace."""
PORT = 7001
PART = 1 << 16


class Net(Protocol):
    """The network of some peers."""

    kind: str

    def host(self, node: int) -> str:
        """Where a node is."""
        ...

    def machine(self, node: int | None) -> str | None:
        """The namespace of a node, or of who belongs to none, if there is one."""
        ...

    def homes(self, folder: Path, names: Sequence[str], job: Job) -> list[Home]:
        """Keys and neighbours for all nodes."""
        ...

    def cut(self, islands: Sequence[int]) -> None:
        """Let nodes on different islands not hear each other, without a word; nobody is on one if it is empty."""
        ...


@contextlib.contextmanager
def network(nodes: int, plain: bool = False) -> Iterator[Net]:
    """A network for so many nodes, from which this process can reach them."""
    if plain or namespaces.why_not():
        with _proxies() as net:
            yield net
        return
    with namespaces.machines(nodes + 1, mtu=65_000) as machines, _moved(machines.names[nodes]):
        yield Namespaced(machines)


@dataclass
class Namespaced:
    """A namespace for each node, and one for whoever watches them."""

    machines: namespaces.Machines
    kind: str = "network namespaces"

    def host(self, node: int) -> str:
        return self.machines.address(node)

    def machine(self, node: int | None) -> str | None:
        return self.machines.names[-1 if node is None else node]

    def homes(self, folder: Path, names: Sequence[str], job: Job) -> list[Home]:
        homes = [Home.create(folder / name, name, f"{self.host(i)}:{PORT}") for i, name in enumerate(names)]
        for i, home in enumerate(homes):
            for j in job.network.around(i):
                home.add(homes[j].card)
        return homes

    def cut(self, islands: Sequence[int]) -> None:
        self.machines.switch.islands = [*islands, namespaces.EVERYWHERE] if islands else ()


def enter(machine: str) -> None:
    """Let this thread, and those that it starts, be in a namespace."""
    with open(f"/run/netns/{machine}", "rb") as there:
        _set(there.fileno())


@contextlib.contextmanager
def _moved(machine: str) -> Iterator[None]:
    with open(f"/proc/self/task/{threading.get_native_id()}/ns/net", "rb") as before:
        enter(machine)
        try:
            yield
        finally:
            _set(before.fileno())


def _set(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


@contextlib.contextmanager
def _proxies() -> Iterator["Proxies"]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield Proxies(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


class Proxies:
    """Loopback, where what one node says to another passes through here."""

    kind = "loopback with a proxy for each link"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.islands = loop, list[int]()

    def host(self, node: int) -> str:
        return "127.0.0.1"

    def machine(self, node: int | None) -> str | None:
        return None

    def homes(self, folder: Path, names: Sequence[str], job: Job) -> list[Home]:
        links = [(i, int(j)) for i in range(len(names)) for j in job.network.around(i)]
        own, between = (lambda p: (p[: len(names)], p[len(names) :]))(free_ports(len(names) + len(links)))
        homes = [Home.create(folder / name, name, f"127.0.0.1:{own[i]}") for i, name in enumerate(names)]
        for (i, j), port in zip(links, between, strict=True):
            homes[i].add(replace(homes[j].card, address=f"127.0.0.1:{port}"))
            asyncio.run_coroutine_threadsafe(self._serve(i, j, port, homes[j].card.address), self.loop).result()
        return homes

    def cut(self, islands: Sequence[int]) -> None:
        self.islands = list(islands)

    async def _serve(self, i: int, j: int, port: int, address: str) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError), contextlib.closing(writer):
                await self._open(i, j)
                back, on = await asyncio.open_connection(*split_address(address))
                with contextlib.closing(on):
                    ways = [self._pass(i, j, reader, on), self._pass(i, j, back, writer)]
                    tasks = [asyncio.create_task(way) for way in ways]
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)

        await asyncio.start_server(serve, "127.0.0.1", port)

    async def _pass(self, i: int, j: int, reader: asyncio.StreamReader, writer: Any) -> None:
        while part := await reader.read(PART):
            await self._open(i, j)
            writer.write(part)
            await writer.drain()

    async def _open(self, i: int, j: int) -> None:
        """Wait until one can hear the other."""
        while self.islands and not namespaces.together(self.islands[i], self.islands[j]):
            await asyncio.sleep(0.1)
