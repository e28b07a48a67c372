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
    assert len(list(SOURCE.glob("*.py"))) <= 12


@pytest.mark.parametrize("name", sorted(MODULES - {"coterie"}))
def test_rooms_import_only_rooms_above_them(name: str) -> None:
    place = ORDER.index(room(name))
    against = [m for m in IMPORTS[name] if room(m) != room(name) and (m == "coterie" or ORDER.index(room(m)) > place)]
    assert not against


@pytest.mark.parametrize("path", FILES, ids=module)
def test_private_names_stay_in_their_room(path: Path) -> None:
    """Also those in files that are not private."""
    found = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coterie.")
        for alias in node.names
        if alias.name.startswith("_") and room(node.module or "") != room(module(path))
    ]
    assert [name for name in found if not name.endswith("__")] == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_private_files_stay_private(name: str) -> None:
    private = [m for m in IMPORTS[name] if any(part.startswith("_") for part in m.split(".")) and room(m) != room(name)]
    assert not private


def private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def defined(path: Path) -> Iterator[str]:
    """The private names that a file gives to classes, functions and attributes."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


INSIDE = {name for path in FILES for name in defined(path) if private(name) and not name.endswith("_")}


def inner_names(path: Path) -> Iterator[str]:
    """What a file outside takes of Coterie's private modules and names: imported, as `thing._name`, or patched."""
    modules: dict[str, str] = {}
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "coterie":
            wholes = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            modules |= {name: whole for name, whole in wholes.items() if whole in MODULES}
            yield from filter(private, wholes.values())
        elif isinstance(node, ast.Import):
            found = {a.asname or a.name: a.name for a in node.names if a.name.partition(".")[0] == "coterie"}
            modules |= found
            yield from filter(private, found.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            thing = ast.unparse(node.value)
            if thing in modules or (node.attr in INSIDE and thing not in ("self", "cls")):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            where, what = (*map(ast.unparse, node.args), "", "")[:2]
            name = f"{modules[where]}.{what[1:-1]}" if where in modules else where[1:-1]
            if name.startswith("coterie.") and private(name):
                yield name
            elif what[1:-1] in INSIDE:
                yield f"{where}.{what[1:-1]}"


OUTSIDE = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_and_benchmarks_come_through_the_public_door(path: Path) -> None:
    assert [*inner_names(path)] == []


def test_a_look_inside_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "looks.py").write_text(
        "import coterie.net.wire as wire\nfrom coterie import files\nfrom coterie.rules import aligned as rule\n"
        "from coterie.partitions._deal import fill\nfrom coterie.report.words import _accuracy\n"
        "files._system_error\nwire._x(1)\nself._own\nrule.public\n"
        "monkeypatch.setattr(files, '_system_error', 1)\nmonkeypatch.setattr('coterie.files._y', 1)\n"
        "monkeypatch.setattr(files, 'write', 1)\nmonkeypatch.setattr(other, '_z', 1)\n"
        "os._exit(1)\npeer._restore()\nself._restore()\nmonkeypatch.setattr(Peer, '_restore', 1)\n"
    )
    assert {*inner_names(tmp_path / "looks.py")} == {
        "coterie.partitions._deal.fill",
        "coterie.report.words._accuracy",
        "coterie.files._system_error",
        "coterie.files._y",
        "files._system_error",
        "wire._x",
        "peer._restore",
        "Peer._restore",
    }


def test_there_are_no_import_cycles() -> None:
    graph = nx.DiGraph([(name, m) for name, found in IMPORTS.items() for m in found if m != name])
    assert [sorted(knot) for knot in nx.strongly_connected_components(graph) if len(knot) > 1] == []


ONCE = {
    r"\bforkserver\b": ["processes.py"],
    r"\bPupil\(": ["node/student.py"],
    r"\bClassroom\(": ["node/student.py"],
    r"isinstance\(session": [],
}
"""What is made in one place, or nowhere."""


