"""What must be true of peers that were in trouble."""

import contextlib
import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from chaos import strangers
from chaos.acting import MERGED
from chaos.hostile import REFUSED_FOR
from chaos.plan import Plan, Spell, Story
from coterie.errors import CoterieError
from coterie.peers.checkpoint import CHECKPOINT, kept_rows, load_checkpoint
from coterie.records.journal import events

SOUND = 20.0
"""What no number in a model reaches that has merged nothing of the hostile peer's."""
REASONS = {"not-finite", "shape", "fields", "oversized", "damaged", "duplicate", "past", "future", "session", "tag"}
REASONS |= {"version", "architecture", "size", "too-many", "too-large", "disagreement"}
"""What the hostile peer's messages must have been refused for, each at least once."""


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
        """All events, the oldest first, but for a line that a full disk has torn."""
        files, found = [self.folder / f"log.jsonl{end}" for end in (".2", ".1", "")], []
        for line in (line for file in files if file.exists() for line in file.read_text().splitlines()):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    @functools.cached_property
    def recorded(self) -> list[int]:
        rounds: list[int] = pl.read_parquet(self.folder / "records.parquet")["round"].to_list()
        return rounds

    def lost(self, rounds: int, unsaved: range = range(0)) -> list[str]:
        """What is missing: rounds that were told to be done, and rounds that were neither done nor skipped aloud.

        Those that were `unsaved` while a disk was full can be; nor could the log tell of them.
        """
        told = {e["round"] for e in self.log if e["event"] == "round"}
        skipped = {
            r for e in self.log if e["event"] == "catching up" for r in range(e["round"] - e["skipped"], e["round"])
        }
        have, lost = set(self.recorded), list[str]()
        if self.recorded != sorted(have):
            lost.append(f"{self.name}: rounds recorded twice or out of order")
        lost += [f"{self.name}: round {r} was done and is not recorded" for r in sorted(told - have - {*unsaved})]
        lost += [
            f"{self.name}: no word of round {r}" for r in sorted({*range(rounds + 1)} - have - skipped - {*unsaved})
        ]
        return lost

    def setbacks(self, unsaved: range = range(0)) -> list[str]:
        """Where its round went back by more than the one that was under way, or those that could not be saved."""
        done, found = 0, []
        for event in self.log:
            if event["event"] == "going on" and event["round"] < done and event["round"] not in unsaved:
                found.append(f"{self.name}: from round {done} back to {event['round']}")
            if event["event"] == "round" and event["round"] <= done:
                found.append(f"{self.name}: round {event['round']} after {done}")
            if event["event"] in ("going on", "round"):
                done = event["round"]
        return found

    def hurried(self, first: int) -> int:
        """To which round it has skipped others in its first life and before this round, if it has."""
        for event in self.log:
            if event["event"] == "catching up":
                return int(event["round"])
            if event["event"] == "going on" or (event["event"] == "round" and event["round"] >= first):
                break
        return 0

    @property
    def jumps(self) -> int:
        """How often its clock went back."""
        times = [datetime.fromisoformat(event["time"]) for event in self.log]
        return sum(after < before for before, after in itertools.pairwise(times))

    def checkpoint(self, rounds: int) -> list[str]:
        try:
            about, _ = load_checkpoint(self.folder / CHECKPOINT)
            rows = kept_rows(self.folder)
        except CoterieError as error:
            return [str(error)]
        whole = int(about["round"]) == rounds and rows["round"].to_list() == self.recorded
        return [] if whole else [f"{self.name}: a checkpoint of round {about['round']} that is not its records"]

    @property
    def largest(self) -> float:
        """The largest number in its model, infinite if one is not finite."""
        _, state = load_checkpoint(self.folder / CHECKPOINT)
        values = state["0/matrix"].abs()
        return float(values.max()) if bool(values.isfinite().all()) else float("inf")


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
    yield from _done(plan, story)
    yield from _kept(plan, crew, story)
    yield from _unmoved(plan, folder, crew, story)
    largest = max(s.largest for s in crew)
    yield Check("nobody's model is poisoned", largest < SOUND, f"no number is larger than {largest:.2g}")
    yield from _refused(json.loads((folder / "hostile.json").read_text()), story)
    yield from _outside(json.loads((folder / "strangers.json").read_text()))
    was, now = accuracy(quiet, plan, story.hostile), accuracy(troubled, plan, story.hostile)
    text = f"{now:.1%}, quietly {was:.1%} ({100 * (now - was):+.1f} points)"
    yield Check(f"accuracy within {100 * plan.points:g} points", abs(now - was) <= plan.points, text)


def _done(plan: Plan, story: Story) -> Iterator[Check]:
    """That there was trouble."""
    kills = story.kills.total()
    yield Check("peers were killed", kills >= 4, f"{kills} times: {_listed(story.kills)}")
    yield _spell("one was stopped for a while", story.stopped, plan.lasts, 0)
    yield _spell("the network was cut in two", story.cut, plan.lasts, 2, f", {story.network}")
    yield _spell("one had a full disk", story.full, plan.lasts, 1, f", {story.disk}")
    (poor,) = story.full.who or ("",)
    errors = sum(s["checkpoint_errors"] for (name, _), s in story.statuses.items() if name == poor)
    told = f"rounds {_span(story.unsaved)} unsaved, {errors} errors seen"  # it cannot say where to look any more
    yield Check("which took no checkpoints", len(story.unsaved) > 2, told)


