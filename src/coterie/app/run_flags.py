"""Flags of an experiment: of its fields, and of the parts that a file and the other arguments name.

Nothing is listed here but what stands first: a new field has its flag because it exists.
"""

import difflib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cyclopts import Group

from coterie.app.flags import (
    EVERYDAY,
    FINER,
    PARTS,
    Flag,
    dashed,
    first_word,
    joined,
    load,
    models,
    part_flags,
    spoken,
)
from coterie.config.configuration import DEFAULT, Configuration, by_name, layers_of, merge, read
from coterie.config.layers import common_parts
from coterie.config.slots import SLOTS
from coterie.errors import ConfigError
from coterie.parts import names

OFTEN = (
    "nodes",
    "rounds",
    "epochs",
    "batches",
    "budget",
    "batch_size",
    "lr",
    "momentum",
    "items",
    "seeds",
    "methods",
    "data_dir",
)
ALIASES = {"model": "--models"}
"""Other names of flags."""
SHORT = ("lr", "momentum")
"""Settings of the optimiser that have a short name."""
METAVARS = {
    "seeds": "SEEDS",
    "evaluate": "ROUNDS",
    "methods": "NAMES",
    "metrics": "NAMES",
    "augment": "NAMES",
    "data_dir": "FOLDER",
    "joins": "NODE:ROUND,…",
    "leaves": "NODE:ROUND,…",
    "work": "NODE:EPOCHS,…",
}


def experiment_flags(base: Mapping[str, Any]) -> list[Flag]:
    """A flag for every field of an experiment; defaults are those of `base`, a configuration file."""
    found = []
    for key, field in Configuration.model_fields.items():
        default = base.get(key, field.default)
        text, metavar, group = field.description or "", METAVARS.get(key, ""), EVERYDAY if key in OFTEN else FINER
        if key in SLOTS:
            text, metavar, group = f"{text}: {', '.join(names(SLOTS[key]))}", "NAME", PARTS
            default = ", ".join(_named(default))
        elif key == "methods":
            default = ", ".join(default)
        elif isinstance(default, Mapping):
            default = ",".join(f"{node}:{round}" for node, round in default.items())
        found.append(Flag(dashed(key), (key,), field.annotation, default, text, group, metavar, ALIASES.get(key, "")))
    return sorted(found, key=lambda flag: OFTEN.index(flag.path[0]) if flag.path[0] in OFTEN else len(OFTEN))


def run_flags(tokens: Sequence[str]) -> tuple[list[Flag], dict[str, Any]]:
    """All flags that make sense with the file and the parts that these arguments name, and what the file says.

    Where all methods name a part themselves, flags are of that one, and the file is as if it said so, too.
    """
    file = configuration_file(tokens)
    base = read(DEFAULT if file is None else file)
    typed = joined(tokens, experiment_flags(base))
    methods: Any = spoken(typed, "--methods") or ({} if spoken(typed, "--rule") else base.get("methods", {}))
    unnamed = {s: table for s, table in common_parts(methods).items() if not spoken(typed, f"--{s}")}
    base, each = {**base, **unnamed}, by_name(methods)
    if not isinstance(each, Mapping) or not all(isinstance(own, Mapping) for own in each.values()):
        return _flags(base, typed), base  # the experiment will say what is wrong with it
    _refuse_what_some_lack(each, base, typed)
    return [*_flags(base, typed), *_of_single_methods(each, base, typed)], base


