"""Found, not registered: a part is one file in its room, and its parameters are its signature.

A room is a folder of this package (`rules`, `topologies`, …); a part is a function or a class whose name, in lower case
and without underscores, is that of its file. Keyword-only parameters of a function and the fields of a class are what a
user may set. A user's own part is named by file or module: `./mine.py:Median`, `package.module:make`. One that has no
file, because it was given to Python as an object, is held by the process, as `object@DIGEST:Median`. What a user brings
may be of a simpler kind than the parts of a room, which then has a file `_adapt` that makes the one from the other.

A part may hold parts: a parameter annotated with a room's base class (`lesson: Lesson`), or with `Held(room)`, takes a
name or a table with a name and settings of its own, and the part is handed what that name stands for.
"""

import ast
import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import cloudpickle

from coterie.errors import ConfigError

HOUSE = Path(__file__).parent
ROOMS = {
    "rules": "how a node merges what it hears",
    "objectives": "what local training minimises",
    "initialisers": "where parameters start",
    "optimisers": "how a gradient becomes a step",
    "protocols": "who trains, sends and merges when",
    "lessons": "what an aggregator does to the models it was handed",
    "topologies": "who is whose neighbour",
    "partitions": "which node holds which samples",
    "datasets": "what is learnt",
    "augmentations": "how training samples vary",
    "models": "what learns",
    "metrics": "how a model is judged",
    "engines": "where the nodes live",
    "studies": "the tables and figures of a paper",
}
"""The rooms a part can stand in, by what they decide."""


@dataclass(frozen=True)
class Held:
    """The mark of a parameter that takes a part of a room whose parts are functions: `Annotated[…, Held("models")]`."""

    room: str


def held(annotation: Any) -> str | None:
    """The room whose parts a parameter of this annotation takes, if it takes any."""
    if get_origin(annotation) is Annotated:
        return next((mark.room for mark in get_args(annotation)[1:] if isinstance(mark, Held)), None)
    room = getattr(annotation, "room", None) if inspect.isclass(annotation) else None
    return room if isinstance(room, str) else None


@dataclass(frozen=True)
class Part:
    """A function or class found in a room, with what its docstring and signature say."""

    room: str
    name: str
    target: Callable[..., Any]

    @property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return _summary(self._paragraphs())

    @property
    def reference(self) -> str:
        """What follows `Reference:` in the docstring: the paper."""
        return _reference(self._paragraphs())

    @property
    def body(self) -> str:
        """The docstring between the first sentence and the reference: equation and remarks."""
        return "\n\n".join(p for p in self._paragraphs()[1:] if not p.startswith("Reference:"))

    @property
    def parameters(self) -> dict[str, tuple[Any, Any]]:
        """Name -> (annotation, default) of what a user may set; `inspect.Parameter.empty` for no default.

        The default of a parameter that takes a part is a table: its name, and all of its settings.
        """
        every = _signature(self.target)
        return {name: (kind, _written_out(held(kind), default)) for name, kind, default in every}

    @property
    def holds(self) -> dict[str, str]:
        """Parameter -> the room of the part that it takes, for those that take one."""
        rooms = {name: held(annotation) for name, (annotation, _) in self.parameters.items()}
        return {name: room for name, room in rooms.items() if room}

    def make(self, **settings: Any) -> Any:
        """The part with its parameters set: an instance of a class, or the function with them bound."""
        for name, room in self.holds.items():
            given = settings.get(name, self.parameters[name][1])
            if isinstance(given, str | Mapping):
                settings[name] = chosen(room, given).make()
        return self.target(**settings) if inspect.isclass(self.target) else functools.partial(self.target, **settings)

    def _paragraphs(self) -> list[str]:
        return _paragraphs(inspect.getdoc(self.target))


def _paragraphs(text: str | None) -> list[str]:
    return [p for p in (text or "").split("\n\n") if p.strip()]


def _summary(paragraphs: list[str]) -> str:
    return " ".join(paragraphs[0].split()) if paragraphs else ""


def _reference(paragraphs: list[str]) -> str:
    found = [p for p in paragraphs if p.startswith("Reference:")]
    return " ".join(found[0].removeprefix("Reference:").split()) if found else ""


