"""Peers in trouble: killed, stopped, lied to, knocked at; they must lose nothing, let nobody in, and learn as well.

`make chaos` runs one experiment twice with real processes, quietly and then with all of that, and compares.
"""

import argparse
import contextlib
import functools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
import _intruders
from coterie.config.slots import choice
from coterie.engines.peer import Fleet, Peer, process
from coterie.errors import CoterieError
from coterie.peers.checkpoint import CHECKPOINT, load_checkpoint
from coterie.records import Event
from coterie.runs import runner
from coterie.runs.experiment import Experiment

POINTS = 0.02
"""How much accuracy the trouble may cost."""
REASONS = {"not-finite", "shape", "fields", "oversized", "damaged", "duplicate", "past", "future", "session", "tag"}
REASONS |= {"version", "architecture", "size", "too-many", "disagreement"}
"""What the hostile peer's messages must have been refused for, each at least once."""


@dataclass(frozen=True)
class Plan:
    """How long, how many, how much trouble."""

    seed: int = 0
    nodes: int = 8
    neighbours: int = 4
    rounds: int = 240
    epochs: int = 6
    first: int = 3
    """The round of the first kill."""
    every: tuple[int, int] = (6, 12)
    """Rounds between kills, of two peers each, at least and at most."""
    until: int = 215
    """The last round in which anybody is killed: who dies at the very end finds nobody to learn from."""
    stop: int = 15
    """The round in which one peer is stopped."""
    pause: float = 60.0
    """Seconds that it stays so."""
    dawdle: float = 0.7
    """Seconds into a round after which the hostile peer says that it has no model: others wait for it so long."""
    lying: bool = False
    """Whether it lies about its round, too, to make others skip theirs."""
    calm: dict[str, Any] | None = None
    """The quiet run's engine, if not the same."""

    @property
    def engine(self) -> dict[str, Any]:
        return {"name": "peer", "restarts": 1000, "deadline": 10.0, "wait": 20.0}

    def experiment(self, engine: dict[str, Any]) -> Experiment:
        """What is run."""
        return Experiment(
            nodes=self.nodes,
            rounds=self.rounds,
            epochs=self.epochs,
            evaluate=1,  # so that every round leaves a record and a line in the log
            seeds=(self.seed,),
            topology={"name": "regular", "k": self.neighbours},
            partition={"name": "dirichlet", "alpha": 2.0, "min_samples": 10},  # the hostile node's data can be missed
            rule="decavg",
            engine=engine,
        )


@dataclass
class Story:
    """What was done to the peers, and what was seen of them."""

    plan: Plan
    hostile: int
    statuses: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """The latest status of every process of every peer: a new process begins to count at zero."""
    kills: Counter[str] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)
    """Checkpoints that could not be read right after a kill."""
    stopped: str = ""
    stood: tuple[int, int] = (0, 0)
    """The rounds of the others when it was stopped, and when it went on."""
    seconds: float = 0.0


class Troubled(Fleet):
    """A fleet with one hostile node, strangers at the doors, and a hand that kills and stops."""

    def __init__(self, engine: Peer, story: Story, folder: Path) -> None:
        super().__init__(engine)
        self.story, self.plan, self.folder = story, story.plan, folder
        self.rng = random.Random(story.plan.seed)
        self.strangers: Any = None
        self.next, self.resume = story.plan.first, 0.0

    def starter(self, *args: Any) -> Callable[[], Any]:
        if args[3] == self.story.hostile:
            told = self.folder / "hostile.json"
            return process(_intruders.hostile, self.plan.seed + 1, self.plan.dawdle, self.plan.lying, told, *args)
        return super().starter(*args)

    def event(self, event: Event) -> None:
        if event.name == "peers":
            self._disturb([status for status in event["statuses"] if status])

    def prepare(self, *args: Any) -> None:
        super().prepare(*args)
        assert self.keys is not None
        homes = [self.keys / p.name for i, p in enumerate(self.crew) if i != self.story.hostile]
        self.strangers = process(_intruders.strangers, self.plan.seed + 2, self.folder / "strangers.json", homes)()

    def _disturb(self, statuses: list[dict[str, Any]]) -> None:
        story = self.story
        story.statuses |= {(s["name"], s["session"]): s for s in statuses}
        honest = [p for i, p in enumerate(self.crew) if i != story.hostile]
        if all(p.finished for p in honest):
            if (hostile := self.crew[story.hostile].process) is not None:
                hostile.terminate()
            return
        honest = [p for p in honest if p.process is not None]
        front = max((s["round"] for s in statuses), default=0)
        if front >= self.plan.stop and not story.stopped:
            victim = self.rng.choice(honest)
            story.stopped, story.stood = victim.name, (front, 0)
            os.kill(victim.process.pid, signal.SIGSTOP)
            self.resume = time.monotonic() + self.plan.pause
        standing = bool(story.stopped) and not story.stood[1]
        if standing and time.monotonic() > self.resume:
            (victim,) = (p for p in honest if p.name == story.stopped)
            os.kill(victim.process.pid, signal.SIGCONT)
            others = [p for p in honest if p is not victim and not p.finished]
            story.stood = story.stood[0], front if others else self.plan.rounds
        if self.next <= front <= self.plan.until:
            self.next = front + self.rng.randint(*self.plan.every)
            able = [p for p in honest if not p.finished and not (standing and p.name == story.stopped)]
            for victim in self.rng.sample(able, min(2, len(able))):
                victim.process.kill()
                victim.process.join()
                story.kills[victim.name] += 1
                self._read(victim.folder / CHECKPOINT)

    def _read(self, checkpoint: Path) -> None:
        try:
            if checkpoint.exists():
                load_checkpoint(checkpoint)
        except CoterieError as error:
            self.story.damaged.append(str(error))

    def stop(self) -> None:
        super().stop()
        if self.strangers is not None:
            self.strangers.terminate()
            self.strangers.join(timeout=10)
            self.strangers = None


