"""The cluster engine as ratios in one run: two workers against one, against the local engine with two, bytes, memory.

`python benchmarks/cluster.py` starts workers as processes of this machine; the rows travel as they do between machines.
`--only start` starts a Ray of its own, with two CPUs, and times the command with each engine in turns.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from _setup import Case, job
from coterie.engines.cluster import Cluster, ClusterSession
from coterie.engines.local import Local, LocalSession
from coterie.parts import Choice

MLP = Choice("models", "mlp", {"sizes": (512, 256, 128)})
SMALL = Choice("models", "mlp", {"sizes": (64,)})
Found = Iterator[tuple[str, str, str]]


def opened(case: Case, workers: int, mode: Any = "loop") -> ClusterSession:
    """The case on so many workers, ready for its first round."""
    made = Cluster(workers=workers, by="processes", mode=mode, chunk=0 if mode == "loop" else 32).open()
    made.begin(job(case))
    return made


def turns(repeats: int, *runs: Callable[[int], Any]) -> np.ndarray:
    """The seconds of each, one after the other in every turn but the first: [turns, runs]."""
    found = []
    for repeat in range(repeats + 1):
        marks = [time.perf_counter()]
        for run in runs:
            run(repeat + 1)
            marks.append(time.perf_counter())
        found.append(np.diff(marks))
    return np.array(found[1:])


def ratio(over: np.ndarray, under: np.ndarray) -> str:
    """The median of the turns' ratios, and how far they go."""
    each = over / under
    return f"{np.median(each):.2f} ({each.min():.2f} to {each.max():.2f})"


def speed(repeats: int) -> Found:
    """A round on two workers of one core each against one worker, and against the local engine with two."""
    case = Case("", MLP, (784,), 64, 16)
    one, two = opened(case, 1), opened(case, 2)
    local: LocalSession = Local(workers=2, mode="loop").open()
    local.begin(job(case))
    runs = [lambda r, s=s: s.round(r, False) for s in (one, two, local)]
    single, double, here = turns(repeats, *runs).T
    yield "one worker / two", ratio(single, double), "≥ 1.7"
    yield "one worker / local with two", ratio(single, here), ""
    yield "two workers / local with two", ratio(double, here), "≤ 1.15"
    two.told()
    before = two.models.planner.bytes
    two.round(repeats + 2, False)
    told, planned = two.told(), two.models.planner.bytes - before
    yield "bytes on the wire / the plan's", f"{told['wire_bytes'] / planned:.4f}", "1 ± 0.01"
    rows = told["rows"]
    yield "the plan's rows / nodes", f"{told['plan']}: {planned / (4 * two.models.widths[0]) / 64:.2f}", ""
    yield "all plans' rows / nodes", ", ".join(f"{name} {n / 64:.2f}" for name, n in rows.items()), ""
    for session in (one, two, local):
        session.close()


def memory(repeats: int) -> Found:
    """The most memory of a worker above that of one with next to nothing to do, against its rows and its halo.

    A row of DecHW is twice as wide: parameters and curvature.
    """
    idle = peaks(Case("", SMALL, (784,), 8, 16), repeats)[1]
    for name, wide in (("decavg", 1), ("dechw", 2), ("cfa", 1)):
        case = Case("", MLP, (784,), 64, 16, rule=Choice("rules", name))
        session, found = peaks(case, repeats)
        row, own = wide * 4 * session.models.widths[0], int(np.bincount(session.placement.owner).max())
        halo = session.models.planner.route_now.rows["halo"] / 2
        above = max(found) - max(idle)
        yield (
            f"{name}: peak above an idle worker's / (4 × its rows + halo)",
            f"{above / (4 * own * row + halo * row):.2f}",
            "≤ 1",
        )
        yield f"{name}: peak above an idle worker's / what was promised", f"{above / max(session.needed):.2f}", ""


def peaks(case: Case, repeats: int) -> tuple[ClusterSession, list[int]]:
    """A session on two workers after some rounds, and the most memory that each used."""
    session = opened(case, 2)
    for number in range(1, min(repeats, 3) + 1):
        session.round(number, False)
    found = [w["memory"] for w in session.told()["workers"]]
    session.close()
    return session, found


def growth(repeats: int) -> Found:
    """A round of 10,000 small models on two workers, and how it grows from 1,000."""
    sizes = 1_000, 10_000
    sessions = [opened(Case("", SMALL, (64,), nodes, 16), 2, "stack") for nodes in sizes]
    few, many = turns(min(repeats, 3), *(lambda r, s=s: s.round(r, False) for s in sessions)).T
    yield "a round of 10,000 nodes / one of 1,000", ratio(many, few), ""
    yield "a round of 10,000 nodes", f"{np.median(many):.2f} s", ""
    for nodes, session in zip(sizes, sessions, strict=True):
        peak = max(w["memory"] for w in session.told()["workers"])
        yield (
            f"{nodes:,} nodes: most memory of a worker; promised for rows",
            (f"{peak / 1e6:.0f} MB; {max(session.needed) / 1e6:.0f} MB"),
            "",
        )
        session.close()


def start(repeats: int) -> Found:
    """Seconds of a whole command with one round, with Ray running already, against the same on the local engine."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    from ray.cluster_utils import Cluster as RayCluster

    quiet = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100 << 20}
    ray = RayCluster(initialize_head=True, head_node_args=quiet)
    ray.wait_for_nodes()
    settings = [
        "--rule",
        "decavg",
        "--nodes",
        "8",
        "--rounds",
        "1",
        "--seeds",
        "0",
        "--dataset",
        "digits",
        "--topology",
        "regular",
    ]

    def command(*engine: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = [sys.executable, "-m", "coterie", "run", *settings, *engine, "--out", str(Path(folder, "x"))]
            subprocess.run(run, check=True, capture_output=True)

    cluster = ["--engine", "cluster", "--engine.address", ray.address, "--engine.workers", "2"]
    runs = [cluster, ["--engine", "local", "--engine.workers", "2"]]
    theirs, ours = turns(min(repeats, 4), *(lambda _, run=run: command(*run) for run in runs)).T
    ray.shutdown()
    yield "start-up: seconds more than local", f"{np.median(theirs - ours):.1f}", "≤ 5"
    yield (
        "start-up: seconds of the whole command, cluster and local",
        f"{np.median(theirs):.1f}, {np.median(ours):.1f}",
        "",
    )


PIECES = {"speed": speed, "memory": memory, "growth": growth, "start": start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=list(PIECES), action="append")
    given = parser.parse_args()
    print("| what | found | goal |\n|---|---|---|")
    for name in given.only or PIECES:
        for what, found, goal in PIECES[name](given.repeats):
            print(f"| {what} | {found} | {goal} |", flush=True)


if __name__ == "__main__":
    main()
