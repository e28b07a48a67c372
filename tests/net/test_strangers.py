"""Who has no card: silent connections by the hundred, and what they may hold."""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pytest

from coterie.errors import PeerError
from coterie.net import calls, descriptors, doors
from coterie.net.addresses import split_address
from coterie.net.tls import channel
from coterie.peers.runtime import PeerRuntime
from peering import cancelled, given, run, together, until

HERE = Path(__file__).parents[1]
FILES, CALLERS = 320, 700
BESIEGED = f"""
import asyncio, resource, sys
from pathlib import Path

resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
from peering import cancelled, given, run, until
from coterie.peers.runtime import PeerRuntime

async def scene():
    crew = given(Path(sys.argv[1]), {{"introduced": True}}, rounds=100_000, evaluate=100_000)
    running = [PeerRuntime(a) for a in crew]
    tasks = [asyncio.create_task(r.go()) for r in running]
    await until(lambda: all(r.status.checkpoints >= 2 for r in running))
    print(crew[0].home.listen, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    reached = running[0].status.round
    await until(lambda: running[0].status.round >= reached + 60 or any(t.done() for t in tasks))
    for task in tasks:
        assert not task.done(), task.exception()
    assert running[0].status.checkpoint_errors == 0
    assert all(n.missed == 0 and n.alive for n in running[0].status.neighbours.values())
    await cancelled(tasks)

run(scene())
print("went on", flush=True)
"""


def listens(address: str) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(split_address(address)) == 0


def test_rounds_go_on_under_more_silent_connections_than_files_may_be_open(tmp_path: Path) -> None:
    """Each looks at its cards meanwhile and takes its checkpoints, for which there are files."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", BESIEGED, str(tmp_path)]
    with ExitStack() as besiegers:
        child = besiegers.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        )
        besiegers.callback(child.kill)
        assert child.stdin is not None
        assert child.stdout is not None
        address = split_address(child.stdout.readline().strip())
        for _ in range(CALLERS):
            caller = besiegers.enter_context(socket.socket())
            caller.setblocking(False)
            with suppress(BlockingIOError, ConnectionError):
                caller.connect(address)
        print("go", file=child.stdin, flush=True)
        assert child.stdout.readline().strip() == "went on"


def test_files_are_kept_from_strangers_and_places_for_neighbours() -> None:
    used = len(os.listdir("/dev/fd"))
    assert descriptors.connections(1024, 3) == pytest.approx(
        1024 - used - descriptors.RESERVED - 3 * descriptors.EACH, abs=4
    )
    assert descriptors.connections(10**6, 3) == descriptors.MOST
    assert descriptors.connections(64, 3) == 3 * descriptors.EACH  # too few for anybody else


def test_as_many_files_may_be_open_as_the_system_allows() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512));"
        "from coterie.net.descriptors import raise_limit;"
        "print(raise_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["512"] * 3


def test_who_does_not_say_who_it_is_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "HANDSHAKE", 0.2)
    crew = given(tmp_path)

    async def scene() -> None:
        peer = PeerRuntime(crew[0])
        task = asyncio.create_task(peer.go())
        await until(lambda: peer.status.state == "waiting" and listens(crew[0].home.listen))
        reader, writer = await asyncio.open_connection(*split_address(crew[0].home.listen))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        await cancelled([task])

    run(scene(), 30)


def test_a_neighbour_that_only_keeps_a_connection_open_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "IDLE", 0.2)
    crew = given(tmp_path)

    async def scene() -> None:
        peer = PeerRuntime(crew[0])
        task = asyncio.create_task(peer.go())
        async with channel(crew[1].home, crew[0].home.card) as line:
            await asyncio.wait_for(line.channel_ready(), 30)
            await line.wait_for_state_change(grpc.ChannelConnectivity.READY)
        await cancelled([task])

    run(scene(), 60)


def test_a_line_that_cannot_be_opened_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when no file is to be had to read one's own key from."""
    failures = [PeerError("cannot read key.pem", got="Too many open files"), OSError("Too many open files")]

    def scarce(*args: object) -> object:
        if failures:
            raise failures.pop()
        return channel(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(calls, "channel", scarce)
    rows = run(together(given(tmp_path)), 60)
    assert not failures
    assert rows["received_bytes"].max() > 0