def _flags(base: Mapping[str, Any], typed: Sequence[str]) -> list[Flag]:
    """The flags of an experiment and of its parts, as the settings below and these arguments name them."""
    flags = experiment_flags(base)
    for order, slot in enumerate(SLOTS):
        default = Configuration.model_fields[slot].default
        below = base.get(slot, default)
        if not isinstance(below, str | Mapping | list):
            raise ConfigError(slot, expected="a name, or a table with a name", got=repr(below))
        above = spoken(typed, f"--{slot}")
        several = models(above) if above and slot == "model" else above
        chosen = _named(several or below) or _named(default)
        if len(chosen) == 1:
            flags = [replace(f, part=chosen[0]) if f.path == (slot,) else f for f in flags]
            given = below if isinstance(below, Mapping) and _named(below) == chosen else {}
            if slot == "optimiser" and _named(below) == chosen:
                given = {**given, **{short: base[short] for short in SHORT if short in base}}
            flags += part_flags(slot, load(SLOTS[slot], chosen[0]), given, order, typed=typed)
    return flags


def configuration_file(tokens: Sequence[str]) -> Path | None:
    """The file among the arguments of `run`."""
    typed = joined(tokens, experiment_flags({}))
    files = [(b, t) for b, t in itertools.pairwise(["", *typed]) if t.endswith(".toml") and not t.startswith("-")]
    named = [file for before, file in files if before != "--model"]  # that one tells which node has which model
    word = named[0] if named else first_word(typed, experiment_flags({}))
    return None if word is None else Path(word)


def _named(value: Any) -> list[str]:
    """The names of the parts in a slot; none where the value cannot be one (the experiment will say so)."""
    if isinstance(value, str):
        return [value.strip()]
    if isinstance(value, Mapping):
        return [str(value["name"])] if "name" in value else []
    return [name for v in value for name in _named(v)] if isinstance(value, list | tuple) else []


def _refuse_what_some_lack(each: Mapping[str, Any], base: Mapping[str, Any], typed: Sequence[str]) -> None:
    """Refuse a part's setting that some methods have and others have not, and tell how one method is given it."""
    words = [w.partition("=")[0] for w in typed if w.partition(".")[0].removeprefix("--") in SLOTS and "." in w]
    if len(each) < 2 or not words:
        return
    has = {m: {f.name for f in _flags(merge(base, merge(*layers_of(m, own))), typed)} for m, own in each.items()}
    for word in words:
        with_it = [m for m, names in has.items() if word in names]
        if with_it and len(with_it) < len(each):
            without = next(m for m in each if m not in with_it)
            cure = f"Say it for one method alone: --{with_it[0]}.{word.removeprefix('--')}."
            raise ConfigError(f"unknown setting {word} of method {without}", cure=cure)


def _of_single_methods(each: Mapping[str, Any], base: Mapping[str, Any], typed: Sequence[str]) -> list[Flag]:
    """Those that are typed for one method alone: `--dfml.protocol.lesson.epochs`, `--dec-fedavg.epochs`."""
    found = list[Flag]()
    for order, (method, own) in enumerate(each.items()):
        head, group = f"--{method.replace('_', '-')}.", Group(f"method {method}", sort_key=50 + order)
        words = {word.partition("=")[0] for word in typed if word.startswith(head)}
        if not words or method in SLOTS:
            continue
        known = _flags(merge(base, merge(*layers_of(method, own))), _said_for(head, words, typed))
        flags = {name: flag for flag in known for name in (flag.name, flag.alias) if name}
        for word in sorted(words):
            plain = f"--{word.removeprefix(head)}"
            if plain not in flags:
                near = difflib.get_close_matches(plain, flags, n=1, cutoff=0.6)
                cure = f"Did you mean {head}{near[0][2:]}?" if near else f"`coterie show method {method}` tells more."
                raise ConfigError(f"unknown setting {word} of method {method}", cure=cure)
            found.append(replace(flags[plain], name=word, alias="", group=group, method=method))
    return found


def _said_for(head: str, words: set[str], typed: Sequence[str]) -> list[str]:
    """The arguments as if what is said for one method alone were all that is said of it."""
    other = {f"--{word.removeprefix(head)}" for word in words}
    passed = ["" if word.partition("=")[0] in other else word for word in typed]
    return [f"--{word.removeprefix(head)}" if word.startswith(head) else word for word in passed]