def _kept(plan: Plan, crew: list[Survivor], story: Story) -> Iterator[Check]:
    """That all rounds were done, and nothing of them lost."""
    rounds, kills = plan.rounds, story.kills.total()
    late = [f"{s.name} ended with round {s.recorded[-1]}" for s in crew if s.recorded[-1] != rounds]
    yield _all(f"all {len(crew)} honest peers finished", late, f"round {rounds} everywhere")
    after = max(story.stopped.ended, story.cut.ended, story.full.ended)
    rest = {s.name: sum(r > after for r in s.recorded) for s in crew}
    gone = [f"{name} did {count} of {rounds - after} rounds" for name, count in rest.items() if count < 3]
    yield _all("all came back", gone, f"everybody did {min(rest.values())} or more of the last {rounds - after} rounds")
    unsaved = {s.name: story.unsaved if s.name in story.full.who else range(0) for s in crew}
    took = sum(len(s.recorded) - 1 for s in crew)
    yield _all(
        "no record was lost",
        [text for s in crew for text in s.lost(rounds, unsaved[s.name])],
        f"{took} rounds done, {len(crew) * rounds - took} skipped to catch up",
    )
    back = [text for s in crew for text in s.setbacks(unsaved[s.name])]
    yield _all("nobody's round went back", back, "but for the one under way, and what a full disk did not take")
    broken = [*story.damaged, *(text for s in crew for text in s.checkpoint(rounds))]
    yield _all("checkpoints are whole", broken, f"{kills} after kills, {len(crew)} at the end")


def _unmoved(plan: Plan, folder: Path, crew: list[Survivor], story: Story) -> Iterator[Check]:
    """That neither a liar nor a clock made anybody skip rounds, or the journal tell them in another order."""
    led = [f"{s.name} skipped to {r}" for s in crew if (r := s.hurried(plan.first))]
    yield _all("nobody heeded the liar at the start", led, "none skipped a round before the trouble")
    most = plan.rounds // 10
    yield Check("nobody was led far ahead", story.lead <= most, f"who skipped rounds was at most {story.lead} ahead")
    steady = [s.name for s in crew if s.jumps < 3]
    yield _all("clocks jumped", steady, f"{sum(s.jumps for s in crew)} times back, by up to two years")
    mixed, last = set(), Counter[str]()
    for event in events(folder / "troubled"):
        if event.name == "round":
            mixed |= {event["peer"]} if event["round"] <= last[event["peer"]] else set()
            last[event["peer"]] = event["round"]
    yield _all("the journal tells rounds in their order", sorted(mixed), f"of {len(last)} peers")


def _refused(tried: dict[str, dict[str, int]], story: Story) -> Iterator[Check]:
    """That nothing of the hostile peer was taken."""
    greeted = [came for came in tried["greeting"] if came.startswith("accepted")]
    yield Check("the hostile peer was let in", len(greeted) >= 3, f"by {len(greeted)} neighbours")
    merged = [f"{name}: {came[MERGED]} times" for name, came in tried.items() if MERGED in came]
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
    missing += [f"no {name} for {why}" for name, why in REFUSED_FOR.items() if why not in tried.get(name, {})]
    yield _all("its messages were refused", missing, _listed(refusals))


def _outside(tried: dict[str, dict[str, int]]) -> Iterator[Check]:
    """That strangers stayed outside."""
    silent = tried.pop(strangers.SILENT, {})
    inside = [f"{way}: {came['let in']} times" for way, came in tried.items() if "let in" in came]
    tries = sum(sum(came.values()) for came in tried.values())
    yield _all("no stranger was let in", inside, f"{tries} tries in {len(tried)} ways")
    yield Check("strangers did try", bool(tried) and tries >= 10, f"{tries} tries")
    gone = silent.pop("hung up on", 0)
    there = [f"{count} {where}" for where, count in silent.items()]
    yield _all("silent strangers were hung up on", there or ["none came"] * (not gone), f"{gone} connections")


def _spell(what: str, spell: Spell, lasts: int, killed: int, more: str = "") -> Check:
    told = f"{', '.join(spell.who)}, rounds {spell.begun} to {spell.ended}, {spell.killed} killed meanwhile{more}"
    return Check(what, bool(spell.who) and spell.ended - spell.begun >= lasts and spell.killed >= killed, told)


def _span(rounds: range) -> str:
    return f"{rounds[0] + 1} to {rounds[-1] - 1}" if len(rounds) > 2 else "none"


def _all(what: str, wrong: list[str], found: str) -> Check:
    more = f" … and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    return Check(what, not wrong, "; ".join(wrong[:5]) + more if wrong else found)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