def quiet_run(plan: Plan, folder: Path) -> pl.DataFrame:
    """All nodes honest, no trouble."""
    return runner.run(plan.experiment(plan.calm or plan.engine), folder / "quiet").records


def troubled_run(plan: Plan, folder: Path) -> tuple[pl.DataFrame, Story]:
    """The same with trouble of every kind."""
    story, start = Story(plan, random.Random(plan.seed + 3).randrange(plan.nodes)), time.monotonic()
    engine: Peer = choice("engine", plan.engine).make()
    fleet = Troubled(engine, story, folder)
    with patch.object(Peer, "open", lambda engine: fleet):
        found = runner.run(plan.experiment(plan.engine), folder / "troubled", [fleet]).records
    story.seconds = time.monotonic() - start
    return found, story


# What must be true afterwards.


@dataclass(frozen=True)
class Check:
    """One thing that must be true, and what was found."""

    what: str
    fine: bool
    found: str


@dataclass(frozen=True)
class Survivor:
    """What an honest peer left on disk."""

    name: str
    folder: Path

    @functools.cached_property
    def log(self) -> list[dict[str, Any]]:
        """All events, the oldest first."""
        files = [self.folder / f"log.jsonl{end}" for end in (".2", ".1", "")]
        return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]

    @functools.cached_property
    def recorded(self) -> list[int]:
        rounds: list[int] = pl.read_parquet(self.folder / "records.parquet")["round"].to_list()
        return rounds

    def lost(self, rounds: int) -> list[str]:
        """What is missing: rounds that were told to be done, and rounds that were neither done nor skipped aloud."""
        told = {e["round"] for e in self.log if e["event"] == "round"}
        skipped = {
            r for e in self.log if e["event"] == "catching up" for r in range(e["round"] - e["skipped"], e["round"])
        }
        have, lost = set(self.recorded), []
        if self.recorded != sorted(have):
            lost.append(f"{self.name}: rounds recorded twice or out of order")
        lost += [f"{self.name}: round {r} was done and is not recorded" for r in sorted(told - have)]
        lost += [f"{self.name}: no word of round {r}" for r in sorted(set(range(rounds + 1)) - have - skipped)]
        return lost

    def setbacks(self) -> list[str]:
        """Where its round went back by more than the one that was under way."""
        done, found = 0, []
        for event in self.log:
            if event["event"] == "going on" and event["round"] < done:
                found.append(f"{self.name}: from round {done} back to {event['round']}")
            if event["event"] == "round" and event["round"] <= done:
                found.append(f"{self.name}: round {event['round']} after {done}")
            if event["event"] in ("going on", "round"):
                done = event["round"]
        return found

    def checkpoint(self, rounds: int) -> list[str]:
        try:
            about, _, rows = load_checkpoint(self.folder / CHECKPOINT)
        except CoterieError as error:
            return [str(error)]
        whole = int(about["round"]) == rounds and rows["round"].to_list() == self.recorded
        return [] if whole else [f"{self.name}: a checkpoint of round {about['round']} that is not its records"]


def survivors(folder: Path, story: Story) -> list[Survivor]:
    """The honest peers of the troubled run."""
    (peers,) = (folder / "troubled" / "jobs").glob("*/peers")
    found = [Survivor(there.name, there) for there in sorted(peers.iterdir())]
    return [s for i, s in enumerate(found) if i != story.hostile]


def accuracy(found: pl.DataFrame, plan: Plan, hostile: int) -> float:
    """The mean of the survivors in the last round."""
    last = found.filter((pl.col("round") == plan.rounds) & (pl.col("node") != hostile))["test_accuracy"]
    assert len(last) == plan.nodes - 1
    return float(last.mean())  # type: ignore[arg-type]


