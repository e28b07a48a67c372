"""The cluster engine as ratios in one run: two workers against one, against the local engine with two, bytes, memory.

`python benchmarks/cluster.py` starts workers as processes of this machine; the rows travel as they do between machines.
"""

import argparse
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from _setup import Case, best_of, job
from coterie.engines.cluster import Cluster, ClusterSession
from coterie.engines.local import Local, LocalSession
from coterie.parts import Choice

MLP = Choice("models", "mlp", {"sizes": (512, 256, 128)})
SMALL = Choice("models", "mlp", {"sizes": (64,)})


def opened(case: Case, workers: int, mode: Any = "loop") -> ClusterSession:
    """The case on so many workers, with its first round behind it."""
    made = Cluster(workers=workers, by="processes", mode=mode, chunk=0 if mode == "loop" else 32).open()
    made.begin(job(case))
    return made


def speed(repeats: int) -> list[tuple[str, str, str]]:
    """A round on two workers of one core each against one worker, and against the local engine with two."""
    case = Case("", MLP, (784,), 64, 16)
    one, two = opened(case, 1), opened(case, 2)
    local: LocalSession = Local(workers=2, mode="loop").open()
    local.begin(job(case))
    runs = [lambda r, s=s: s.round(r, False) for s in (one, two, local)]
    single, double, here = best_of(repeats, *runs)
    two.told()
    before = two.models.planner.bytes
    two.round(repeats + 2, False)
    told, planned = two.told(), two.models.planner.bytes - before
    row = 4 * two.models.widths[0]
    rows = int(np.bincount(two.placement.owner).max())
    halo = told["rows"]["halo"] / 2
    memory = [w["memory"] - base for w, base in zip(told["workers"], idle(), strict=True)]
    found = [
        ("one worker / two", f"{single / double:.2f}", "≥ 1.7"),
        ("two workers / local with two", f"{double / here:.2f}", "≤ 1.15"),
        ("bytes on the wire / the plan's", f"{told['wire_bytes'] / planned:.4f}", "1 ± 0.01"),
        (f"the plan's rows ({told['plan']}) / nodes", f"{planned / row / 64:.2f}", ""),
        ("peak memory of a worker above an idle one / (4 × its rows + halo)",
         f"{max(memory) / (4 * rows * row + halo * row):.2f}", "≤ 1"),
    ]  # fmt: skip
    for session in (one, two, local):
        session.close()
    return found


def idle() -> list[int]:
    """The peak memory of two workers with next to nothing to do."""
    session = opened(Case("", SMALL, (784,), 4, 16), 2)
    session.round(1, False)
    found = [w["memory"] for w in session.told()["workers"]]
    session.close()
    return found


def growth() -> list[tuple[str, str, str]]:
    """A round of 10,000 small models on two workers, and how it grows from 1,000."""
    found, times = [], []
    for nodes in (1_000, 10_000):
        session = opened(Case("", SMALL, (64,), nodes, 16), 2, "stack")
        session.round(1, False)
        start = time.perf_counter()
        session.round(2, False)
        times.append(time.perf_counter() - start)
        peak = max(w["memory"] for w in session.told()["workers"])
        found.append((f"{nodes:,} nodes: a round / that of 1,000; memory of a worker",
                      f"{times[-1] / times[0]:.1f}; {peak / 1e6:.0f} MB", ""))  # fmt: skip
        session.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    table = Table("what", "ratio", "goal", title="The cluster engine, workers as processes here")
    for row in [*speed(given.repeats), *growth()]:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
