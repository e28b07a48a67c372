"""How workers of a cluster come to be: by Ray, by torchrun, or as processes here. The worker program is one."""

import contextlib
import os
import pickle
import platform
import secrets
import select
import signal
import socket
import threading
import time
import traceback
from abc import ABC, abstractmethod
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import torch

from coterie import processes
from coterie.config.configuration import Method
from coterie.engines._seat import Seat
from coterie.engines._wire import TCPStore, Wire, WireError
from coterie.errors import ConfigError, CoterieError, RunError
from coterie.job import Samples
from coterie.version import __version__

START = 300.0
"""Seconds within which all workers must have come."""
STUCK = 20.0
"""Seconds that a worker has to end by itself."""


class Launcher(ABC):
    """Starts the workers of a crew, notices when one is gone, and ends those that it has started."""

    address = "127.0.0.1"
    """Where workers find the process that looks after them."""

    @abstractmethod
    def start(self, meeting: "Meeting", count: int, samples: Samples) -> None:
        """Start so many workers, which are to connect to the meeting."""

    def gone(self) -> int | None:
        """A worker that has ended, if that is known otherwise than by its connection."""
        return None

    def free(self) -> int:
        """How many workers there is room for now."""
        return processes.cores_here()

    def settle(self, count: int) -> int:
        """How many workers to go on with, of so many, after some were lost."""
        return count

    def look(self) -> None:  # noqa: B027  most have nothing to look for
        """Raise what has gone wrong with workers that have not connected yet."""

    @abstractmethod
    def stop(self) -> None:
        """End the workers."""

    def leave(self) -> None:  # noqa: B027  most have nothing to leave
        """Say that no more workers will be started: whoever waits to be one may end."""


class Entrance:
    """A listener to which other processes connect, with a secret to show that they belong here."""

    def __init__(self, address: str) -> None:
        self.address, self.key = address, secrets.token_bytes(32)
        here = "127.0.0.1" if address == "127.0.0.1" else "0.0.0.0"
        self.listener = Listener((here, 0), backlog=256, authkey=self.key)
        self.port = int(self.listener.address[1])
        listener: Any = self.listener
        self.socket: socket.socket = listener._listener._socket
        self.socket.settimeout(1.0)

    @property
    def way(self) -> dict[str, Any]:
        """What a process must know to connect: address, port and secret."""
        return {"address": self.address, "port": self.port, "key": self.key}

    def accept(self) -> tuple[Connection, dict[str, Any]] | None:
        """Who has connected, and what it says of itself; None if it was a stranger, `TimeoutError` if nobody came."""
        try:
            pipe = self.listener.accept()
        except TimeoutError:
            raise
        except (AuthenticationError, OSError, EOFError):
            return None
        return pipe, pickle.loads(pipe.recv_bytes())

    def close(self) -> None:
        """Stop listening."""
        self.listener.close()


class Meeting(Entrance):
    """The listener to which workers connect, with the store in which they find each other's addresses."""

    def __init__(self, address: str, device: str) -> None:
        super().__init__(address)
        self.device = device
        self.store = TCPStore(address, 0, is_master=True, wait_for_workers=False)

    def ticket(self, count: int) -> dict[str, Any]:
        """What a worker must know to connect."""
        return {**self.way, "count": count, "device": self.device, "store": self.store.port}

    def gather(self, launcher: Launcher, count: int) -> tuple[list[Connection], list[dict[str, Any]]]:
        """The connections of so many workers, and what each says of itself, in their order."""
        found: dict[int, tuple[Connection, dict[str, Any]]] = {}
        until = time.monotonic() + START
        while len(found) < count:
            try:
                came = self.accept()
            except TimeoutError:
                launcher.look()
                if time.monotonic() > until:
                    raise RunError(
                        "not all workers have come", expected=count, got=len(found), cure=CONNECT.format(self.address)
                    ) from None
                continue
            if came is not None:
                found[came[1]["worker"]] = came
        for worker in range(count):
            check_versions(worker, found[worker][1])
        return [found[w][0] for w in range(count)], [found[w][1] for w in range(count)]


CONNECT = "Workers must reach {}: look at firewalls between the machines, and at their logs."


