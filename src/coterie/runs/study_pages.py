"""Pages of a study: each exhibit as Markdown, and all of them together."""

import contextlib
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import polars as pl

from coterie import files, records
from coterie.parts import find
from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit, Results, Shown
from coterie.runs.study_order import AGAIN, Order
from coterie.version import __version__


def heading(label: str, exhibit: Exhibit) -> str:
    """What an exhibit is called: `Table II: accuracy at the last round`."""
    return f"{label[:1].upper()}{label[1:]}: {exhibit.title}"


def write_exhibit(out: Path, label: str, exhibit: Exhibit, shown: Sequence[Shown], cost: str) -> Path:
    """An exhibit as Markdown, for the page of its study."""
    about = " ".join(filter(None, [exhibit.scaled, cost]))
    pieces = [f"## {heading(label, exhibit)}", *([f"*{about}*"] if about else [])]
    path = out / f"{label.replace(' ', '-')}.md"
    with files.disk(out, AGAIN):
        files.write(path, "\n\n".join([*pieces, *(_markdown(item, out) for item in shown)]).encode() + b"\n")
    return path


def write_page(order: Order, out: Path) -> Path:
    """One page of all exhibits that have been shown so far in this folder, in the order of the study."""
    part, here = find("studies", order.study), records.environment_here()
    seeds = "" if order.seeds is None else f" --seeds {','.join(map(str, order.seeds))}"
    only = f" --only {shlex.quote(','.join(order.only))}" if order.only else ""
    command = f"coterie study {order.study} --scale {order.scale}{only}{seeds}"
    made = f"Made by `{command}` with Coterie {_version()} and PyTorch {here['torch']} on {here['cores']} cores."
    head = "\n\n".join(filter(None, [f"# {part.summary}", f"{part.reference}." if part.reference else "", made]))
    found = [
        out / f"{label.replace(' ', '-')}.md" for label in replace(order, figures=(), tables=(), only=()).exhibits()
    ]
    path = out / "README.md"
    with files.disk(out, AGAIN):
        pages = [page.read_text("utf-8").rstrip() for page in found if page.is_file()]
        files.write(path, "\n\n".join([head, *pages]).encode() + b"\n")
    return path


def cost(results: Results) -> str:
    """What the runs of an exhibit took, in words."""
    if not results.records:
        return ""
    frames = [f.with_columns(run=pl.lit(run)) for run, f in results.records.items()]
    whole = pl.concat(frames, how="diagonal")  # runs may be judged by different metrics
    last = whole.filter(pl.col("round") == pl.col("round").max().over("run", "method", "seed"))
    seconds = float(last.select(pl.sum_horizontal("train_seconds", "merge_seconds", "evaluate_seconds").sum()).item())
    tasks, seeds = last.select("run", "method", "seed").n_unique(), last["seed"].n_unique()
    took = f"{seconds / 60:.0f} core-minutes" if seconds >= 90 else f"{seconds:.0f} core-seconds"
    return f"{tasks} runs with {seeds} seed{'s' * (seeds > 1)}, {took}."


def _markdown(item: Shown, out: Path) -> str:
    if isinstance(item, Sheet):
        return item.markdown().rstrip()
    return f"![{item.stem}]({quote(str(item.relative_to(out)))})" if isinstance(item, Path) else item


def _version() -> str:
    """The version, with the commit if this is run from Coterie's own sources."""
    here = Path(__file__).resolve()
    root = here.parents[2]
    asked = ["git", "-C", str(root), "ls-files", "--error-unmatch", str(here)]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        subprocess.run(asked, capture_output=True, check=True)  # the sources themselves are under version control
        found = subprocess.run([*asked[:3], "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        return f"{__version__} ({found.stdout.strip()})"
    return __version__
