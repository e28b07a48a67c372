"""What a peer writes down: one JSON object per event in a file, and short lines for whoever is watching."""

import contextlib
import json
import logging
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from coterie.errors import PeerError

FILE = "log.jsonl"
LARGEST, FILES = 10_000_000, 3
"""How large a log may grow, and how many of that size there are before the oldest is dropped."""

END = "cannot go on"
"""The event of an error that ends a peer: in the log alone, because whoever started the peer tells it."""

SHOWN = (END, "trouble", "round", "finished")
"""Events that whoever started the peer sees otherwise: whom it waits for, how far it is, and how it ended."""

LINE = 200
"""How many characters of a text from elsewhere are kept."""

LIBRARIES = ("grpc._cython.cygrpc", "asyncio")
"""Loggers of others, which tell on the terminal, with a traceback, of each call that fails inside them."""

ITEMS, DEPTH = 20, 3
"""How much of a nested field is kept."""


def setup(folder: Path, name: str, verbose: bool, screen: bool = True) -> logging.Logger:
    """The log of a peer: everything to `folder/log.jsonl`, what matters to stderr (more if `verbose`)."""
    logger = logging.getLogger(f"coterie.peer.{name}")
    for handler in list(logger.handlers):  # a peer that starts again in this process does not log twice
        if isinstance(handler.formatter, _Lines | _Short):
            logger.removeHandler(handler)
            handler.close()
    logger.propagate = False  # names may hold dots: `a.b` is not a part of `a`
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    for library in map(logging.getLogger, LIBRARIES):
        if not any(isinstance(each, _Rarely) for each in library.filters):
            library.addFilter(_Rarely())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _File(folder / FILE, maxBytes=LARGEST, backupCount=FILES - 1, encoding="utf-8")
    except OSError as error:
        cure = "Give the peer a folder it may write to."
        raise PeerError(f"cannot write a log to {folder} ({error.strerror or error})", cure=cure) from error
    file.setFormatter(_Lines(name))
    logger.addHandler(file)
    if screen:
        shown = _Screen()
        shown.setLevel(logging.INFO if verbose else logging.WARNING)
        shown.setFormatter(_Short(name))
        shown.addFilter(lambda record: record.getMessage() not in SHOWN)
        logger.addHandler(shown)
    return logger


class Tail:
    """What a log says from now on that somebody should see."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._at = self._path.stat().st_size if self._path.exists() else 0

    def warnings(self) -> list[str]:
        """The warnings and errors since the last call, a line each."""
        try:
            if self._path.stat().st_size < self._at:  # a new file has taken its place
                self._at = 0
            with self._path.open("rb") as file:
                file.seek(self._at)
                whole, _, _ = file.read().rpartition(b"\n")  # the last line may still be written
        except OSError:
            return []
        self._at += len(whole) + bool(whole)
        return [said for line in whole.splitlines() if (said := _warning(line))]


def _warning(line: bytes) -> str | None:
    """A line of the log in words, if it is a warning or an error that nobody else tells."""
    try:
        entry = json.loads(line)
        peer, level, event = (str(entry.pop(key)) for key in ("peer", "level", "event"))
    except (ValueError, KeyError, AttributeError):
        return None
    if level not in ("warning", "error", "critical") or event == END:
        return None
    entry = {name: value for name, value in entry.items() if name not in ("time", "where")}
    return f"{peer}: {level}: {_sentence(event, entry)}"


def _sentence(event: Any, fields: Mapping[str, Any]) -> str:
    said = ", ".join(f"{name} {_word(value)}" for name, value in fields.items())
    return f"{event} ({said})" if said else str(event)


def say(logger: logging.Logger, level: int, event: str, /, **fields: Any) -> None:
    """Log an event with its fields, such as `say(log, logging.INFO, "merged", round=3, heard=4)`."""
    logger.log(level, "%s", event, extra={"fields": fields})


class Seldom:
    """Says when to tell of what happens again and again: at once, and then after pauses that double.

    What has not happened for as long as the last pause, and for a minute, is news again.
    """

    FIRST, QUIET, LONGEST = 1.0, 60.0, 3600.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[tuple[str, ...]] = Counter()
        """How often it has happened since it was last told."""
        self._pauses: dict[tuple[str, ...], tuple[float, float]] = {}
        """Until when it is not told, and how long that pause is."""

    def due(self, *what: str) -> int:
        """Note that this has happened; if it is to be told now, how often it has since it was last told, else 0."""
        now, (until, pause) = self._clock(), self._pauses.get(what, (0.0, 0.0))
        self._counts[what] += 1
        if now < until:
            return 0
        pause = min(2 * pause, self.LONGEST) if pause and now - until < max(pause, self.QUIET) else self.FIRST
        self._pauses[what] = now + pause, pause
        return self._counts.pop(what)

    def say(self, logger: logging.Logger, level: int, event: str, what: tuple[str, ...] = (), /, **fields: Any) -> bool:
        """Log an event, which happens again and again if `what` it is about does, unless it is too soon."""
        times = self.due(event, *what)
        if times:
            say(logger, level, event, **fields, **({"times": times} if times > 1 else {}))
        return times > 0


class _Rarely(logging.Filter):
    """Lets what is logged again and again pass more and more seldom."""

    def __init__(self) -> None:
        super().__init__()
        self._seldom = Seldom()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is to be told now; what differs in details is the same."""
        return self._seldom.due(str(record.msg).partition("\n")[0][:LINE]) > 0


