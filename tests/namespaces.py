"""Machines in one: network namespaces with an address each, and a switch in user space that can be made to fail.

Frames go from tap device to tap device through a thread of the test, which can lose them, delay them, or cut the
network in parts that do not hear each other, as a bad network does: silently, with every link up. The kernel of the
machine needs nothing but tap devices for it.
"""

import fcntl
import heapq
import os
import random
import selectors
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

TUN = "/dev/net/tun"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME = 65536
EVERYWHERE = -1
"""The island of who hears all and is heard by all."""


def why_not() -> str | None:
    """Why network namespaces cannot be made here, if so."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no ip command"
    name = f"coterie-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode:
        return f"network namespaces cannot be made: {tried.stderr.strip()}"
    try:
        inside = subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True, text=True)
        os.close(_tap(f"try{os.getpid()}"))
    except OSError as error:
        return f"tap devices cannot be made: {error}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)
    return f"network namespaces cannot be entered: {inside.stderr.strip()}" if inside.returncode else None


def _tap(name: str) -> int:
    """A new network device, as the file its frames come from and go to; it is gone when that is closed."""
    device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TAP | IFF_NO_PI))
    except OSError:
        os.close(device)
        raise
    return device


def together(one: int, another: int) -> bool:
    """Whether who is on one island hears who is on another."""
    return one == another or EVERYWHERE in (one, another)


@dataclass
class Switch:
    """Passes frames between its ports, as well as it is told to."""

    ports: list[int]
    loss: float = 0.0
    delay: float = 0.0
    islands: Sequence[int] = ()
    """For each port, which part of the network it is in; frames do not leave it. Empty: all are together."""
    lost: int = 0
    passed: int = 0
    _homes: dict[bytes, int] = field(default_factory=dict)
    _late: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def run(self, stopped: threading.Event) -> None:
        """Switch until it is stopped."""
        with selectors.DefaultSelector() as selector:
            for port, device in enumerate(self.ports):
                selector.register(device, selectors.EVENT_READ, port)
            while not stopped.is_set():
                soonest = self._late[0][0] - time.monotonic() if self._late else 0.1
                for key, _ in selector.select(min(max(soonest, 0), 0.1)):
                    self._take(key.data)
                while self._late and self._late[0][0] <= time.monotonic():
                    _, _, to, frame = heapq.heappop(self._late)
                    self._put(to, frame)

    def _take(self, port: int) -> None:
        try:
            frame = os.read(self.ports[port], FRAME)
        except OSError:  # the device is not up yet
            return
        target, source = frame[:6], frame[6:12]
        self._homes[source] = port
        home = self._homes.get(target)
        for to in range(len(self.ports)) if home is None else [home]:
            if to == port:
                continue
            cut = self.islands and not together(self.islands[to], self.islands[port])
            if cut or self._random.random() < self.loss:
                self.lost += 1
                continue
            self.passed += 1
            # A number of its own keeps frames of one moment in their order.
            heapq.heappush(self._late, (time.monotonic() + self.delay, self.passed, to, frame))

    def _put(self, port: int, frame: bytes) -> None:
        try:
            os.write(self.ports[port], frame)
        except OSError:  # as a cable would, when nobody takes it
            self.lost += 1


@dataclass(frozen=True)
class Machines:
    """Namespaces on a switch: the i-th is called `names[i]` and has the address `address(i)`."""

    names: list[str]
    switch: Switch

    def address(self, machine: int) -> str:
        """Where the others reach it."""
        return f"10.77.0.{1 + machine}"

    def command(self, machine: int, *words: str) -> list[str]:
        """A command, as it is run on this machine."""
        return ["ip", "netns", "exec", self.names[machine], *words]


@contextmanager
def machines(count: int, mtu: int = 1500) -> Iterator[Machines]:
    """So many machines on a switch, which passes frames of up to `mtu` bytes; nothing is left of them afterwards."""
    names = [f"coterie-{os.getpid()}-{i}" for i in range(count)]
    stopped = threading.Event()
    with ExitStack() as stack:
        ports = []
        for i, name in enumerate(names):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
            device = f"cot{os.getpid()}x{i}"
            ports.append(_tap(device))
            stack.callback(os.close, ports[-1])
            _ip("link", "set", device, "netns", name)
            _ip("-n", name, "link", "set", device, "name", "eth0")
            _ip("-n", name, "address", "add", f"10.77.0.{1 + i}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "mtu", str(mtu), "up")
            _ip("-n", name, "link", "set", "lo", "up")
        switch = Switch(ports)
        thread = threading.Thread(target=switch.run, args=(stopped,), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stopped.set)
        yield Machines(names, switch)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
