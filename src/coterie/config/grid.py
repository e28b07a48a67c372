"""A grid of settings: what is varied, over which values, and the combinations that it has."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coterie.config.slots import SLOTS
from coterie.config.text import literal
from coterie.errors import ConfigError

Grid = Mapping[str, Sequence[Any]]
"""Values by the setting that has them, such as `{"partition.alpha": [0.1, 0.5], "rule": ["decavg", "dechw"]}`."""
LARGEST = 10_000
"""More combinations than that are a slip of the pen."""


def typed(texts: Sequence[str]) -> dict[str, list[Any]]:
    """A grid from text such as `partition.alpha=0.1,0.5`; commas within brackets, braces and quotes part nothing."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = (piece.strip() for piece in text.partition("="))
        if not equals or not key or not values:
            raise ConfigError("--grid", expected="SETTING=VALUE,VALUE", got=repr(text))
        found[key.replace("-", "_")] = [literal(value) for value in _pieces(values)]
    return found


def written(table: Any) -> dict[str, list[Any]]:
    """A grid from the table `[sweep]` of a file, whose keys may be dotted in quotes or without."""
    if not isinstance(table, Mapping):
        raise ConfigError("sweep", expected="a table of settings with a list of values each", got=repr(table))
    found: dict[str, list[Any]] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": values for inner, values in written(value).items()}
        elif isinstance(value, list | tuple):
            found[str(key)] = list(value)
        else:
            raise ConfigError(f"sweep: {key}", expected="a list of values", got=repr(value))
    return found


def checked(grid: Grid) -> dict[str, list[Any]]:
    """The grid, if it is one."""
    if not grid:
        raise ConfigError("nothing is varied", cure="Say what: --grid partition.alpha=0.1,0.5, or [sweep] in the file.")
    size = 1
    for key, values in grid.items():
        if key == "seeds":
            raise ConfigError("seeds are no part of a grid", cure="Every combination has all of them: --seeds 0-2.")
        if not len(values):
            raise ConfigError(f"grid: {key}", expected="at least one value", got="none")
        size *= len(values)
    if size > LARGEST:
        raise ConfigError("grid", expected=f"at most {LARGEST:,} combinations", got=f"{size:,}")
    return {key: list(values) for key, values in grid.items()}


def cells(grid: Grid) -> Iterator[dict[str, Any]]:
    """All combinations, the last setting changing fastest."""
    for values in itertools.product(*checked(grid).values()):
        yield dict(zip(grid, values, strict=True))


def settings(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A combination as settings of an experiment: what has dots is a table in a table."""
    found: dict[str, Any] = {}
    for path, value in sorted(cell.items(), key=lambda item: item[0].count(".")):
        *outer, key = path.split(".")
        table = found
        for place, name in enumerate(outer):
            inner = table.setdefault(name, {})
            if not isinstance(inner, dict):
                table[name] = inner = {"name": inner}
            table = inner
            if not place and name not in SLOTS:
                raise ConfigError(f"grid: {path}", expected="a setting, or a part's as in rule.theta", got=path)
        table[key] = value
    return found


def said(value: Any) -> str:
    """A value as it stands in tables: a part by its name."""
    if isinstance(value, Mapping) and "name" in value:
        rest = ", ".join(f"{key} {said(inner)}" for key, inner in value.items() if key != "name")
        return f"{value['name']}({rest})" if rest else str(value["name"])
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pieces(text: str) -> list[str]:
    """What stands between the commas that are not within brackets, braces or quotes."""
    depth, pieces, quoted = 0, [""], ""
    for sign in text:
        if sign == quoted or (not quoted and sign in "\"'"):
            quoted = "" if quoted else sign
        depth += (sign in "[{(") - (sign in "]})") if not quoted else 0
        if sign == "," and depth == 0 and not quoted:
            pieces.append("")
        else:
            pieces[-1] += sign
    return [re.sub(r"^(['\"])(.*)\1$", r"\2", piece.strip()) for piece in pieces if piece.strip()]
