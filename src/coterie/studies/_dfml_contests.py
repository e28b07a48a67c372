"""Contests of the mutual-learning study: some methods in some places, drawn, tabled, and claims about them judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from coterie.config.configuration import Configuration
from coterie.report.claims import Claim, Side, claims_sheet
from coterie.report.curves import PALETTE
from coterie.report.panels import DASHED, SOLID, Line, Panel, colour, draw_panels, line
from coterie.report.races import accuracy_sheet
from coterie.report.statistics import methods
from coterie.runs.exhibits import Exhibit, Results, Shown
from coterie.studies._dfml_runs import Size

Frames = Mapping[str, pl.DataFrame]


class Who(NamedTuple):
    """One side of a claim: a method in a run, the column it is judged by, and by which nodes (all, if none is said)."""

    run: str
    method: str
    column: str = "test_accuracy"
    nodes: tuple[int, ...] = ()

    def side(self, frames: Frames) -> Side:
        """What the records say of it."""
        records = frames[self.run]
        if self.nodes:
            records = records.filter(pl.col("node").is_in(self.nodes))
        method, _, judged = self.method.partition(":")
        return Side(records, method, judged or self.column)


class Stake(NamedTuple):
    """A claim that is to be judged: in words, who is said to be ahead, and of whom."""

    text: str
    first: Who
    second: Who
    where: str = ""
    """The setting, if it is not the run of the first."""


@dataclass(frozen=True)
class Contest:
    """Some methods in some places. A method `name:column` is the method judged by another column of its records."""

    title: str
    runs: Mapping[str, Configuration]
    names: Mapping[str, str]
    stakes: Sequence[Stake] = ()
    paper: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Run -> method -> the paper's number."""
    file: str = ""
    """The name of the figure; without one only tables are shown."""
    remark: str = ""
    work: Mapping[str, float] = field(default_factory=dict)
    """Method -> epochs that a model takes in a round: if said, accuracy is drawn by these, too."""

    def claims(self, frames: Frames) -> list[Claim]:
        """The claims with their records."""
        return [Claim(s.text, s.first.side(frames), s.second.side(frames), s.where or s.first.run) for s in self.stakes]

    def exhibit(self, size: Size) -> Exhibit:
        """The contest as an exhibit."""

        def show(found: Results, folder: Path) -> list[Shown]:
            shown: list[Shown] = []
            if self.file:
                panels = [Panel(run, lines(f, self.names), **ACCURACY) for run, f in found.records.items()]
                if self.work:
                    stretched = {run: lines(f, self.names, self.work) for run, f in found.records.items()}
                    panels += [Panel(run, drawn, WORK, **ACCURACY) for run, drawn in stretched.items()]
                shown.append(draw_panels(panels, folder / f"{self.file}.png"))
            shown += accuracies(found.records, self.names, size, self.paper)
            if self.stakes:
                shown.append(judged(self.claims(found.records), size))
            return [*shown, self.remark] if self.remark else shown

        return Exhibit(self.title, show, self.runs, size.scaled)


WORK = "epochs of a model that takes part"
ACCURACY: dict[str, Any] = {"y": "test accuracy, mean over nodes", "log_x": False, "log_y": False}


def against(run: str, names: Mapping[str, str], others: Sequence[str], first: str = "dfml") -> list[Stake]:
    """Claims that one method is ahead of each of the others in a run."""
    return [Stake(f"{names[first]} above {names[m]}", Who(run, first), Who(run, m)) for m in others]


def derived(records: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """The records with methods `name:column` as methods of their own, whose accuracy is that column."""
    frames = [records]
    for name in names:
        method, _, column = name.partition(":")
        if column:
            mine = records.filter(pl.col("method") == method, pl.col(column).is_not_null())
            frames.append(mine.with_columns(pl.lit(name).alias("method"), pl.col(column).alias("test_accuracy")))
    return pl.concat(frames)


def lines(records: pl.DataFrame, names: Mapping[str, str], work: Mapping[str, float] | None = None) -> list[Line]:
    """A line for each method that there are records of; rounds are counted as much as the `work` of a method says."""
    every = derived(records, names)
    there = {m: i for i, m in enumerate(names) if m in methods(every)}
    return [
        line(
            every.filter(pl.col("method") == m),
            names[m],
            colour(i),
            SOLID if i < len(PALETTE) else DASHED,
            column="test_accuracy",
            stretch=1 / (work or {}).get(m, 1),
        )
        for m, i in there.items()
    ]


def accuracies(
    frames: Frames, names: Mapping[str, str], size: Size, paper: Mapping[str, Mapping[str, str]]
) -> list[Shown]:
    """Accuracy at the last round, beside the paper's if there is any, and over a cycle of α."""
    every = {run: derived(records, names) for run, records in frames.items()}
    beside = {m: [paper.get(run, {}).get(m, "") for run in frames] for m in names} if paper else {}
    percent = " (the paper: percent)" if paper else ""
    return [
        accuracy_sheet(f"Test accuracy at the last round ± 95 % interval over seeds{percent}", every, names, beside),
        accuracy_sheet(f"The same, mean over {cycle(size)}", every, names, {}, last=size.cycle),
    ]


def cycle(size: Size) -> str:
    """The rounds that go through all values of α, in words."""
    first = sorted({*next(iter(size.place(["dfml"], "h0").resolved.values())).evaluated()})[-size.cycle]
    return f"rounds {first} to {size.common['rounds']}, in which α goes through all its values"


def judged(claims: Sequence[Claim], size: Size, title: str = "Claims, seed by seed") -> Shown:
    """The verdicts on claims at the last round and over a cycle of α."""
    return claims_sheet(title, claims, {"last round": 1, "over a cycle of α": size.cycle})
