"""The command line. Heavy modules are imported where they are used, so that `coterie --help` answers at once."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError
from rich.console import Console

from coterie.app.convergence_view import convergence
from coterie.app.several import measures_of, several
from coterie.app.study_view import study
from coterie.app.terminal import CONTROLS, console, print_paths
from coterie.errors import ConfigError, CoterieError
from coterie.version import __version__

if TYPE_CHECKING:
    import polars as pl

    from coterie.config.configuration import Configuration
    from coterie.records import Observer

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

UP = """Run an experiment with a real peer for each node: processes of their own, real sockets, keys, mutual TLS.

Settings are those of `coterie run`, and so are the records and tables:
  coterie up my.toml --peers 8
  coterie up --peers 8 --rule dechw --rounds 30 --engine.mode async --engine.discount 0.8

Ctrl-C stops the peers; `coterie resume` goes on."""

PEER = """Be a peer on a real network: one machine, its own data, and the neighbours it knows.

For example:
  coterie peer init --name alice --listen 0.0.0.0:7001    a key, a certificate, and the card alice.peer
  coterie peer add bob.peer                               bob is a neighbour (and must add alice.peer)
  coterie peer run my.toml --data alice.npz               train with whoever is there
  coterie peer status                                     neighbours, rounds, lag, refusals
  coterie peer export model.safetensors                   the model, for plain PyTorch"""

GRAPH = """Look at a network before training on it.

For example:
  coterie graph ba --nodes 50 --m 3 --draw g.png
  coterie graph ba --nodes 200 --m 4 --estimates"""

PARTITION = """Look at how unevenly a partition deals out the data.

For example:
  coterie partition dirichlet --alpha 0.5 --nodes 20 --draw p.png"""

DYNAMICS = """Watch how averaging shrinks random weights and brings nodes together, before any training.

For example:
  coterie dynamics ba --nodes 1000 --m 8 --rounds 100 --noise 0.001 --draw d.png"""

THEORY = """Hold the bounds of theory beside the gap to the optimum, round by round, for linear models.

