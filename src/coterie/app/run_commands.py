"""Commands that start a run, go on with one, or bring one together."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from coterie.app import formats
from coterie.app.several import measures_of
from coterie.app.terminal import complain, console, print_paths
from coterie.app.watch_commands import watched
from coterie.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from coterie.config.configuration import Configuration
    from coterie.records import Observer

RUN = """Run an experiment: a file, flags, or both.

A TOML file and flags say the same things, and flags win:
  coterie run
  coterie run my.toml --rounds 100 --seeds 0-4 --out runs/x
  coterie run --rule dechw --rule.theta 30 --topology ba --topology.m 3
  coterie run --rule ./mine.py:Median --model mlp --model.sizes 64,32
  coterie run --methods isolation,dechw --dechw.rule.theta 30

What belongs to a part is written with a dot, and so is what is for one method alone; naming a rule asks for that one
method."""

UP = """Run an experiment with a real peer for each node: processes of their own, real sockets, keys, mutual TLS.

Settings are those of `coterie run`, and so are the records and tables:
  coterie up my.toml --peers 8
  coterie up --peers 8 --rule dechw --rounds 30 --engine.mode async --engine.discount 0.8

Ctrl-C stops the peers; `coterie resume` goes on."""


def run_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    return _running(tokens, RUN)


def up_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    """`run` with real peers: the engine is said, and nodes are called peers."""
    if any(token.partition("=")[0] == "--engine" for token in tokens):
        raise ConfigError("coterie up runs real peers", cure="For another engine use `coterie run --engine NAME`.")
    return _running(["--engine", "peer", *(re.sub(r"^--peers(?==|$)", "--nodes", token) for token in tokens)], UP)


def _running(tokens: list[str], about: str) -> tuple[Callable[..., int], list[str]]:
    from coterie.app import flags, plan
    from coterie.app.run_flags import OFTEN, run_flags
    from coterie.config.layers import layered

    tokens = [re.sub(r"^--method(?==|$)", "--methods", token) for token in tokens]
    known, base = run_flags(tokens)
    where = "folder of the run (else a fresh one in runs)"
    known.insert(len(OFTEN), flags.Flag("--out", ("out",), str, None, where, flags.EVERYDAY, "FOLDER"))
    shown = "serve a page that shows it, meanwhile"
    known.insert(len(OFTEN) + 1, flags.Flag("--watch", ("watch",), bool, False, shown, flags.EVERYDAY))
    typed = flags.joined(tokens, known)
    flags.check(typed, known)

    def run(file: str | None = None, **given: Any) -> int:
        settings = flags.settings(known, given, base)
        folder, watch = settings.pop("out", None), bool(settings.pop("watch", False))
        experiment = layered(Path(file) if file else None, settings)
        if folder is None:
            named = next(iter(experiment.resolved)) if "rule" in settings and not experiment.methods else "default"
            folder = _fresh(Path(file).stem if file else named)
        from coterie.runs import runner

        if _follows(experiment):
            return 0
        if _begun_again(experiment, Path(folder)):
            return resume(str(folder), watch=watch)
        plan.print_plan(experiment)
        with watched(watch, [Path(folder)]):
            return _watch(Path(folder), experiment, lambda observers: runner.run(experiment, folder, observers).records)

    file = flags.positional("file", "a TOML file with settings (else the default experiment)", None)
    return flags.command(run, about, [file], known), typed


def _follows(experiment: "Configuration") -> bool:
    """Be a worker of another process and no more, if torchrun has started this one to be that."""
    from coterie.config.slots import as_table

    if "RANK" not in os.environ or as_table(experiment.engine)["name"] != "cluster":
        return False
    from coterie.engines import cluster

    if not cluster.follower():
        return False
    cluster.follow()
    return True


def _begun_again(experiment: "Configuration", folder: Path) -> bool:
    """Whether torchrun has started all processes anew, and there is a run to go on with."""
    from coterie.config.slots import as_table

    if "RANK" not in os.environ or as_table(experiment.engine)["name"] != "cluster":
        return False
    from coterie.engines import cluster

    return cluster.begun_again() and (folder / "config.toml").is_file()


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
        return complain(str(error), code=130)
    return _finish(screen, frame, folder)


def _finish(screen: Console, frame: "pl.DataFrame", folder: Path) -> int:
    from coterie import files, records
    from coterie.page.single import write_page
    from coterie.report.figures import write_figures
    from coterie.report.statistics import summary
    from coterie.report.tables import render

    found = summary(frame)
    if not formats.write([{**row, "folder": str(folder)} for row in found.rows(named=True)]):
        screen.print(render(found, width=screen.width))
    with files.disk(folder):
        measures = measures_of([folder])
        write_figures(frame, folder, measures=measures)
    report = write_page([folder], folder / "report.html")
    plots = [p.name for p in sorted(folder.glob("*.png"))]
    written: dict[str, object] = {"report": report, "plots": f"{folder}/{{{','.join(plots)}}}"}
    tables = {"records": folder / "records.parquet"} | (
        {} if measures is None else {"measures": folder / records.MEASURED}
    )
    print_paths(written | tables)
    return 0


def resume(
    folder: Annotated[str, Parameter(help="a run directory, such as runs/default-1")],
    /,
    *,
    watch: Annotated[bool, Parameter(help="serve a page that shows it, meanwhile", negative=())] = False,
) -> int:
    """Go on with a run that was interrupted."""
    from coterie import records
    from coterie.runs import runner

    experiment = records.configuration(folder)
    if _follows(experiment):
        return 0
    with watched(watch, [Path(folder)]):
        return _watch(Path(folder), experiment, lambda observers: runner.resume(folder, observers).records)


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
    if not formats.asked:
        print_paths(_each(frame, deployment.names(Path(out))))
    for name, end in unfinished.items():
        console().print(f"{name} has not finished: its records end with round {end}.", soft_wrap=True)
    return code


def _each(frame: "pl.DataFrame", names: dict[int, str]) -> dict[str, str]:
    """How each peer was judged last, as it said itself: its name, and the first metric on its test data."""
    metric = next(column for column in frame.columns if column.startswith("test_"))
    last = frame.filter(frame[metric].is_not_null()).group_by("node", maintain_order=True).last()
    return {
        names[row["node"]]: f"test {metric.removeprefix('test_')} {row[metric]:.3f} at round {row['round']}"
        for row in last.sort("node").iter_rows(named=True)
    }
