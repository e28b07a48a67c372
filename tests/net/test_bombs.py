"""Messages that gRPC itself would expand: no more of them than a message may have."""

import asyncio
from pathlib import Path

import grpc
import pytest

from calling import called
from coterie.net.contacts import SERVICE
from coterie.net.tls import channel
from coterie.net.wire import CHUNK
from peering import run


@pytest.mark.parametrize("name", ["Deliver", "Follow", "Ping", "Introduce"])
def test_what_is_small_and_expands_is_refused(name: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with called(tmp_path) as (peer, caller):
            bigger = [("grpc.max_send_message_length", -1)]
            async with channel(caller.self.config.home, caller.to.home.card, bigger) as line:
                call = line.stream_stream(f"/{SERVICE}/{name}")(compression=grpc.Compression.Gzip)
                await call.write(bytes(16 * CHUNK))
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await asyncio.wait_for(call.read(), 20)
                assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            async with caller.line() as line:
                assert (await caller.bring(line, caller.whole())).accepted
            assert not peer.status.neighbours["node-1"].refusals["shape"]

    run(scene())