def check_versions(worker: int, about: dict[str, Any]) -> None:
    """Refuse a worker of another version of Coterie or PyTorch: numbers would differ."""
    for name, ours in (("coterie", __version__), ("torch", torch.__version__)):
        if about[name] != ours:
            what = f"worker {worker} on {about['machine']} has another version of {name}"
            raise ConfigError(what, expected=ours, got=about[name], cure=f"Install {name}=={ours} there.")


def serve(ticket: dict[str, Any], worker: int, samples: Samples | Method | None) -> None:
    """The worker program: come to the meeting, and do what is asked until nobody asks any more.

    Samples that are not handed over are read from the data folder of the machine, by a method's settings.
    """
    with contextlib.suppress(ValueError):  # not the main thread, as in an actor
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who was started by hand decides what Ctrl-C means
    torch.set_num_threads(1)
    if ticket["device"] == "cuda":  # of several GPUs that are to be seen, each worker has one
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", worker)) % torch.cuda.device_count())
    if interface := _interface(ticket["address"]):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    pipe = arrive(ticket, worker)
    over = _watch(pipe)
    seat: Seat | None = None
    while True:
        try:
            asked = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            break
        start, waited = time.perf_counter(), seat.wire.patience.seconds if seat else 0.0
        if isinstance(asked, str):  # the name under which the workers find each other
            how, value = _answer(lambda name=asked: _seated(ticket, worker, name, samples))
            seat = value if how == "done" else None
            value = None if how == "done" else value
        else:
            assert seat is not None
            how, value = _answer(lambda asked=asked, seat=seat: seat.call(asked))
        if seat is not None:
            start += seat.wire.patience.seconds - waited
        try:
            pipe.send_bytes(pickle.dumps((how, value, time.perf_counter() - start), protocol=5))
        except OSError:
            break
    over.set()
    if seat is not None:
        seat.wire.close()


def arrive(way: dict[str, Any], worker: int, **more: Any) -> Connection:
    """Connect to an `Entrance`, and say which worker this is, and of which machine."""
    pipe = Client((way["address"], way["port"]), authkey=way["key"])
    about = {
        "worker": worker,
        "machine": platform.node(),
        "pid": os.getpid(),
        "coterie": __version__,
        "torch": torch.__version__,
        "memory": memory_free(),
    }
    pipe.send_bytes(pickle.dumps(about | more))
    return pipe


def _watch(pipe: Connection) -> threading.Event:
    """End this process if it is still waiting for another worker when nobody asks for anything any more."""
    over = threading.Event()

    def watch() -> None:
        poll = select.poll()
        poll.register(pipe.fileno(), select.POLLRDHUP)
        while not over.is_set():
            if poll.poll(1000) and not over.wait(STUCK):
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    return over


def _seated(ticket: dict[str, Any], worker: int, name: str, samples: Samples | Method | None) -> Seat:
    place = ticket["address"], ticket["store"], worker, ticket["count"], name, ticket["device"]
    seat = Seat(Wire(*place))
    if samples is not None:
        seat.load(samples)
    return seat


def _answer(call: Any) -> tuple[str, Any]:
    try:
        return "done", call()
    except WireError as error:
        return "wire", str(error)
    except CoterieError as error:
        return "failed", error
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
            return "memory", text.splitlines()[0] if text else "no more to be had"
        return "failed", traceback.format_exc()
    except Exception:
        return "failed", traceback.format_exc()


def memory_free() -> int:
    """How many bytes this machine could still give."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in open("/proc/meminfo", encoding="ascii"))  # noqa: SIM115
        free = int(lines["MemAvailable"].split()[0]) * 1024
        limit = int(open("/sys/fs/cgroup/memory.max", encoding="ascii").read())  # noqa: SIM115
        return min(free, limit - int(open("/sys/fs/cgroup/memory.current", encoding="ascii").read()))
    with contextlib.suppress(OSError, ValueError, UnboundLocalError):
        return free
    return 1 << 62


def _interface(address: str) -> str:
    """The network interface from which a machine is reached."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        here = probe.getsockname()[0]
    for _, name in socket.if_nameindex():
        if _address_of(name) == here:
            return name
    return "lo" if address.startswith("127.") else ""


def _address_of(interface: str) -> str | None:
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        found = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", interface[:15].encode()))  # SIOCGIFADDR
        return socket.inet_ntoa(found[20:24])
    return None
