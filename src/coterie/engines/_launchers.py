"""Those who start the workers of a cluster: Ray, torchrun, or this process alone."""

import base64
import contextlib
import os
import pickle
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import torch

from coterie import processes
from coterie.datasets import each
from coterie.engines._launching import Launcher, Meeting, serve
from coterie.engines._wire import TCPStore
from coterie.errors import ConfigError, RunError
from coterie.job import Samples

MISSING = "Install it with `pip install 'coterie[cluster]'`, or say --engine.by processes for workers on this machine."
PATIENCE = 30.0
"""Seconds in which a Ray cluster may give back what a lost worker had."""
ANSWER = 20.0
"""Seconds in which a Ray answers that it is there."""
LEAST, MOST = 100 << 20, 2 << 30
"""Bytes of the object store of a Ray that is started here: it has the data set, and no rows go through it."""


class ByProcesses(Launcher):
    """Workers as processes of this machine, without Ray."""

    def __init__(self) -> None:
        self.started: list[Any] = []

    def start(self, meeting: Meeting, count: int, samples: Samples) -> None:
        ticket = meeting.ticket(count)
        for worker in range(count):
            self.started.append(processes.start(serve, ticket, worker, samples, preload=["coterie.engines._launching"]))

    def look(self) -> None:
        for worker, process in enumerate(self.started):
            if not process.is_alive():
                raise RunError(f"worker {worker} ended before it began", cure="Look at the lines above.")

    def gone(self) -> int | None:
        return next((w for w, process in enumerate(self.started) if not process.is_alive()), None)

    def stop(self) -> None:
        for process in self.started:
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
        self.started.clear()


