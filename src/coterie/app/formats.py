"""What commands show, for other programs: as JSON or CSV on stdout; everything else then goes to stderr."""

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

FORMATS = ("json", "csv")
asked: str = ""
"""The format that this command line asks for; nothing: tables for people."""


def take(tokens: list[str]) -> list[str]:
    """Take `--json` or `--csv` off a command line that may have it."""
    global asked
    command = " ".join(tokens[: 2 if tokens[:1] == ["peer"] else 1])
    found = [name for name in FORMATS if f"--{name}" in tokens and command in COMMANDS]
    asked = found[0] if found else ""
    return [token for token in tokens if not asked or token != f"--{asked}"]


COMMANDS = ("run", "up", "resume", "sweep", "compare", "collect", "list", "show", "graph", "partition", "peer status")
"""Commands that can say what they show in a format."""


def write(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> bool:
    """Print rows, or one, in the format asked for; False if none is."""
    if asked == "json":
        print(json.dumps(_plain(rows), indent=2, default=str))
    elif asked == "csv":
        listed = [rows] if isinstance(rows, Mapping) else list(rows)
        writer = csv.DictWriter(sys.stdout, list(dict.fromkeys(key for row in listed for key in row)))
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in listed)
    return bool(asked)


def _plain(value: Any) -> Any:
    """The same without what JSON has no word for."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any) -> Any:
    return json.dumps(_plain(value), default=str) if isinstance(value, Mapping | list | tuple) else value
