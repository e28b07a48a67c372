"""Build the documentation site: docs/ as it is, and a reference of all parts and of Python made from docstrings."""

import argparse
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from coterie import methods
from coterie.app.catalogue import ABOUT, METHODS, SINGULAR
from coterie.app.flags import EMPTY, kind_of, shown
from coterie.config.slots import EXTRAS, SLOTS
from coterie.parts import Part, find, names

ROOT = Path(__file__).parents[1]
PUBLIC = {
    "coterie": "Experiments, runs, and going on with them",
    "coterie.contract": "What a rule may know and must say",
    "coterie.protocols": "What a protocol yields",
    "coterie.lessons": "What a lesson is handed",
    "coterie.records": "Reading what a run left",
    "coterie.records.nodes": "Who takes part",
    "coterie.report.statistics": "Means, intervals, characteristic times",
    "coterie.network.graph": "Networks",
    "coterie.errors": "Errors",
}
"""The modules of the Python reference."""


def part_page(room: str) -> str:
    """The reference of a room: every part with its sentence, equation, settings and paper."""
    pieces = [f"# {room.capitalize()}", f"{ABOUT[room][0].upper()}{ABOUT[room][1:]}."]
    for name in methods.names() if room == METHODS else names(room):
        pieces += [f"## {name}", *(method(name) if room == METHODS else part(find(room, name)))]
    return "\n\n".join(pieces) + "\n"


def method(name: str) -> Iterator[str]:
    """A method: what it is, its settings, its paper."""
    summary, reference = methods.describe(name)
    text = (methods.FOLDER / f"{name}.toml").read_text("utf-8")
    yield plain(summary)
    settings = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")).strip()
    yield f"```toml\n{settings}\n```"
    if reference:
        yield f"*{plain(reference)}*"


def part(one: Part) -> Iterator[str]:
    """A part: its sentence, what its docstring says more, its settings, its paper."""
    yield plain(one.summary)
    for paragraph in one.body.split("\n\n") if one.body else []:
        yield f"```text\n{paragraph}\n```" if paragraph.startswith(" ") else plain(paragraph)
    slot = next((s for s, r in SLOTS.items() if r == one.room), None)
    rows = []
    for key, (annotation, default) in (one.parameters | EXTRAS.get(slot or "", {})).items():
        flag = f"--{slot}.{key.replace('_', '-')}" if slot else key
        value = "required" if default is EMPTY else shown(default) or "none"
        rows.append(f"| `{flag}` | {cell(kind_of(annotation))} | {cell(value)} |")
    if rows:
        yield "\n".join(["| setting | type | default |", "| :-- | :-- | :-- |", *rows])
    if one.reference:
        yield f"*{plain(one.reference)}*"
    yield f"`coterie show {SINGULAR[one.room]} {one.name}`"


def python_page() -> str:
    """The reference of Python, from signatures and docstrings."""
    pieces = ["# Python"]
    for name, about in PUBLIC.items():
        module = import_module(name)
        pieces += [f"## {name}", f"{about}."]
        for thing, value in public(module):
            pieces += [f"### {thing}", f"```python\n{signature(thing, value)}\n```", doc(value)]
            for inner, member in members(value):
                pieces += [f"**`{signature(inner, member)}`**  ", doc(member)]
    return "\n\n".join(filter(None, pieces)) + "\n"


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Classes and functions that a module offers, in its order."""
    for name in getattr(module, "__all__", None) or vars(module):
        value = getattr(module, name)
        mine = hasattr(module, "__all__") or getattr(value, "__module__", "") == module.__name__
        if mine and not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """The public methods of a class."""
    for name, member in vars(value).items() if inspect.isclass(value) else ():
        plain_member = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and inspect.isfunction(plain_member):
            yield name, plain_member


def signature(name: str, value: Any) -> str:
    """How it is called."""
    try:
        said = str(inspect.signature(value))
    except (ValueError, TypeError):
        said = ""
    said = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>", "…", said)
    return f"{'class ' if inspect.isclass(value) else ''}{name}{said}"


def doc(value: Any) -> str:
    """A docstring in Markdown; what is indented in it is set as it stands."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(f"```text\n{p}\n```" if p.startswith(" ") else plain(p) for p in paragraphs)


def plain(text: str) -> str:
    """Text that Markdown takes for nothing else; what stands in backticks stays."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_\[\]<])", r"\\\1", p) for p in pieces)


def cell(text: str) -> str:
    """Text in a cell of a table."""
    return f"`{text}`".replace("|", r"\|")


def anchored(text: str) -> str:
    """A page whose headings have the anchors that links in it name: those that a forge gives them."""
    lines, code, seen = [], False, Counter[str]()
    for line in text.splitlines():
        code ^= line.startswith("```")
        if not code and (heading := re.match(r"#+ (.*)", line)):
            words = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            seen[words] += 1
            line += f" {{#{words}{f'-{seen[words] - 1}' if seen[words] > 1 else ''}}}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def write_pages(pages: Path) -> None:
    """All pages of the site."""
    shutil.copytree(ROOT / "docs", pages)
    shutil.copy(ROOT / "site" / "index.md", pages)
    for page in pages.rglob("*.md"):
        page.write_text(anchored(page.read_text("utf-8")), "utf-8")
    (pages / "reference").mkdir()
    for room in ABOUT:
        (pages / "reference" / f"{room}.md").write_text(part_page(room), "utf-8")
    (pages / "reference" / "python.md").write_text(python_page(), "utf-8")


def write_settings(folder: Path) -> None:
    """The settings of the site, with every room and every study's results."""
    parts = "\n".join(f'    {{ "{room.capitalize()}" = "reference/{room}.md" }},' for room in ABOUT)
    found = sorted(p.parent.name for p in (ROOT / "docs" / "results").glob("*/README.md"))
    results = "\n".join(f'    {{ "{name.capitalize()}" = "results/{name}/README.md" }},' for name in found)
    text = (ROOT / "site" / "zensical.toml").read_text("utf-8")
    (folder / "zensical.toml").write_text(text.replace("PARTS", parts).replace("RESULTS", results), "utf-8")


def main() -> int:
    """Build the site; a link that leads nowhere is an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write_pages(out / "pages")
    write_settings(out)
    bare = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=out, env=bare, check=False)
    if not done.returncode:
        print(f"written to {out / 'html' / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