@pytest.mark.parametrize("pattern", ONCE)
def test_what_stands_once_stands_once(pattern: str) -> None:
    found = [p for p in FILES if re.search(pattern, "\n".join(_code(p)))]
    assert [str(p.relative_to(SOURCE)) for p in found] == ONCE[pattern]


BASES = {"Rule", "Protocol", "Lesson", "Topology", "Metric", "Optimiser", "Engine", "Session", "Workers", "Models"}
"""Classes that state what others may count on, with a default where there can be one."""
OTHERS = {
    "getattr(annotation, 'room', None)",  # any annotation, of which those that are parts have a room
    "getattr(observer, 'close', None)",  # an observer need have none
    "getattr(getattr(self.function, 'func', self.function), 'size', None)",  # a user's function
}


def promises() -> Iterator[str]:
    """The names of all that these classes state."""
    for path in FILES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name in BASES:
                for part in node.body:
                    match part:
                        case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                            yield name


PROMISED = {name for name in promises() if not name.startswith("_")}


@pytest.mark.parametrize("path", FILES, ids=module)
def test_nobody_asks_whether_a_promise_is_kept(path: Path) -> None:
    """What a part does not say, its base class does."""
    assert {"counts_epochs", "validated", "observes", "keeps", "gain_exponent", "estimates", "each"} <= PROMISED
    asked = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr")
        if isinstance(node.args[1], ast.Constant) and node.args[1].value in PROMISED
    ]
    assert [call for call in asked if call not in OTHERS] == []


def test_the_scheduler_touches_no_model() -> None:
    """It knows rows and bundles by number; whoever looks into them stands behind `Models` and `Workers`."""
    text = (SOURCE / "engines" / "_scheduler.py").read_text("utf-8")
    assert not re.search(r"\btorch\b|\.matrix\b(?!\()|\bTensor\b|\.fields\b|\.groups\[g\]\.(matrix|state)", text)


def test_what_judges_models_knows_what_an_answer_means() -> None:
    """That is, metrics and objectives do: no node asks which class a model says, or whether it says one."""
    asking = [p.name for p in (SOURCE / "node").glob("*.py") if re.search(r"\bargmax\b", p.read_text("utf-8"))]
    assert asking == []


@pytest.mark.parametrize("path", sorted((SOURCE / "trackers").glob("*.py")), ids=lambda path: path.stem)
def test_an_observer_is_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 100


def _code(path: Path) -> Iterator[str]:
    """The lines of a file that define no class of these names."""
    return (line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith(("class ", "def ")))


def test_files_are_short() -> None:
    lines = {str(p.relative_to(SOURCE)): len(p.read_text("utf-8").splitlines()) for p in FILES}
    assert {name: count for name, count in lines.items() if count > 400} == {}


def test_lines_of_the_design_wrap() -> None:
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.S | re.M).splitlines()
    assert [line for line in prose if len(line) > 120 and not line.startswith("|")] == []


def public_names(path: Path) -> Iterator[tuple[str, str]]:
    """The classes and types that a file gives a name to, each with its definition; parts are named by their files."""
    part = path.stem.replace("_", "")
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                if name[0].isupper() and not name.isupper() and name.lower() != part:
                    yield name, ast.unparse(node)


def test_a_name_means_one_thing() -> None:
    meanings: dict[str, dict[str, str]] = {}
    for path in FILES:
        for name, definition in public_names(path):
            meanings.setdefault(name, {}).setdefault(definition, str(path.relative_to(SOURCE)))
    assert {name: [*found.values()] for name, found in meanings.items() if len(found) > 1} == {}


def test_few_types_are_ignored() -> None:
    ignored = {str(p.relative_to(SOURCE)): p.read_text("utf-8").count("type: ignore") for p in FILES}
    assert ignored["config/build.py"] == 0
    assert sum(ignored.values()) <= 6, {name: count for name, count in ignored.items() if count}
