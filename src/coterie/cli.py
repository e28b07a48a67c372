"""The command line. Heavy modules are imported where they are used, so that `coterie --help` answers at once."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coterie import __version__
from coterie.errors import CoterieError

if TYPE_CHECKING:
    import polars as pl

    from coterie.flags import Flag
    from coterie.runner import Display

HELP = """Decentralised federated learning on any graph, with no server.

For example:
  coterie run                                      the default experiment
  coterie run --rule dechw --topology ba --nodes 50
  coterie run my.toml --rounds 100 --seeds 0-4
  coterie list rules                               what there is to choose from
"""

RUN = """Run an experiment: a file, flags, or both.

A TOML file and flags say the same things, and flags win:
  coterie run
  coterie run my.toml --rounds 100 --seeds 0-4 --out runs/x
  coterie run --rule dechw --rule.theta 30 --topology ba --topology.m 3
  coterie run --rule ./mine.py:Median --model mlp --model.sizes 64,32
  coterie run --methods isolation,dechw

What belongs to a part is written with a dot; naming a rule asks for that one method alone."""

GRAPH = """Look at a network before training on it.

For example:
  coterie graph ba --nodes 50 --m 3 --draw g.png"""

PARTITION = """Look at how unevenly a partition deals out the data.

For example:
  coterie partition dirichlet --alpha 0.5 --nodes 20 --draw p.png"""

FOLDERS = Parameter(help="run directories", negative=())


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say. 0: done; 2: the user can mend it; 130: interrupted."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    try:
        return _call(tokens)
    except CycloptsError as error:
        return _complain(" ".join(str(error).split()))
    except CoterieError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return _complain("interrupted", code=130)
    except BrokenPipeError:  # the reader has seen enough, as in `coterie list rules | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _complain(f"{error.strerror or error}{where}")


def _call(tokens: list[str]) -> int:
    app = App(
        name="coterie",
        help=HELP,
        version=__version__,
        help_format="plaintext",
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    command, rest = tokens[:1], tokens[1:]
    made, typed = FLAGGED[command[0]](rest) if command and command[0] in FLAGGED else (None, rest)
    for place, (name, function) in enumerate(COMMANDS.items()):
        chosen = made if made and name == command[0] else function
        app.command(chosen, name=name, sort_key=place)
    return app([*command, *typed]) or 0


def _complain(text: str, code: int = 2) -> int:
    print(f"coterie: {text}", file=sys.stderr)
    return code


def _console() -> Console:
    """The terminal as wide as it is; a file or a pipe as if it had 100 columns."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 100
    return console


def _run_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie import flags
    from coterie.experiment import layered

    known, base = flags.run_flags(tokens)
    out = flags.Flag(
        "--out", ("out",), str, None, "folder of the run (else a fresh one in runs)", flags.EVERYDAY, "FOLDER"
    )
    known.insert(len(flags.OFTEN), out)
    typed = flags.joined(tokens, known)
    flags.check(typed, known)

    def run(file: str | None = None, **given: Any) -> int:
        settings = flags.settings(known, given, base)
        folder = settings.pop("out", None)
        experiment = layered(Path(file) if file else None, settings)
        if folder is None:
            named = next(iter(experiment.resolved)) if "rule" in settings and not experiment.methods else "default"
            folder = _fresh(Path(file).stem if file else named)
        from coterie import runner

        return _watch(Path(folder), lambda display: runner.run(experiment, folder, display))

    file = _positional("file", "a TOML file with settings (else the default experiment)", None)
    return _made(run, RUN, [file], known), typed


def _graph_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie import flags

    own = [
        flags.Flag("--nodes", ("nodes",), int, 20, "how many nodes", flags.EVERYDAY),
        flags.Flag("--seed", ("seed",), int, 0, "which draw", flags.EVERYDAY),
        flags.Flag("--draw", ("draw",), str, None, "picture to write (png, pdf or svg)", flags.EVERYDAY, "FILE"),
    ]
    known, typed = _about("topology", tokens, own)

    def graph(family: str, **given: Any) -> int:
        from coterie.experiment import Experiment
        from coterie.report.network import describe, draw_graph
        from coterie.world import network

        settings = flags.settings(known, given, {})
        seed, picture = int(_whole("seed", settings.pop("seed", 0))), settings.pop("draw", None)
        topology = {"name": family, **settings.pop("topology", {})}
        (experiment,) = Experiment(**settings, topology=topology).resolved.values()
        drawn = network(experiment, seed)
        _print_facts(describe(drawn))
        if picture:
            draw_graph(drawn, picture)
            _console().print(f"drawn to {picture}", soft_wrap=True)
        return 0

    return _made(graph, GRAPH, [_positional("family", "a topology: " + _choices("topologies"))], known), typed


