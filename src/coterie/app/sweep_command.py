"""The command that runs an experiment for every combination of some settings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coterie.app import flags, formats
from coterie.app.run_flags import run_flags
from coterie.app.terminal import complain, console, print_paths
from coterie.config import grid as grids
from coterie.config.configuration import Configuration, merge, read
from coterie.config.layers import layered
from coterie.config.slots import as_table

SWEEP = """Run an experiment for every combination of some settings, and show a table of what came.

For example:
  coterie sweep my.toml --grid partition.alpha=0.1,0.5 --grid rule=decavg,dechw --seeds 0-2
  coterie sweep my.toml                       what the table [sweep] of the file says
  coterie sweep my.toml --cluster slurm --cluster-settings slurm_partition=long,cpus_per_task=4

Runs are kept by their settings: the same command goes on where it was, and a larger grid runs what is new."""

OWN = {
    "--grid": ("a setting and its values, such as partition.alpha=0.1,0.5; may be repeated", "SETTING=VALUES"),
    "--jobs": ("runs at a time (0: one for each core)", "INT"),
    "--metric": ("what the table and the curves show (else accuracy)", "NAME"),
    "--cluster": ("run each as a job: slurm, or local to try it (needs coterie[slurm])", "NAME"),
    "--cluster-settings": ("what submitit is told, such as slurm_partition=long,timeout_min=60", "NAME=VALUE,…"),
    "--out": ("folder (else sweeps/NAME)", "FOLDER"),
}
"""What the command has beside the flags of `run`."""


def sweep_command(tokens: list[str]) -> tuple[Callable[..., int], list[str]]:
    """The command `sweep` for these arguments, and the arguments as cyclopts takes them."""
    given, rest = _apart(tokens)
    known, base = run_flags(rest)
    typed = flags.joined(rest, known)
    flags.check(typed, known)

    def sweep(file: str | None = None, **said: Any) -> int:
        from coterie.app.progress import Tasks
        from coterie.runs.sweep import TABLE, SweepOrder, combined, sweep

        path = Path(file) if file else None
        in_file = grids.written(read(path).get("sweep", {})) if path else {}
        settings = flags.settings(known, said, base)

        def made(cell: dict[str, Any]) -> Configuration:
            named = {key: of_default(key, value) for key, value in cell.items()}
            return layered(path, merge(settings, named), sweeps=True)

        def of_default(slot: str, value: Any) -> Any:
            """Settings of a part that nobody names are those of the default one."""
            unnamed = isinstance(value, dict) and "name" not in value and not {slot} & {*settings, *base}
            return {**as_table(Configuration.model_fields[slot].default), **value} if unnamed else value

        pieces = [piece for text in given["--cluster-settings"] for piece in text.split(",") if piece]
        order = SweepOrder(
            combined({**in_file, **grids.typed(given["--grid"])}, made),
            metric=_last(given, "--metric", "accuracy"),
            jobs=flags.whole("--jobs", _last(given, "--jobs", "0")),
            cluster=_last(given, "--cluster", ""),
            cluster_settings={key: values[0] for key, values in grids.typed(pieces).items()},
        )
        folder = Path(_last(given, "--out", f"sweeps/{path.stem if path else 'default'}"))
        screen = console()
        try:
            swept = sweep(order, folder, [Tasks(screen)])
        except KeyboardInterrupt:
            return complain("interrupted. What is done is kept, and the same command goes on.", code=130)
        if not formats.write(swept.table().rows(named=True)):
            screen.print(swept.pivot().render())
        kinds = {"table": "md", "csv": "csv", "latex": "tex"}
        print_paths({name: folder / f"{TABLE}.{ending}" for name, ending in kinds.items()})
        print_paths({"curves": folder / "curves.png"})
        return 0

    word = flags.positional("file", "a TOML file with settings (else the default experiment)", None)
    own = [flags.Flag(name, (name,), str, None, help, flags.EVERYDAY, kind) for name, (help, kind) in OWN.items()]
    return flags.command(sweep, SWEEP, [word], [*known, *own]), typed


def _last(given: dict[str, list[str]], name: str, default: str) -> str:
    return given[name][-1] if given[name] else default


def _apart(tokens: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The command's own flags with what was typed for them, and all other arguments."""
    own: dict[str, list[str]] = {name: [] for name in OWN}
    rest, words = list[str](), list(tokens)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name not in own:
            rest.append(word)
        elif equals or words:
            own[name].append(value if equals else words.pop(0))
        else:
            rest.append(word)  # cyclopts says that its value is missing
    return own, rest
