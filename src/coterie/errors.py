"""The errors a user can cause, each one line: what was expected, what came, and the cure."""


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
