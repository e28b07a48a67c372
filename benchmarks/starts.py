"""Which start fails, and how long each takes: many seeds at once, as networks side by side in one run on digits.

Every line of the results is one network: a model, a family, a setting, a method and a seed. The same command goes on
where it was; `--table` and `--pairs` show what there is.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from _activations import rescaled
from coterie.config.build import build, gain, load_samples
from coterie.config.configuration import Method
from coterie.engines.local import Local
from coterie.job import Job
from coterie.network.faults import Faults
from coterie.network.graph import Graph, draw
from coterie.network.rounds import Network
from coterie.partitions import split
from coterie.parts import find
from coterie.report.races import ahead
from coterie.runs.experiment import Experiment

NODES, ROUNDS = 16, 20
MODELS = {
    "mlp": {"name": "mlp", "sizes": [64, 32]},
    "deep": {"name": "mlp", "sizes": [64, 64, 64, 64]},
    "cnn": {"name": "cnn", "channels": [8, 16], "kernel": 3, "hidden": [32]},
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "er": ("er", {"p": 0.3}),
    "complete": ("complete", {}),
    "ba": ("ba", {"m": 2}),
    "ring": ("ring", {}),
}
SETTINGS = ("plain", "lost", "late", "work")
"""Nothing amiss; half of the links down in a round; a quarter of the nodes from round 9 on; data of Zipf's law."""
METHODS: dict[str, dict[str, Any]] = {
    "he": {"rule": "decavg", "initialiser": "he"},
    "gain": {"use": "gain-decavg"},
    "gain, gradient clipped": {"use": "gain-decavg", "clamp": 1e9, "clip": 1.0},
    "agreed start": {"rule": "decavg", "initialiser": "agreed"},
    "consensus start": {"rule": "consensus_start", "initialiser": "he", "merge_first": True},
    "activations": {"rule": "decavg", "initialiser": "he"},
    "variance corrected": {"use": "variance-corrected"},
    "variance corrected, 5 rounds": {"use": "variance-corrected", "rule": {"name": "variance_corrected", "until": 5}},
    "variance restored": {"rule": "variance_restored", "initialiser": "he", "merge_first": True},
    "dechw": {"rule": "dechw", "initialiser": "he"},
    "decdiff-vt": {"use": "decdiff-vt", "initialiser": "he"},
}
STUCK = 0.2
"""Twice chance: a network whose mean accuracy is below in the last round has failed."""


