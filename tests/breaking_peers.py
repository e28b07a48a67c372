"""Ending three peers at once at each place where their state changes, one after the other, then starting them again."""

import json
import os
import shutil
import sys
from pathlib import Path

from breaking import Ending, child, ends
from coterie.engines.memory import Memory
from coterie.job import Job
from coterie.mail.pace import Timing
from coterie.peers.runtime import PeerConfig
from peering import given, run, together


def warm_up(job: Job) -> None:
    """Do once what every process would else do again."""
    session = Memory().open()
    session.begin(job)
    session.evaluate()
    session.round(1, True)


def main(folder: Path, rounds: int) -> None:
    """Run and break; prints for each end what became of it."""
    os.fsync = lambda file: None  # type: ignore[assignment]  # the system outlives its processes
    crew = given(folder / "crew", {"timing": Timing(deadline=3), "wait": 2.0}, rounds=rounds, evaluate=1)
    warm_up(crew[0].job)

    def live(crew: list[PeerConfig], place: str, pass_: int, how: str) -> None:
        ending = Ending(place, pass_, how, folder / "crew")
        run(together(crew), 60)
        (folder / "places.json").write_text(json.dumps(ending.places))

    def keep(name: str) -> None:
        for config in crew:
            shutil.copytree(config.folder, folder / name / config.home.name)

    def clear() -> None:
        for config in crew:
            shutil.rmtree(config.folder, ignore_errors=True)

    assert child(lambda: live(crew, "", 1, "killed")) == 0
    places = json.loads((folder / "places.json").read_text())
    for number, (place, pass_, how) in enumerate(ends(places, torn=False)):
        clear()
        pass_ = max(pass_ // 3, 1)  # there are three of them, whose doings have no fixed order
        code = child(lambda: live(crew, place, pass_, how))  # noqa: B023
        keep(f"{number}-ended")
        again = child(lambda: run(together(crew), 60))
        keep(f"{number}")
        print(json.dumps([f"{number}", place, how, code, again]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
