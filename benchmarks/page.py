"""The page of a long run: how long it takes to open, and what following costs the one who computes."""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from coterie import records
from coterie.page.shown import Shown
from coterie.page.single import write_page
from coterie.records import nodes
from coterie.runs.experiment import Experiment
from coterie.topologies.ring import Ring

METHODS = ("decavg", "dechw", "decdiff-vt", "isolation", "cfa")


def write_run(folder: Path, count: int, rounds: int, seeds: int) -> None:
    """A run of this size in which every round was evaluated, without its training."""
    records.RunFolder(folder).create(Experiment(nodes=count, rounds=rounds, topology="ring"))
    draws = np.random.default_rng(0)
    whole = []
    jobs = [(m, s) for m in METHODS for s in range(seeds)]
    network = Ring().draw(count, draws)
    told = {
        "node": range(count),
        "architecture": ["mlp"] * count,
        "samples": [100] * count,
        "labels": [[10] * 10] * count,
        "neighbours": [network.neighbours(i).tolist() for i in range(count)],
        "weights": [[1.0] * len(network.neighbours(i)) for i in range(count)],
    }
    with (folder / "journal.jsonl").open("w") as journal:

        def tell(name: str, **said: object) -> None:
            journal.write(json.dumps({"event": name, "time": time.time(), **said}) + "\n")

        tell("begin", jobs=jobs, left=jobs, rounds=rounds)
        for method, seed in jobs:
            numbers = {
                name: draws.random(count * (rounds + 1)) for name in records.schema() if name[:4] in ("test", "cons")
            }
            own = pl.DataFrame(
                {
                    "round": np.repeat(np.arange(rounds + 1), count),
                    "node": np.tile(np.arange(count), rounds + 1),
                    **numbers,
                }
            ).with_columns(pl.lit(method).alias("method"), pl.lit(seed, pl.Int64).alias("seed"))
            for name in ("sent_bytes", "batches", "flops", "train_seconds", "merge_seconds", "evaluate_seconds"):
                own = own.with_columns((pl.col("round") * 1000).alias(name))
            whole.append(own)
            records.write_frame(
                records.RunFolder(folder).job(method, seed) / nodes.FILE, pl.DataFrame(told, schema=nodes.NODES)
            )
            about = {"method": method, "seed": seed}
            tell("begin", **about, round=0, rounds=rounds, nodes=count)
            for number in range(rounds + 1):
                values = [round(float(v), 4) for v in draws.random(count)]
                tell("evaluation", **about, round=number, node=[*range(count)], **dict.fromkeys(numbers, values))
                tell("round", **about, round=number)
            tell("end", **about, how="done", round=rounds)
        tell("end", how="done")
    records.write_frame(folder / "records.parquet", pl.concat(whole))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        write_run(folder, given.nodes, given.rounds, given.seeds)
        shown, table = Shown([folder]), Table("", "seconds of a processor", "kB")

        def timed(name: str, do: object) -> object:
            began = time.process_time()
            found = do()  # type: ignore[operator]
            size = found.stat().st_size if isinstance(found, Path) else len(json.dumps(found))
            table.add_row(name, f"{time.process_time() - began:.2f}", f"{size / 1000:.0f}")
            return found

        whole = timed("the first look: records, journal, overview", lambda: shown.overview([]))
        job = whole["jobs"][0]["id"]  # type: ignore[index]
        timed("the network of a job", lambda: shown.job(job))
        timed("a column of all its nodes and rounds", lambda: shown.job(job, column="test_accuracy"))
        timed("a look when nothing is new", lambda: shown.version([]))
        timed("the page in one file", lambda: write_page([folder], folder / "report.html"))
        Console().print(table)


if __name__ == "__main__":
    main()
