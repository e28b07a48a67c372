"""Two ways to the same numbers, of which sometimes the one is faster and sometimes the other: by the clock."""

AGAIN = 16
"""How often the slower way is tried again: once in so many times."""


class Faster:
    """Which of two ways was faster of late, for each of several things to do."""

    def __init__(self) -> None:
        self.took: dict[tuple[int, bool], float] = {}
        self.times = 0

    def way(self, what: int) -> bool:
        """The way to take now: each of them once, then the faster one, and now and then the other."""
        first, second = (self.took.get((what, way)) for way in (True, False))
        if first is None or second is None:
            return first is None
        self.times += 1
        return (first < second) != (self.times % AGAIN == 0)

    def note(self, what: int, way: bool, seconds: float) -> None:
        """How long it took: half of what is remembered is the last time."""
        self.took[what, way] = (self.took.get((what, way), seconds) + seconds) / 2
