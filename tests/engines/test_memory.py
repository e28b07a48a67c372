"""The transport of peers in memory: a mailbox for each, and a deadline without a clock."""

import asyncio
from typing import Any

import pytest
import torch

from coterie.contract import Message
from coterie.engines.memory import MemoryTransport
from coterie.job import Ledger
from coterie.mail.traffic import Traffic
from coterie.node.sums import Packet


def packet(sender: int, value: float = 1.0) -> Packet:
    return Packet(sender, "mlp", Message({"w": torch.full((3,), value)}, torch.tensor([10.0]), 4))


@pytest.fixture
def post() -> MemoryTransport:
    return MemoryTransport({0, 1, 2}, 4, Ledger(3), Traffic(3))


def run(scene: Any) -> Any:
    return asyncio.run(asyncio.wait_for(scene, 30))


def test_what_is_sent_is_a_copy_and_counts_once(post: MemoryTransport) -> None:
    async def scene() -> None:
        first = packet(1, 1.0)
        post.send(1, [0], "model", first)
        first.message["w"].fill_(7.0)
        post.send(1, [0], "model", packet(1, 2.0))  # a real peer would refuse it
        heard = await post.receive(0, [1], "model")
        assert heard[1].message["w"].tolist() == [1.0] * 3

    run(scene())


def test_who_has_nothing_to_say_is_not_waited_for(post: MemoryTransport) -> None:
    async def scene() -> None:
        post.send(1, [0], "model", None)
        post.send(2, [0], "model", packet(2))
        assert list(await post.receive(0, [1, 2], "model")) == [2]

    run(scene())


def test_a_message_for_who_is_no_member_is_lost() -> None:
    post = MemoryTransport({0, 1}, 4, Ledger(3), Traffic(3))
    post.send(1, [2], "model", packet(1))
    assert set(post.mailboxes) == {0, 1}


def test_when_all_wait_the_deadline_passes_for_those_who_have_received_least(post: MemoryTransport) -> None:
    async def scene() -> None:
        order = []

        async def ahead() -> None:
            await post.receive(0, [], "start")
            post.send(0, [1, 2], "model", packet(0))
            assert list(await post.receive(0, [1, 2], "model")) == []  # they have nothing to say under this tag
            order.append(0)
            post.leave()

        async def waits(node: int) -> None:
            assert list(await post.receive(node, [0, 3 - node], "model")) == [0]
            order.append(node)
            post.send(3 - node, [node], "model", packet(3 - node))  # too late
            assert list(await post.receive(node, [0, 3 - node], "model")) == [0]
            post.leave()

        await asyncio.gather(ahead(), waits(1), waits(2))
        assert order[-1] == 0

    run(scene())
