"""The wire: what one peer encodes another decodes, and whatever else comes in is refused and leaves no trace."""

import gzip
import json
import math
import random
import resource
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie.errors import Refused
from coterie.net import wire
from coterie.net.wire import CHUNK, Expected, Receiver
from coterie.net.wire_pb2 import Header, Hello

FIELDS = {"params": 5, "weights": 3, "buffers": 2}
ANSWERS = {"gradient": 4}


def expected(fields: dict[str, int] = FIELDS, half: bool = False) -> Expected:
    """One architecture, whose ordinary messages carry the given fields and whose answers carry others."""
    return Expected(
        architectures=lambda tag: {"small": ANSWERS if tag == "answer" else fields},
        optional=frozenset({"buffers"}),
        tags=lambda tag: tag in ("model", "answer"),
        half=half,
    )


def message(fields: dict[str, int] = FIELDS) -> dict[str, Tensor]:
    return {name: torch.randn(n) for name, n in fields.items()}


def stream(payload: Any, **changes: Any) -> list[bytes]:
    """The honest stream of a payload, but for the header's fields that are changed."""
    header = wire.header("session", 7, "model", "small", 12.0, payload)
    for key, value in changes.items():
        setattr(header, key, value)
    return [header.SerializeToString(), *wire.chunks(payload)]


def receive(
    parts: Iterable[bytes], expected: Expected, judge: Callable[[Header], None] = lambda header: None
) -> tuple[Header, dict[str, Tensor]]:
    receiver = Receiver(expected, judge)
    for part in parts:
        receiver.feed(part)
    fields = receiver.finish()
    return receiver.header, fields


def refusal(parts: Iterable[bytes], expected: Expected = expected()) -> str:  # noqa: B008 - it is frozen
    """The reason for which a stream is refused."""
    with pytest.raises(Refused) as caught:
        receive(parts, expected)
    return caught.value.reason


