"""Python objects as parts: what a user hands over in Python becomes the table that a file would have.

What can be imported by others is named by module; anything else, such as a class of a notebook or an array, is held by
this process under a name that tells what it says: its text, its numbers.
"""

import functools
import hashlib
import inspect
import pickle
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coterie import parts
from coterie.config import sources
from coterie.config.slots import SLOTS
from coterie.config.sources import PLAIN
from coterie.errors import ConfigError


def tables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an experiment in which objects that stand for parts are tables."""
    found = dict(settings)
    for slot, room in SLOTS.items():
        if slot in found:
            found[slot] = _several(room, found[slot]) if slot == "model" else table(room, found[slot])
    if "metrics" in found:
        found["metrics"] = _several("metrics", _by_name(found["metrics"]))
    if found.get("augment") is not None:
        found["augment"] = _several("augmentations", found["augment"])
    if isinstance(found.get("methods"), Mapping):
        found["methods"] = {
            name: tables(own) if isinstance(own, Mapping) else own for name, own in found["methods"].items()
        }
    return found


def _several(room: str, value: Any) -> Any:
    return [table(room, each) for each in value] if isinstance(value, list | tuple) else table(room, value)


def _by_name(metrics: Any) -> Any:
    """Metrics of which some are functions that are called otherwise: `{"wrong": lambda outputs, targets: …}`."""
    if isinstance(metrics, list | tuple):
        named = [_by_name(one) for one in metrics]
        return [one for each in named for one in (each if isinstance(each, list) else [each])]
    if not isinstance(metrics, Mapping) or isinstance(metrics.get("name"), str):
        return metrics
    return [_called_so(str(name), metric) for name, metric in metrics.items()]


def _called_so(name: str, metric: Any) -> Any:
    if not name.isidentifier():
        raise ConfigError("the name of a metric", expected="letters, digits and underscores", got=repr(name))
    if not isinstance(metric, types.FunctionType):
        cure = "List the others: metrics=['accuracy', function]."
        raise ConfigError(f"metric {name}", expected="a function of outputs and targets", got=repr(metric), cure=cure)
    made = types.FunctionType(metric.__code__, metric.__globals__, name, metric.__defaults__, metric.__closure__)
    made.__kwdefaults__, made.__doc__, made.__qualname__ = metric.__kwdefaults__, metric.__doc__, name
    return made


def table(room: str, value: Any) -> Any:
    """A slot whose part is a table or a name, whatever Python object was given for it or for what it holds."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        made = dict(value)
        if "name" in made and not isinstance(made["name"], str):
            made = {**_own(room, made.pop("name")), **made}
        return {key: inner if isinstance(inner, Mapping) else _inside(inner) for key, inner in made.items()}
    return _own(room, value)


def _inside(value: Any) -> Any:
    """A setting, or the table of the part that it is."""
    kind = value if inspect.isclass(value) else type(value)
    room = parts.held(kind)
    plain = list(value) if isinstance(value, tuple) else value  # as a file has it
    return _own(room, value) if room else plain


def _own(room: str, thing: Any) -> dict[str, Any]:
    """The table of an object: the name of its class or function with its settings, or of itself."""
    if isinstance(thing, functools.partial) and not thing.args:
        return {**_own(room, thing.func), **thing.keywords}
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return {"name": _name(room, thing)}
    if parts.held(type(thing)) == room or _of_base(room, type(thing)):
        made = parts.named(thing)
        inner = {key: _inside(getattr(thing, key)) for key in made if key != "name"}
        return {"name": _name(room, type(thing)), **inner}
    return {
        "name": _held(room, thing, type(thing).__name__, sources.identity(type(thing)) + sources.fingerprint(thing))
    }


def _of_base(room: str, kind: type) -> bool:
    base = getattr(sys.modules.get(f"coterie.{room}"), "BASE", None)
    return base is not None and issubclass(kind, base)


def _name(room: str, thing: Any) -> str:
    """The name by which a class or function is found."""
    made = str(parts.named(thing)["name"])
    if ":" not in made:
        return made
    if not _can_be_imported(thing):
        return _held(room, thing, thing.__name__, sources.identity(thing) + sources.closure(thing))
    if thing.__module__.startswith("coterie_user_"):
        return f"{Path(str(sys.modules[thing.__module__].__file__)).resolve()}:{thing.__name__}"
    return made


def _can_be_imported(thing: Any) -> bool:
    """Whether another process finds a class or function by its module and name."""
    module = sys.modules.get(thing.__module__)
    return thing.__module__ != "__main__" and getattr(module, thing.__name__, None) is thing


def _held(room: str, thing: Any, called: str, text: str) -> str:
    called = called if called.isidentifier() else "function"
    name = f"{parts.OBJECT}{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}:{called}"
    parts.hold(name, thing)
    parts.find(room, name)  # refused here if it is no such part
    return name


def stays_here(settings: Iterable[parts.Choice]) -> str:
    """Why parts that were given as objects cannot go to other processes; nothing if all can, or there are none."""
    for choice in settings:
        try:
            pickle.dumps(choice)
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
            return f"{choice.name.rpartition(':')[2]}: {error}"
    return ""


def names(settings: Any) -> Iterator[tuple[str, str]]:
    """Room and name of every part that was given as an object, in the settings of an experiment."""
    for slot, value in settings.items() if isinstance(settings, Mapping) else ():
        if slot == "name":  # of the table itself
            continue
        room = {**SLOTS, "metrics": "metrics", "augment": "augmentations", "lesson": "lessons"}.get(slot, "")
        for each in value if isinstance(value, list | tuple) else (value,):
            name = each.get("name") if isinstance(each, Mapping) else each
            if isinstance(name, str) and name.startswith(parts.OBJECT):
                yield room, name
            yield from names(each)


def take_again(settings: Mapping[str, Any], given: Iterable[Any]) -> None:
    """Hold these objects again for settings that were kept without them; refuse one that says something else now."""
    things = list(given)
    for room, name in dict.fromkeys(names(settings)):
        called = name.rpartition(":")[2]
        found = [str(table(room, thing)["name"]) for thing in things if _called(thing) == called]
        if found and name not in found:
            raise ConfigError(
                f"{called} is not the one that this run began with",
                expected="the same text and values",
                got="others",
                cure="Hand over what the folder `parts` of the run has, or begin a new run.",
            )


def _called(thing: Any) -> str:
    if isinstance(thing, functools.partial):
        return _called(thing.func)
    named = getattr(thing, "__name__", "") if inspect.isclass(thing) or inspect.isfunction(thing) else ""
    named = named or type(thing).__name__
    return named if named.isidentifier() else "function"


def texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the parts that were given as objects, by the names of files to keep them in."""
    found = {}
    for room, name in names(settings):
        where, _, called = name.rpartition(":")
        thing = parts.Choice(room, name).objects[name]
        kind = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
        said = "" if _can_be_imported(kind) else sources.text(kind)
        if said:
            found[f"{called}-{where.removeprefix(parts.OBJECT)}.py"] = said
    return found
