"""Peers whose processes are killed, and are not started again."""

from collections.abc import Callable
from typing import Any

from coterie import records
from coterie.engines.peer import Fleet


class Ended:
    """What stands for a process that is not started again."""

    exitcode, pid = 0, 0

    def is_alive(self) -> bool:
        return False


class Graveyard(Fleet):
    """Who dies stays dead."""

    def starter(self, *args: Any) -> Callable[[], Any]:
        begin, folder, lives = super().starter(*args), args[-1], iter([True])

        def start() -> Any:
            if next(lives, False):
                return begin()
            records.write_frame(folder / "records.parquet", records.empty())
            return Ended()

        return start