def file(head: Any, data: bytes) -> bytes:
    """A safetensors file with a head of our making: bytes as they are, anything else as JSON."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def entry(n: int, start: int, **changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [n], "data_offsets": [start, start + 4 * n]} | changes


# ---- the generated files


def test_the_generated_files_are_those_of_the_proto(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    here = Path(wire.__file__).parent
    source = here.parent.parent
    arguments = [f"-I{source}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(here / "wire.proto")]
    assert protoc.main(["protoc", *arguments]) == 0
    made = tmp_path / "coterie" / "net"
    used, here_used = (next(line for line in (f / "wire_pb2.py").open() if "Version:" in line) for f in (made, here))
    if used != here_used:
        pytest.skip(f"another compiler made them: {here_used}")
    for name in ("wire_pb2.py", "wire_pb2.pyi"):
        assert (made / name).read_text() == (here / name).read_text()


# ---- what is sent arrives


counts = st.dictionaries(st.text(min_size=1, max_size=12), st.integers(0, 200), min_size=0, max_size=5)


@settings(deadline=None, max_examples=60)
@given(counts=counts, half=st.booleans(), seed=st.integers(0, 2**32), data=st.data())
def test_round_trip(counts: dict[str, int], half: bool, seed: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(seed)
    sent = {name: torch.randn(n, generator=generator) for name, n in counts.items()}
    payload = wire.encode(sent, half)
    announced = wire.header("s", 3, "model", "small", 1.5, payload)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(payload) - 1), max_size=4, unique=True)))
    parts = [bytes(payload[a:b]) for a, b in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
    header, got = receive([announced.SerializeToString(), *parts], expected(counts, half))
    assert header == announced
    assert got.keys() == sent.keys()
    for name, field in sent.items():
        assert got[name].dtype == torch.float32
        assert torch.equal(got[name], field.bfloat16().float() if half else field)


@settings(deadline=None, max_examples=30)
@given(counts=counts, half=st.booleans())
def test_the_payload_is_what_safetensors_writes(counts: dict[str, int], half: bool) -> None:
    fields = message(counts)
    theirs = safetensors.torch.save({name: f.bfloat16() if half else f for name, f in fields.items()})
    assert bytes(wire.encode(fields, half)) == theirs


def test_encoding_takes_a_snapshot_of_any_strides() -> None:
    row = torch.arange(10.0, requires_grad=True)
    field = row[::2]
    payload = wire.encode({"params": field})
    with torch.no_grad():
        row.zero_()
    assert receive(stream(payload), expected({"params": 5}))[1]["params"].tolist() == [0, 2, 4, 6, 8]


def test_chunks_cover_the_payload_in_order() -> None:
    payload = random.Random(1).randbytes(2 * CHUNK + 5)
    parts = list(wire.chunks(payload))
    assert [len(part) for part in parts] == [CHUNK, CHUNK, 5]
    assert b"".join(parts) == payload
    assert len(list(wire.chunks(payload[: 2 * CHUNK]))) == 2


def test_several_chunks_make_one_message() -> None:
    fields = {"params": 700_000}
    sent = message(fields)
    _, got = receive(stream(wire.encode(sent)), expected(fields))
    assert torch.equal(got["params"], sent["params"])


def test_an_optional_field_may_be_absent_and_no_other() -> None:
    fields = message()
    del fields["buffers"]
    assert receive(stream(wire.encode(fields)), expected())[1].keys() == {"params", "weights"}
    del fields["weights"]
    assert refusal(stream(wire.encode(fields))) == "fields"


def test_the_fields_are_those_of_the_tag() -> None:
    answer = wire.encode(message(ANSWERS))
    assert receive(stream(answer, tag="answer"), expected())[1].keys() == ANSWERS.keys()
    assert refusal(stream(answer)) == "fields"
    assert refusal(stream(wire.encode(message()), tag="answer")) == "fields"


# ---- the header


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": wire.VERSION + 1}, "version"),
        ({"version": 0}, "version"),
        ({"tag": "gossip"}, "tag"),
        ({"tag": "x" * 65}, "tag"),
        ({"architecture": "large"}, "architecture"),
        ({"size": -1.0}, "size"),
        ({"size": math.nan}, "size"),
        ({"size": math.inf}, "size"),
        ({"size": 1e12}, "size"),
        ({"bytes": 0}, "shape"),
        ({"bytes": 20}, "shape"),
        ({"bytes": 10 * 10**9}, "oversized"),
        ({"bytes": 2**64 - 1}, "oversized"),
    ],
)
def test_a_header_is_refused_before_any_payload_and_before_the_judge(changes: dict[str, Any], reason: str) -> None:
    judged: list[Header] = []
    receiver = Receiver(expected(), judged.append)
    with pytest.raises(Refused) as caught:
        receiver.feed(stream(wire.encode(message()), **changes)[0])
    assert caught.value.reason == reason
    assert judged == []


def test_a_long_tag_is_refused_though_it_were_known() -> None:
    generous = Expected(lambda tag: {"small": FIELDS}, frozenset(), lambda tag: True, half=False)
    payload = wire.encode(message())
    assert receive(stream(payload, tag="x" * 64), generous)
    assert refusal(stream(payload, tag="x" * 65), generous) == "tag"


def test_a_header_may_not_be_long() -> None:
    payload = wire.encode(message())
    assert receive(stream(payload, session="s" * 4000), expected())
    assert refusal(stream(payload, session="s" * 4096)) == "oversized"


def test_the_judge_decides_once_and_the_delivery_stays_refused() -> None:
    judged = []

    def judge(header: Header) -> None:
        judged.append(header.round)
        raise Refused("past", "round 7 is over")

    parts = stream(wire.encode(message()))
    receiver = Receiver(expected(), judge)
    for act in [lambda: receiver.feed(parts[0]), lambda: receiver.feed(parts[0]), receiver.finish]:
        with pytest.raises(Refused, match="past: round 7 is over"):
            act()
    assert judged == [7]


# ---- the safetensors head


DATA = bytes(32)
GOOD = {"params": entry(5, 0), "weights": entry(3, 20)}


def test_a_head_of_our_making_is_accepted() -> None:
    assert receive(stream(file(GOOD, DATA)), expected())[1].keys() == GOOD.keys()


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (GOOD | {"params": entry(5, 0, dtype="BF16")}, "dtype"),
        (GOOD | {"params": entry(5, 0, dtype="F64")}, "dtype"),
        (GOOD | {"params": entry(5, 0, dtype=["F32"])}, "dtype"),
        (GOOD | {"params": entry(5, 0, shape=[1, 5])}, "shape"),
        (GOOD | {"params": entry(5, 0, shape=[6])}, "shape"),
        (GOOD | {"params": entry(5, 0, shape=5)}, "shape"),
        (GOOD | {"params": entry(5, 0, shape=[2**62])}, "shape"),
        (GOOD | {"weights": entry(3, 16)}, "damaged"),
        (GOOD | {"weights": entry(3, 24)}, "damaged"),
        (GOOD | {"weights": entry(3, 20, data_offsets=[20, 2**63])}, "damaged"),
        (GOOD | {"weights": entry(3, -12)}, "damaged"),
        ({"weights": entry(3, 0), "params": entry(5, 12)}, "damaged"),
        (GOOD | {"params": entry(5, 0, more=1)}, "damaged"),
        (GOOD | {"params": [5]}, "damaged"),
        (GOOD | {"params": None}, "damaged"),
        (GOOD | {"other": entry(0, 32)}, "fields"),
        (GOOD | {"__metadata__": {"format": "pt"}}, "fields"),
        (GOOD | {"\ud800\n\x1b[2J": entry(0, 32)}, "fields"),
        (GOOD | {"buffers": entry(2, 0)}, "damaged"),
        ({}, "fields"),
        ([], "damaged"),
        ("params", "damaged"),
        (b" ", "damaged"),
        (b"\xff" * 16, "damaged"),
        (b"[" * 60_000, "damaged"),
        (b'{"params":' * 6_000, "damaged"),
        (b'{"params":{"dtype":"F32","shape":' + b"[" * 900 + b"]" * 900 + b"}}", "fields"),
        (b'{"params":' + b"9" * 60_000 + b"}", "damaged"),
        (b'{"params":1e999,"weights":NaN}', "damaged"),
        (b'{"params":{},' + json.dumps(GOOD)[1:].encode(), "damaged"),
        (json.dumps(GOOD).encode("utf-16"), "damaged"),
        (json.dumps(GOOD).encode() + b"\0", "damaged"),
    ],
)
def test_a_head_is_refused_with_the_first_chunk(head: Any, reason: str) -> None:
    payload = file(head, DATA)
    receiver = Receiver(expected(), lambda header: None)
    receiver.feed(stream(payload)[0])
    with pytest.raises(Refused) as caught:
        receiver.feed(payload)
    assert caught.value.reason == reason
    assert caught.value.detail.isprintable()
    assert len(caught.value.detail) < 200


def test_a_head_is_refused_before_the_bulk_comes() -> None:
    fields = {"params": 3 * CHUNK}
    payload = wire.encode(message(fields))
    receiver = Receiver(expected(fields, half=False), lambda header: None)
    receiver.feed(stream(payload)[0])
    head = 8 + int.from_bytes(payload[:8], "little")
    spoilt = bytes(payload[:head]).replace(b"F32", b"I32")
    for position in range(head - 1):
        receiver.feed(spoilt[position : position + 1])
    with pytest.raises(Refused, match="dtype"):
        receiver.feed(spoilt[head - 1 :])


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 64 * 1024 + 8, 33, 10**6])
def test_a_head_may_not_lie_about_its_length(length: int) -> None:
    assert refusal(stream(length.to_bytes(8, "little") + bytes(100_000)), expected({"params": 24_000})) == "damaged"


@pytest.mark.parametrize("surplus", [4, 8])
def test_data_without_a_field_are_refused(surplus: int) -> None:
    assert refusal(stream(file(GOOD, DATA + bytes(surplus)))) == "damaged"


def test_data_must_be_aligned() -> None:
    text = json.dumps(GOOD).encode()
    text += b" " * (-len(text) % 8 + 4)
    assert refusal(stream(len(text).to_bytes(8, "little") + text + DATA)) == "damaged"


@pytest.mark.parametrize("agreed", [False, True])
def test_only_the_agreed_precision_is_accepted(agreed: bool) -> None:
    fields = {"params": 6}
    for sent in (False, True):
        parts = stream(wire.encode(message(fields), half=sent))
        if sent == agreed:
            receive(parts, expected(fields, half=agreed))
        else:
            assert refusal(parts, expected(fields, half=agreed)) == "dtype"


# ---- the numbers


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 37, 99])
def test_numbers_must_be_finite(half: bool, bad: float, place: int) -> None:
    fields = {"params": 1, "weights": 100}
    sent = message(fields)
    sent["weights"][place] = bad
    assert refusal(stream(wire.encode(sent, half)), expected(fields, half)) == "not-finite"


def test_the_largest_numbers_are_finite() -> None:
    largest = torch.finfo(torch.float32).max
    sent = {"params": torch.tensor([largest, largest, -largest, 1e-45, -0.0])}
    assert torch.equal(receive(stream(wire.encode(sent)), expected({"params": 5}))[1]["params"], sent["params"])


# ---- broken streams


LARGE = {"params": 600_000}
LARGE_STREAM = stream(wire.encode(message(LARGE)))


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (lambda p: [], {"damaged"}),
        (lambda p: p[:1], {"damaged"}),
        (lambda p: p[:-1], {"damaged"}),
        (lambda p: [*p[:-1], p[-1][:-1]], {"damaged"}),
        (lambda p: [*p, b"x"], {"oversized"}),
        (lambda p: [*p, b""], {"damaged"}),
        (lambda p: [p[0], b"", *p[1:]], {"damaged"}),
        (lambda p: [p[0], p[2], p[1], p[3]], {"damaged"}),
        (lambda p: [p[0], p[1], p[3], p[2]], {"damaged"}),
        (lambda p: [p[0], p[1], p[1], p[2], p[3]], {"oversized"}),
        (lambda p: [p[0], p[1], p[1], p[3]], {"damaged"}),
        (lambda p: [p[0], *p], {"damaged"}),
        (lambda p: p[1:], {"oversized"}),
        (lambda p: [p[0], b"".join(p[1:])], {"oversized"}),
        (lambda p: p + p, {"oversized"}),
    ],
)
def test_cut_reordered_and_repeated_streams(change: Callable[[list[bytes]], list[bytes]], reasons: set[str]) -> None:
    assert refusal(change(LARGE_STREAM), expected(LARGE)) in reasons


def test_a_cut_stream_is_noticed_though_its_checksum_fits() -> None:
    payload = wire.encode(message())
    assert refusal(stream(payload[:-4], bytes=len(payload))) == "damaged"


def test_the_checksum_tells_flipped_bits_and_swapped_blocks() -> None:
    payload = random.Random(2).randbytes(5 * (64 << 10) + 11)
    right = wire.checksum(payload)
    for position in (0, 7, 1000, 64 << 10, 4 * (64 << 10) + 3, len(payload) - 1):
        for bit in range(8):
            spoilt = bytearray(payload)
            spoilt[position] ^= 1 << bit
            assert wire.checksum(spoilt) != right
    block = 64 << 10
    assert wire.checksum(payload[block : 2 * block] + payload[:block] + payload[2 * block :]) != right
    assert wire.checksum(payload[:-1]) != right
    assert wire.checksum(bytearray(payload)) == right


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, None])
def test_compressed_payloads_are_just_wrong_bytes(pack: Callable[[bytes], bytes] | None) -> None:
    bomb = bytes(64 << 20)
    if pack is None:
        archive = BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("params", bomb)
        payload = archive.getvalue()
    else:
        payload = pack(bomb)
    for fields in ({"params": len(payload) // 4 - 8}, {"params": 16 << 20}):
        assert refusal(stream(payload), expected(fields)) in {"damaged", "shape"}


def test_a_flipped_bit_of_the_payload_is_noticed() -> None:
    parts = stream(wire.encode(message()))
    for position in range(8 * len(parts[1])):
        spoilt = bytearray(parts[1])
        spoilt[position // 8] ^= 1 << position % 8
        refusal([parts[0], bytes(spoilt)])


def outcome(parts: Iterable[bytes]) -> str:
    """Why a stream is refused, or "accepted"; any exception but `Refused` fails the test."""
    try:
        receive(parts, expected())
    except Refused as refused:
        return refused.reason
    return "accepted"


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_only_refused_ever_comes_out(data: st.DataObject) -> None:
    honest = stream(wire.encode({name: torch.ones(n) for name, n in FIELDS.items()}))
    parts = [bytearray(part) for part in honest]
    for _ in range(data.draw(st.integers(1, 4))):
        part = parts[data.draw(st.integers(0, len(parts) - 1))] if parts else bytearray()
        match data.draw(st.sampled_from(["flip", "cut", "insert", "drop", "repeat", "shuffle", "noise"])):
            case "flip" if part:
                part[data.draw(st.integers(0, len(part) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del part[data.draw(st.integers(0, len(part))) :]
            case "insert":
                place = data.draw(st.integers(0, len(part)))
                part[place:place] = data.draw(st.binary(max_size=40))
            case "drop" if parts:
                parts.pop(data.draw(st.integers(0, len(parts) - 1)))
            case "repeat":
                parts.append(bytearray(part))
            case "shuffle":
                parts = data.draw(st.permutations(parts))
            case "noise":
                parts.insert(data.draw(st.integers(0, len(parts))), bytearray(data.draw(st.binary(max_size=200))))
    result = outcome([bytes(part) for part in parts])
    if parts[1:] != [bytearray(part) for part in honest[1:]]:
        assert result != "accepted"


@settings(deadline=None, max_examples=200)
@given(parts=st.lists(st.binary(max_size=300), max_size=4))
def test_noise_is_refused(parts: list[bytes]) -> None:
    assert outcome(parts) != "accepted"


@settings(deadline=None, max_examples=200)
@given(head=st.binary(max_size=200), data=st.binary(max_size=60))
def test_noise_behind_an_honest_header_is_refused(head: bytes, data: bytes) -> None:
    assert outcome(stream(file(head, data))) != "accepted"


# ---- what a liar costs


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_a_promise_costs_no_memory() -> None:
    fields = {"params": 2_500_000_000}
    head = file({"params": entry(fields["params"], 0)}, b"")
    header = wire.header("s", 1, "model", "small", 1.0, head)
    header.bytes = len(head) + 4 * fields["params"]
    parts = [header.SerializeToString(), head + bytes(CHUNK - len(head))]
    before = resident()
    receiver = Receiver(expected(fields), lambda header: None)
    for part in parts:
        receiver.feed(part)
    assert receiver.staged == CHUNK
    assert resident() - before < 8 * CHUNK  # pages may be of two megabytes
    with pytest.raises(Refused, match="damaged"):
        receiver.finish()
    assert receiver.staged == 0


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_nothing_refused_stays_in_memory() -> None:
    receiver = Receiver(expected(LARGE), lambda header: None)
    gone = weakref.ref(receiver)
    for part in LARGE_STREAM[:-1]:
        receiver.feed(part)
    with pytest.raises(Refused) as caught:
        receiver.finish()
    del receiver, caught
    assert gone() is None


def test_a_refused_delivery_changes_nothing() -> None:
    inbox: dict[int, dict[str, Tensor]] = {}
    rules = expected()
    sent = message()
    honest = stream(wire.encode(sent))
    before = sent["params"].clone()

    def deliver(parts: Iterable[bytes]) -> None:
        header, fields = receive(parts, rules)
        inbox[header.round] = fields

    for spoilt in (honest[:1], [honest[0], honest[1][:-1] + b"x"], [honest[0], *honest]):
        with pytest.raises(Refused):
            deliver(spoilt)
        assert inbox == {}
    deliver(honest)
    assert torch.equal(inbox[7]["params"], before)


# ---- whether two neighbours mean the same


@pytest.mark.parametrize(
    ("mine", "theirs", "line"),
    [
        ({}, {}, None),
        ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}, None),
        ({"rule.theta": "5"}, {"rule.theta": "7"}, "rule.theta: mine 5, theirs 7"),
        ({"b": "1", "a": "1"}, {"b": "2", "a": "2"}, "a: mine 1, theirs 2"),
        ({"seed": "1"}, {}, "seed: mine 1, theirs missing"),
        ({}, {"seed": '""'}, 'seed: mine missing, theirs ""'),
        ({"a": "1"}, {"a": "2\n\x1b[31m"}, "a: mine 1, theirs 2\\n\\x1b[31m"),
    ],
)
def test_the_first_difference_is_named(mine: dict[str, str], theirs: dict[str, str], line: str | None) -> None:
    assert wire.hello_mismatch(mine, theirs) == line
    assert wire.hello_mismatch(Hello(shared=mine).shared, Hello(shared=theirs).shared) == line


@given(st.dictionaries(st.text(), st.text()), st.dictionaries(st.text(), st.text()))
def test_a_difference_is_one_short_line(mine: dict[str, str], theirs: dict[str, str]) -> None:
    line = wire.hello_mismatch(mine, theirs)
    assert (line is None) == (mine == theirs)
    assert line is None or (line.isprintable() and len(line) <= 3 * 80 + 20)


def test_long_values_are_shortened() -> None:
    line = wire.hello_mismatch({"a": "x" * 80}, {"a": "y" * 81})
    assert line == f"a: mine {'x' * 80}, theirs {'y' * 79}…"
