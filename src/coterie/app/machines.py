"""What goes between the workers of a cluster, and which of them is slow, in words."""

from statistics import fmean

from coterie.records import Event
from coterie.report.tables import humanise

SLOW = 1.15
"""From how many times the mean a worker is called slow."""


class Machines:
    """Listens to what a run on a cluster tells of its exchanges."""

    def __init__(self) -> None:
        self.said, self.even = "", 1.0
        """The present state in words (nothing if there are no workers), and how evenly workers are busy, up to 1."""
        self._last: tuple[object, int] = (None, 0)

    def event(self, event: Event) -> None:
        """Take in what was exchanged since it was told last."""
        if event.name == "begin":
            self._last = event.job, event.get("round") or 0
        if event.name != "exchange" or "wire_bytes" not in event.data:
            return
        job, last = self._last
        rounds = event["round"] - last if job == event.job else 1
        self._last = event.job, event["round"]
        workers = event["workers"]
        machines = len({each["machine"] for each in workers})
        size = humanise(event["wire_bytes"] / max(rounds, 1))
        where = f"{machines} machines" if machines > 1 else "1 machine"
        self.said = f"{len(workers)} workers on {where}, {size} a round between them by {event['plan']}"
        busy = [each["seconds"] for each in workers]
        mean, most = fmean(busy), max(busy)
        self.even = mean / most if most else 1.0
        if len(workers) > 1 and mean and most > SLOW * mean:
            slow = busy.index(most)
            self.said += f"; worker {slow} on {workers[slow]['machine']} is slow: {most / mean:.1f} × the mean"