@functools.cache  # an experiment asks hundreds of times
def _signature(target: Callable[..., Any]) -> tuple[tuple[str, Any, Any], ...]:
    """Name, annotation and default of what a user may set."""
    hints, every = get_type_hints(target, include_extras=True), inspect.signature(target).parameters.values()
    chosen = every if inspect.isclass(target) else [p for p in every if p.kind is p.KEYWORD_ONLY]
    return tuple((p.name, hints.get(p.name, Any), p.default) for p in chosen)


def singular(room: str) -> str:
    """What one part of a room is called."""
    return room.replace("ies", "ys").removesuffix("s")


@functools.cache
def names(room: str) -> tuple[str, ...]:
    """The names of all parts in a room, in alphabetical order."""
    return tuple(sorted(file.stem for file in (HOUSE / room).glob("*.py") if not file.name.startswith("_")))


def described(room: str, name: str) -> tuple[str, str]:
    """Summary and reference of the part called `name`, read without importing it: to list parts must not take long."""
    wanted = name.replace("_", "")
    tree = ast.parse((HOUSE / room / f"{name}.py").read_text("utf-8"))
    found = (n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef))
    paragraphs = _paragraphs(next(ast.get_docstring(n) for n in found if n.name.replace("_", "").lower() == wanted))
    return _summary(paragraphs), _reference(paragraphs)


def find(room: str, name: str) -> Part:
    """The part called `name` in `room`, or the user's own if the name is `file.py:Thing` or `module:thing`."""
    if ":" in name:
        return _users_own(room, name)
    stem = name.replace("-", "_")
    if stem not in names(room) and (made := _of_a_file(room, name)):
        return made
    if stem not in names(room):
        raise unknown(singular(room), name, names(room), f"`coterie list {room}` shows all")
    module = importlib.import_module(f"coterie.{room}.{stem}")
    wanted = stem.replace("_", "")
    found = [v for k, v in vars(module).items() if k.replace("_", "").lower() == wanted and callable(v)]
    assert found, f"coterie/{room}/{stem}.py must define {stem} or a class of that name"
    return Part(room, stem, found[0])


def _of_a_file(room: str, path: str) -> Part | None:
    """The part that reads this file, where the files of a room's parts may stand for them."""
    where = f"coterie.{room}._adapt"
    if not set("./") & set(path) or path.endswith(".py") or importlib.util.find_spec(where) is None:
        return None
    made: Part | None = getattr(importlib.import_module(where), "of_file", lambda path: None)(path)
    return made


def named(thing: Any) -> dict[str, Any]:
    """A part's function or class, or an instance of its class, as the table that gives it back."""
    target: Any = thing if inspect.isfunction(thing) or inspect.isclass(thing) else type(thing)
    room, _, stem = target.__module__.removeprefix("coterie.").partition(".")
    name = stem if room in ROOMS and stem in names(room) else f"{target.__module__}:{target.__name__}"
    own = {} if target is thing else {name: _kept(thing, name) for name, *_ in _signature(target)}
    return {"name": name} | {key: named(value) if held(type(value)) else value for key, value in own.items()}


def _kept(thing: Any, setting: str) -> Any:
    """The setting that an instance was made with, which it keeps under the same name."""
    if not hasattr(thing, setting):
        kind = type(thing).__name__
        cure = f"Make it a dataclass, or keep the argument: `self.{setting} = {setting}`."
        raise ConfigError(f"{kind} does not say what its {setting} is", expected=f"an attribute {setting}", cure=cure)
    return getattr(thing, setting)


