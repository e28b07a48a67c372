"""What several families check about their settings."""

from coterie.errors import GraphError


def probability(name: str, value: float) -> None:
    """Refuses what is not in [0, 1]."""
    if not 0 <= value <= 1:
        raise GraphError(f"topology.{name} is a probability", expected="a number from 0 to 1", got=value)


def between(name: str, value: int, low: int, high: int, nodes: int) -> None:
    """Refuses what is not in [low, high], a range that follows from the number of nodes."""
    if low <= value <= high:
        return
    if high < low:
        raise GraphError(
            f"too few nodes for any topology.{name}", got=nodes, cure="Use more nodes or another topology."
        )
    cure = f"Lower topology.{name} or use more nodes." if value > high else f"Raise topology.{name}."
    expected = f"{low} to {high} with {nodes} nodes"
    raise GraphError(f"topology.{name} is impossible", expected=expected, got=value, cure=cure)
