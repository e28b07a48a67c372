"""An experiment as a person says it: defaults, a file, and flags, one over the other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie import methods as presets
from coterie.config.configuration import DEFAULT, Configuration, by_name, layers_of, merge, nodes_of, read
from coterie.config.slots import SLOTS, as_table
from coterie.errors import ConfigError


def layered(file: Path | None, flags: Mapping[str, Any], sweeps: bool = False) -> Configuration:
    """Settings from defaults, then the file, then the flags; a rule named by a flag asks for that one method alone.

    Flags that set something of a part without naming it go over the methods, if all of them name that part; and a
    network that is named goes over theirs, if all of them have the same, since it would be for nobody else. What they
    say for one method, which is under `alone` by its name, goes over that.
    """
    flags = dict(flags)
    alone: Mapping[str, Mapping[str, Any]] = flags.pop("alone", {})
    base = read(DEFAULT) if file is None else read(file)
    if base.pop("sweep", None) is not None and not sweeps:
        raise ConfigError(f"{file} describes a sweep", cure=f"`coterie sweep {file}` carries it out.")
    if "name" in as_table(flags.get("rule", {})) and "methods" not in flags:
        base.pop("methods", None)
    methods = flags.get("methods", base.get("methods", {}))
    common = common_parts(methods)
    tables = {slot: t for slot, t in flags.items() if slot in common and isinstance(t, Mapping)}
    over = {slot: t for slot, t in tables.items() if slot == "topology" or "name" not in t}
    settings = merge(base, {key: value for key, value in flags.items() if key not in over})
    if "nodes" not in flags and (count := nodes_of(flags.get("topology"))):
        settings["nodes"] = count  # a network that is named says it, whatever the file had for another
    if over:
        settings["methods"] = {name: merge(own, over) for name, own in by_name(methods).items()}
    said = flags.get("rounds", None if file is None else base.get("rounds"))
    if said is not None and settings.get("methods"):
        above = "rounds" in flags
        settings["methods"] = {n: _with_rounds(n, own, said, above) for n, own in by_name(settings["methods"]).items()}
    if alone:
        each = by_name(settings["methods"])
        settings["methods"] = {n: merge(own, alone[n]) if n in alone else own for n, own in each.items()}
    return Configuration(**settings)


AGREED = {"name": "agreed", "base": "default"}
"""Where peers start unless they are told: where PyTorch would, but all from one number that they agree on."""


def for_peers(file: Path) -> Configuration:
    """A file's experiment as peers on machines of their own train it: from an agreed start, unless it says another."""
    return layered(file, {} if "initialiser" in read(file) else {"initialiser": AGREED})


def common_parts(methods: Any) -> dict[str, dict[str, Any]]:
    """The parts that all of these methods name themselves, by slot, each with the settings that they agree on."""
    named = by_name(methods)
    if not isinstance(named, Mapping) or not all(isinstance(own, Mapping) for own in named.values()):
        return {}  # the experiment will say what is wrong with it
    said = [merge(*layers_of(name, own)) for name, own in named.items()]
    found: dict[str, dict[str, Any]] = {}
    for slot in SLOTS if said else ():
        tables = [as_table(each.get(slot, {})) for each in said if not isinstance(each.get(slot), list)]
        if len(tables) == len(said):
            agreed = {key: value for key, value in tables[0].items() if all(t.get(key) == value for t in tables)}
            found |= {slot: agreed} if "name" in agreed else {}
    return found


def _with_rounds(name: str, own: Mapping[str, Any], rounds: Any, above: bool) -> dict[str, Any]:
    """A method's settings with the rounds that were said, instead of a preset's, and if `above` also of its table's."""
    preset = own.get("use", name)
    has_some = preset in presets.names() and "rounds" in presets.load(preset)
    if ("rounds" in own and above) or ("rounds" not in own and has_some):
        return {**own, "rounds": rounds}
    return dict(own)
