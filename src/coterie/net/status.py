"""How a peer is doing: kept by the peer, shown to its own machine, read by `coterie peer status` and by Prometheus."""

import errno
import json
import math
import os
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, get_args

from coterie.errors import PeerError
from coterie.net import web
from coterie.net.logs import clean

Activity = Literal["waiting", "training", "exchanging", "away", "finished", "stopped"]

FILE = "status.json"
ERRORS = 20
"""How many errors are remembered."""

ANSWER = 10_000_000
"""The longest answer that is read, in bytes."""


@dataclass(slots=True)
class NeighbourStatus:
    """What a peer knows of one neighbour."""

    name: str
    address: str = ""
    alive: bool = False
    round: int | None = None  # the latest that is known
    sent: int = 0  # messages
    received: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    missed: int = 0  # deadlines
    refusals: Counter[str] = field(default_factory=Counter)
    last_refusal: str = ""
    last_heard: float | None = None  # Unix seconds
    last_error: str = ""

    def refuse(self, reason: str, detail: str = "") -> None:
        """Count something refused from this neighbour, for a reason out of a small set."""
        self.refusals[clean(reason, 32)] += 1
        self.last_refusal = clean(f"{reason}: {detail}" if detail else reason)


@dataclass(slots=True)
class Status:
    """How a peer is doing now; only its event loop writes here."""

    name: str
    session: str = ""
    method: str = ""
    seed: int = 0
    round: int = 0
    rounds: int = 0
    state: Activity = "waiting"
    accuracy: float | None = None  # the latest on the test samples, if models are judged by it
    metric: str = "accuracy"  # by which models are judged first
    score: float | None = None  # its latest value on the test samples
    started: float = field(default_factory=time.time)  # Unix seconds
    round_seconds: float | None = None  # the mean of recent rounds
    deadline_seconds: float | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    checkpoints: int = 0
    checkpoint_errors: int = 0
    neighbours: dict[str, NeighbourStatus] = field(default_factory=dict)
    errors: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=ERRORS))

    def add_error(self, text: object) -> None:
        """Remember that something went wrong just now."""
        self.errors.append({"time": time.time(), "text": clean(text)})

    def lag(self, name: str) -> int | None:
        """How many rounds a neighbour is behind; negative if it is ahead, nothing if its round is not known."""
        its = self.neighbours[name].round
        return None if its is None else self.round - its

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON, with every neighbour's lag and the number of this process."""
        neighbours = {n: {**_fields(known), "lag": self.lag(n)} for n, known in self.neighbours.items()}
        said: dict[str, Any] = plain({**_fields(self), "pid": os.getpid(), "neighbours": neighbours})
        return said


def _fields(known: Status | NeighbourStatus) -> dict[str, Any]:
    return {each.name: getattr(known, each.name) for each in fields(known)}