def together(model: str, family: str, setting: str, method: str, seeds: int) -> Job:
    """One job of so many networks that know nothing of one another, each with a seed of its own."""
    told = Experiment(
        dataset="digits",
        model=MODELS[model],
        nodes=NODES * seeds,
        rounds=ROUNDS,
        epochs=1,
        batch_size=16,
        lr=0.1,
        momentum=0.5,
        validation=0.0,
        topology="ring",
        partition="iid",
        metrics=["accuracy", "loss"],
        methods={"it": METHODS[method]},
    )
    resolved: Method = told.resolved["it"]
    samples = load_samples(resolved)
    job = build(resolved, samples, 0)
    labels = samples.train_y.numpy()
    name, options = FAMILIES[family]
    graphs = [draw(find("topologies", name).make(**options).draw, NODES, s, connect=True) for s in range(seeds)]
    if setting == "work":
        dealt = find("partitions", "zipf").make()
    else:
        dealt = find("partitions", "dirichlet").make(alpha=0.5, min_samples=8)
    parts = [[train for train, _ in split(dealt, labels, NODES, s, validation=0.0)] for s in range(seeds)]
    every = [part for own in parts for part in own]
    shares = np.stack([np.bincount(labels[part], minlength=samples.classes) / len(part) for part in every])
    whole = Graph(
        NODES * seeds,
        np.concatenate([g.sources + NODES * s for s, g in enumerate(graphs)]),
        np.concatenate([g.targets + NODES * s for s, g in enumerate(graphs)]),
        np.concatenate([g.weights for g in graphs]),
    )
    here = range(NODES if setting != "late" else NODES - NODES // 4)  # who is there from the beginning
    late = {s * NODES + i: 9 for s in range(seeds) for i in range(len(here), NODES)}
    gains = np.ones(NODES * seeds)
    if METHODS[method].get("use") == "gain-decavg":
        for s, graph in enumerate(graphs):
            among, sizes = graph.among(np.array(here)), [len(parts[s][i]) for i in here]
            gains[s * NODES : s * NODES + len(here)] = gain(job.rule, [among], sizes)
    roster = replace(
        job.roster, train=tuple(every), degree=whole.degree, labels=job.roster.labels.new_tensor(shares.tolist())
    )
    job = replace(job, roster=roster, network=Network.still(whole), gains=gains)
    job = replace(job, faults=Faults(0, 0.5 if setting == "lost" else 1.0, joins=late))
    job = replace(job, test=job.test[::2])
    if METHODS[method].get("initialiser") == "agreed":  # as gossip has it in each network; who is late has its own
        agreed = np.arange(NODES * seeds) // NODES
        agreed[list(late)] = [10**6 + node for node in late]
        job = replace(job, numbers=agreed)
    return replace(job, initialiser=rescaled(job)) if method == "activations" else job


def measured(job: Job, seeds: int) -> Iterator[dict[str, Any]]:
    """Accuracy, loss and bytes of each network, round by round."""
    session = Local(workers=1, mode="stack", chunk=64).open()
    try:
        session.begin(job)
        for number in range(1, ROUNDS + 1):
            session.round(number, number % 2 == 0)
            if number % 2:
                continue
            found = {k: session.ledger.latest[f"test_{k}"].reshape(seeds, NODES).mean(1) for k in ("accuracy", "loss")}
            sent = session.ledger.totals["sent_bytes"].reshape(seeds, NODES).mean(1)
            for s in range(seeds):
                row = {k: round(float(v[s]), 4) if math.isfinite(v[s]) else None for k, v in found.items()}
                yield {"seed": s, "round": number, **row, "bytes": float(sent[s])}
    finally:
        session.close()


def run(out: Path, cases: list[tuple[str, str, str, str]], seeds: int, say: Callable[[str], None]) -> None:
    """Every case that is not there yet, each as soon as it is known."""
    out.mkdir(parents=True, exist_ok=True)
    for case in cases:
        file = out / f"{'-'.join(case).replace(' ', '_').replace(',', '')}.jsonl"
        if file.is_file():
            continue
        try:
            rows = list(measured(together(*case, seeds), seeds))
        except Exception as error:  # one that diverges says so, and the others go on
            say(f"{case}: {error}")
            rows = [{"seed": s, "round": ROUNDS, "accuracy": None, "loss": None, "bytes": 0.0} for s in range(seeds)]
        names = dict(zip(("model", "family", "setting", "method"), case, strict=True))
        file.write_text("".join(json.dumps(names | row) + "\n" for row in rows))
        last = [row["accuracy"] or 0.0 for row in rows if row["round"] == ROUNDS]
        say(f"{', '.join(case)}: {sum(a < STUCK for a in last)} of {seeds} stuck, accuracy {np.mean(last):.3f}")


def table(out: Path, by: tuple[str, ...], levels: tuple[float, ...] = (0.5, 0.8)) -> Table:
    """Failures, and rounds and bytes to levels (means over the networks that reach them), by method and more."""
    frame = pl.concat(pl.read_ndjson(file, infer_schema_length=None) for file in sorted(out.glob("*.jsonl")))
    heads = [
        *by,
        "networks",
        "stuck",
        "worst",
        "accuracy",
        *(f"{w} to {v:.0%}" for v in levels for w in ("rounds", "kB")),
    ]
    shown = Table(*heads, title=f"{ROUNDS} rounds, {NODES} nodes, digits")
    order = {name: i for i, name in enumerate(METHODS)}
    keys = sorted(frame.select(by).unique().iter_rows(), key=lambda k: (*k[:-1], order.get(k[-1], 0)))
    for key in keys:
        mine = frame.filter(*(pl.col(name) == value for name, value in zip(by, key, strict=True)))
        mine = mine.with_columns(pl.col("accuracy").fill_null(0.0))
        who = ["model", "family", "setting", "method", "seed"]
        last = mine.filter(pl.col("round") == ROUNDS)["accuracy"]
        cells = [str(last.len()), str(int((last < STUCK).sum())), f"{last.min():.2f}", f"{last.mean():.3f}"]
        for level in levels:
            first = mine.filter(pl.col("accuracy") >= level).sort("round").group_by(who, maintain_order=True).first()
            missed = last.len() - first.height
            lost = f" ({missed} never)" if missed else ""
            cells += [
                f"{first['round'].mean() or math.nan:.1f}{lost}",
                f"{(first['bytes'].mean() or math.nan) / 1e3:.0f}",
            ]
        shown.add_row(*key, *cells)
    return shown


def pairs(out: Path, one: str, other: str) -> Table:
    """By how much one method is above another in the last round, network by network, and in how many of them."""
    frame = pl.concat(pl.read_ndjson(file, infer_schema_length=None) for file in sorted(out.glob("*.jsonl")))
    last = frame.filter(pl.col("round") == ROUNDS).with_columns(pl.col("accuracy").fill_null(0.0))
    where = ["setting", "model", "family"]
    first, second = (last.filter(pl.col("method") == name) for name in (one, other))
    both = first.join(second, on=[*where, "seed"], suffix=" of the other")
    shown = Table(*where, f"{one} − {other}", title="accuracy, mean over networks ± 95 % interval")
    for place, mine in sorted(both.group_by(where), key=lambda item: item[0]):
        shown.add_row(*map(str, place), ahead(mine["accuracy"] - mine["accuracy of the other"]))
    return shown


def main() -> None:
    """Run, or show what was run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/starts"))
    parser.add_argument("--seeds", type=int, default=20)
    for name, known in (("models", MODELS), ("families", FAMILIES), ("settings", SETTINGS), ("methods", METHODS)):
        parser.add_argument(f"--{name}", default=";".join(known), help="some of them, with ; between")
    parser.add_argument("--table", help="show this instead of running: method, or model,method and so on")
    parser.add_argument("--pairs", help="or the differences between two methods, with ; between")
    given = parser.parse_args()
    if given.pairs:
        Console(width=180).print(pairs(given.out, *given.pairs.split(";")))
        return
    if given.table:
        Console(width=180).print(table(given.out, tuple(given.table.split(","))))
        return
    chosen = [getattr(given, name).split(";") for name in ("settings", "models", "families", "methods")]
    cases = [(m, f, s, how) for s in chosen[0] for m in chosen[1] for f in chosen[2] for how in chosen[3]]
    run(given.out, cases, given.seeds, lambda text: print(text, flush=True))


if __name__ == "__main__":
    main()
