"""Peers with a hostile one among them, strangers at their doors, and a hand that kills, stops, cuts and fills."""

import contextlib
import json
import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from chaos.disks import Disk
from chaos.hostile import hostile
from chaos.lives import Surroundings, begin
from chaos.machines import Net
from chaos.plan import Spell, Story
from chaos.strangers import strangers
from coterie.engines import peer as peers
from coterie.engines.peer import Fleet, Peer
from coterie.errors import CoterieError
from coterie.net import logs
from coterie.peers.checkpoint import CHECKPOINT, load_checkpoint
from coterie.records import Event

Trouble = Iterator[None]
"""Goes on a little at each look at the peers, about every second."""


class Troubled(Fleet):
    """A fleet in trouble of every kind."""

    def __init__(self, engine: Peer, story: Story, folder: Path, net: Net, disk: Disk) -> None:
        super().__init__(engine)
        self.story, self.plan, self.folder, self.net, self.disk = story, story.plan, folder, net, disk
        story.network, story.disk = net.kind, disk.kind
        nodes = [i for i in range(self.plan.nodes) if i != story.hostile]
        self.poor = self._draws("disk").choice(nodes)
        """Whose disk is small."""
        self.strangers: Any = None
        self.front = 0
        self.rounds: dict[str, int] = {}
        """Where each honest peer was when it last answered."""
        self.spared: set[str] = set()
        """Who is not to be killed now."""
        self.told: Counter[str] = Counter()
        """How many lines of each log were read."""
        self.troubles: list[Trouble] = [self._kill(), self._one_after_the_other(), self._give_up()]

    def _draws(self, purpose: str) -> random.Random:
        return random.Random(f"{self.plan.seed} {purpose}")

    # How they begin.

    def prepare(self, *args: Any) -> None:
        args[-1].mkdir(parents=True, exist_ok=True)
        width = len(str(self.plan.nodes - 1))
        (args[-1] / f"node-{self.poor:0{width}d}").symlink_to(self.disk.folder.resolve())
        with patch.object(peers, "make_homes", self.net.homes):
            super().prepare(*args)
        assert self.keys is not None
        homes = [self.keys / p.name for i, p in enumerate(self.crew) if i != self.story.hostile]
        told, outside = self.folder / "strangers.json", Surroundings(self.net.machine(None))
        self.strangers = begin(outside, strangers, self.plan.seed + 2, self.plan.silent, told, homes)()

    def starter(self, *args: Any) -> Callable[[], Any]:
        node = args[3]
        machine, host, disk = self.net.machine(node), self.net.host(node), self.disk if node == self.poor else None
        where = Surroundings(machine, host, f"{self.plan.seed} clock {node}", disk)
        if node == self.story.hostile:
            told = self.folder / "hostile.json"
            return begin(where, hostile, self.plan.seed + 1, self.plan.dawdle, told, *args)
        return begin(where, peers.live, *args)

    # What is done to them.

    @property
    def honest(self) -> list[Any]:
        return [p for i, p in enumerate(self.crew) if i != self.story.hostile]

    def event(self, event: Event) -> None:
        if event.name == "peers":
            try:
                self._look([status for status in event["statuses"] if status])
            except Exception:  # of which nobody would hear, and nobody would end the run
                self.story.broken = traceback.format_exc()
                os.kill(os.getpid(), signal.SIGINT)

    def _look(self, statuses: list[dict[str, Any]]) -> None:
        self.story.statuses |= {(s["name"], s["session"]): s for s in statuses}
        if all(p.finished for p in self.honest):
            if (hostile := self.crew[self.story.hostile].process) is not None:
                hostile.terminate()
            return
        self.rounds |= {s["name"]: s["round"] for s in statuses}
        self.front = max(self.rounds.get(p.name, 0) for p in self.honest)
        for peer in self.honest:
            self._follow(peer)
        self.troubles = [trouble for trouble in self.troubles if next(trouble, self) is None]

    def _follow(self, peer: Any) -> None:
        """Note how far a peer that has skipped rounds was led ahead of all others, who can only have gone on since."""
        log = peer.folder / logs.FILE
        lines = log.read_text().splitlines(keepends=True)[self.told[peer.name] :] if log.exists() else []
        others = max(self.rounds.get(p.name, 0) for p in self.honest if p is not peer)
        for line in lines:
            if not line.endswith("\n"):
                break
            self.told[peer.name] += 1
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event["event"] == "catching up":
                    self.story.lead = max(self.story.lead, event["round"] - others)

    def _one_after_the_other(self) -> Trouble:
        yield from self._stop()
        yield from self._cut()
        yield from self._fill()

    def _reach(self, round: int) -> Trouble:
        while self.front < round:
            yield

    def _last(self, spell: Spell) -> Trouble:
        """Go on for a while, of rounds and of seconds; but not so long that nobody is left to come back to."""
        spell.begun, begun = self.front, time.monotonic()
        latest = self.plan.until + (self.plan.rounds - self.plan.until) // 4
        while self.front < latest and (
            self.front < spell.begun + self.plan.lasts or time.monotonic() < begun + self.plan.pause
        ):
            yield
        spell.ended = self.front

    def _victims(self, draws: random.Random, count: int, among: list[Any] | None = None) -> list[Any]:
        able = [p for p in among or self.honest if self._alive(p) and p.name not in self.spared]
        return draws.sample(able, min(count, len(able)))

    def _alive(self, peer: Any) -> bool:
        return peer.process is not None and not peer.finished and peer.process.is_alive()

    def _end(self, victim: Any) -> None:
        victim.process.kill()
        victim.process.join()
        self.story.kills[victim.name] += 1
        for spell in (self.story.stopped, self.story.cut, self.story.full):
            spell.killed += bool(spell.begun and not spell.ended)
        try:
            if (checkpoint := victim.folder / CHECKPOINT).exists():
                load_checkpoint(checkpoint)
        except CoterieError as error:
            self.story.damaged.append(str(error))

    def _kill(self) -> Trouble:
        draws, following = self._draws("kills"), self.plan.first
        while self.front <= self.plan.until:
            if self.front >= following:
                following = self.front + draws.randint(*self.plan.every)
                for victim in self._victims(draws, 2):
                    self._end(victim)
            yield

    def _stop(self) -> Trouble:
        yield from self._reach(self.plan.stop)
        while not (victims := self._victims(self._draws("stop"), 1)):
            yield
        (victim,) = victims
        self.story.stopped.who = (victim.name,)
        self.spared.add(victim.name)
        os.kill(victim.process.pid, signal.SIGSTOP)
        try:
            yield from self._last(self.story.stopped)
        finally:  # also if all is over
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim.process.pid, signal.SIGCONT)
        self.spared.discard(victim.name)

    def _cut(self) -> Trouble:
        yield from self._reach(self.plan.cut)
        draws, story = self._draws("cut"), self.story
        nodes = [i for i in range(self.plan.nodes) if i != story.hostile]
        alone = draws.sample(nodes, len(nodes) // 2)
        story.cut.who = tuple(self.crew[i].name for i in alone)
        # The hostile one is heard on both sides.
        self.net.cut([-1 if i == story.hostile else int(i in alone) for i in range(self.plan.nodes)])
        going = self._last(story.cut)
        for here in (True, False):
            next(going, None)
            yield
            for victim in self._victims(draws, 1, [self.crew[i] for i in nodes if (i in alone) == here]):
                self._end(victim)
        yield from going
        self.net.cut(())

    def _fill(self) -> Trouble:
        yield from self._reach(self.plan.full)
        victim = self.crew[self.poor]
        while not self._alive(victim) or victim.name in self.spared:
            yield
        self.story.full.who, before, killed = (victim.name,), self._kept(victim), False
        for turns, _ in enumerate(self._last(self.story.full)):
            self.disk.fill()
            if turns >= 2 and not killed and self._alive(victim):
                self._end(victim)
                killed = True
            yield
        last = self._kept(victim)
        self.disk.free()
        while not victim.finished and self._kept(victim) == last:
            yield
        self.story.unsaved = range(before, self._kept(victim) + 1)

    def _kept(self, victim: Any) -> int:
        """The round of the newest checkpoint."""
        return int(load_checkpoint(victim.folder / CHECKPOINT)[0]["round"])

    def _give_up(self) -> Trouble:
        end = time.monotonic() + self.plan.patience
        while time.monotonic() < end:
            yield
        raise TimeoutError(f"not done within {self.plan.patience:g} s: rounds {self.rounds}")

    def stop(self) -> None:
        for trouble in self.troubles:
            trouble.close()  # type: ignore[attr-defined]
        self.net.cut(())
        self.disk.free()
        super().stop()
        if self.strangers is not None:
            self.strangers.terminate()
            self.strangers.join(timeout=10)
            self.strangers = None
