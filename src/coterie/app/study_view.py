"""The command that carries out a study and shows its tables and figures."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from coterie.app.terminal import console, print_paths
from coterie.app.watch_commands import watched


def study(
    name: Annotated[str | None, Parameter(help="the study; left out, all are listed")] = None,
    /,
    *,
    figure: Annotated[list[str] | None, Parameter(help="only these figures: 3a,4", negative=())] = None,
    table: Annotated[list[str] | None, Parameter(help="only these tables: II,IV", negative=())] = None,
    scale: Annotated[
        str,
        Parameter(
            help="smoke (minutes), laptop (an hour or so), paper (the paper's own sizes), full (some cells of that)"
        ),
    ] = "laptop",
    only: Annotated[
        list[str] | None,
        Parameter(help="only these runs (at the scale full cells) and methods: mnist,dechw", negative=()),
    ] = None,
    seeds: Annotated[str | None, Parameter(help="0-4, or 0,2,5 (else those of the scale)")] = None,
    jobs: Annotated[int, Parameter(help="runs at a time (0: one for each core)")] = 0,
    out: Annotated[str | None, Parameter(help="folder (else studies/NAME-SCALE)")] = None,
    data_dir: Annotated[
        str | None, Parameter(help="folder with data sets (else COTERIE_DATA, the cache, or a download)")
    ] = None,
    watch: Annotated[bool, Parameter(help="serve a page that shows its runs, meanwhile", negative=())] = False,
    engine: Annotated[
        Literal["local", "cluster"], Parameter(help="cluster: runs go to the machines of a Ray cluster")
    ] = "local",
    address: Annotated[
        str, Parameter(name="--engine.address", help="HOST:PORT of the Ray cluster (else the one here)")
    ] = "",
    gpus: Annotated[float, Parameter(name="--engine.gpus", help="GPUs of each run there")] = 0.0,
) -> int:
    """Compute the tables and figures of a paper.

    For example:
      coterie study                                          what there is
      coterie study initialisation --scale smoke
      coterie study initialisation --figure 3a,4 --seeds 0-4
      coterie study dechw --scale full --only dechw,decdiff-vt
      coterie study dechw --scale paper --engine cluster --engine.address head:6379

    Runs are kept by their settings: the same command goes on where it was.
    """
    if name is None:
        from coterie.app import catalogue

        console().print(catalogue.inside("studies"))
        return 0
    from coterie.app.progress import Tasks
    from coterie.config.configuration import Configuration
    from coterie.engines.cluster import Cluster
    from coterie.errors import ConfigError
    from coterie.report.sheets import Sheet
    from coterie.runs.study import conduct
    from coterie.runs.study_order import Order
    from coterie.runs.study_pages import heading, write_page

    over = Cluster(address, gpus=gpus) if engine == "cluster" else None
    if over is None and (address or gpus):
        raise ConfigError("--engine.address and --engine.gpus are of the cluster engine", cure="Add --engine cluster.")
    named = Configuration(seeds=seeds).seeds if seeds else None
    order = Order(name, scale, _listed(figure), _listed(table), _listed(only), named, data_dir, jobs, over)
    folder, screen = Path(out or f"studies/{name}-{scale}"), console()
    try:
        with watched(watch, [folder], "folder"):
            for label, exhibit, shown in conduct(order, folder, [Tasks(screen)]):
                screen.print(f"\n{heading(label, exhibit)}", style="bold")
                for item in shown:
                    if isinstance(item, Path):
                        print_paths({"drawn to": item})
                    else:
                        screen.print(item.render() if isinstance(item, Sheet) else item)
    except KeyboardInterrupt:
        write_page(order, folder)
        print("coterie: interrupted. The same command goes on.", file=sys.stderr)
        return 130
    print_paths({"page": write_page(order, folder)})
    return 0


def _listed(given: list[str] | None) -> list[str]:
    return [piece.strip() for text in given or () for piece in text.split(",") if piece.strip()]
