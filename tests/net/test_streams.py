"""What comes in and goes out over real sockets: broken streams add nothing, memory is bounded, data stay home."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import grpc
import numpy as np
import pytest
import torch

from calling import Caller, called, listening, taken
from coterie.net import calls as wires
from coterie.net import questions, reception, wire
from coterie.net.contacts import SERVICE
from coterie.net.places import Rest
from coterie.net.reception import Reception
from coterie.net.tls import channel
from coterie.net.wire import Receiver
from coterie.net.wire_pb2 import Header, Hello, Receipt, Welcome
from coterie.peers.agreement import SHARED
from coterie.peers.runtime import PeerConfig, PeerRuntime
from peering import MODEL, cancelled, given, run, together, until

# ---- Streams


def test_a_stream_that_breaks_adds_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), caller.line() as line:
            link = peer.links.contacts.by_name["node-1"]
            call = line.stream_stream(f"/{SERVICE}/Deliver")(caller.half(then=asyncio.Event()))
            await until(lambda: link.streams == 1)
            await asyncio.sleep(0.1)
            call.cancel()
            await until(lambda: link.streams == 0)
            assert taken(peer) == link.status.received == 0
            ended = asyncio.Event()
            ended.set()
            assert (await caller.bring(line, caller.half(then=ended))).reason == "damaged"
            assert taken(peer) == 0
            assert (await caller.bring(line, caller.whole(checksum=1))).reason == "damaged"
            assert (await caller.bring(line, caller.whole(session="another"))).reason == "session"
            assert taken(peer) == 0
            assert (await caller.bring(line, caller.whole())).accepted  # nothing stands in the way of a good one
            assert taken(peer) == link.status.received == 1
            assert (await caller.bring(line, caller.whole())).reason == "duplicate"
            assert taken(peer) == 1
            (box,) = peer.mailroom.mailbox.boxes.values()
            added = box.summed.sums.merged("w", None, normalised=False)
            torch.testing.assert_close(added, torch.full((MODEL,), caller.size))

    run(scene())


def test_a_stream_brings_one_message_after_the_other(tmp_path: Path) -> None:
    """Until one is refused, which ends the stream: where the next message begins is not known then."""

    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), caller.line() as line:
            call = line.stream_stream(f"/{SERVICE}/Deliver")()
            for round, reason in ((1, ""), (2, ""), (2, "duplicate")):
                async for part in caller.whole(round=round):
                    await call.write(part)
                receipt = Receipt.FromString(await call.read())
                assert (receipt.accepted, receipt.reason) == (not reason, reason)
            assert await call.read() is grpc.aio.EOF
            assert taken(peer) == 2
            await until(lambda: peer.links.contacts.by_name["node-1"].streams == 0)

    run(scene())


def test_a_refusal_reaches_a_sender_in_the_middle_of_its_message(tmp_path: Path) -> None:
    """Nobody reads what comes after a header that is refused, and the sender does not wait for that."""

    async def scene() -> None:
        async with called(tmp_path) as (_, caller), caller.line() as line:
            long = memoryview(bytes(64 * wire.CHUNK))
            for header, reason in ((caller.header(session="another"), "session"), (b"\xff", "damaged")):
                call = line.stream_stream(f"/{SERVICE}/Deliver")()
                receipt = await wires.deliver(call, wires.EncodedPacket(1, 1, header, long, 0, frozenset()))
                assert receipt.reason == reason

    run(scene())


def test_too_many_streams_are_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), caller.line() as line:
            link, on = peer.links.contacts.by_name["node-1"], asyncio.Event()
            open_ones = [
                asyncio.create_task(caller.bring(line, caller.half(then=on))) for _ in range(reception.STREAMS)
            ]
            await until(lambda: link.streams == reception.STREAMS)
            assert (await caller.bring(line, caller.whole())).reason == "too-many"
            assert link.status.refusals["too-many"] == 1
            on.set()
            await asyncio.gather(*open_ones)
            assert (await caller.bring(line, caller.whole())).accepted

    run(scene())


def test_streams_on_which_nothing_comes_count_too(tmp_path: Path) -> None:
    """And do not stand in the way of the one that is used."""

    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), caller.line() as line:
            link, deliver = peer.links.contacts.by_name["node-1"], line.stream_stream(f"/{SERVICE}/Deliver")
            used, *idle = [deliver() for _ in range(reception.STREAMS)]
            for call in (used, *idle):
                await call.wait_for_connection()
            await until(lambda: link.streams == reception.STREAMS)
            assert Receipt.FromString(await deliver().read()).reason == "too-many"
            for round in (1, 2):
                async for part in caller.whole(round=round):
                    await used.write(part)
                assert Receipt.FromString(await used.read()).accepted
            assert taken(peer) == 2

    run(scene())


def test_greetings_that_are_never_ended_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has memory for more of them than for its streams; they are cut, and then it may greet again."""
    monkeypatch.setattr(reception, "STALL", 0.5)

    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), caller.line() as line:
            link, follow = peer.links.contacts.by_name["node-1"], line.stream_stream(f"/{SERVICE}/Follow")
            begun = [follow() for _ in range(reception.STREAMS - 1)]
            for call in begun:
                await call.wait_for_connection()
            await until(lambda: link.followers == reception.STREAMS)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await follow().read()
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            for call in begun:
                with pytest.raises(grpc.aio.AioRpcError, match="slow"):
                    await call.read()
            await until(lambda: link.followers == 1)
            async with caller.line():
                assert link.followers == reception.STREAMS

    run(scene())


