"""Peers as they are deployed, each in a network namespace of its own: the network is cut, loses packets and is slow."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import namespaces
from coterie.net.identity import Home

REASON = namespaces.why_not()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=REASON or ""),
    pytest.mark.xdist_group("namespaces"),  # one after the other: each has a handful of processes
]

PATIENCE = 120.0
MODEL = 4 * (5 * 8 + 8 + 8 * 3 + 3)
"""Bytes of a model of these peers."""
SLOW = '''
import time
from dataclasses import dataclass
from pathlib import Path

from coterie.rules.decavg import DecAvg


@dataclass(frozen=True)
class Slow(DecAvg):
    """Averaging that takes as long as the file `pace` says."""

    def merge(self, me, params, state, inbox):
        time.sleep(float(Path("pace").read_text()))
        return super().merge(me, params, state, inbox)
'''
COTERIE = [sys.executable, "-c", "import sys; from coterie.app.cli import main; sys.exit(main())"]


@dataclass
class Fleet:
    """Peers at work, one on each machine."""

    machines: namespaces.Machines
    folders: list[Path]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def pace(self, *seconds: float) -> None:
        """How long each peer takes to merge, from now on."""
        for folder, each in zip(self.folders, seconds, strict=True):
            (folder / "pace.new").write_text(str(each))
            (folder / "pace.new").replace(folder / "pace")

    def log(self, peer: int) -> list[dict[str, Any]]:
        """What a peer has written down so far."""
        file = self.folders[peer] / "coterie-peer" / "run" / "log.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def rounds(self) -> list[int]:
        """The latest round that each peer has ended."""
        return [max([0, *(e["round"] for e in self.log(p) if e["event"] == "round")]) for p in range(len(self.folders))]

    def hears(self, peer: int, neighbour: int) -> bool:
        """Whether a peer takes a neighbour for alive."""
        name = f"peer-{neighbour}"
        seen = [e["event"] for e in self.log(peer) if e.get("neighbour") == name and e["event"].startswith("neighbour")]
        return bool(seen) and seen[-1] == "neighbour is there"

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for something; a peer that ends meanwhile, or nothing for too long, is a failure."""
        end = time.monotonic() + PATIENCE
        while not what():
            ended = [p for p, process in enumerate(self.processes) if process.poll() is not None]
            assert not ended, [self.said(p) for p in ended]
            assert time.monotonic() < end, [self.said(p) for p in range(len(self.folders))]
            time.sleep(0.1)

    def finish(self) -> list[pl.DataFrame]:
        """Wait until all have ended, and well; their records."""
        codes = [process.wait(PATIENCE) for process in self.processes]
        assert codes == [0] * len(codes), [self.said(p) for p, code in enumerate(codes) if code]
        return [pl.read_parquet(folder / "coterie-peer" / "run" / "records.parquet") for folder in self.folders]

    def said(self, peer: int) -> str:
        """The end of what a peer has printed."""
        return f"peer-{peer}: " + (self.folders[peer] / "out.txt").read_text()[-2000:]


@contextmanager
def fleet(folder: Path, count: int, edges: list[tuple[int, int]], **settings: object) -> Iterator[Fleet]:
    """Peers with samples of their own, each on its machine."""
    (folder / "slow.py").write_text(SLOW)
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    lines += ["batches = 2", "seeds = 0", "evaluate = 1", 'initialiser = "common"', f'rule = "{folder}/slow.py:Slow"']
    lines += ['[model]\nname = "mlp"\nsizes = [8]', '[dataset]\nname = "own"\nclasses = 3']
    (folder / "my.toml").write_text("\n".join(lines))
    random = np.random.default_rng(0)
    with ExitStack() as stack:
        there = stack.enter_context(namespaces.machines(count))
        made = Fleet(there, [folder / f"peer-{p}" for p in range(count)])
        homes = []
        for p, own in enumerate(made.folders):
            own.mkdir()
            np.savez(own / "data.npz", x=random.normal(size=(40, 5)).astype(np.float32), y=np.arange(40) % 3)
            homes.append(Home.create(own / "coterie-peer", f"peer-{p}", f"{there.address(p)}:7001"))
        for a, b in edges:
            homes[a].add(homes[b].card)
            homes[b].add(homes[a].card)
        made.pace(*[0.0] * count)
        for p, own in enumerate(made.folders):
            out = stack.enter_context(open(own / "out.txt", "wb"))
            words = there.command(p, *COTERIE, "peer", "run", "../my.toml", "--data", "data.npz")
            process = subprocess.Popen(
                words, cwd=own, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            made.processes.append(process)
        yield made


def models_heard(frame: pl.DataFrame) -> list[int]:
    """For each recorded round, how many models came."""
    return [amount // MODEL for amount in frame.sort("round")["received_bytes"].diff().drop_nulls()]


def test_both_halves_of_a_ring_go_on_without_the_other_and_meet_again(tmp_path: Path) -> None:
    """The halves keep different time, so that the slow one must also catch up."""
    ring, halves = [(0, 1), (1, 2), (2, 3), (3, 0)], [0, 0, 1, 1]
    across = [(a, b) for i, j in ring if halves[i] != halves[j] for a, b in ((i, j), (j, i))]
    with fleet(tmp_path, 4, ring, rounds=60) as peers:
        peers.pace(0.4, 0.4, 0.2, 0.2)
        peers.until(lambda: min(peers.rounds()) >= 3)
        peers.machines.switch.islands = halves
        peers.until(lambda: not any(peers.hears(a, b) for a, b in across))
        cut = peers.rounds()
        peers.until(lambda: all(now >= then + 6 for now, then in zip(peers.rounds(), cut, strict=True)))
        assert all(peers.hears(a, b) for i, j in ring if halves[i] == halves[j] for a, b in ((i, j), (j, i)))
        ahead = peers.rounds()[2] - peers.rounds()[1]
        peers.machines.switch.islands = ()
        peers.until(lambda: all(peers.hears(a, b) for a, b in across))
        peers.pace(0.05, 0.05, 0.05, 0.05)
        found = peers.finish()
        assert ahead > 2, "the halves were to part"
        assert "catching up" in {event["event"] for p in (0, 1) for event in peers.log(p)}
        for frame in found:
            heard = models_heard(frame)
            assert frame["round"].max() == 60
            assert "1111111" in "".join(map(str, heard)), "while cut off, the neighbour in one's own half is heard"
            assert "222" in "".join(map(str, heard[-15:])), "after that, both neighbours are"


def test_peers_finish_on_a_slow_network_that_loses_packets(tmp_path: Path) -> None:
    with fleet(tmp_path, 2, [(0, 1)], rounds=15) as peers:
        peers.machines.switch.loss, peers.machines.switch.delay = 0.05, 0.02
        found = peers.finish()
        assert peers.machines.switch.lost > 0
    for frame in found:
        heard = models_heard(frame)
        assert frame["round"].max() == 15
        assert sum(heard) > len(heard) / 2, "most of what was sent came"
