"""The catalogue of parts: rooms, the parts in them, and the documentation of each part."""

import re
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from coterie import methods
from coterie.parts import ROOMS, Part, described, names, singular, unknown

if TYPE_CHECKING:
    from coterie.models import Mix

METHODS = "methods"
ABOUT = {**ROOMS, METHODS: "whole methods, each a small composition of parts"}
SINGULAR = {room: singular(room) for room in ABOUT}


def room(name: str) -> str:
    """The room of this name, in the singular or the plural."""
    found = [r for r, one in SINGULAR.items() if name.lower() in (r, one)]
    if not found:
        raise unknown("room", name, ABOUT)
    return found[0]


def rooms() -> RenderableType:
    """A table of all rooms and what they decide."""
    table = _grid(max(map(len, ABOUT)))
    for name, about in ABOUT.items():
        table.add_row(name, about, Text(str(len(_names(name))), style="dim"))
    return Group(table, Text("\ncoterie list ROOM shows what is in one.", style="dim"))


def inside(where: str) -> RenderableType:
    """A table of all parts in a room, and of the mixes of models."""
    together = _mixes() if where == "models" else {}
    table, mixed = (_grid(max(map(len, [*_names(where), *together]))) for _ in range(2))
    for name in _names(where):
        if where == METHODS:
            summary, reference = methods.describe(name)
        else:
            summary, reference = described(where, name)
        table.add_row(name, Text(summary), Text(brief(reference), style="dim"))
    for name, mix in together.items():
        mixed.add_row(name, Text(mix.summary), Text(brief(mix.reference), style="dim"))
    more: list[RenderableType] = []
    if together:
        more = [Text("\nMixes, spread over the nodes; NAME/4 is one with widths divided by 4:"), mixed]
    return Group(table, *more, Text(f"\ncoterie show {SINGULAR[where]} NAME tells all of one.", style="dim"))


def rows(where: str | None) -> list[dict[str, Any]]:
    """The parts of a room, or all rooms, as rows."""
    if where is None:
        return [{"room": name, "about": about, "parts": len(_names(name))} for name, about in ABOUT.items()]
    told = [methods.describe(n) if where == METHODS else described(where, n) for n in _names(where)]
    return [
        {"name": name, "summary": summary, "reference": reference}
        for name, (summary, reference) in zip(_names(where), told, strict=True)
    ]


def about(where: str, name: str) -> dict[str, Any]:
    """A part or a method, with its settings and their defaults."""
    if where == METHODS:
        summary, reference = methods.describe(name)
        return {"name": name, "summary": summary, "settings": methods.load(name), "reference": reference}
    from coterie.app.flags import EMPTY, kind_of, load

    part = load(where, name)
    known = [] if where == "studies" else part.parameters.items()
    settings = {
        key: {"type": kind_of(annotation), **({} if default is EMPTY else {"default": default})}
        for key, (annotation, default) in known
    }
    told = {"name": part.name, "summary": part.summary, "body": part.body}
    return {**told, "settings": settings, "reference": part.reference}


def show(where: str, name: str) -> RenderableType:
    """The documentation of a part, a method or a mix of models: equation, settings, reference."""
    if where == METHODS:
        summary, reference = methods.describe(name)
        text = (methods.FOLDER / f"{name}.toml").read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return _sheet(f"method {name}", summary, "\n".join(f"    {li}" for li in lines), None, reference)
    from coterie.app.flags import load
    from coterie.config.spread import mixed, notation

    if where == "models" and (models := mixed(name)) is not None:
        mix = _mixes()[name.partition("/")[0]]
        return _sheet(f"mix {name}", mix.summary, "\n".join(f"    {notation(m)}" for m in models), None, mix.reference)
    part = load(where, name)
    table = _exhibits(part) if where == "studies" else _parameters(part)
    return _sheet(f"{SINGULAR[where]} {part.name}", part.summary, part.body, table, part.reference)


def brief(reference: str) -> str:
    """A reference cut to its authors and year: `Yin et al., 2018`."""
    first, *others = [piece.strip() for piece in reference.split(",")]
    # after a lone surname, a lone word is another author and not a title
    several = len(others) > 2 and len(first.split()) == len(others[0].split()) == 1
    years = re.findall(r"\b(?:19|20)\d\d\b", reference.partition(";")[0])
    return ", ".join(filter(None, [f"{first} et al." if several else first, years[-1] if years else ""]))


def _sheet(title: str, summary: str, body: str, settings: RenderableType | None, reference: str) -> RenderableType:
    pieces: list[RenderableType] = [Text(title, style="bold"), Text(summary)]
    for paragraph in body.split("\n\n") if body else []:
        # an equation is shown as it was written, words are set anew, and so is each item of a list
        equation = paragraph.startswith(" ")
        words = [paragraph] if equation else [" ".join(item.split()) for item in re.split(r"\n(?=- )", paragraph)]
        pieces += [Text(""), *(Text(w, no_wrap=equation, overflow="ignore" if equation else "fold") for w in words)]
    pieces += [Text(""), settings] if settings else []
    pieces += [Text(f"\n{reference}", style="dim")] if reference else []
    return Group(*pieces)


def _exhibits(part: Part) -> RenderableType:
    """A table of a study's exhibits, and how many runs each takes on a laptop."""
    table = Table("exhibit", "what it shows", "runs (laptop)", box=None, padding=(0, 3, 0, 0), header_style="dim")
    for label, exhibit in part.make()("laptop").items():
        runs = sum(len(run.seeds) * max(1, len(run.methods)) for run in exhibit.runs.values())
        table.add_row(label, exhibit.title, str(runs or ""))
    return table


def _parameters(part: Part) -> RenderableType | None:
    from coterie.app.flags import EMPTY, kind_of, shown
    from coterie.config.slots import EXTRAS, SLOTS

    slot = next((s for s, r in SLOTS.items() if r == part.room), None)
    found = part.parameters | EXTRAS.get(slot or "", {})
    if not found:
        return None
    table = Table("setting", "type", "default", box=None, padding=(0, 3, 0, 0), header_style="dim")
    for key, (annotation, default) in found.items():
        flag = f"--{slot}.{key.replace('_', '-')}" if slot else key
        table.add_row(flag, kind_of(annotation), "required" if default is EMPTY else shown(default) or "none")
    return table


def _mixes() -> "dict[str, Mix]":
    from coterie.models import mixes

    return mixes()


def _names(where: str) -> list[str]:
    return methods.names() if where == METHODS else list(names(where))


def _grid(width: int) -> Table:
    """A table of name, summary and reference; the summary is cut where there is no room for all."""
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="bold", no_wrap=True, min_width=width)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=22)
    return table