def unknown(kind: str, name: str, known: Iterable[str], more: str = "") -> ConfigError:
    """The error for a name that does not exist, with the nearest that does."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    cure = f"Did you mean {near[0]!r}?" if near else f"Choose from: {', '.join(known)}."
    return ConfigError(f"unknown {kind} {name!r}", cure=f"{cure} {more}".strip())


def _users_own(room: str, name: str) -> Part:
    where, _, thing = name.rpartition(":")
    if where.startswith(OBJECT):
        return Part(room, name, _fitting(room, name, _held_here(name)))
    if where.endswith(".py"):  # a whole path: a run may be resumed from another folder
        where = str(Path(where).expanduser().resolve())
    try:
        module = _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except ImportError as error:
        raise ConfigError(f"cannot import {where!r} for {singular(room)} {name!r} ({error})") from error
    if not callable(getattr(module, thing, None)):
        public = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
        raise unknown(f"name in {where}", thing, public)
    return Part(room, f"{where}:{thing}", _fitting(room, name, getattr(module, thing)))


_adapted: dict[tuple[str, int], tuple[Any, Callable[..., Any]]] = {}
"""By room and identity: what a user brought, held so that no other gets its identity, and the part made of it."""


def _fitting(room: str, name: str, thing: Any) -> Callable[..., Any]:
    """What a user brought as a part of a room: adapted where that room can, and of its base class where it has one."""
    if (room, id(thing)) not in _adapted:
        where = f"coterie.{room}._adapt"
        adapt = importlib.import_module(where).adapt if importlib.util.find_spec(where) else _as_it_is
        _adapted[room, id(thing)] = thing, adapt(thing)
    target, base = _adapted[room, id(thing)][1], getattr(importlib.import_module(f"coterie.{room}"), "BASE", None)
    if base and not (inspect.isclass(target) and issubclass(target, base)):
        expected, got = f"a class that inherits {base.__module__}.{base.__name__}", type(thing).__name__
        raise ConfigError(f"{name.rpartition(':')[2]} is no {singular(room)}", expected=expected, got=got)
    if not callable(target):
        raise ConfigError(f"a {type(thing).__name__} is no {singular(room)}", cure=f"See `coterie list {room}`.")
    return target


def _as_it_is(thing: Any) -> Any:
    return thing


OBJECT = "object@"
"""How the name of a part begins that was given as a Python object."""
_objects: dict[str, Any] = {}
"""Python objects that were given as parts, by name."""


def hold(name: str, thing: Any) -> None:
    """Hold a Python object in this process as the part of this name, `object@DIGEST:Median`."""
    _objects[name] = thing


def _held_here(name: str) -> Any:
    if name not in _objects:
        own = name.rpartition(":")[2]
        raise ConfigError(
            f"{own} was given as a Python object, and is not here",
            expected="the process that made it, or one that is handed it again",
            cure=f"Go on from Python: coterie.resume(folder, parts=[{own}]).",
        )
    return _objects[name]


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(
            "no such file", expected="a Python file", got=str(path), cure="Check the path before the colon."
        )
    mark = hashlib.blake2b(str(path).encode(), digest_size=8).hexdigest()
    module_name = f"coterie_user_{path.stem}_{mark}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[module_name]  # half made: the next who asks must not get it
            line = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(line.filename).name}, line {line.lineno}"
            raise ConfigError(f"cannot import {path} ({type(error).__name__}: {error}; {where})") from error
    return sys.modules[module_name]


@dataclass(frozen=True)
class Choice:
    """A part by name with its settings, which may be tables of parts: what travels between processes, not code."""

    room: str
    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """Its name for people: of an object the name alone."""
        return self.name.rpartition(":")[2] if self.name.startswith(OBJECT) else self.name

    @property
    def part(self) -> Part:
        return find(self.room, self.name)

    def make(self) -> Any:
        return self.part.make(**self.settings)

    @property
    def objects(self) -> dict[str, Any]:
        """The Python objects that were given for it and for the parts that it holds, by name."""
        inner = [value for value in self.settings.values() if isinstance(value, Mapping) and "name" in value]
        own = {self.name: _held_here(self.name)} if self.name.startswith(OBJECT) else {}
        return own | {name: held for table in inner for name, held in chosen("", table).objects.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Take Python objects along to another process, wherever they were defined."""
        given = self.objects
        return vars(self) | ({OBJECT: cloudpickle.dumps(given)} if given else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, thing in pickle.loads(state.pop(OBJECT)).items() if OBJECT in state else ():
            if name not in _objects:
                hold(name, thing)
        vars(self).update(state)


def chosen(room: str, table: str | Mapping[str, Any]) -> Choice:
    """The choice that a name, or a table with a name and settings, makes in a room."""
    given = {"name": table} if isinstance(table, str) else dict(table)
    return Choice(room, str(given.pop("name")), given)


def _written_out(room: str | None, default: Any) -> Any:
    """The default of a parameter that takes a part, as a table with all settings; any other as it is."""
    if room is None or default is inspect.Parameter.empty:
        return default
    choice = chosen(room, default if isinstance(default, str | Mapping) else named(default))
    return {"name": choice.name, **{k: d for k, (_, d) in choice.part.parameters.items()}, **choice.settings}