def _partition_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie import flags
    from coterie.experiment import Experiment

    fields = {f.path[0]: f for f in flags.experiment_flags({})}
    own = [
        *(fields[key] for key in ("nodes", "dataset", "data_dir", "items", "total")),
        flags.Flag("--seed", ("seed",), int, 0, "which draw", flags.EVERYDAY),
        flags.Flag("--draw", ("draw",), str, None, "bubble chart to write (png, pdf or svg)", flags.EVERYDAY, "FILE"),
    ]
    known, typed = _about("partition", tokens, own)
    dataset = flags.spoken(typed, "--dataset") or str(Experiment.model_fields["dataset"].default)
    known += flags.part_flags("dataset", flags.load("dataset", dataset), {}, order=1)
    flags.check(typed, known)

    def partition(scheme: str, **given: Any) -> int:
        from coterie import skew
        from coterie.partitions import split
        from coterie.report.allocation import draw_allocation
        from coterie.slots import as_table, choice
        from coterie.world import load_samples

        settings = flags.settings(known, given, {})
        seed, picture = int(_whole("seed", settings.pop("seed", 0))), settings.pop("draw", None)
        chosen = {"name": scheme, **settings.pop("partition", {})}
        (experiment,) = Experiment(**settings, partition=chosen).resolved.values()
        samples = load_samples(experiment)
        labels = samples.train_y.numpy()
        deal = choice("partition", as_table(experiment.partition)).make()
        limits: Any = {"items": experiment.items, "total": experiment.total}
        pairs = split(deal, labels, experiment.nodes, seed, validation=0.0, **limits)
        counts = skew.counts(labels, [train for train, _ in pairs], samples.classes)
        _print_facts({key.replace("_", " "): value for key, value in skew.describe(counts).items()})
        if picture:
            Path(picture).parent.mkdir(parents=True, exist_ok=True)
            draw_allocation(counts, picture, f"{scheme}, {experiment.nodes} nodes, {dataset}, seed {seed}")
            _console().print(f"drawn to {picture}", soft_wrap=True)
        return 0

    return _made(partition, PARTITION, [_positional("scheme", "a partition: " + _choices("partitions"))], known), typed


def _about(slot: str, tokens: list[str], own: "list[Flag]") -> "tuple[list[Flag], list[str]]":
    """The flags of a command about one part, which the first word names, and the arguments as cyclopts takes them."""
    from coterie import flags

    name = flags.first_word(flags.joined(tokens, own), own)
    known = own + (flags.part_flags(slot, flags.load(slot, name), {}, own=[f.name for f in own]) if name else [])
    return known, flags.joined(tokens, known)


def _made(
    function: Callable[..., int], help: str, positional: list[inspect.Parameter], known: "list[Flag]"
) -> Callable[..., int]:
    """The function as a command with these flags."""
    from coterie.flags import signature

    whole = signature(positional, known)
    function.__doc__ = help
    function.__signature__ = whole  # type: ignore[attr-defined]
    function.__annotations__ = {name: p.annotation for name, p in whole.parameters.items()}
    return function


def _positional(name: str, help: str, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    annotation = Annotated[str, Parameter(help=help, show_default=False)]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, default=default, annotation=annotation)


def _choices(room: str) -> str:
    from coterie.parts import names

    return ", ".join(names(room))