@pytest.mark.parametrize("name", ["Ping", "DialBack", "Introduce", "Introductions"])
def test_questions_that_are_never_ended_are_few(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "STALL", 0.5)

    async def scene() -> None:
        async with called(tmp_path) as (_, caller), caller.line() as line:
            ask = line.stream_stream(f"/{SERVICE}/{name}")
            begun = [ask() for _ in range(questions.FEW)]
            for call in begun:
                await call.wait_for_connection()
            await asyncio.sleep(0.2)
            with pytest.raises(grpc.aio.AioRpcError, match="too-many"):
                await ask().read()
            for call in begun:
                with pytest.raises(grpc.aio.AioRpcError, match="slow"):
                    await call.read()
            if name == "Ping":
                assert await line.unary_unary(f"/{SERVICE}/{name}")(b"") == b""  # one that ends is answered again

    run(scene())


def test_a_stream_that_stands_still_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), caller.line() as line:
            monkeypatch.setattr(reception, "STALL", 0.2)
            monkeypatch.setattr(Rest, "FIRST", 0.0)
            for _ in range(reception.STAGED):  # none keeps its place, else there would be no room for a good one
                assert (await caller.bring(line, caller.half(then=asyncio.Event()))).reason == "slow"
            monkeypatch.setattr(reception, "STALL", 60.0)
            assert taken(peer) == 0
            assert (await caller.bring(line, caller.whole())).accepted

    run(scene())


def test_who_has_not_greeted_delivers_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller), channel(caller.self.config.home, caller.to.home.card) as line:
            assert (await caller.bring(line, caller.whole())).reason == "session"
            assert taken(peer) == 0

    run(scene())


# ---- Memory


class Staging(Receiver):
    """Counts the bytes that lie in staging buffers."""

    all: ClassVar["weakref.WeakSet[Staging]"] = weakref.WeakSet()
    peak = 0

    def feed(self, part: bytes) -> None:
        Staging.all.add(self)
        super().feed(part)
        Staging.peak = max(Staging.peak, sum(s.staged for s in Staging.all))

    def __hash__(self) -> int:
        return id(self)


@pytest.mark.parametrize(("rule", "held"), [("decavg", 0), ("median", 50)])
def test_fifty_neighbours_at_once_cost_a_few_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, held: int
) -> None:
    """All send a megabyte at the same time; the sums take them in a few at a time, and only a raw rule keeps them."""
    monkeypatch.setattr(reception, "Receiver", Staging)
    Staging.peak = 0
    big = {"name": "mlp", "sizes": [3500]}
    crew = given(
        tmp_path, {"wait": 600.0}, nodes=51, topology="star", model=big, rule=rule, total=51 * 12, partition="iid"
    )

    async def scene() -> None:
        hub, other = PeerRuntime(crew[0]), PeerRuntime(crew[1])
        task = asyncio.create_task(hub.go())
        await listening(hub, task)
        template = Caller(other, crew[0])
        assert len(template.payload) > 1e6

        async def one(a: PeerConfig) -> None:
            caller = Caller.__new__(Caller)
            caller.__dict__.update(template.__dict__, self=SimpleNamespace(config=a, links=other.links))
            async with caller.line() as line:
                assert (await caller.bring(line, caller.whole())).accepted

        try:
            await asyncio.gather(*(one(a) for a in crew[1:]))
            (box,) = hub.mailroom.mailbox.boxes.values()
            assert box.models == 50
            gc.collect()
            assert len(box.summed.messages) == held  # type: ignore[attr-defined]
            assert Staging.peak <= reception.STAGED * len(template.payload)
            await until(lambda: gc.collect() >= 0 and not [s for s in Staging.all if s.staged])  # calls are winding up
        finally:
            await cancelled([task])

    run(scene())


