"""Both runs: the quiet one in the simulator, whose numbers are those of peers that nobody disturbs, and the other."""

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import polars as pl

from chaos import disks, lives, machines, paced
from chaos.checks import Check, checks
from chaos.fleet import Troubled
from chaos.plan import Plan, Story
from coterie.config.slots import choice
from coterie.engines.peer import Peer
from coterie.errors import RunError
from coterie.runs import runner


def run(plan: Plan, folder: Path, note: Callable[[str], None] = print) -> list[Check]:
    """Both runs and all checks."""
    lives.ready()
    start = time.monotonic()
    quiet = runner.run(plan.experiment({"name": "local", "workers": 1, "mode": "loop"}), folder / "quiet").records
    note(f"quiet run: {time.monotonic() - start:.0f} s")
    story = Story(plan, random.Random(plan.seed + 3).randrange(plan.nodes))
    with disks.small(folder / "disk", plan.plain) as disk:
        troubled = _troubled_run(plan, folder, story, disk)
        note(f"troubled run: {story.seconds:.0f} s")
        return list(checks(plan, folder, quiet, troubled, story))


def _troubled_run(plan: Plan, folder: Path, story: Story, disk: disks.Disk) -> pl.DataFrame:
    start = time.monotonic()
    rule = {"name": f"{Path(paced.__file__)}:Paced", "seconds": plan.pace}
    engine: Peer = choice("engine", plan.engine).make()
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(machines.network(plan.nodes, plan.plain))
        fleet = Troubled(engine, story, folder, net, disk)
        stack.enter_context(patch.object(Peer, "open", lambda engine: fleet))
        try:
            found = runner.run(plan.experiment(plan.engine, rule), folder / "troubled", [fleet]).records
        except runner.Interrupted:
            raise RunError(story.broken or "interrupted") from None
    story.seconds = time.monotonic() - start
    return found
