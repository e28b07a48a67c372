"""Commands that read the folders of runs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from coterie.app import formats
from coterie.app.several import architectures_of, measures_of, several
from coterie.app.terminal import console, print_paths

FOLDERS = Parameter(help="run directories", negative=())


def compare(folder: Annotated[str, Parameter(help="a run directory")], /, *more: Annotated[str, FOLDERS]) -> int:
    """One table over several runs; with another by architecture, of each run in which models differ."""
    from coterie import records
    from coterie.report.architectures import by_architecture
    from coterie.report.statistics import summary
    from coterie.report.tables import render

    screen, found = console(), summary(several([folder, *more]))
    if formats.write(found.rows(named=True)):
        return 0
    screen.print(render(found, width=screen.width))
    for each in (folder, *more):
        if (sheet := by_architecture(records.load(each), architectures_of(each), each if more else "")) is not None:
            screen.print(sheet.render())
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
    file: Annotated[str, Parameter(help="where to write it, such as model.safetensors, or records.csv with --csv")],
    /,
    *,
    csv: Annotated[bool, Parameter(help="the records, for spreadsheets and R, not a model", negative=())] = False,
    method: Annotated[str | None, Parameter(help="which method, if there are several")] = None,
    seed: Annotated[int | None, Parameter(help="which seed, if there are several")] = None,
    node: Annotated[int, Parameter(help="whose model")] = 0,
    peak: Annotated[bool, Parameter(help="the peak that a lesson kept beside the last model", negative=())] = False,
    best: Annotated[bool, Parameter(help="the best at any time, if keep_models is best", negative=())] = False,
    build: Annotated[bool, Parameter(help="run the model's own part, if that takes it", negative=())] = False,
) -> int:
    """Write a trained model of a run as named tensors, for PyTorch without Coterie; or with --csv its records."""
    if csv:
        from coterie import files, records

        frame = records.load(folder)
        kept = frame.filter(
            *([] if method is None else [frame["method"] == method]), *([] if seed is None else [frame["seed"] == seed])
        )
        with files.disk(Path(file).parent):
            files.write(Path(file), kept.write_csv().encode())
        print_paths({"records": file})
        return 0
    from coterie.runs.runner import open_run

    model = open_run(folder).models(method, seed)[node]
    said = (model.best if best else model.peak if peak else model).export(Path(file), build)
    print_paths({"model": file, "is": said["model"], "of": f"{said['method']}, seed {said['seed']}, node {node}"})
    return 0