Settings are those of `coterie run`:
  coterie theory my.toml --methods continuous-ring,star"""

FOLDERS = Parameter(help="run directories", negative=())


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say. 0: done; 2: the user can mend it; 130: interrupted."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes are the only parallelism: on a busy machine threads wait
    try:
        return _call(tokens)
    except UnusedCliTokensError as error:
        return _complain(f"unexpected argument {(error.unused_tokens or [''])[0]!r}. `coterie --help` tells more.")
    except (CycloptsError, CoterieError) as error:
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
    app.command(_peer())
    return app([*command, *typed]) or 0


def _complain(text: str, code: int = 2) -> int:
    print(f"coterie: {CONTROLS.sub('�', ' '.join(text.split()))}", file=sys.stderr)
    return code


def _graph_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.views import graph_command

    return graph_command(tokens, GRAPH)


def _partition_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.views import partition_command

    return partition_command(tokens, PARTITION)


def _dynamics_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.dynamics_view import dynamics_command

    return dynamics_command(tokens, DYNAMICS)


def _theory_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.theory_view import theory_command

    return theory_command(tokens, THEORY)


def _show_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    from coterie.app.plan import show_command

    return show_command(tokens, show)


def _run_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    return _running(tokens, RUN)


def _up_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    """`run` with real peers: the engine is said, and nodes are called peers."""
    if any(token.partition("=")[0] == "--engine" for token in tokens):
        raise ConfigError("coterie up runs real peers", cure="For another engine use `coterie run --engine NAME`.")
    return _running(["--engine", "peer", *(re.sub(r"^--peers(?==|$)", "--nodes", token) for token in tokens)], UP)


def _running(tokens: list[str], about: str) -> tuple[Callable[..., int], list[str]]:
    from coterie.app import flags, plan
    from coterie.config.layers import layered

    tokens = [re.sub(r"^--method(?==|$)", "--methods", token) for token in tokens]
    known, base = flags.run_flags(tokens)
    where = "folder of the run (else a fresh one in runs)"
    known.insert(len(flags.OFTEN), flags.Flag("--out", ("out",), str, None, where, flags.EVERYDAY, "FOLDER"))
    typed = flags.joined(tokens, known)
    flags.check(typed, known)

    def run(file: str | None = None, **given: Any) -> int:
        settings = flags.settings(known, given, base)
        folder = settings.pop("out", None)
        experiment = layered(Path(file) if file else None, settings)
        if folder is None:
            named = next(iter(experiment.resolved)) if "rule" in settings and not experiment.methods else "default"
            folder = _fresh(Path(file).stem if file else named)
        from coterie.runs import runner

        plan.print_plan(experiment)
        return _watch(Path(folder), experiment, lambda observers: runner.run(experiment, folder, observers).records)

    file = flags.positional("file", "a TOML file with settings (else the default experiment)", None)
    return flags.command(run, about, [file], known), typed


def _fresh(name: str) -> Path:
    """The next free folder `runs/NAME-NUMBER`."""
    name = re.sub(r"[^\w.-]+", "-", name)
    taken = [int(n) for p in Path("runs").glob(f"{name}-*") if (n := p.name.removeprefix(f"{name}-")).isdigit()]
    return Path("runs") / f"{name}-{max(taken, default=0) + 1}"


def _watch(folder: Path, experiment: "Configuration", go: "Callable[[Sequence[Observer]], pl.DataFrame]") -> int:
    """Show a run while it goes on, and its results when it is done."""
    from coterie.app.progress import observers
    from coterie.config.slots import as_table
    from coterie.runs.runner import Interrupted

    screen = console()
    try:
        frame = go(observers(screen, str(folder), as_table(experiment.engine)["name"]))
    except Interrupted as error:
        return _complain(str(error), code=130)
    return _finish(screen, frame, folder)


def _finish(screen: Console, frame: "pl.DataFrame", folder: Path) -> int:
    from coterie import files, records
    from coterie.report.page import write_report
    from coterie.report.statistics import summary
    from coterie.report.tables import render

    screen.print(render(summary(frame), width=screen.width))
    with files.disk(folder):
        configuration = records.configuration_text(folder)
        measures = measures_of([folder])
        environment = records.environment(folder)
        report = write_report(frame, folder, folder.name, configuration, environment, measures=measures)
    plots = [p.name for p in sorted(folder.glob("*.png"))]
    written: dict[str, object] = {"report": report, "plots": f"{folder}/{{{','.join(plots)}}}"}
    tables = {"records": folder / "records.parquet"} | (
        {} if measures is None else {"measures": folder / records.MEASURED}
    )
    print_paths(written | tables)
    return 0


def resume(folder: Annotated[str, Parameter(help="a run directory, such as runs/default-1")], /) -> int:
    """Go on with a run that was interrupted."""
    from coterie import records
    from coterie.runs import runner

    return _watch(
        Path(folder), records.configuration(folder), lambda observers: runner.resume(folder, observers).records
    )


def compare(folder: Annotated[str, Parameter(help="a run directory")], /, *more: Annotated[str, FOLDERS]) -> int:
    """One table over several runs."""
    from coterie.report.statistics import summary
    from coterie.report.tables import render

    screen = console()
    screen.print(render(summary(several([folder, *more])), width=screen.width))
    return 0


def plot(
    folder: Annotated[str, Parameter(help="a run directory")],
    /,
    *more: Annotated[str, FOLDERS],
    out: Annotated[str | None, Parameter(help="folder for the figures (else that of the run, or plots)")] = None,
) -> int:
    """Draw the figures of one run, or of several together."""
    from coterie.files import disk
    from coterie.report.curves import plot_all
    from coterie.report.measures import plot_measures

    frame = several([folder, *more])
    where = Path(out or ("plots" if more else folder))
    with disk(where, "Choose another --out."):
        where.mkdir(parents=True, exist_ok=True)
        written = plot_all(frame, where)
        if (measures := measures_of([folder, *more])) is not None:
            written += plot_measures(measures, where)
    print_paths({path.stem.replace("_", " "): path for path in written})
    return 0


def export(
    folder: Annotated[str, Parameter(help="a run directory, such as runs/default-1")],
    file: Annotated[str, Parameter(help="where to write it, such as model.safetensors")],
    /,
    *,
    method: Annotated[str | None, Parameter(help="which method, if there are several")] = None,
    seed: Annotated[int | None, Parameter(help="which seed, if there are several")] = None,
    node: Annotated[int, Parameter(help="whose model")] = 0,
    peak: Annotated[bool, Parameter(help="the peak that a lesson kept beside the last model", negative=())] = False,
    build: Annotated[bool, Parameter(help="run the model's own part, if that takes it", negative=())] = False,
) -> int:
    """Write a trained model of a run as named tensors, for PyTorch without Coterie."""
    from coterie.runs.run import Run

    model = Run.open(folder).models(method, seed)[node]
    said = (model.peak if peak else model).export(Path(file), build)
    print_paths({"model": file, "is": said["model"], "of": f"{said['method']}, seed {said['seed']}, node {node}"})
    return 0


def list_parts(
    room: Annotated[str | None, Parameter(help="rules, topologies, partitions, …; all rooms if left out")] = None, /
) -> int:
    """List what there is to choose from."""
    from coterie.app import catalogue

    console().print(catalogue.rooms() if room is None else catalogue.inside(catalogue.room(room)))
    return 0


def show(
    room: Annotated[str, Parameter(help="rule, topology, partition, …")],
    name: Annotated[str, Parameter(help="the part's name, or file.py:Name for your own")],
    /,
) -> int:
    """Show what a part does: its equation, its settings, its paper; with --budget E a method's plan, too."""
    from coterie.app import catalogue

    console().print(catalogue.show(catalogue.room(room), name), crop=False)
    return 0


