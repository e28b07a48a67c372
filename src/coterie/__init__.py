"""Coterie: decentralised federated learning on any graph, with no server."""

from typing import TYPE_CHECKING, Any

from coterie.version import __version__

__all__ = ["Experiment", "Run", "__version__", "resume", "run"]

if TYPE_CHECKING:
    from coterie.runs.experiment import Experiment
    from coterie.runs.run import Run
    from coterie.runs.runner import resume, run


def __getattr__(name: str) -> Any:
    """Import the heavy parts only when they are asked for, so that the command line answers at once."""
    if name == "Experiment":
        from coterie.runs.experiment import Experiment

        return Experiment
    if name == "Run":
        from coterie.runs.run import Run

        return Run
    if name in ("run", "resume"):
        from coterie.runs import runner

        return getattr(runner, name)
    raise AttributeError(name)
