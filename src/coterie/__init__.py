"""Coterie: decentralised federated learning on any graph, with no server."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Experiment", "resume", "run"]

if TYPE_CHECKING:
    from coterie.experiment import Experiment
    from coterie.runner import resume, run


def __getattr__(name: str) -> Any:
    """Import the heavy parts only when they are asked for, so that the command line answers at once."""
    if name == "Experiment":
        from coterie.experiment import Experiment

        return Experiment
    if name in ("run", "resume"):
        from coterie import runner

        return getattr(runner, name)
    raise AttributeError(name)
