"""A slot of the configuration: which part fills it, with which settings, checked against the part's own signature."""

import difflib
import functools
import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from coterie.errors import ConfigError
from coterie.network.mixing import Mixing
from coterie.parts import Choice, Part, find, held

SLOTS = {
    "dataset": "datasets",
    "model": "models",
    "topology": "topologies",
    "partition": "partitions",
    "rule": "rules",
    "objective": "objectives",
    "initialiser": "initialisers",
    "optimiser": "optimisers",
    "protocol": "protocols",
    "engine": "engines",
}
"""Setting -> the room its parts come from."""

EXTRAS: dict[str, dict[str, tuple[Any, Any]]] = {
    "topology": {
        "connect": (bool, False),
        "assortativity": (float | None, None),
        "mixing": (Mixing, "data"),
        "own": (float, 1.0),
    },
}
"""Settings that every part of a slot has, because the experiment itself carries them out."""


@functools.cache
def settings_model(slot: str, part: Part) -> type[BaseModel]:
    """The settings of a part as a pydantic model, made from its signature; parts that it holds are tables."""
    fields: dict[str, Any] = {
        name: (
            str | dict[str, Any] if held(annotation) else annotation,
            ... if default is inspect.Parameter.empty else default,
        )
        for name, (annotation, default) in (part.parameters | EXTRAS.get(slot, {})).items()
    }
    config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, protected_namespaces=())
    return create_model(part.name, __config__=config, **fields)


def as_table(value: Any, where: str = "a part of the experiment") -> dict[str, Any]:
    """The table of a slot: a bare name becomes `{name = …}`."""
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping):
        raise ConfigError(where, expected="a name, or a table with a name", got=repr(value))
    return dict(value)


def overlay(below: Any, above: Any) -> dict[str, Any]:
    """Lay one slot over another: settings belong to a name, so a new name starts from its own defaults."""
    under, over = as_table(below), as_table(above)
    if over.get("name", under.get("name")) != under.get("name"):
        return over
    inner = {key for key, value in over.items() if _are_parts(under.get(key), value)}
    return {**under, **over, **{key: overlay(under[key], over[key]) for key in inner}}


def _are_parts(below: Any, above: Any) -> bool:
    """Whether values of a setting stand for parts: one is a table, and the other, too, or a name."""
    tables = isinstance(below, Mapping), isinstance(above, Mapping)
    return any(tables) and all(isinstance(value, str | Mapping) for value in (below, above))


def resolve(slot: str, value: Any, room: str = "") -> dict[str, Any]:
    """Resolve a slot: every setting written out, or a ConfigError that names the key.

    A slot inside another, such as `protocol.lesson`, says from which `room` its parts come.
    """
    table = as_table(value)
    if "name" not in table:
        raise ConfigError(f"{slot} has settings but no name", cure=f"Say which: --{slot} NAME.")
    part = find(room or SLOTS[slot], str(table.pop("name")))
    for key, inside in part.holds.items():
        default = part.parameters[key][1]
        if key in table:
            own = as_table(table[key], f"{slot}.{key}")
            full = own if default is inspect.Parameter.empty else overlay(default, own)
            table[key] = resolve(f"{slot}.{key}", full, inside)
    try:
        settings = settings_model(slot, part)(**table).model_dump()
        part.make(**{k: v for k, v in settings.items() if k not in EXTRAS.get(slot, {})})
    except ValidationError as error:
        raise explain(error, f"{slot}.", part.parameters | EXTRAS.get(slot, {}), f"{slot} {part.name}") from None
    except ValueError as error:
        raise ConfigError(f"{slot} {part.name}: {error}") from None
    return {"name": part.name, **settings}


def refuse_unnamed(slot: str, said: Any, method: str) -> None:
    """Refuse settings for all methods of a part that is not named: a method that names its own has none of them."""
    if isinstance(said, Mapping) and said and "name" not in said:
        cure = f"Name it, or give them to a method: [methods.{method}.{slot}]."
        raise ConfigError(f"{slot} has settings but no name ({', '.join(said)})", cure=cure)


def choice(slot: str, table: Mapping[str, Any]) -> Choice:
    """The `Choice` of a resolved slot, which engines take."""
    left_out = {"name", *EXTRAS.get(slot, {})}
    return Choice(SLOTS[slot], table["name"], {k: v for k, v in table.items() if k not in left_out})


def explain(error: ValidationError, prefix: str, known: Mapping[str, Any], where: str) -> ConfigError:
    """Pydantic's first error as a ConfigError of one line, with the nearest key or the allowed values."""
    first = error.errors()[0]
    place = first["loc"]
    tags = place[0] in known and place[0] != "methods"  # what follows a setting's name is a place in a list or a type's
    key = ".".join(str(p) for i, p in enumerate(place) if i == 0 or not tags or isinstance(p, int))
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1, cutoff=0.5)
        cure = f"Did you mean {prefix}{near[0]}?" if near else f"It has: {', '.join(known) or 'no settings'}."
        return ConfigError(f"unknown setting {prefix}{key} for {where}", cure=cure)
    if first["type"] == "missing":
        return ConfigError(f"{where} needs {prefix}{key}", cure=f"Give it with --{prefix}{key}.")
    # a value of several types is refused once for each of them
    about = [e for e in error.errors() if e["loc"][0] == place[0] and e["input"] == first["input"]]
    slots = {"a valid string": "a name", "a valid dictionary": "a table with a name"} if place[0] in SLOTS else {}
    messages = [str(e["msg"]).removeprefix("Value error, ").removeprefix("Input should be ") for e in about]
    messages = [slots.get(message, message) for message in messages]
    return ConfigError(f"{prefix}{key}", expected=" or ".join(dict.fromkeys(messages)), got=repr(first["input"]))
