"""What was learnt, by what, on whose data and over which network, in words: from settings that are read and not run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

LINES = (
    ("Data", "dataset", "data"),
    ("dealt by", "partition", "data"),
    ("Network", "topology", "learning"),
    ("Model", "model", "setup"),
)
"""What is named, the slot of it, and the view of the page that has its picture."""
USUAL = {"connect": False, "mixing": "data", "own": 1.0}
"""Settings that every network has, and that are told where they are others."""
MOST = 3
"""Parts that are named where methods or nodes have different ones."""


def setting(configurations: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The data, how they were dealt, the network and the model of these runs, each with the view that shows it."""
    methods = [method for table in configurations for method in _methods(table)]
    found = []
    for what, slot, view in LINES:
        said = [(name, method) for method in methods for name in _names(slot, method.get(slot))]
        names = [f"{name}, {_nodes(method.get('nodes'))}" if slot == "topology" else name for name, method in said]
        if names:
            found.append({"what": what, "name": _few(names), "view": view})
    return found


def _methods(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What each method has been run with; a bound that has all data in one place has no network to tell of."""
    said = table.get("methods")
    tables = said.values() if isinstance(said, Mapping) else ()
    own: list[Mapping[str, Any]] = [{**table, **each} for each in tables if isinstance(each, Mapping)]
    yield from [each for each in own if not each.get("pooled")] or own or [table]


def _nodes(count: Any) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _names(slot: str, value: Any) -> list[str]:
    """A part with its settings, such as `ba (m 3)`; of several models each."""
    if isinstance(value, list):
        return [name for each in value for name in _names(slot, each)]
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping) or "name" not in value:
        return []
    name, path = str(value["name"]), value.get("path")
    if slot == "dataset":
        return ["data in hand" if name.startswith("object@") else PurePath(path).name if path else name]
    if path:
        return [PurePath(path).name]
    told = (
        f"{key} {_plain(inner)}" for key, inner in value.items() if key not in ("name", "nodes") and _tells(key, inner)
    )
    rest = ", ".join(told)
    return [name.rpartition(":")[2] + (f" ({rest})" if rest else "")]


def _tells(key: str, value: Any) -> bool:
    """Whether a setting says something that is not the same everywhere."""
    return (
        value not in (False, "", []) and not (key in USUAL and value == USUAL[key]) and not isinstance(value, Mapping)
    )


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _few(names: Iterable[str]) -> str:
    """Each name once, and not too many."""
    known = list(dict.fromkeys(names))
    more = len(known) - MOST
    return " or ".join(known[:MOST]) + (f" or one of {more} more" if more > 0 else "")
