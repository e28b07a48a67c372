"""Peers in trouble: one experiment quietly, then with real peers in trouble of every kind, and what is different."""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from coterie.errors import CoterieError

sys.path[0] = str(Path(__file__).parents[1])  # the folder that this package is in, and not the package
from chaos.plan import Plan  # noqa: E402
from chaos.scenario import run  # noqa: E402


@contextlib.contextmanager
def _elsewhere(path: Path) -> Iterator[None]:
    """What all processes write to stderr goes to a file: peers warn of every refusal."""
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def main() -> int:
    """Print what was found; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--plain", action="store_true", help="do without namespaces and mounts, as who is not root must"
    )
    parser.add_argument("--out", type=Path, help="a new folder to keep all logs and records in")
    args = parser.parse_args()
    folder = args.out or Path(tempfile.mkdtemp(prefix="coterie-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    console, plan = Console(), Plan(seed=args.seed, plain=args.plain)
    console.print(f"{plan.nodes} peers, {plan.rounds} rounds: this takes a few minutes", highlight=False)
    try:
        with _elsewhere(folder / "stderr.txt"):
            found = run(plan, folder, lambda text: console.print(text, highlight=False))
    except CoterieError as error:
        console.print(f"The run itself failed: {error}\nAll logs are in {folder}.", style="red", markup=False)
        return 1
    table = Table("what must be true", "", "found", title=f"chaos, seed {plan.seed}")
    for check in found:
        table.add_row(check.what, "[green]yes[/]" if check.fine else "[bold red]no[/]", check.found)
    console.print(table)
    wrong = [check for check in found if not check.fine]
    for check in wrong:
        console.print(f"Not true that {check.what}: {check.found}", style="red", markup=False)
    if wrong:
        console.print(f"All logs are in {folder}.", markup=False)
    elif args.out is None:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
