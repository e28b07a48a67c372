"""The errors a user can cause, each one line: what was expected, what came, and the cure."""

import contextlib
from collections.abc import Iterator, Sequence

SHOWN = 8
"""How many nodes an error names."""


class CoterieError(Exception):
    """What a user can mend; the command line prints it without a traceback and exits with code 2."""

    def __init__(self, what: str, *, expected: object = None, got: object = None, cure: str = "") -> None:
        parts = [what]
        if expected is not None:
            parts.append(f"expected {expected}")
        if got is not None:
            parts.append(f"got {got}")
        line = ": ".join([parts[0], ", ".join(parts[1:])]) if len(parts) > 1 else what
        super().__init__(f"{line}. {cure}" if cure else line)


class ConfigError(CoterieError):
    """A setting that does not exist, or a value that cannot be."""


class GraphError(CoterieError):
    """A network that cannot be, or is not connected."""


class DataError(CoterieError):
    """Data that are missing, damaged, or too few for what was asked."""


class RunError(CoterieError):
    """A run directory that is in the way, incomplete, or of another configuration."""


class DivergedError(CoterieError):
    """Training left the finite numbers."""


class PeerError(CoterieError):
    """A peer, its keys, or its neighbours are not as they should be."""


class Refused(Exception):
    """Something from a neighbour was refused: `reason` is a short stable word to count by, `detail` a line for logs."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


def place(operation: str, nodes: Sequence[int], round: int) -> str:
    """Where something happens, in words: `training node 3 in round 7`."""
    some = ", ".join(map(str, nodes[:SHOWN])) + (f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else "")
    who = f" node{'s' * (len(nodes) > 1)} {some}" if len(nodes) else ""
    return f"{operation}{who} in round {round}"


def noted(error: Exception, operation: str, nodes: Sequence[int], round: int) -> Exception:
    """An error that a part raised, with a note of what was done, for which nodes and in which round."""
    if not isinstance(error, CoterieError) and not getattr(error, "__notes__", None):
        error.add_note(f"While {place(operation, nodes, round)}.")
    return error


@contextlib.contextmanager
def during(operation: str, nodes: Sequence[int], round: int) -> Iterator[None]:
    """Note on errors from inside what was done, for which nodes and in which round."""
    try:
        yield
    except Exception as error:
        noted(error, operation, nodes, round)
        raise


def in_words(error: BaseException) -> str:
    """What an error says, and where it happened if that is noted: `KeyError: 2. While merging at node 3 in round 7.`"""
    kind, text = type(error).__name__, str(error)
    said = text if isinstance(error, CoterieError) else f"{kind}: {text}" if text else kind
    notes = getattr(error, "__notes__", None)
    return " ".join([f"{said.rstrip('.')}.", *notes]) if notes else said
