"""Flags of the command line, made from the signatures of the parts that it names; `run_flags` has an experiment's.

Nothing is listed here: a new part has its flags because it exists. Values stay text until the experiment
checks them, so that a file, a flag and Python are refused with the same words.
"""

import difflib
import inspect
import itertools
import types
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import Group, Parameter, Token

from coterie.config.slots import EXTRAS, SLOTS, as_table
from coterie.config.text import is_list, literal, members, parse
from coterie.errors import ConfigError
from coterie.parts import Part, find, held, names, singular

EMPTY = inspect.Parameter.empty
EVERYDAY = Group("Everyday", sort_key=1)
PARTS = Group("Parts", help="Each has settings of its own: name one and ask for --help again.", sort_key=2)
FINER = Group("Finer", sort_key=3)
TEXTUAL = ("seeds", "evaluate", "methods", "joins", "leaves", "work")
"""Fields with a notation of their own, such as `0-4`, which take text."""
EXTRA_HELP = {
    ("topology", "connect"): "draw again until the network is connected",
    ("topology", "assortativity"): "rewire until the degrees of linked nodes correlate so",
    ("topology", "mixing"): "what models weigh in averages",
    ("topology", "own"): "what one's own model weighs beside a neighbour's (ω_ii)",
}


@dataclass(frozen=True)
class Flag:
    """A flag of the command line: its name, the setting it sets, type, default and help."""

    name: str
    path: tuple[str, ...]
    """Where its value goes: `("nodes",)`, `("rule", "theta")`, `("protocol", "lesson", "name")`."""
    annotation: Any
    default: Any
    help: str
    group: Group
    metavar: str = ""
    alias: str = ""
    part: str = ""
    """The part it belongs to, if it does."""
    method: str = ""
    """The method for which alone it is, if it is not for all."""

    @property
    def switch(self) -> bool:
        """Whether the bare flag means yes."""
        return members(self.annotation) == [bool]

    @property
    def parameter(self) -> inspect.Parameter:
        """The flag as a parameter of a cyclopts command, whose value will be text."""
        kinds = members(self.annotation)
        repeats = any(is_list(m) for m in kinds) or self.path[0] in TEXTUAL
        kind: Any = bool if self.switch else list[str] if repeats else str
        choices = [c for m in kinds if get_origin(m) is Literal for c in get_args(m)] if not repeats else []
        details = [", ".join(choices), "required" if self.default is EMPTY else ""]
        metavar = self.metavar or ("CHOICE" if choices else kind_of(self.annotation))
        described = Parameter(
            name=self.name,
            help="; ".join(filter(None, [self.help, *details])),
            group=self.group,
            metavar=None if self.switch else metavar,
            show_default=shown(self.default) or False,
            negative=(),
            converter=_texts if repeats else None,
        )
        name, only_named = _identifier(self.name), inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(name, only_named, default=None, annotation=Annotated[kind | None, described])

    def value(self, typed: bool | str | Sequence[str]) -> Any:
        """The typed text as the configuration takes it."""
        if isinstance(typed, bool):
            return typed
        texts = [typed] if isinstance(typed, str) else typed
        if self.path == ("model",):
            return models(",".join(texts))
        if self.path[0] in TEXTUAL and len(self.path) == 1:
            return ",".join(t.strip().strip("[]") for t in texts)
        return parse(self.annotation, texts)


def part_flags(
    slot: str,
    part: Part,
    given: Mapping[str, Any],
    order: int = 0,
    own: Sequence[str] = (),
    typed: Sequence[str] = (),
) -> list[Flag]:
    """A flag for every setting of a part, and of the parts that it holds as these arguments (`typed`) name them.

    Where `own` names a command's own flags, the command is about this part: its settings go without the slot's name
    too, unless a flag of the command has that name.
    """
    group = Group(f"{slot} {part.name}", help=part.summary, sort_key=10 + order)
    found, path = [], tuple(slot.split("."))
    for key, (annotation, default) in (part.parameters | EXTRAS.get(slot, {})).items():
        full, short = dashed(f"{slot}.{key}"), dashed(".".join([*path[1:], key]))
        plain = bool(own) and short not in own
        text = EXTRA_HELP.get((slot, key), "")
        name, alias = (short, full) if plain else (full, "")
        value = given.get(key, default)
        if room := held(annotation):
            below = as_table(value)
            chosen = spoken(typed, full) or spoken(typed, name) or str(below["name"])
            text = f"one of: {', '.join(names(room))}"
            found.append(
                Flag(name, (*path, key, "name"), str, below["name"], text, group, "NAME", alias=alias, part=chosen)
            )
            inner = below if below["name"] == chosen else {}
            found += part_flags(f"{slot}.{key}", load(room, chosen), inner, order, own, typed)
        else:
            found.append(Flag(name, (*path, key), annotation, value, text, group, alias=alias, part=part.name))
    return found


def load(room: str, name: str) -> Part:
    """The part, or an error in one line whatever is wrong with the user's file."""
    try:
        part = find(room, name)
        _ = part.parameters
    except ConfigError:
        raise
    except Exception as error:  # the user's own module may fail in any way
        raise ConfigError(f"cannot load {name!r} ({type(error).__name__}: {error})") from error
    return part


