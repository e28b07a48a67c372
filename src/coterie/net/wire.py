"""Messages between neighbours: protobuf headers, safetensors payloads, and a receiver that does no input or output.

One delivery is a row of byte strings: a serialised `Header`, then the chunks of a safetensors file that holds the
message's fields, each a one-dimensional tensor. A header alone may say that there is none this round.
Nothing is ever unpickled or decompressed.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from coterie.contract import finite
from coterie.errors import Refused
from coterie.files import BLOCK, add_blocks
from coterie.files import checksum as checksum
from coterie.net.wire_pb2 import Header
from coterie.node.buffers import BufferPool

VERSION = 3
CHUNK = 1 << 20
_HEADER_LIMIT = 4 << 10
_HEAD_LIMIT = 64 << 10
_TAG_LIMIT = 64
_SIZE_LIMIT = 1e12


def encode(fields: Mapping[str, Tensor], half: bool = False, pool: BufferPool | None = None) -> memoryview:
    """The fields as a safetensors file, byte for byte what `safetensors.torch.save` writes; `half` sends bfloat16.

    Every number is copied once, straight to its place, and converted on the way. The library's own function copies
    several times, which makes it ten times slower for the one shape we send.
    """
    for name, field in fields.items():
        assert field.dim() == 1, f"{name} is not one-dimensional"
        assert field.dtype == torch.float32, f"{name} is not float32"
    head = _head({name: field.numel() for name, field in fields.items()}, half)
    dtype = _dtype(half)
    data = sum(field.numel() for field in fields.values()) * dtype.itemsize
    file = (pool or BufferPool()).take(len(head) + data)
    file[: len(head)] = head
    numbers = torch.frombuffer(file, dtype=dtype, offset=len(head)) if data else torch.empty(0)
    start = 0
    for name in sorted(fields):
        end = start + fields[name].numel()
        numbers[start:end].copy_(fields[name].detach())
        start = end
    return file


def header(
    session: str,
    round: int,
    tag: str,
    architecture: str,
    size: float,
    payload: bytes | bytearray | memoryview,
    numbers: tuple[int, ...] = (),
) -> Header:
    """The header that announces this payload, or says these numbers itself."""
    return Header(
        version=VERSION,
        session=session,
        round=round,
        tag=tag,
        architecture=architecture,
        size=size,
        bytes=len(payload),
        checksum=checksum(payload),
        nothing=not payload and not numbers,
        numbers=numbers,
    )


def chunks(payload: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """The payload in order, in slices of `CHUNK` bytes; the last may be shorter."""
    view = memoryview(payload)
    for start in range(0, len(view), CHUNK):
        yield bytes(view[start : start + CHUNK])


@dataclass(frozen=True)
class Expected:
    """What a neighbour may send now, as the shared configuration has it."""

    architectures: Callable[[str], dict[str, dict[str, int]]]
    """Of a tag: signature -> every field that can occur and its number of elements."""
    optional: frozenset[str]
    """Fields that may be absent; all others must be there."""
    tags: Callable[[str], bool]
    half: bool
    """Whether bfloat16 was agreed on; then float32 is refused, and the reverse."""
    numbers: Callable[[str], int] = lambda tag: 0
    """Of a tag: how many whole numbers are said instead of fields; 0 if none are."""


class Receiver:
    """One delivery, fed with the stream's messages in order; everything is checked as early as it can be.

    The payload is staged in memory that the system gives as it is written, so that a header's promise costs nothing.
    A delivery refused once stays refused, and its buffer is let go.
    """

    def __init__(self, expected: Expected, judge: Callable[[Header], None], pool: BufferPool | None = None) -> None:
        self._expected = expected
        self._judge = judge
        self._pool = pool or BufferPool()
        self._header: Header | None = None
        self._fields: dict[str, int] = {}
        self._places: dict[str, int] | None = None
        self._staged = memoryview(b"")
        self._came = 0
        self._seen = 0
        """Whole blocks that have been looked at, in bytes; what has just come is in a fast cache."""
        self._checksum = 0
        self._refused: tuple[str, str] | None = None

    def feed(self, part: bytes) -> None:
        """Take the stream's next message; raises `Refused`."""
        if self._refused is not None:
            raise Refused(*self._refused)
        try:
            if self._header is None:
                self._take_header(part)
            else:
                self._take_chunk(part, self._header.bytes)
        except Refused as refusal:
            self._refuse(refusal)
            raise

    @property
    def header(self) -> Header:
        """What the first part said; it has been fed."""
        assert self._header is not None
        return self._header

    @property
    def staged(self) -> int:
        """Bytes of the payload that lie here until it is whole; none once it is refused."""
        return self._came if self._staged else 0

    def finish(self) -> dict[str, Tensor]:
        """The fields of a delivery that is complete and sound; raises `Refused`."""
        if self._refused is not None:
            raise Refused(*self._refused)
        try:
            return self._complete()
        except Refused as refusal:
            self._refuse(refusal)
            raise

    def _refuse(self, refusal: Refused) -> None:
        # Not the exception itself: its traceback would hold this object, and the last chunk, in memory.
        self._refused = refusal.reason, refusal.detail
        self._staged = memoryview(b"")

    def _take_header(self, part: bytes) -> None:
        if len(part) > _HEADER_LIMIT:
            raise Refused("oversized", f"a header of {len(part)} bytes, at most {_HEADER_LIMIT} are allowed")
        try:
            header = Header.FromString(part)
        except DecodeError:
            raise Refused("damaged", "the header cannot be read") from None
        if header.version != VERSION:
            raise Refused("version", f"version {header.version} of the format, ours is {VERSION}")
        if len(header.tag) > _TAG_LIMIT or not self._expected.tags(header.tag):
            raise Refused("tag", f"no message is called {_printable(header.tag)}")
        if not 0 <= header.size < _SIZE_LIMIT:
            raise Refused("size", f"a size of {header.size}")
        fields = self._expected.architectures(header.tag).get(header.architecture)
        if fields is None:
            raise Refused("architecture", f"unknown architecture {_printable(header.architecture)}")
        if header.numbers or self._expected.numbers(header.tag):
            self._check_numbers(header)
        elif header.bytes or not header.nothing:
            self._check_length(header.bytes, fields)
        self._judge(header)
        self._header, self._fields = header, fields

    def _check_numbers(self, header: Header) -> None:
        expected, came = self._expected.numbers(header.tag), len(header.numbers)
        if came != (0 if header.nothing else expected):
            raise Refused("numbers", f"{came} whole numbers, {0 if header.nothing else expected} are expected")
        if header.bytes:
            raise Refused("numbers", f"a payload of {header.bytes} bytes beside whole numbers, or in their place")

    def _check_length(self, length: int, fields: dict[str, int]) -> None:
        # The data's length follows from which optional fields are there; only the file's own head leaves some play.
        width = _dtype(self._expected.half).itemsize
        possible = {width * sum(n for name, n in fields.items() if name not in self._expected.optional)}
        for name in self._expected.optional & fields.keys():
            possible |= {data + width * fields[name] for data in possible}
        if length > max(possible) + 8 + _HEAD_LIMIT:
            raise Refused("oversized", f"a payload of {length} bytes, at most {max(possible)} of data are expected")
        if not any(data + 8 < length <= data + 8 + _HEAD_LIMIT for data in possible):
            raise Refused("shape", f"a payload of {length} bytes fits no allowed set of fields")

    def _take_chunk(self, part: bytes, promised: int) -> None:
        if not 0 < len(part) <= CHUNK:
            raise Refused("oversized" if part else "damaged", f"a chunk of {len(part)} bytes")
        if self._came + len(part) > promised:
            raise Refused("oversized", f"more than the promised {promised} bytes")
        self._stage(part, promised)
        if self._places is None and self._came >= 8:
            length = int.from_bytes(self._staged[:8], "little")
            if length > min(_HEAD_LIMIT, promised - 8) or length % 8:
                raise Refused("damaged", f"a safetensors head of {length} bytes")
            if self._came >= 8 + length:
                self._places = self._read_head(bytes(self._staged[8 : 8 + length]), promised)
                self._data = 8 + length
        if self._places is not None:
            whole = self._came - self._came % BLOCK
            self._checksum = add_blocks(self._staged[self._seen : whole], self._checksum)
            self._look(whole)

    def _stage(self, part: bytes, promised: int) -> None:
        if not self._staged:
            self._staged = self._pool.take(promised)
        self._staged[self._came : self._came + len(part)] = part
        self._came += len(part)

    def _look(self, end: int) -> None:
        """Refuse numbers that are not finite."""
        start, dtype = max(self._seen, self._data), _dtype(self._expected.half)
        self._seen = end
        if end > start:
            numbers = torch.frombuffer(self._staged, dtype=dtype, count=(end - start) // dtype.itemsize, offset=start)
            if not finite(numbers):
                raise Refused("not-finite", "there are numbers that are not finite")

    def _read_head(self, head: bytes, promised: int) -> dict[str, int]:
        """Where each field starts in the payload. Of the neighbour's numbers none is used, they only must be ours."""
        try:
            entries = json.loads(head.decode("utf-8"), object_pairs_hook=_unique)
        except (ValueError, RecursionError):
            raise Refused("damaged", "the safetensors head is not plain JSON") from None
        if not isinstance(entries, dict):
            raise Refused("damaged", "the safetensors head is not a JSON object")
        if unknown := entries.keys() - self._fields.keys():
            raise Refused("fields", f"unknown field {_printable(min(unknown))}")
        if missing := self._fields.keys() - self._expected.optional - entries.keys():
            raise Refused("fields", f"{min(missing)} is missing")
        start = 0
        places = {}
        for name, place in _layout({name: self._fields[name] for name in entries}, self._expected.half).items():
            entry = entries[name]
            if not isinstance(entry, dict) or entry.keys() != place.keys():
                raise Refused("damaged", f"{name} is not described as safetensors does")
            for key, reason in (("dtype", "dtype"), ("shape", "shape"), ("data_offsets", "damaged")):
                if entry[key] != place[key]:
                    raise Refused(reason, f"{name} has another {key} than {place[key]}")
            places[name] = 8 + len(head) + start
            start += self._fields[name] * _dtype(self._expected.half).itemsize
        if 8 + len(head) + start != promised:
            raise Refused("damaged", f"{promised} bytes promised, the fields need {8 + len(head) + start}")
        return places

    def _complete(self) -> dict[str, Tensor]:
        header = self._header
        if header is not None and header.bytes == 0:
            return {}
        if header is None or self._places is None or self._came != header.bytes:
            raise Refused("damaged", f"the stream ended after {self._came} bytes of the payload")
        if zlib.crc32(self._staged[self._seen : self._came], self._checksum) != header.checksum:
            raise Refused("damaged", "the checksum of the payload does not match")
        self._look(self._came)
        return {name: self._tensor(start, self._fields[name]) for name, start in self._places.items()}

    def _tensor(self, start: int, count: int) -> Tensor:
        if count == 0:
            return torch.empty(0)
        dtype = _dtype(self._expected.half)
        return torch.frombuffer(self._staged, dtype=dtype, count=count, offset=start).to(torch.float32)


def hello_mismatch(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """The first setting in which two neighbours differ, with its two values, or None."""
    for key in sorted({*mine, *theirs}):
        own, other = mine.get(key), theirs.get(key)
        if own != other:
            shown = ["missing" if value is None else _printable(value) for value in (own, other)]
            return f"{_printable(key)}: mine {shown[0]}, theirs {shown[1]}"
    return None


def _dtype(half: bool) -> torch.dtype:
    return torch.bfloat16 if half else torch.float32


def _layout(counts: Mapping[str, int], half: bool) -> dict[str, dict[str, object]]:
    """The entries of a safetensors head: fields of one type stand in the order of their names, without gaps."""
    width = _dtype(half).itemsize
    entries: dict[str, dict[str, object]] = {}
    start = 0
    for name in sorted(counts):
        end = start + counts[name] * width
        entries[name] = {"dtype": "BF16" if half else "F32", "shape": [counts[name]], "data_offsets": [start, end]}
        start = end
    return entries


def _head(counts: Mapping[str, int], half: bool) -> bytes:
    """The start of a safetensors file: eight bytes of length, then JSON padded so that the data are aligned."""
    text = json.dumps(_layout(counts, half), separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name occurs twice")
    return entries


def _printable(text: str, limit: int = 80) -> str:
    """A neighbour's text for one line of a log: short, and without control characters."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