class ByRay(Launcher):
    """Workers as Ray actors: on a Ray cluster that is there, or on one that is started here and ended again."""

    def __init__(self, address: str, gpus: float) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        address = address or os.environ.get("RAY_ADDRESS", "")
        named = address not in ("", "auto", "local")
        if named:
            _reachable(address)
        try:
            import ray
        except ImportError:
            raise ConfigError("the cluster engine starts its workers by Ray, which is missing", cure=MISSING) from None
        self.ray: Any = ray
        _hush(ray)
        self.gpus, self.actors, self.runs = gpus, list[Any](), list[Any]()
        self.joined = bool(ray.is_initialized())
        if not self.joined:
            self._connect(address)
        self.address = str(self.ray.util.get_node_ip_address())

    def _connect(self, address: str) -> None:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if address and address != "local":
                    if address != "auto":
                        _heed_token(self.ray, address)
                    self.ray.init(address=address, log_to_driver=False, logging_level="ERROR")
                else:
                    self._join_or_start(address, quiet)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            cure = "Start one with `ray start --head`, name its address, or leave --engine.address out."
            why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ConfigError(f"there is no Ray at {address or 'this machine'} ({why})", cure=cure) from None

    def _join_or_start(self, address: str, quiet: dict[str, Any]) -> None:
        """Join a Ray that runs on this machine; start one if there is none, which ends with this process."""
        if not address:
            with contextlib.suppress(ConnectionError):
                found = _running(self.ray)
                if found != "auto":
                    _heed_token(self.ray, found)
                self.ray.init(address=found, log_to_driver=False, logging_level="ERROR")
                return
        os.environ.setdefault("RAY_worker_niceness", "0")  # they are what the machine is there for
        store = max(LEAST, min(MOST, int(0.1 * (processes.memory_free() or MOST))))
        self.ray.init(address="local", num_cpus=processes.cores_here(), object_store_memory=store, **quiet)

    def free(self) -> int:
        return self._room(self.ray.available_resources())

    def _room(self, found: dict[str, float]) -> int:
        room = int(found.get("CPU", 0))
        return room if not self.gpus else min(room, int(found.get("GPU", 0) / self.gpus))

    def settle(self, count: int) -> int:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.free() < min(count, self.whole()):
            time.sleep(0.5)
        return min(count, self.free())

    def start(self, meeting: Meeting, count: int, samples: Samples) -> None:
        ray, room = self.ray, self.settle(count)
        if room < count:
            what = "CPU" if not self.gpus else f"CPU and {self.gpus:g} GPU"
            cure = f"Use --engine.workers {room} or fewer, or add" if room else "Add"
            cure += " machines with `ray start --address`."
            raise ConfigError(
                "Ray has not enough to give",
                expected=f"{count} worker{'s' * (count > 1)} of 1 {what}",
                got=room,
                cure=cure,
            )
        data = ray.put(_arrays(samples))
        ticket = meeting.ticket(count)
        hired = [self.hire(_serve, ticket, worker, data) for worker in range(count)]
        self.actors, self.runs = [actor for actor, _ in hired], [run for _, run in hired]

    def hire(self, target: Callable[..., None], *args: Any) -> tuple[Any, Any]:
        """Have a process of one CPU call this, as soon as and wherever there is room: the process, and the call."""
        made = self.ray.remote(num_cpus=1, num_gpus=self.gpus, max_restarts=0, scheduling_strategy="SPREAD")(Hired)
        actor = made.remote()
        return actor, actor.run.remote(target, *args)

    def hire_alone(self, target: Callable[..., None], *args: Any) -> tuple[Any, Any]:
        """The same, called in the main thread of its process, to which signals come; whom `hire` has hears none."""
        made = self.ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=0, scheduling_strategy="SPREAD")(target)
        run = made.remote(*args)
        return None, run

    def whole(self) -> int:
        """How many workers there would be room for if nobody else used the cluster."""
        return self._room(self.ray.cluster_resources())

    def why(self, run: Any) -> str:
        """Why a call has ended otherwise than it should; nothing if it has not."""
        try:
            self.ray.get(run)
        except Exception as error:
            lines = [line for line in str(error).strip().splitlines() if line.strip()]
            return lines[-1].strip()[:300]
        return ""

    def end(self, hired: Sequence[tuple[Any, Any]]) -> None:
        """End processes that were hired."""
        for actor, run in hired:
            with contextlib.suppress(Exception):
                self.ray.cancel(run, force=True) if actor is None else self.ray.kill(actor)

    def look(self) -> None:
        done, _ = self.ray.wait(self.runs, num_returns=1, timeout=0)
        if done and (why := self.why(done[0])):
            raise RunError("a worker could not be started", got=why)

    def gone(self) -> int | None:
        done, _ = self.ray.wait(self.runs, num_returns=1, timeout=0)
        return self.runs.index(done[0]) if done else None

    def stop(self) -> None:
        self.end(list(zip(self.actors, self.runs, strict=True)))
        self.actors, self.runs = [], []

    def leave(self) -> None:
        if not self.joined:
            self.ray.shutdown()  # ends what `init` has started, and nothing else


class Hired:
    """What Ray starts: a process in which a program runs."""

    def run(self, target: Callable[..., None], *args: Any) -> None:
        target(*args)


def _serve(ticket: dict[str, Any], worker: int, data: tuple[Any, ...]) -> None:
    serve(ticket, worker, _samples(data))


def _arrays(samples: Samples) -> tuple[Any, ...]:
    """A data set as arrays, of which Ray has one copy in each machine's memory for all of its workers."""
    parts = samples.train_x, samples.train_y, samples.test_x, samples.test_y
    return tuple(each(part, lambda t: t.cpu().numpy()) for part in parts), samples.classes, samples.shape


def _samples(data: tuple[Any, ...]) -> Samples:
    arrays, classes, shape = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they cannot be written to, and nobody does
        train_x, train_y, test_x, test_y = (_mapped(part, torch.from_numpy) for part in arrays)
    return Samples(train_x, train_y, test_x, test_y, classes, shape)