# ---- Data stay home


class Tap:
    """Everything that a peer hands to gRPC, by kind of call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hellos: list[bytes] = []
        self.pulses: list[bytes] = []
        self.receipts: list[bytes] = []
        self.deliveries: list[list[bytes]] = []
        dial, follow, deliver = wires.channel, Reception.follow, Reception.deliver

        async def followed(self_: Reception, request: bytes, context: Any) -> AsyncIterator[bytes]:
            async for pulse in follow(self_, request, context):
                self.pulses.append(pulse)
                yield pulse

        async def delivered(self_: Reception, parts: Any, context: Any) -> AsyncIterator[bytes]:
            async for receipt in deliver(self_, parts, context):
                self.receipts.append(receipt)
                yield receipt

        @asynccontextmanager
        async def dialled(*args: Any) -> AsyncIterator[Any]:
            async with dial(*args) as line:
                yield SimpleNamespace(unary_stream=self._asking(line), stream_stream=self._bringing(line))

        monkeypatch.setattr(wires, "channel", dialled)
        monkeypatch.setattr(Reception, "follow", followed)
        monkeypatch.setattr(Reception, "deliver", delivered)

    def _asking(self, line: Any) -> Any:
        def ask(method: str) -> Any:
            call = line.unary_stream(method)
            return lambda request: self.hellos.append(request) or call(request)  # type: ignore[func-returns-value]

        return ask

    def _bringing(self, line: Any) -> Any:
        def opened(method: str) -> Any:
            call, message, left = line.stream_stream(method)(), [], 0

            async def write(part: bytes) -> None:
                nonlocal message, left
                if left:
                    message.append(part)
                    left -= len(part)
                else:
                    message, left = [part], Header.FromString(part).bytes
                    self.deliveries.append(message)
                await call.write(part)

            return SimpleNamespace(write=write, read=call.read, cancel=call.cancel)

        return lambda method: lambda: opened(method)

    @property
    def everything(self) -> Iterator[bytes]:
        yield from (*self.hellos, *self.pulses, *self.receipts)
        for parts in self.deliveries:
            yield b"".join(parts)


def fields(message: Any) -> set[str]:
    """The names of the fields that are set."""
    return {descriptor.name for descriptor, _ in message.ListFields()}


@pytest.mark.parametrize(("rule", "sizes"), [("decavg", {"w": MODEL}), ("dechw", {"w": MODEL, "h": MODEL})])
def test_data_stay_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, sizes: dict[str, int]) -> None:
    """All that leaves are the rule's fields, to the byte, and what headers and greetings are documented to say."""
    tap, crew = Tap(monkeypatch), given(tmp_path, rule=rule)
    samples = crew[0].job.samples
    pattern = np.float32(0.7312345)
    train = np.concatenate(crew[0].job.roster.train)
    samples.train_x[torch.as_tensor(train)] = float(pattern)
    run(together(crew))
    assert tap.deliveries
    assert all(pattern.tobytes() not in said for said in tap.everything)
    expected = wire.encode({name: torch.zeros(n) for name, n in sizes.items()})
    head = bytes(expected[: len(expected) - 4 * sum(sizes.values())])
    allowed = {f.name for f in Header.DESCRIPTOR.fields}
    documented = "version session round tag architecture size bytes checksum nothing numbers"
    assert allowed == {*documented.split()}
    for header, *chunks in tap.deliveries:
        said = Header.FromString(header)
        assert said.SerializeToString() == header
        payload = b"".join(chunks)
        assert len(payload) == len(expected) == said.bytes
        assert payload.startswith(head)
        assert not said.numbers
        assert said.size in {len(own) for own in crew[0].job.roster.train}
    for text in tap.hellos:
        hello = Hello.FromString(text)
        assert fields(hello) <= {"version", "session", "digest", "shared", "signatures", "round", "finished"}
        about = {"seed", "engine", "phase", "topology", "classes of the data", "shape of a sample"}
        assert {key.partition(".")[0] for key in hello.shared} <= {*SHARED, *about}
        assert {key for key in hello.shared if key.startswith("topology")} <= {"topology.mixing"}
        assert len(text) < 4096
    for text in tap.pulses:
        assert fields(Welcome.FromString(text)) <= {"accepted", "version", "session", "round", "finished", "first"}
        assert len(text) < 64
    for text in tap.receipts:
        assert fields(Receipt.FromString(text)) <= {"accepted", "reason", "detail", "round", "session", "finished"}
        assert len(text) < 256