def plain(value: Any) -> Any:
    """A value in the words of JSON, which has none for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | deque):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


Sample = tuple[dict[str, object], float | None]


def metrics(status: Status) -> str:
    """The status in the text format 0.0.4 of Prometheus; what is not known is left out."""
    return "".join(line + "\n" for family in _families(status) for line in _family(*family))


def _families(status: Status) -> Iterator[tuple[str, str, list[Sample]]]:
    about = {"peer": status.name, "session": status.session, "method": status.method, "seed": status.seed}
    yield "info", "Who this peer is and what it runs.", [(about, 1)]
    states: list[Sample] = [({"state": state}, int(state == status.state)) for state in get_args(Activity)]
    yield "state", "1 for what the peer is doing, 0 for the rest.", states
    for name, help, value in (
        ("round", "The round the peer is in.", status.round),
        ("rounds", "The rounds there are in all.", status.rounds),
        ("accuracy", "The latest test accuracy.", status.accuracy),
        ("start_time_seconds", "When the peer started, in Unix seconds.", status.started),
        ("round_seconds", "The mean duration of recent rounds.", status.round_seconds),
        ("deadline_seconds", "How long the peer waits for its neighbours in a round.", status.deadline_seconds),
        ("sent_bytes_total", "Bytes sent to neighbours.", status.sent_bytes),
        ("received_bytes_total", "Bytes received from neighbours.", status.received_bytes),
        ("checkpoints_total", "Checkpoints written.", status.checkpoints),
        ("checkpoint_errors_total", "Checkpoints that could not be written.", status.checkpoint_errors),
    ):
        yield name, help, [({}, value)]
    judged: Sample = ({"metric": status.metric}, status.score)
    yield "score", "The latest value of the first metric on the test samples.", [judged]
    all_of_them = status.neighbours.items()
    for name, help, of in (
        ("alive", "Whether the neighbour answers.", lambda n: int(n.alive)),
        ("round", "The latest round known of the neighbour.", lambda n: n.round),
        ("last_heard_timestamp_seconds", "When it was last heard, in Unix seconds.", lambda n: n.last_heard),
        ("sent_messages_total", "Messages sent to the neighbour.", lambda n: n.sent),
        ("received_messages_total", "Messages received from the neighbour.", lambda n: n.received),
        ("sent_bytes_total", "Bytes sent to the neighbour.", lambda n: n.sent_bytes),
        ("received_bytes_total", "Bytes received from the neighbour.", lambda n: n.received_bytes),
        ("missed_deadlines_total", "Rounds in which it was not heard in time.", lambda n: n.missed),
    ):
        yield f"neighbour_{name}", help, [({"neighbour": who}, of(known)) for who, known in all_of_them]
    lags: list[Sample] = [({"neighbour": who}, status.lag(who)) for who in status.neighbours]
    yield "neighbour_lag_rounds", "How many rounds the neighbour is behind this peer.", lags
    refusals: list[Sample] = [
        ({"neighbour": who, "reason": reason}, count)
        for who, known in all_of_them
        for reason, count in sorted(known.refusals.items())
    ]
    yield "neighbour_refusals_total", "Messages of the neighbour that were refused.", refusals


def _family(name: str, help: str, samples: Iterable[Sample]) -> list[str]:
    lines, kind = [], "counter" if name.endswith("_total") else "gauge"
    for labels, value in samples:
        if value is not None:
            inside = ",".join(f'{key}="{_escape(said)}"' for key, said in labels.items())
            lines.append(f"coterie_{name}{f'{{{inside}}}' if inside else ''} {_number(value)}")
    return [f"# HELP coterie_{name} {help}", f"# TYPE coterie_{name} {kind}", *lines] if lines else []


def _escape(label: object) -> str:
    return str(label).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if isinstance(value, int):
        return str(value)
    return repr(float(value)) if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")


async def serve(status: Status, host: str = "127.0.0.1", port: int = 0) -> web.Server:
    """Show a status at `/status` (JSON) and `/metrics` (Prometheus) until the server is closed."""
    pages: dict[str, web.Page] = {
        "/": lambda: (
            "text/plain; charset=utf-8",
            f"peer {clean(status.name)}\n\n/status   JSON\n/metrics  Prometheus\n",
        ),
        "/status": lambda: ("application/json", json.dumps(status.as_dict(), allow_nan=False)),
        "/metrics": lambda: ("text/plain; version=0.0.4; charset=utf-8", metrics(status)),
    }
    try:
        return await web.serve(pages, host, port)
    except OSError as error:
        cure = "Choose another port, or 0 for any that is free."
        raise PeerError(f"cannot show the status at {host}:{port} ({error.strerror or error})", cure=cure) from error


def announce(folder: Path, port: int, host: str = "127.0.0.1") -> bool:
    """Write down where this process shows its status; False if the disk is full, which is no reason to end."""
    folder.mkdir(parents=True, exist_ok=True)
    making = folder / f".{FILE}.{os.getpid()}"
    try:
        making.write_text(json.dumps({"port": port, "pid": os.getpid(), "host": host}), encoding="utf-8")
        os.replace(making, folder / FILE)
        return True
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            cure = "Give the peer a folder it may write to, and move away what stands there."
            raise PeerError(f"cannot write {folder / FILE} ({error.strerror or error})", cure=cure) from None
        return False
    finally:
        making.unlink(missing_ok=True)


def read(folder: Path, patience: float = 2.0) -> dict[str, Any] | None:
    """The status of the peer that was announced in a folder, or nothing if it does not answer."""
    try:
        told = json.loads((folder / FILE).read_text(encoding="utf-8"))
        url = f"http://{_dial(told.get('host', '127.0.0.1'))}:{int(told['port'])}/status"
        # No proxy stands between a machine and itself.
        asker = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with asker.open(url, timeout=patience) as answer:
            status = json.loads(answer.read(ANSWER))
        # After a crash the port may be another process's, and that one may be a peer, too.
        return status if status["pid"] == told["pid"] and "neighbours" in status else None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, HTTPException):
        return None


def _dial(host: str) -> str:
    """Where to ask one that listens there; who listens everywhere is asked at home."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"[{host}]" if ":" in host else host