def _mapped(part: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(part, dict):
        return {name: _mapped(inner, make) for name, inner in part.items()}
    return tuple(_mapped(inner, make) for inner in part) if isinstance(part, tuple) else make(part)


def _running(ray: Any) -> str:
    """The address of a Ray that runs on this machine; `ConnectionError` if there is none."""
    try:
        running = set(ray._private.services.find_gcs_addresses())
        last = ray._private.services.find_bootstrap_address(None)
    except AttributeError:  # another version of Ray, which looks for itself
        return "auto"
    if not running:
        raise ConnectionError("no Ray runs here")
    return str(last if last in running else min(running))


def _heed_token(ray: Any, address: str) -> None:
    """Have this process show Ray's token if the Ray at an address asks for one, and else not; `ConnectionError` if
    whoever listens there is no Ray, for whom Ray would wait for minutes.

    Ray shows none where an address is named, and where it is not always the one that it has: that other Rays refuse.
    """
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")(b"", timeout=ANSWER)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise ConnectionError("who listens there is no Ray") from None
            if error.code() == grpc.StatusCode.UNAUTHENTICATED and "RAY_AUTH_MODE" not in os.environ:
                os.environ["RAY_AUTH_MODE"] = "token"
                with contextlib.suppress(AttributeError):
                    ray._raylet.Config.initialize("")  # which it has read without


def _hush(ray: Any) -> None:
    """Have Ray not print its own reports of what is lost, pages of them: who asked for it tells of it, in a line."""
    with contextlib.suppress(AttributeError):
        ray._private.worker.listen_error_messages = lambda *_: None


def _reachable(address: str) -> None:
    """Refuse an address at which nobody listens, before Ray tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    cure = "Start one there with `ray start --head`, name its address as HOST:PORT, or leave --engine.address out."
    if address.startswith("ray://") or not host or not port.isdigit():
        raise ConfigError("no address of a Ray cluster", expected="HOST:PORT or auto", got=address, cure=cure)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise ConfigError(f"there is no Ray at {address} ({error.strerror or error})", cure=cure) from None


class ByTorchrun(Launcher):
    """The processes that torchrun has started, a worker each; the first looks after all, its worker beside it."""

    def __init__(self) -> None:
        self.count, self.address = int(os.environ["WORLD_SIZE"]), _address_to(os.environ["MASTER_ADDR"])
        self.store, self.crews = _store(), 0
        self.here: Any = None

    def free(self) -> int:
        return self.count

    def start(self, meeting: Meeting, count: int, samples: Samples) -> None:
        if count != self.count:
            cure = "Leave --engine.workers out: torchrun says how many there are."
            raise ConfigError("torchrun has started other workers", expected=self.count, got=count, cure=cure)
        self.crews += 1
        ticket = meeting.ticket(count)
        self._tell(self.crews, (ticket, samples.origin))
        self.here = processes.start(serve, ticket, 0, samples, preload=[serve.__module__])

    def stop(self) -> None:
        if self.here is not None:
            self.here.join(timeout=1)
            if self.here.is_alive():
                self.here.kill()
        self.here = None

    def leave(self) -> None:
        self._tell(self.crews + 1, None)
        time.sleep(1)

    def _tell(self, crew: int, what: Any) -> None:
        self.store.set(_place(crew), base64.b64encode(pickle.dumps(what)).decode())


def follower() -> bool:
    """Whether torchrun has started this process to be a worker and no more."""
    return within_torchrun() and int(os.environ["RANK"]) > 0


def within_torchrun() -> bool:
    """Whether torchrun has started this process."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def begun_again() -> bool:
    """Whether torchrun has started all processes anew, after one of them had ended."""
    return within_torchrun() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def follow() -> None:
    """Be a worker of one crew after the other, as the first process calls for them, until it says that all is done."""
    store, crew = _store(), 0
    while True:
        crew += 1
        try:
            told = pickle.loads(base64.b64decode(store.get(_place(crew))))
        except RuntimeError:  # the first has gone with its store, and says itself why
            return
        if told is None:
            return
        ticket, settings = told
        with contextlib.suppress(ConnectionError, EOFError):
            serve(ticket, int(os.environ["RANK"]), settings)


def _place(crew: int) -> str:
    """The key of a crew in torchrun's store, which outlives processes: after a restart it is another one."""
    return f"coterie {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')} {crew}"


def _store() -> Any:
    from datetime import timedelta

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    first = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and os.environ["RANK"] == "0"
    return TCPStore(host, port, is_master=first, wait_for_workers=False, timeout=timedelta(days=30))


def _address_to(host: str) -> str:
    """The address under which others reach this machine."""
    return "127.0.0.1" if host in ("localhost", "127.0.0.1") else socket.gethostbyname(host)
