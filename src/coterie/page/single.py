"""The page as one file with its data inside, to be kept, mailed, and opened with no network."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from coterie import files
from coterie.page import STATIC
from coterie.page.job import confusion, job_view, links_view, matrix
from coterie.page.overview import View, job_id, overview
from coterie.page.run import RunReader
from coterie.page.shown import Shown

NUMBERS = 400_000
"""How many values of nodes are written into the page at most; of more, rounds and then seeds are left out."""
FEWEST = 12
"""Rounds below which seeds are left out instead."""
ROOT = "app.js"
IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w.]+)";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:const|class|function|async function) (\w+))", re.M)


def write_page(folders: Sequence[Path], path: Path) -> Path:
    """Write the page of some runs into one file."""
    readers = Shown(folders).readers()
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.disk(path.parent):
        files.write(path, page({"overview": overview(readers), "jobs": _jobs(readers)}).encode())
    return path


def page(data: View) -> str:
    """The page with its data, styles and scripts inside; nothing else is allowed to run in it."""
    text = (STATIC / "index.html").read_text("utf-8")
    style, chart, own = _text("style.css"), _text("echarts.min.js"), bundle()
    icon = base64.b64encode(_text("icon.svg").encode()).decode()
    policy = (
        f"default-src 'none'; script-src {_hash(chart)} {_hash(own)}; style-src {_hash(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    charset = '<meta charset="utf-8">'
    inside = {
        charset: f'{charset}\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
        'href="static/icon.svg"': f'href="data:image/svg+xml;base64,{icon}"',
        '<link rel="stylesheet" href="static/style.css">': f"<style>{style}</style>",
        '<script src="static/echarts.min.js"></script>': (
            f'<script type="application/json" id="data">{embedded(data)}</script>\n<script>{chart}</script>'
        ),
        '<script type="module" src="static/app.js"></script>': f'<script type="module">{own}</script>',
    }
    for there, put in inside.items():
        before, found, after = text.partition(there)
        assert found, there
        text = before + put + after
    return text


def embedded(data: View) -> str:
    """JSON that ends no script element, whatever names are in it."""
    said = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return said.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def bundle() -> str:
    """Our modules as one script: each a function that gives what it exports, those it imports before it."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        text = _text(name)
        for _, needed in IMPORT.findall(text):
            if needed not in done:
                add(needed)
        names = ", ".join(EXPORT.findall(text))
        body = EXPORT.sub("", IMPORT.sub(r'const { \1 } = modules["\2"];' + "\n", text))
        done[name] = f'modules["{name}"] = (() => {{\n{body}return {{ {names} }};\n}})();\n'

    add(ROOT)
    return "const modules = {};\n" + "".join(done.values())


def _text(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _jobs(readers: Sequence[RunReader]) -> dict[str, View]:
    """What is shown of single jobs, the first seeds first, as long as there is room."""
    order = sorted(
        (
            (reader, key)
            for reader in readers
            for key in reader.jobs
            if reader.jobs[key].round or reader.jobs[key].rounds
        ),
        key=lambda one: sorted(seed for method, seed in one[0].jobs if method == one[1][0]).index(one[1][1]),
    )
    views = {job_id(reader, key): (reader, key, job_view(reader, key)) for reader, key in order}
    found: dict[str, View] = {}
    room = NUMBERS
    for place, (name, (reader, key, view)) in enumerate(views.items()):
        wide = max(view["nodes"] * len(view["columns"]), 1)
        share = max(room // max(len(views) - place, 1), min(room, FEWEST * wide))
        if found and share < FEWEST * wide:
            break
        cells = max(share // max(len(view["columns"]), 1), 8 * view["nodes"])
        columns = {column: matrix(reader, key, column, cells) for column in view["columns"]}
        rounds: list[int] = next((each["rounds"] for each in columns.values()), [])
        room -= len(rounds) * wide
        links = {number: links_view(reader, key, number) for number in rounds[-1:] + rounds[:-1]}
        found[name] = {
            "view": view,
            "rounds": rounds,
            "columns": {column: each["values"] for column, each in columns.items()},
            "links": _kept(links, wide),
            "confusion": confusion(reader, key) if room > 0 else {},
        }
    return found


def _kept(links: dict[int, View], wide: int) -> dict[str, View]:
    """What went where, of the last round and of as many others as do not outweigh the values."""
    kept: dict[str, View] = {}
    left = 40 * wide + 20_000
    for number, view in links.items():
        left -= 2 * len(view["sources"] or ()) + 2 * len(view["down"]) + 3 * len(view["ages"]["links"])
        if left < 0 and kept:
            break
        kept[str(number)] = view
    return kept
