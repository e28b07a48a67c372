"""Whole numbers on the wire: they arrive as they were said, as many as the tag has, and nothing beside them."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import Refused
from coterie.net import wire
from coterie.net.wire import Expected, Receiver
from coterie.net.wire_pb2 import Header

EXPECTED = Expected(
    architectures=lambda tag: {"small": {} if tag == "news" else {"w": 5}},
    optional=frozenset(),
    tags=lambda tag: tag in ("model", "news"),
    half=False,
    numbers=lambda tag: 3 if tag == "news" else 0,
)
PAYLOAD = bytes(wire.encode({"w": torch.ones(5)}))
EMPTY = bytes(wire.encode({}))
WHOLE = st.integers(-(2**63), 2**63 - 1)


def header(tag: str = "news", numbers: tuple[int, ...] = (), payload: bytes = b"", **changes: Any) -> Header:
    """What an honest neighbour would say, but for what is changed."""
    said = wire.header("session", 7, tag, "small", 12.0, payload, numbers)
    for key, value in changes.items():
        setattr(said, key, value)
    return said


def take(first: bytes, payload: bytes = b"") -> tuple[tuple[int, ...], dict[str, torch.Tensor]]:
    """The numbers and the fields of a delivery."""
    receiver = Receiver(EXPECTED, lambda header: None)
    receiver.feed(first)
    for part in wire.chunks(payload):
        receiver.feed(part)
    fields = receiver.finish()
    return tuple(receiver.header.numbers), fields


def reason(said: Header, payload: bytes = b"") -> str:
    with pytest.raises(Refused) as caught:
        take(said.SerializeToString(), payload)
    assert caught.value.detail.isprintable()
    return caught.value.reason


@given(st.tuples(WHOLE, WHOLE, WHOLE))
def test_numbers_arrive_as_they_were_said(numbers: tuple[int, ...]) -> None:
    assert take(header(numbers=numbers).SerializeToString()) == (numbers, {})


def test_there_may_be_nothing_to_say() -> None:
    said = header()
    assert said.nothing
    assert take(said.SerializeToString()) == ((), {})


@given(st.lists(WHOLE, max_size=50).filter(lambda numbers: len(numbers) != 3))
def test_another_count_is_refused(numbers: list[int]) -> None:
    said = header(numbers=tuple(numbers), nothing=False)
    assert reason(said) == "numbers"


def test_thousands_are_refused_before_they_are_read() -> None:
    assert reason(header(numbers=(2**62,) * 5000)) == "oversized"


@given(st.lists(WHOLE, min_size=1, max_size=20))
def test_where_a_model_is_expected_numbers_are_refused(numbers: list[int]) -> None:
    said = header("model", tuple(numbers))
    assert reason(said) == "numbers"
    assert reason(header("model", tuple(numbers), PAYLOAD), PAYLOAD) == "numbers"


@pytest.mark.parametrize("payload", [PAYLOAD, EMPTY, b"x" * 8])
@pytest.mark.parametrize("numbers", [(), (1, 2, 3)])
@pytest.mark.parametrize("nothing", [False, True])
def test_where_numbers_are_expected_a_payload_is_refused(
    payload: bytes, numbers: tuple[int, ...], nothing: bool
) -> None:
    assert reason(header(numbers=numbers, payload=payload, nothing=nothing), payload) == "numbers"


def test_nobody_says_something_and_nothing() -> None:
    assert reason(header(numbers=(1, 2, 3), nothing=True)) == "numbers"


@settings(deadline=None, max_examples=300)
@given(
    numbers=st.lists(WHOLE, max_size=5),
    tag=st.sampled_from(["news", "model"]),
    length=st.sampled_from([0, 8, len(EMPTY), len(PAYLOAD), 2**64 - 1]),
    nothing=st.booleans(),
    sent=st.sampled_from([b"", EMPTY, PAYLOAD]),
)
def test_whatever_is_taken_is_one_thing(numbers: list[int], tag: str, length: int, nothing: bool, sent: bytes) -> None:
    """A model, as many numbers as there are to be, or nothing: never two of them, never a part."""
    said = header(tag, tuple(numbers), nothing=nothing, bytes=length, checksum=wire.checksum(sent))
    try:
        got, fields = take(said.SerializeToString(), sent)
    except Refused:
        return
    assert len(got) in (0, 3 if tag == "news" else 0)
    assert not (got and fields)
    assert set(fields) in ({"w"}, set())
    assert got or fields or nothing


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_noise_behind_an_honest_beginning_ends_nobody(noise: bytes) -> None:
    begun = header(numbers=(1, 2, 3)).SerializeToString()
    try:
        got, fields = take(begun + noise)
    except Refused:
        return
    assert len(got) in (0, 3)
    assert not fields