def _whole(name: str, value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise CoterieError(name, expected="a whole number", got=repr(value)) from None


def _fresh(name: str) -> Path:
    """The next numbered folder of this name in `runs`."""
    name = re.sub(r"[^\w.-]+", "-", name)
    taken = [int(n) for p in Path("runs").glob(f"{name}-*") if (n := p.name.removeprefix(f"{name}-")).isdigit()]
    return Path("runs") / f"{name}-{max(taken, default=0) + 1}"


def _watch(folder: Path, go: "Callable[[Display], pl.DataFrame]") -> int:
    """Show a run while it goes on, and its results when it is done."""
    from coterie.progress import display
    from coterie.runner import Interrupted

    console = _console()
    shown = display(console)
    console.print(Text(f"writing to {folder}", style="dim"), soft_wrap=True)
    try:
        frame = go(shown)
    except Interrupted as error:
        shown.end()
        return _complain(str(error), code=130)
    finally:
        shown.end()
    return _finish(console, frame, folder)


def _finish(console: Console, frame: "pl.DataFrame", folder: Path) -> int:
    from coterie import records
    from coterie.report.page import write_report
    from coterie.report.statistics import summary
    from coterie.report.tables import render

    console.print(render(summary(frame), width=console.width))
    with records.disk(folder):
        configuration = records.configuration(folder).to_toml()
        report = write_report(frame, folder, folder.name, configuration, records.environment(folder))
    plots = [p.name for p in sorted(folder.glob("*.png"))]
    _print_paths({"report": report, "plots": f"{folder}/{{{','.join(plots)}}}", "records": folder / "records.parquet"})
    return 0


def resume(folder: Annotated[str, Parameter(help="a run directory, such as runs/default-1")], /) -> int:
    """Go on with a run that was interrupted."""
    from coterie import records, runner

    records.configuration(folder)
    return _watch(Path(folder), lambda display: runner.resume(folder, display))


def compare(folder: Annotated[str, Parameter(help="a run directory")], /, *more: Annotated[str, FOLDERS]) -> int:
    """One table over several runs."""
    from coterie.report.statistics import summary
    from coterie.report.tables import render

    console = _console()
    console.print(render(summary(_several([folder, *more])), width=console.width))
    return 0


def plot(
    folder: Annotated[str, Parameter(help="a run directory")],
    /,
    *more: Annotated[str, FOLDERS],
    out: Annotated[str | None, Parameter(help="folder for the figures (else that of the run, or plots)")] = None,
) -> int:
    """Draw the figures of one run, or of several together."""
    from coterie.records import disk
    from coterie.report.curves import plot_all

    frame = _several([folder, *more])
    where = Path(out or ("plots" if more else folder))
    with disk(where):
        where.mkdir(parents=True, exist_ok=True)
        written = plot_all(frame, where)
    _print_paths({path.stem.replace("_", " "): path for path in written})
    return 0


def _several(folders: Sequence[str]) -> "pl.DataFrame":
    """The records of some runs; each is called by its folder's name, or by its path where names coincide."""
    from coterie import records
    from coterie.report.statistics import label_runs

    names = [Path(f).resolve().name for f in folders]
    labels = names if len(set(names)) == len(names) else folders
    return label_runs({label: records.load(folder) for label, folder in zip(labels, folders, strict=True)})


def list_parts(
    room: Annotated[str | None, Parameter(help="rules, topologies, partitions, …; all rooms if left out")] = None, /
) -> int:
    """List what there is to choose from."""
    from coterie import catalogue

    _console().print(catalogue.rooms() if room is None else catalogue.inside(catalogue.room(room)))
    return 0


def show(
    room: Annotated[str, Parameter(help="rule, topology, partition, …")],
    name: Annotated[str, Parameter(help="the part's name, or file.py:Name for your own")],
    /,
) -> int:
    """Show what a part does: its equation, its settings, its paper."""
    from coterie import catalogue

    _console().print(catalogue.show(catalogue.room(room), name), crop=False)
    return 0


def _print_facts(facts: dict[str, Any]) -> None:
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        table.add_row(Text(name, style="dim"), f"{value:.4g}" if isinstance(value, float) else _word(value))
    _console().print(table)


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value:,}"


def _print_paths(paths: dict[str, Any]) -> None:
    console, width = _console(), max(map(len, paths), default=0)
    for name, path in paths.items():
        console.print(Text(f"{name:<{width}}  ", style="dim") + Text(str(path), style="default"), soft_wrap=True)


FLAGGED = {"run": _run_command, "graph": _graph_command, "partition": _partition_command}
"""Commands whose flags depend on the parts they name."""


def _stub(help: str) -> Callable[[], int]:
    """Stands for a command whose flags nobody has asked for."""

    def stand_in() -> int:
        raise AssertionError("made when it is called")

    stand_in.__doc__ = help
    return stand_in


COMMANDS: dict[str, Callable[..., int]] = {
    "run": _stub(RUN),
    "resume": resume,
    "compare": compare,
    "plot": plot,
    "list": list_parts,
    "show": show,
    "graph": _stub(GRAPH),
    "partition": _stub(PARTITION),
}
