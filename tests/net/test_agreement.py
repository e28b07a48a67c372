"""What peers tell each other of their settings stays short, whatever the other says of its own."""

import asyncio
from pathlib import Path

import grpc
import pytest

from calling import called
from coterie.net.agreement import disagreement
from coterie.net.contacts import SERVICE
from coterie.net.tls import channel
from coterie.net.wire_pb2 import Answer, Hello, Introduction, Welcome
from peering import run


def boastful(hello: Hello) -> Hello:
    """The same greeting with enormous names of models, which take four times as much where they are shown."""
    said = Hello.FromString(hello.SerializeToString())
    said.digest = "another"
    del said.signatures[:]
    said.signatures.extend(["\x01" * 7_000] * 8)
    return said


def test_whoever_has_enormous_names_is_answered_in_few_words(tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller):
            async with channel(caller.self.config.home, caller.to.home.card) as line:
                said = boastful(caller.self.links.contacts.hello())
                call = line.unary_stream(f"/{SERVICE}/Follow")(said.SerializeToString())
                answer = Welcome.FromString(await asyncio.wait_for(call.read(), 10))
            assert not answer.accepted
            assert answer.reason.startswith("model signature: mine ")
            assert len(answer.reason) < 2000  # with all of them 200,000
            assert peer.status.neighbours["node-1"].refusals == {"disagreement": 1}

    run(scene())


def test_enormous_greetings_are_not_even_read(tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller):
            async with channel(caller.self.config.home, caller.to.home.card) as line:
                said = caller.self.links.contacts.hello()
                said.shared["a"] = "a" * 100_000
                call = line.unary_stream(f"/{SERVICE}/Follow")(said.SerializeToString())
                with pytest.raises(grpc.aio.AioRpcError, match="oversized"):
                    await asyncio.wait_for(call.read(), 10)
            assert peer.status.neighbours["node-1"].refusals == {"oversized": 1}
            async with caller.line() as line:
                assert (await caller.bring(line, caller.whole())).accepted

    run(scene())


def test_who_introduces_all_the_time_is_not_listened_to(tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (_, caller):
            said = [Introduction(card=caller.self.config.home.card.text).SerializeToString(), b"rubbish"]
            async with channel(caller.self.config.home, caller.to.home.card) as line:
                call = line.unary_unary(f"/{SERVICE}/Introduce")
                reasons = [Answer.FromString(await call(each, timeout=10)).reason for each in said]
            assert reasons == ["", "too-many"]

    run(scene())


def test_ones_own_names_are_told_in_full() -> None:
    mine, theirs = (Hello(version=3, digest=each, signatures=[each * 16]) for each in "ab")
    assert disagreement(mine, theirs) == f"model signature: mine ['{'a' * 16}'], theirs ['{'b' * 16}']"