def checks(plan: Plan, folder: Path, quiet: pl.DataFrame, troubled: pl.DataFrame, story: Story) -> Iterator[Check]:
    """All that must be true."""
    crew = survivors(folder, story)
    late = [f"{s.name} ended with round {s.recorded[-1]}" for s in crew if s.recorded[-1] != plan.rounds]
    yield _all(f"all {len(crew)} honest peers finished", late, f"round {plan.rounds} everywhere")
    kills, (before, after) = story.kills.total(), story.stood
    yield Check("peers were killed", kills >= 4, f"{kills} times: {_listed(story.kills)}")
    back = [s.recorded[-1] for s in crew if s.name == story.stopped and any(r > after for r in s.recorded)]
    yield Check("one was stopped and came back", bool(after and back), f"{story.stopped}, rounds {before} to {after}")
    took = sum(len(s.recorded) - 1 for s in crew)
    yield _all(
        "no record was lost",
        [text for s in crew for text in s.lost(plan.rounds)],
        f"{took} rounds done, {len(crew) * plan.rounds - took} skipped to catch up",
    )
    yield _all("nobody's round went back", [text for s in crew for text in s.setbacks()], "but for the one under way")
    broken = [*story.damaged, *(text for s in crew for text in s.checkpoint(plan.rounds))]
    yield _all("checkpoints are whole", broken, f"{kills} after kills, {len(crew)} at the end")
    yield from _hostile(json.loads((folder / "hostile.json").read_text()), story)
    tried = json.loads((folder / "strangers.json").read_text())
    inside = [f"{way}: {came['let in']} times" for way, came in tried.items() if "let in" in came]
    tries = sum(sum(came.values()) for came in tried.values())
    yield _all("no stranger was let in", inside, f"{tries} tries in {len(tried)} ways")
    yield Check("strangers did try", bool(tried) and tries >= 10, f"{tries} tries")
    was, now = accuracy(quiet, plan, story.hostile), accuracy(troubled, plan, story.hostile)
    text = f"{now:.1%}, quietly {was:.1%} ({100 * (now - was):+.1f} points)"
    yield Check(f"accuracy within {100 * POINTS:g} points", abs(now - was) <= POINTS, text)


def _hostile(tried: dict[str, dict[str, int]], story: Story) -> Iterator[Check]:
    greeted = [came for came in tried["greeting"] if came.startswith("accepted")]
    yield Check("the hostile peer was let in", len(greeted) >= 3, f"by {len(greeted)} neighbours")
    merged = [f"{name}: {came[_intruders.MERGED]} times" for name, came in tried.items() if _intruders.MERGED in came]
    refusals: Counter[str] = Counter()
    for (peer, _), status in story.statuses.items():
        for name, known in status["neighbours"].items():
            if int(name.rpartition("-")[2]) == story.hostile:
                refusals.update(known["refusals"])
                if known["received_bytes"]:
                    merged.append(f"{peer} took {known['received_bytes']} bytes")
    messages = sum(sum(came.values()) for name, came in tried.items() if name != "greeting")
    yield _all("nothing of it was merged", merged, f"{messages} messages of {len(tried) - 1} kinds")
    missing = [f"none for {reason}" for reason in sorted(REASONS - set(refusals))]
    yield _all("its messages were refused", missing, _listed(refusals))


def _all(what: str, wrong: list[str], found: str) -> Check:
    more = f" … and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    return Check(what, not wrong, "; ".join(wrong[:5]) + more if wrong else found)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def run(plan: Plan, folder: Path, note: Callable[[str], None] = print) -> list[Check]:
    """Both runs and all checks."""
    start = time.monotonic()
    quiet = quiet_run(plan, folder)
    note(f"quiet run: {time.monotonic() - start:.0f} s")
    troubled, story = troubled_run(plan, folder)
    note(f"troubled run: {story.seconds:.0f} s")
    return list(checks(plan, folder, quiet, troubled, story))


@contextlib.contextmanager
def _elsewhere(path: Path) -> Iterator[None]:
    """What all processes write to stderr goes to a file: peers warn of every refusal."""
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def main() -> int:
    """Print what was found; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lying", action="store_true", help="let the hostile peer lie about its round as well")
    parser.add_argument("--out", type=Path, help="a new folder to keep all logs and records in")
    args = parser.parse_args()
    folder = args.out or Path(tempfile.mkdtemp(prefix="coterie-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    console, plan = Console(), Plan(seed=args.seed, lying=args.lying)
    console.print(f"{plan.nodes} peers, {plan.rounds} rounds, twice: this takes a few minutes", highlight=False)
    try:
        with _elsewhere(folder / "stderr.txt"):
            found = run(plan, folder, lambda text: console.print(text, highlight=False))
    except CoterieError as error:
        console.print(f"The run itself failed: {error}\nAll logs are in {folder}.", style="red", markup=False)
        return 1
    table = Table("what must be true", "", "found", title=f"chaos, seed {plan.seed}")
    for check in found:
        table.add_row(check.what, "[green]yes[/]" if check.fine else "[bold red]no[/]", check.found)
    console.print(table)
    wrong = [check for check in found if not check.fine]
    for check in wrong:
        console.print(f"Not true that {check.what}: {check.found}", style="red", markup=False)
    if wrong:
        console.print(f"All logs are in {folder}.", markup=False)
    elif args.out is None:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
