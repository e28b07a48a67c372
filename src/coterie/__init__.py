"""Coterie: decentralised federated learning on any graph, with no server."""

from typing import TYPE_CHECKING, Any

from coterie.version import __version__

__all__ = ["Experiment", "Run", "Watcher", "__version__", "open", "resume", "run"]

if TYPE_CHECKING:
    from coterie.records import Watcher
    from coterie.runs.experiment import Experiment
    from coterie.runs.run import Run
    from coterie.runs.runner import open_run as open
    from coterie.runs.runner import resume, run

_PLACES = {
    "Experiment": ("runs.experiment", "Experiment"),
    "Run": ("runs.run", "Run"),
    "Watcher": ("records", "Watcher"),
    "open": ("runs.runner", "open_run"),
    "resume": ("runs.runner", "resume"),
    "run": ("runs.runner", "run"),
}


def __getattr__(name: str) -> Any:
    """Import the heavy parts only when they are asked for, so that the command line answers at once.

    Whoever comes this way is a person at a terminal or a notebook, and is shown how a run goes on.
    """
    if name not in _PLACES:
        raise AttributeError(name)
    import importlib

    from coterie.app import onlookers
    from coterie.runs import shown

    shown.show = onlookers.onlookers
    module, thing = _PLACES[name]
    return getattr(importlib.import_module(f"coterie.{module}"), thing)
