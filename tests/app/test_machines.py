"""What the display of a run on a cluster says of its workers."""

import io

from rich.console import Console

from coterie.app import progress
from coterie.records import Event

JOB = ("decavg", 0)


def exchange(round: int, seconds: list[float]) -> Event:
    workers = [{"machine": f"box-{i // 2}", "seconds": s, "memory": 1} for i, s in enumerate(seconds)]
    told = {"method": JOB[0], "seed": JOB[1], "round": round, "plan": "halo", "wire_bytes": 40_000_000}
    return Event("exchange", {**told, "rows": {"halo": 4.0}, "workers": workers})


def shown(*exchanges: Event) -> list[str]:
    out = io.StringIO()
    lines = progress.Lines(Console(file=out, width=200), "runs/x", clock=lambda: 0.0)
    about = {"method": JOB[0], "seed": JOB[1], "round": 0, "rounds": 10}
    lines.event(Event("begin", {"jobs": [list(JOB)], "left": [list(JOB)], "rounds": 10}))
    lines.event(Event("begin", about))
    for event in exchanges:
        lines.event(event)
    lines.event(Event("end", {**about, "round": 10, "how": "done"}))
    lines.close()
    return out.getvalue().splitlines()


def test_plan_bytes_of_a_round_and_the_slow_one_are_told() -> None:
    said = shown(exchange(10, [1.0, 1.0, 1.0, 3.0]))
    wanted = "4 workers on 2 machines, 4.0 MB a round between them by halo; worker 3 on box-1 is slow: 2.0 × the mean"
    assert wanted in said


def test_rounds_are_counted_from_one_exchange_to_the_next() -> None:
    assert "2 workers on 1 machine, 8.0 MB a round between them by halo" in shown(
        exchange(5, [1.0, 9.0]), exchange(10, [1.0, 1.1])
    )
