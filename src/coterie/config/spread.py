"""How models are spread over nodes: from what a user says to slots, and from slots to the model of each node.

One says `cnn[32,64]*10,mlp{sizes=[8]}`: a name; in brackets the model's main setting, which is its first; in braces
more settings; and after a star for how many nodes. A name may be that of a mix, `h2` or `h2/4`. A text that ends in
.toml names a file with the model of each node.
"""

import contextlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from coterie.config.objects import tables
from coterie.config.slots import as_table, resolve
from coterie.config.text import numbers, parse, read_toml
from coterie.errors import ConfigError
from coterie.models import mixes
from coterie.parts import find, names, unknown

Slot = str | dict[str, Any]

NODES = "nodes"
"""The key in a model's table that says for how many nodes it is."""
LIKE = "Write it like 'cnn[32,64]{norm=layer}*10,mlp[64]*5'."
_ITEM = re.compile(
    r"(?P<name>[^][{}*]+)(\[(?P<main>[^{}*]*)\])?\s*(\{(?P<more>[^{}*]*)\})?\s*(\*(?P<nodes>[^][{}*]*))?"
)
_DIVIDED = re.compile(r"(?P<mix>[\w-]+)(/(?P<by>\d+(\.\d+)?))?")


def canonical(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an experiment in which parts are slots, and models are under `model`, however they were said."""
    found = tables({"model" if key == "models" else key: value for key, value in settings.items()})
    if len(found) < len(settings):
        raise ConfigError("model and models are one setting", cure="Give one of them.")
    if isinstance(found.get("model"), str | list | tuple):
        found["model"] = slots(found["model"])
    return found


def slots(said: Any) -> Slot | list[Any]:
    """The slot that a text, a table or a list of them stands for, or several.

    What is no text is left as it is, for the experiment to check.
    """
    pieces: list[Any] = [said] if isinstance(said, str | Mapping) else list(said)
    found = [slot for piece in pieces for slot in (_read(piece) if isinstance(piece, str) else [piece])]
    return found[0] if len(found) == 1 else found


def resolved(model: Any) -> dict[str, Any]:
    """A model's slot with every setting written out; for how many nodes it is stays with it, if that was said."""
    table = as_table(model)
    count = table.pop(NODES, None)
    if count is not None and (type(count) is not int or count < 1):
        raise ConfigError(f"nodes of model {table.get('name')}", expected="a whole number of at least 1", got=count)
    return resolve("model", table) | ({} if count is None else {NODES: count})


def kinds(model: Any) -> list[dict[str, Any]]:
    """The tables of the models as they were said, without for how many nodes each is."""
    return [{key: value for key, value in table.items() if key != NODES} for table in _tables(model)]


def deal(model: Any, nodes: int) -> list[int]:
    """Which of the models each node has: those with a number first, each on so many, then the others in turn."""
    wanted = [table.get(NODES) for table in _tables(model)]
    rest, claimed = [i for i, count in enumerate(wanted) if count is None], sum(count or 0 for count in wanted)
    if not rest and claimed != nodes:
        cure = f"Set --nodes to {claimed}, change the numbers, or leave them out to spread models evenly."
        raise ConfigError("models with a number of nodes each", expected=f"{nodes} nodes", got=claimed, cure=cure)
    if claimed + len(rest) > nodes:
        got = f"{claimed} nodes claimed, and {len(rest)} more models" if claimed else f"{len(rest)} models"
        raise ConfigError(
            "more models than nodes", expected=f"at most {nodes}", got=got, cure="Raise --nodes, or name fewer models."
        )
    first = [i for i, count in enumerate(wanted) for _ in range(count or 0)]
    return first + [rest[i % len(rest)] for i in range(nodes - len(first))]


def notation(model: Slot) -> str:
    """A model as one would type it: `cnn[32,64]{norm=layer}*10`; of a resolved one, what is not at its default."""
    table = as_table(model)
    name, count = str(table.pop("name")), table.pop(NODES, None)
    known = find("models", name).parameters
    main = next(iter(known), "")
    plain = {key for key, value in table.items() if value == known[key][1] and (key != main or isinstance(value, bool))}
    said = {key: _typed(value) for key, value in table.items() if key not in plain}
    brackets = f"[{said.pop(main).strip('[]')}]" if main in said else ""
    braces = f"{{{','.join(f'{key}={value}' for key, value in said.items())}}}" if said else ""
    return name + brackets + braces + ("" if count is None else f"*{count}")


def mixed(name: str) -> list[dict[str, Any]] | None:
    """The models of a mix, `h2`, or of one whose widths are divided, `h2/4`; None if it is no mix."""
    found = _DIVIDED.fullmatch(name)
    if found is None or found["mix"] not in mixes():
        return None
    tables = [as_table(slot) for text in mixes()[found["mix"]].models for slot in _read(text)]
    if found["by"] is None:
        return tables
    if float(found["by"]) == 0:
        raise ConfigError(f"mix {name}", expected="a divisor above 0", got=found["by"])
    return [_narrower(table, float(found["by"]), name) for table in tables]


def _tables(model: Any) -> list[dict[str, Any]]:
    return [as_table(m) for m in ([model] if isinstance(model, str | Mapping) else model)]


def _narrower(table: dict[str, Any], divisor: float, name: str) -> dict[str, Any]:
    """A model whose main setting, a width or several, is divided; halves are rounded up, and 1 is the least."""
    main = next(iter(find("models", table["name"]).parameters))
    widths = table[main] if isinstance(table[main], list) else [table[main]]
    if not all(isinstance(w, int) for w in widths):
        cure = "Divide a mix whose brackets hold widths, such as h2/4."
        raise ConfigError(f"mix {name}", expected="widths to divide", got=notation(table), cure=cure)
    less = [max(1, math.floor(w / divisor + 0.5)) for w in widths]
    return {**table, main: less if isinstance(table[main], list) else less[0]}


def _read(text: str) -> list[Any]:
    """The slots that a text stands for; a model without settings stays a name."""
    if text.strip().endswith(".toml"):
        return list(_from_file(Path(text.strip()).expanduser()))
    return [slot for piece in _pieces(text) for slot in _item(piece)]


def _item(text: str) -> Iterator[Slot]:
    """The slots of one item: a model's, or all of a mix."""
    found = _ITEM.fullmatch(text.strip())
    if found is None:
        raise ConfigError("model", expected="names with [a size], {settings} and *nodes", got=repr(text), cure=LIKE)
    name, claim = found["name"].strip(), found["nodes"]
    if claim is not None and (not claim.strip().isdecimal() or int(claim) < 1):
        raise ConfigError(f"nodes of model {name}", expected="a whole number of at least 1", got=repr(claim), cure=LIKE)
    mix = mixed(name)
    if mix is not None and found["main"] is not None:
        cure = f"Divide it ({name}/4), or name the models one by one."
        raise ConfigError(f"mix {name} stands for several models and takes no brackets", cure=cure)
    if mix is None and ":" not in name and name.replace("-", "_") not in names("models"):
        raise unknown("model or mix", name, [*names("models"), *mixes()], "`coterie list models` shows all")
    for table in mix or [{"name": name}]:
        whole: dict[str, Any] = {**table, **_main(table["name"], found["main"]), **_more(table["name"], found["more"])}
        whole |= {} if claim is None else {NODES: int(claim)}
        yield name if whole == {"name": name} else whole


def _main(name: str, text: str | None) -> dict[str, Any]:
    """The setting that brackets fill."""
    if text is None:
        return {}
    known = find("models", name).parameters
    if not known:
        raise ConfigError(f"model {name} has no setting for the brackets", got=f"[{text}]", cure=f"Write {name} alone.")
    main = next(iter(known))
    return {main: _value(known[main][0], text.strip())}


def _more(name: str, text: str | None) -> dict[str, Any]:
    """The settings in braces."""
    known, found = find("models", name).parameters if text else {}, {}
    for piece in _pieces(text or ""):
        key, equals, value = (p.strip() for p in piece.partition("="))
        if not equals:
            raise ConfigError(f"settings of model {name}", expected="{key=value,…}", got=repr(piece), cure=LIKE)
        if key not in known:
            raise unknown(f"setting of model {name}", key, known)
        found[key] = _value(known[key][0], value)
    return found


def _value(annotation: Any, text: str) -> Any:
    """A setting's text as a value of its type, in lists rather than tuples; what is none is left to be refused."""
    said = parse(annotation, [text])
    with contextlib.suppress(ValidationError):
        said = TypeAdapter(annotation).validate_python(said)
    return list(said) if isinstance(said, tuple) else said


def _pieces(text: str) -> list[str]:
    """A text cut at the commas that stand in no brackets or braces."""
    depth, found = 0, [""]
    for sign in text:
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return [piece.strip() for piece in found if piece.strip()]


def _from_file(path: Path) -> Iterator[dict[str, Any]]:
    """The models of a file that says for each node, or for several at once, which it has: `0-4 = "cnn[32,64]"`."""
    has: dict[int, Slot] = {}
    for key, said in read_toml(path, "file of models").items():
        nodes, model = numbers(key), slots(said) if isinstance(said, str) else said
        if nodes is None:
            raise ConfigError(f"{path}", expected='nodes = model, such as 0-4 = "cnn[32,64]"', got=repr(key))
        if isinstance(model, list) or NODES in as_table(model, f"{path}: nodes {key}"):
            raise ConfigError(f"{path}: nodes {key}", expected="one model, and no number of nodes", got=repr(said))
        if twice := [node for node in nodes if node in has]:
            raise ConfigError(f"{path} names node {twice[0]} twice", cure="Name each node once.")
        has |= dict.fromkeys(nodes, model)
    if missing := [node for node in range(len(has)) if node not in has]:
        raise ConfigError(f"{path} does not name node {missing[0]}", cure="Name all nodes from 0 on.")
    if not has:
        raise ConfigError(f"{path} names no node", cure='Write lines such as 0-4 = "cnn[32,64]".')
    for model, run in itertools.groupby(has[node] for node in range(len(has))):
        yield {**as_table(model), NODES: len(list(run))}


def _typed(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