def settings(flags: Sequence[Flag], typed: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """The typed flags as settings to lay over a file; a slot's settings come with the name of their part.

    What is for one method alone is by its name under `alone`, and leaves it its parts.
    """
    found = _settings([flag for flag in flags if not flag.method], typed, base)
    alone = {m: _settings([f for f in flags if f.method == m], typed, SLOTS) for m in {f.method for f in flags} - {""}}
    return found | ({"alone": alone} if alone else {})


def _settings(flags: Sequence[Flag], typed: Mapping[str, Any], base: Container[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for flag in flags:
        given = typed.get(_identifier(flag.name))
        if given is None:
            continue
        value = flag.value(given)
        if len(flag.path) > 1:
            slot, *inside, key = flag.path
            unnamed = slot not in base and slot not in found
            table = found.setdefault(slot, {"name": flag.part} if unnamed and not inside else {})
            for name in inside:
                table = table.setdefault(name, {})
            table[key] = value
        else:
            key = flag.path[0]
            found[key] = {"name": value} if key in SLOTS and isinstance(value, str) else value
    return found


def command(
    function: Callable[..., int], help: str, arguments: Sequence[inspect.Parameter], flags: Sequence[Flag]
) -> Callable[..., int]:
    """The function as a command with these arguments and flags, for cyclopts to read."""
    whole = inspect.Signature([*arguments, *(flag.parameter for flag in flags)])
    function.__doc__ = help
    vars(function)["__signature__"] = whole
    function.__annotations__ = {name: p.annotation for name, p in whole.parameters.items()}
    return function


def positional(name: str, help: str, default: Any = EMPTY) -> inspect.Parameter:
    """An argument without a flag."""
    annotation = Annotated[str | None, Parameter(help=help, show_default=False, required=default is EMPTY)]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, default=default, annotation=annotation)


def joined(tokens: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    """The arguments with dashes for underscores, long names shortened, and `--switch true` as one word."""
    aliases = {f.alias: f.name for f in flags if f.alias}
    switches = {f.name for f in flags if f.switch}
    found: list[str] = []
    for token in tokens:
        if found and found[-1] in switches and token.lower() in ("true", "false", "yes", "no", "on", "off", "1", "0"):
            found[-1] += f"={token}"
        elif token.startswith("--"):
            name, equals, value = token.partition("=")
            name = name.replace("_", "-")
            found.append(aliases.get(name, name) + equals + value)
        else:
            found.append(token)
    return found


def first_word(typed: Sequence[str], flags: Sequence[Flag]) -> str | None:
    """The first argument that is neither a flag nor a flag's value."""
    bare = {f.name for f in flags if f.switch} | {"--help", "--version"}
    before = ""
    for token in typed:
        takes = before.startswith("--") and "=" not in before and before not in bare
        is_value = takes and not token.startswith("--")
        if not token.startswith("-") and not is_value:
            return token
        before = "" if is_value else token
    return None


def spoken(typed: Sequence[str], name: str) -> str | None:
    """The value typed for a flag, joined by commas if it is repeated."""
    found = [b for a, b in itertools.pairwise(typed) if a == name]
    found += [t.partition("=")[2] for t in typed if t.startswith(f"{name}=")]
    return ",".join(found) or None


def check(typed: Sequence[str], flags: Sequence[Flag]) -> None:
    """Refuse a setting that its part does not have, naming the part."""
    known = {f.name for f in flags} | {f.alias for f in flags}
    places = {".".join(f.path[:-1] or f.path): f.part for f in flags if f.part and not f.method}
    chosen = {place: f"{place} {part}" for place, part in places.items()}
    for token in typed:
        name = token.partition("=")[0]
        slot = name.removeprefix("--").rpartition(".")[0]
        if not name.startswith("--") or "." not in name or name in known:
            continue
        if slot == "model" and slot not in chosen:
            cure = f"Say it in braces: 'cnn{{{name.rpartition('.')[2].replace('-', '_')}=…}},mlp'."
            raise ConfigError(f"{name} is a setting of one model, and there are several", cure=cure)
        if slot not in chosen:
            continue
        has = sorted(n for n in known if n.startswith(f"--{slot}."))
        near = difflib.get_close_matches(name, has, n=1, cutoff=0.7)
        listed = f"It has: {', '.join(has)}." if has else f"It has no settings; choose another with --{slot}."
        cure = f"Did you mean {near[0]}?" if near else listed
        raise ConfigError(f"unknown setting {name} of {chosen[slot]}", cure=cure)


def whole(name: str, value: Any) -> int:
    """A whole number that was typed."""
    try:
        return int(value)
    except ValueError:
        raise ConfigError(name, expected="a whole number", got=repr(value)) from None


def kind_of(annotation: Any) -> str:
    """The name of a type in the help: `INT`, `NUMBER`, `TEXT`."""
    words = {int: "INT", float: "NUMBER", bool: "BOOL", str: "TEXT", Any: "VALUE"}
    found = []
    for member in members(annotation):
        if room := held(annotation):
            found.append(singular(room).upper())
        elif get_origin(member) is Literal:
            found.append("|".join(str(c) for c in get_args(member)))
        elif is_list(member):
            inner = [kind_of(a) for a in get_args(member) if a is not ...]
            found.append(f"{inner[0] if inner else 'VALUE'},…")
        elif member is not types.NoneType:
            found.append(words.get(member, "VALUE"))
    return " or ".join(dict.fromkeys(found))


def shown(value: Any) -> str:
    """A default as one would type it; empty for None."""
    if value is None or value is EMPTY:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return str(value.get("name", "")) or ", ".join(map(str, value))
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def models(text: str) -> Any:
    """The slots that a text of models stands for; a list may also be JSON."""
    from coterie.config.spread import slots

    return slots(literal(text) if text.startswith("[") else text)


def _texts(_: Any, tokens: Sequence[Token]) -> list[str]:
    return [token.value for token in tokens]


def _identifier(name: str) -> str:
    return name.removeprefix("--").replace("-", "_").replace(".", "__")


def dashed(key: str) -> str:
    """A setting's name as that of a flag."""
    return "--" + key.replace("_", "-")
