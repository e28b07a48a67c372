"""Peak memory of a run, its worker processes included, measured in a process of its own."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path


def peak_ratio(rule: str) -> float:
    """(peak while running − what the processes hold without a job) / (n·P·4)."""
    found = subprocess.run([sys.executable, __file__, rule], capture_output=True, text=True, check=True)
    return float(json.loads(found.stdout.splitlines()[-1]))


def proportional_bytes() -> int:
    """Proportional memory of this process and its descendants: shared pages count once."""
    total, queue = 0, [os.getpid()]
    while queue:
        pid = queue.pop()
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
            for task in Path(f"/proc/{pid}/task").iterdir():
                queue += [int(c) for c in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return total


def main(rule: str) -> None:
    from _setup import Case, matrix_of, session
    from coterie.parts import Choice

    model = Choice("models", "mlp", {"sizes": (512, 256, 128)})
    small = Case("", model, (784,), 2, 16, 2, rule=Choice("rules", rule), topology=Choice("topologies", "complete"))
    ours, _ = session(small)
    ours.round(1, False)
    before, peak, running = proportional_bytes(), 0, True

    def watch() -> None:
        nonlocal peak
        while running:
            peak = max(peak, proportional_bytes())
            time.sleep(0.02)

    from _setup import job

    case = Case("", model, (784,), 64, 16, 8, rule=Choice("rules", rule))
    where = job(case)
    data = sum(t.numel() * t.element_size() for t in (where.samples.train_x, where.samples.train_y))
    watcher = threading.Thread(target=watch)
    watcher.start()
    ours.begin(where)
    for number in (1, 2, 3):
        ours.round(number, False)
    running = False
    watcher.join()
    matrix = matrix_of(ours)
    ours.close()
    print(json.dumps((peak - before - data) / (matrix.numel() * 4)))


if __name__ == "__main__":
    main(sys.argv[1])
