"""Text as values: what flags, notations and files say, before the settings' own checks."""

import inspect
import json
import tomllib
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from coterie.errors import ConfigError


def parse(annotation: Any, texts: Sequence[str]) -> Any:
    """Text as a value: lists from `64,32`, `[64, 32]` or a repeated flag; the rest is left to pydantic."""
    kinds = members(annotation)
    if types.NoneType in kinds and [t.lower() for t in texts] == ["none"]:
        return None
    if any(is_list(m) for m in kinds):
        items = [item for text in texts for item in _items(text)]
        return items[0] if len(items) == 1 and (str in kinds or int in kinds) else items
    text = texts[-1]
    structured = Any in kinds or any((get_origin(m) or m) is dict for m in kinds)
    return literal(text) if structured and str not in kinds else text


def members(annotation: Any) -> list[Any]:
    """The alternatives of a union, without metadata."""
    if get_origin(annotation) is Annotated:
        return members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [m for a in get_args(annotation) for m in members(a)]
    return [annotation]


def is_list(annotation: Any) -> bool:
    """Whether values of this type are lists or tuples."""
    origin = get_origin(annotation) or annotation
    return inspect.isclass(origin) and issubclass(origin, Sequence) and not issubclass(origin, str | bytes)


def literal(text: str) -> Any:
    """JSON as what it means, other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _items(text: str) -> list[Any]:
    found = literal(text)
    if isinstance(found, list):
        return found
    return [piece.strip() for piece in text.split(",") if piece.strip()]


def numbers(text: str) -> list[int] | None:
    """Whole numbers from `3`, `0-4` or `0,2,5-7`; None if it is something else."""
    found: list[int] = []
    for piece in text.split(","):
        first, dash, last = (p.strip() for p in piece.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            return None
        found += range(int(first), int(last or first) + 1)
    return found


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """What is in a TOML file."""
    if not path.is_file():
        raise ConfigError(f"no such {what}", expected="a TOML file", got=str(path), cure="Check the path.")
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML ({error})", cure="Mend that line.") from None


def seeds_from(value: Any) -> Any:
    """Seeds from `3`, `[0, 2]`, `"0-4"` or `"0,2,5-7"`."""
    if isinstance(value, int):
        return (value,)
    if not isinstance(value, str):
        return value
    found = numbers(value)
    if found is None:
        raise ValueError("seeds such as 0-4 or 0,2,5")
    return tuple(found)


def by_node(value: Any) -> Any:
    """Rounds or epochs of nodes from `18:10,19:30`, `16-19:10` or a table."""
    if not isinstance(value, str):
        return value
    found: dict[int, int] = {}
    for piece in filter(None, (p.strip() for p in value.split(","))):
        who, _, when = (p.strip() for p in piece.partition(":"))
        if not when.isdecimal():
            raise ValueError("nodes and a number of each, such as 18:10,19:30 or 16-19:10")
        found |= dict.fromkeys(seeds_from(who), int(when))
    return found
