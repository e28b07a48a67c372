"""Walks that are interrupted by faults: every engine tells of them, and tells the same."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coterie import records
from coterie.mail.pace import Timing
from coterie.runs.experiment import Experiment
from driving import SMALL
from peering import peer_configs, together

RELAY = {"name": "relay", "ring": False}
FAILING: dict[str, Any] = {**SMALL, "nodes": 4, "rounds": 3, "topology": "line", "links": 0.4, "protocol": RELAY}


def warnings(folder: Path) -> list[tuple[int, int]]:
    """(round, node) of each, in the journal."""
    return [(e["round"], e["node"]) for e in records.events(folder) if e.name == "warning"]


def simulated(engine: str, folder: Path, **settings: Any) -> list[tuple[int, int]]:
    Experiment(**{**FAILING, **settings, "engine": engine}).run(folder)
    return warnings(folder)


@pytest.mark.parametrize("engine", ["local", "memory"])
def test_nothing_is_told_where_nothing_fails(engine: str, tmp_path: Path) -> None:
    assert simulated(engine, tmp_path / "x", links=1.0) == []


def test_every_engine_tells_the_same(tmp_path: Path) -> None:
    found = simulated("local", tmp_path / "local")
    assert found
    assert simulated("memory", tmp_path / "memory") == found
    configs = peer_configs(Experiment(**FAILING), tmp_path, timing=Timing(deadline=60))
    asyncio.run(asyncio.wait_for(together(configs), 240))
    assert sorted(w for config in configs for w in warnings(config.folder)) == found


def test_observers_hear_what_happened_and_where(tmp_path: Path) -> None:
    texts: list[str] = []

    class Ear:
        def event(self, event: records.Event) -> None:
            if event.name == "warning":
                texts.append(event["text"])

    Experiment(**FAILING).run(tmp_path / "x", observers=[Ear()])
    assert any(text.startswith("round 1, node ") and "the walk stays here" in text for text in texts)
