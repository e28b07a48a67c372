"""The house keeps its order: rooms know only rooms above them, and nobody looks into another's private files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "coterie"
PAGE = (ROOT / "docs" / "design.md").read_text("utf-8")
HOUSE = re.search(r"^## The house\n.*?```\n(.*?)```", PAGE, re.S | re.M)
assert HOUSE
ORDER = [room for line in HOUSE[1].splitlines() for room in re.findall(r"(\w+)(?:/|\.py)(?=\s|$)", line)]
FILES = sorted(p for p in SOURCE.rglob("*.py") if "_pb2" not in p.name)


def module(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(p) for p in FILES}


def imported(path: Path) -> Iterator[str]:
    """Every module of Coterie that a file imports, also lazily or for types only."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "coterie":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module or ""
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] == "coterie")


IMPORTS = {module(p): sorted({*imported(p)}) for p in FILES}


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def test_every_room_is_in_the_house() -> None:
    assert {room(m) for m in MODULES} - {""} <= set(ORDER)
    assert len(list(SOURCE.glob("*.py"))) <= 10


@pytest.mark.parametrize("name", sorted(MODULES - {"coterie"}))
def test_arrows_point_up(name: str) -> None:
    place = ORDER.index(room(name))
    against = [m for m in IMPORTS[name] if room(m) != room(name) and (m == "coterie" or ORDER.index(room(m)) > place)]
    assert not against


@pytest.mark.parametrize("name", sorted(MODULES))
def test_private_files_stay_private(name: str) -> None:
    private = [m for m in IMPORTS[name] if any(part.startswith("_") for part in m.split(".")) and room(m) != room(name)]
    assert not private


def test_there_is_no_knot() -> None:
    graph = nx.DiGraph([(name, m) for name, found in IMPORTS.items() for m in found if m != name])
    assert [sorted(knot) for knot in nx.strongly_connected_components(graph) if len(knot) > 1] == []


ONCE = {
    r"\bforkserver\b": ["processes.py"],
    r"\bPupil\(": ["node/student.py"],
    r"\bClassroom\(": ["node/student.py"],
    r"isinstance\(session": [],
    r"(getattr|hasattr)\((self\.)?(job\.)?(protocol|lesson|topology|engine|session)\b, \"": [],
}
"""What is made in one place, or nowhere."""


@pytest.mark.parametrize("pattern", ONCE)
def test_what_stands_once_stands_once(pattern: str) -> None:
    found = [p for p in FILES if re.search(pattern, "\n".join(_code(p)))]
    assert [str(p.relative_to(SOURCE)) for p in found] == ONCE[pattern]


def _code(path: Path) -> Iterator[str]:
    """The lines of a file that define no class of these names."""
    return (line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith(("class ", "def ")))


def test_few_types_are_ignored() -> None:
    ignored = {str(p.relative_to(SOURCE)): p.read_text("utf-8").count("type: ignore") for p in FILES}
    assert ignored["config/build.py"] == 0
    assert sum(ignored.values()) <= 12, {name: count for name, count in ignored.items() if count}