def clean(text: object, limit: int = LINE) -> str:
    """Text that neither ends a line, nor steers a terminal, nor is long, whoever wrote it."""
    line = str(text)
    kept = line if len(line) <= limit else line[: limit - 1] + "…"
    if kept.isprintable():
        return kept
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in kept)


def _safe(value: Any, depth: int = DEPTH) -> Any:
    """A value fit for a log. Of tensors, bytes and other objects only the kind is told, of keys nothing."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str | Path):
        return "<withheld>" if "-----BEGIN" in str(value) else clean(value)
    if isinstance(value, BaseException):
        return _safe(f"{type(value).__name__}: {value}")
    if depth and isinstance(value, Mapping):
        return {clean(k, 64): _safe(v, depth - 1) for k, v in list(value.items())[:ITEMS]}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_safe(v, depth - 1) for v in list(value)[:ITEMS]]
    return f"<{type(value).__name__}>"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    given = getattr(record, "fields", None) or {}
    fields = {clean(name, 64): _safe(value) for name, value in given.items()}
    if record.exc_info and record.exc_info[1] is not None:
        fields.setdefault("error", _safe(record.exc_info[1]))
    return fields


class _Lines(logging.Formatter):
    """One JSON object a line, for machines."""

    def __init__(self, peer: str) -> None:
        super().__init__()
        self.peer = peer

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": _safe(record.getMessage()),
            "peer": self.peer,
        }
        own = frozenset(line)  # a field does not pass for the time, the level, the event or the peer
        line |= {f"{name}_" if name in own else name: value for name, value in _fields(record).items()}
        if record.exc_info and record.exc_info[2] is not None:
            line["where"] = _where(record.exc_info[2])
        return json.dumps(line, allow_nan=False)


class _Short(logging.Formatter):
    """One short line, for people."""

    def __init__(self, peer: str) -> None:
        super().__init__()
        self.peer = peer

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return f"{when} {self.peer}: {level}{_sentence(_safe(record.getMessage()), _fields(record))}"


class _Screen(logging.Handler):
    """Whatever stderr is at the time: a live display may stand in for it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line, if anybody is there to read it."""
        with contextlib.suppress(OSError, ValueError):
            print(self.format(record), file=sys.stderr)


class _File(RotatingFileHandler):
    """A log file whose troubles, such as a full disk, are told once and stop nobody."""

    told = False

    def _open(self) -> TextIOWrapper:
        """Open the file; half a line, left by a process that was killed on a full disk, is a line of its own."""
        stream, path = super()._open(), Path(self.baseFilename)
        with contextlib.suppress(OSError), path.open("rb") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    stream.write("\n")  # with the next line, when there is room
        return stream

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once that the log has a gap."""
        if not self.told:
            self.told = True
            print(f"coterie: cannot write to {self.baseFilename}: {clean(sys.exc_info()[1])}", file=sys.stderr)


def _where(trace: Any) -> list[str]:
    """The places an error came through, the innermost last, without the values that were there."""
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return places[-ITEMS:]


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)
