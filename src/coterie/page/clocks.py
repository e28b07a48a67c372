"""Who was how far when, who was gone, and when links carried something last: of peers, each has its own clock."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from coterie.page.state import JobState
from coterie.records import Event

LAG = "lag"
"""How many rounds the first peer was ahead when one had done a round."""
BACK = 16
"""Exchanges that are looked back upon for the last message of each link, at most."""

Key = tuple[str, int]
Laps = Mapping[str, Mapping[int, float]]


def with_lag(frame: pl.DataFrame, jobs: Mapping[Key, JobState]) -> pl.DataFrame:
    """Records of peers with how far behind each was; those of a simulation, where nobody is, as they are."""
    found = [
        (method, seed, round, node, lag)
        for (method, seed), job in jobs.items()
        if len(job.laps) > 1
        for round, node, lag in _lags(job.laps, job.peers)
    ]
    if not found:
        return frame
    kinds = {"method": pl.String, "seed": pl.Int64, "round": pl.Int64, "node": pl.Int64, LAG: pl.Int64}
    lags = pl.DataFrame(found, schema=kinds, orient="row")
    return frame.join(lags, on=["method", "seed", "round", "node"], how="left", maintain_order="left")


def _lags(laps: Laps, numbers: Mapping[str, int]) -> Iterator[tuple[int, int, int]]:
    front = 0
    for _, round, peer in sorted((time, round, peer) for peer, own in laps.items() for round, time in own.items()):
        front = max(front, round)
        if peer in numbers:
            yield round, numbers[peer], front - round


def progress(job: JobState) -> list[int]:
    """The round that each peer has come to; nothing for nodes of a simulation."""
    if not job.laps:
        return []
    reached = {job.peers[peer]: max(own) for peer, own in job.laps.items() if peer in job.peers}
    return [reached.get(node, 0) for node in range(max(job.nodes, *(node + 1 for node in job.peers.values())))]


def exchanges(job: JobState, round: int) -> Iterator[dict[str, Any]]:
    """What was told of what went along the links, the latest up to this round first: senders, receivers, bytes."""
    for number in sorted((r for r in job.exchanges if r <= round), reverse=True):
        if (event := job.exchanges[number].event()) is not None:
            yield {"round": number} | {key: event.get(key) for key in ("bytes", "sources", "targets")}
    rounds = {number for own in job.told.values() for number in own if number <= round}
    for number in sorted(rounds, reverse=True):
        said = [(peer, own[number].event()) for peer, own in job.told.items() if number in own]
        yield {"round": number} | _together(job, [(peer, event) for peer, event in said if event is not None])


def _together(job: JobState, said: Sequence[tuple[str, Event]]) -> dict[str, Any]:
    """What several peers say that they sent in a round."""
    arcs = [
        (job.peers[peer], job.peers[name], count)
        for peer, event in said
        if peer in job.peers
        for name, count in zip(event.get("neighbours", ()), event.get("sent_bytes", ()), strict=False)
        if name in job.peers and count
    ]
    return {key: [arc[i] for arc in arcs] for i, key in enumerate(("sources", "targets", "bytes"))}


def ages(job: JobState, round: int) -> dict[str, Any]:
    """How many rounds ago something went along each link, as far as is told; `rest` is that of all others."""
    found: dict[tuple[int, int], int] = {}
    rest = None
    for looked, told in enumerate(exchanges(job, round)):
        if told["sources"] is None:  # the same along all links
            if told["bytes"]:
                rest = round - told["round"]
                break
        elif isinstance(told["bytes"], list):
            carried = zip(told["sources"], told["targets"], told["bytes"], strict=False)
            for source, target, count in carried:
                if count:
                    found.setdefault((min(source, target), max(source, target)), round - told["round"])
        if looked == BACK:
            break
    return {"links": [[*link, age] for link, age in found.items()], "rest": rest}


def gone(job: JobState, round: int, before: int) -> tuple[list[list[int]], list[int]]:
    """Links on which peers heard nothing more, or refused something since a round before, and peers nobody hears."""
    last: dict[tuple[str, str], str] = {}
    refused: set[tuple[str, str]] = set()
    for number, who, name, what in job.words:
        if number <= round and what != "refused":
            last[who, name] = what
        elif before < number <= round:
            refused.add((who, name))
    silent = {link for link, what in last.items() if what == "gone"}
    down = [[job.peers[a], job.peers[b]] for a, b in sorted(silent | refused) if a in job.peers and b in job.peers]
    hearers = {name: {who for who, known in job.neighbours.items() if name in known} for name in job.peers}
    away = [job.peers[name] for name, all in hearers.items() if all and all <= {a for a, b in silent if b == name}]
    return down, sorted(away)
