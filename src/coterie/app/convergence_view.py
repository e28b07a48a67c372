"""The command that tells when training has converged."""

from typing import Annotated, Literal

from cyclopts import Parameter

from coterie.app.several import measures_of
from coterie.app.terminal import console
from coterie.errors import RunError


def convergence(
    folder: Annotated[str, Parameter(help="a run directory")],
    /,
    *more: Annotated[str, Parameter(help="run directories", negative=())],
    by: Annotated[
        Literal["client", "round"] | None, Parameter(help="(else by client where a model walks, by round elsewhere)")
    ] = None,
    factor: Annotated[float, Parameter(help="slope: this share of the starting loss over all epochs")] = 0.6,
    window: Annotated[int, Parameter(help="epochs of which the mean loss is taken")] = 5,
    patience: Annotated[int, Parameter(help="epochs in a row that must be flat")] = 5,
    guard: Annotated[float, Parameter(help="share of the starting loss that it must have fallen below")] = 0.9,
    relative: Annotated[bool, Parameter(help="measure slopes by the loss itself, not by the starting one")] = False,
) -> int:
    """Tell at which epoch the validation loss of each client, or in each round, has become flat.

    It needs the losses of all epochs:
      coterie run my.toml --measures epochs --out runs/x
      coterie convergence runs/x
    """
    from coterie.report.convergence import Flatness, convergence_sheets
    from coterie.report.convergence import convergence as found

    rule = Flatness(factor, window, patience, guard, relative)
    measures = measures_of([folder, *more])
    if measures is None:
        cure = "Run it with --measures epochs."
        raise RunError(f"{folder} has no measures", expected="losses of all epochs", cure=cure)
    for sheet in convergence_sheets(found(measures, by, rule)):
        console().print(sheet.render())
    return 0