def collect(
    home: Annotated[str, Parameter(help="a peer's folder, or a copy of it")],
    /,
    *more: Annotated[str, Parameter(help="more peers' folders", negative=())],
    out: Annotated[str, Parameter(help="folder for the run that they make together")],
) -> int:
    """Bring the records of peers together as one run."""

    from coterie.peers import deployment

    frame, unfinished = deployment.collect([Path(f) for f in (home, *more)], Path(out))
    code = _finish(console(), frame, Path(out))
    for name, end in unfinished.items():
        print(f"{name} has not finished: its records end with round {end}.")
    return code


def _peer() -> App:
    """The commands of a single peer."""
    from coterie.app import peer_commands, peer_status

    app = App(name="peer", help=PEER, help_format="plaintext", sort_key=len(COMMANDS))
    for command in (
        peer_commands.init,
        peer_commands.add,
        peer_commands.run,
        peer_commands.export,
        peer_commands.remove,
        peer_commands.move,
        peer_commands.rotate,
    ):
        app.command(command)
    app.command(peer_status.status)
    return app


FLAGGED = {
    "run": _run_command,
    "up": _up_command,
    "show": _show_command,
    "graph": _graph_command,
    "partition": _partition_command,
    "dynamics": _dynamics_command,
    "theory": _theory_command,
}
"""Commands whose flags depend on the parts they name."""


def _stub(help: str) -> Callable[[], int]:
    """A command without flags in place of one that was not called, to be listed in the help."""

    def stand_in() -> int:
        raise AssertionError("made when it is called")

    stand_in.__doc__ = help
    return stand_in


COMMANDS: dict[str, Callable[..., int]] = {
    "run": _stub(RUN),
    "up": _stub(UP),
    "resume": resume,
    "compare": compare,
    "plot": plot,
    "convergence": convergence,
    "export": export,
    "list": list_parts,
    "show": show,
    "graph": _stub(GRAPH),
    "partition": _stub(PARTITION),
    "dynamics": _stub(DYNAMICS),
    "theory": _stub(THEORY),
    "study": study,
    "collect": collect,
}
