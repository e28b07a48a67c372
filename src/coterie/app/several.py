"""The records and measures of several runs at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

PEERS = "peers.json"
"""Lies in the folder of a run that was collected from peers of their own."""


def several(folders: Sequence[str]) -> "pl.DataFrame":
    """The records of some runs; each is called by its folder's name, or by its path where names coincide."""
    from coterie import records
    from coterie.report.statistics import label_runs

    return label_runs({label: records.load(folder) for label, folder in _labelled(folders).items()})


def measures_of(folders: Sequence[str | Path]) -> "pl.DataFrame | None":
    """The measures of some runs, if any of them has some."""
    from coterie import records
    from coterie.report.statistics import label_runs

    measured = {label: Path(f) for label, f in _labelled(folders).items() if (Path(f) / records.MEASURED).is_file()}
    return label_runs({label: records.measures(folder) for label, folder in measured.items()}) if measured else None


def architectures_of(folder: str | Path) -> dict[str, list[str]]:
    """By method, the architecture of each node of a run, in words; nothing of peers who chose theirs themselves.

    Read from what was written down, so that none of the parts it names is run.
    """
    import tomllib

    from coterie import records
    from coterie.config.spread import deal, kinds

    if (Path(folder) / PEERS).is_file():
        return {}
    whole = tomllib.loads(records.configuration_text(folder))
    methods = whole.pop("methods", None) or {whole["rule"]["name"].rpartition(":")[2].lower(): {}}
    found = {}
    for name, own in methods.items():
        model, nodes = own.get("model", whole["model"]), own.get("nodes", whole["nodes"])
        words = [_in_words(kind) for kind in kinds(model)]
        found[name] = [words[i] for i in deal(model, nodes)]
    return found


def _in_words(model: dict[str, Any]) -> str:
    """A model as one would type it; of a user's own, the file without its folder."""
    from coterie.config.spread import notation

    name = str(model["name"])
    return notation(model) if ":" not in name else name.replace("\\", "/").rpartition("/")[2]


def _labelled(folders: Sequence[str | Path]) -> dict[str, str | Path]:
    """Labels of runs: the folder's name, or its path where names coincide."""
    names = [Path(f).resolve().name for f in folders]
    return dict(zip(names if len(set(names)) == len(names) else map(str, folders), folders, strict=True))
