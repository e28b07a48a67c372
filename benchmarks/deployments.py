"""What deployments cost: a relay against a bare loop, memory where models are mostly frozen, and the study's linear
families at the paper's size.

`python benchmarks/deployments.py` prints all three tables, `--only relays,memory,study` some of them.
"""

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from _memory import proportional_bytes
from _setup import Case, job
from coterie.config.build import build, load_samples
from coterie.config.configuration import Method
from coterie.engines.local import Local
from coterie.job import Job, Samples
from coterie.parts import Choice, find
from coterie.protocols import Train

RELAYS = {
    "ResNet-18, an eighth as wide, batch 64": ((8, 16, 32, 64), 640),
    "ResNet-18, batch 64": ((64, 128, 256, 512), 512),
}
NODES, GOAL = 5, 1.1
ADAPTED = {"name": "distilbert", "width": 512, "layers": 4, "heads": 8, "pieces": 20_000, "dropout": 0.0}
LENGTH = 8


def relay(channels: tuple[int, ...], samples: int) -> Job:
    """A ring of five along which one ResNet-18 walks, for an epoch at each."""
    model = Choice("models", "resnet18", {"channels": channels})
    case = Case("", model, (1, 28, 28), NODES, 64, samples=samples, topology=Choice("topologies", "ring"))
    made, chosen = job(case), Choice("protocols", "relay")
    training = replace(made.roster.training, epochs=1, batches=None)
    return replace(made, roster=replace(made.roster, protocol=chosen, training=training), protocol=chosen.make())


def walk(where: Job) -> float:
    """Seconds of processor time of one round of the relay, without evaluation; the best of some."""
    ours = Local(workers=1, mode="loop").open()
    ours.begin(where)
    found = []
    for number in range(1, 5):
        start = time.process_time()
        ours.round(number, False)
        found.append(time.process_time() - start)
    ours.close()
    return min(found[1:])


def bare(where: Job) -> float:
    """The same of one module and one optimiser a turn over the same mini-batches, and nothing else."""
    roster, samples = where.roster, where.samples
    x = samples.train_x.permute(0, 3, 1, 2).contiguous()  # type: ignore[union-attr]
    module, found = roster.models[0].make()(samples.shape, samples.classes), []
    for number in range(1, 5):
        start = time.process_time()
        for node in range(roster.nodes):
            optimiser = torch.optim.SGD(module.parameters(), **roster.optimiser.settings)
            for batch in roster.schedule(node, number, Train((number - 1) * NODES + node, 1)):
                index = torch.as_tensor(batch)
                optimiser.zero_grad()
                F.cross_entropy(module(x[index]), samples.train_y[index]).backward()
                optimiser.step()
        found.append(time.process_time() - start)
    return min(found[1:])


def relays() -> Iterator[list[str]]:
    """A round of a relay / a bare loop; taken three times in turns, the median of the ratios."""
    for name, (channels, samples) in RELAYS.items():
        where = relay(channels, samples)
        ratios = sorted(walk(where) / bare(where) for _ in range(3))
        yield [name, f"{ratios[1]:.2f}", f"{ratios[0]:.2f}–{ratios[2]:.2f}", str(GOAL)]


def held(nodes: int) -> None:
    """Print the bytes that a simulation holds after a round, and those of frozen and of trained weights."""
    case = Case("", Choice("models", "lora", {"of": ADAPTED}), (1,), nodes, 4, 1, topology=Choice("topologies", "ring"))
    made = job(case)
    tokens = torch.randint(ADAPTED["pieces"], (len(made.samples.train_y), LENGTH))  # type: ignore[call-overload]
    x = {"tokens": tokens, "mask": torch.ones_like(tokens, dtype=torch.bool)}
    shape = {"tokens": (LENGTH,), "mask": (LENGTH,)}
    y = made.samples.train_y
    samples = Samples(x, y, {k: t[:100] for k, t in x.items()}, y[:100], 10, shape)
    made = replace(made, samples=samples, initialiser=Choice("initialisers", "default"), test=np.arange(1))
    net = made.roster.models[0].make()(shape, 10)  # with it come the libraries, which are not counted
    net({k: t[:2] for k, t in x.items()})
    sizes = [sum(4 * p.numel() for p in net.parameters() if p.requires_grad is trained) for trained in (False, True)]
    del net
    gc.collect()
    before = proportional_bytes()
    ours = Local(workers=1, mode="loop").open()
    ours.begin(made)
    ours.round(1, False)
    gc.collect()
    print(json.dumps([proportional_bytes() - before, *sizes]))
    ours.close()


def memory() -> Iterator[list[str]]:
    """What is held with more and more nodes, in units of the frozen weights."""
    for nodes in (4, 16, 64):
        run = [sys.executable, __file__, "--held", str(nodes)]
        told = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        whole, frozen, trained = json.loads(told)
        yield [str(nodes), f"{whole / frozen:.2f}", f"{nodes * trained / frozen:.2f}", str(nodes)]


def study() -> Iterator[list[str]]:
    """Six deployments on all splits at the paper's size: processor time of one seed, and time of ten on two cores."""
    whole, exhibits = 0.0, find("studies", "deployments").make()("paper")
    for name in ("svm", "logistic"):
        spent = sum(_spent(one) for run in exhibits[f"table {name}"].runs.values() for one in run.resolved.values())
        whole += spent
        yield [name, f"{spent:.0f}", f"{10 * spent / 2 / 60:.1f}", ""]
    yield ["both", f"{whole:.0f}", f"{10 * whole / 2 / 60:.1f}", "10"]


def _spent(one: Method) -> float:
    """Seconds of processor time of a run, evaluation and losses by epoch included."""
    ours, start = Local(workers=1).open(), time.process_time()
    ours.begin(build(one, load_samples(one), one.seeds[0]))
    for number in range(1, one.rounds + 1):
        ours.round(number, True)
    ours.close()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="relays,memory,study", help="tables, parted by commas")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.held:
        held(given.held)
        return
    tables = {
        "relays": (
            "A round of a relay of five / a bare loop, processor time",
            ["model", "ratio", "range", "goal"],
            relays,
        ),
        "memory": (
            "Memory of DistilBERT with adapters / its frozen weights",
            ["nodes", "held", "of it trained rows", "if each had its own"],
            memory,
        ),
        "study": (
            "Six deployments at the paper's size, IID and levels 1 to 3",
            ["model", "processor seconds of a seed", "minutes of ten seeds on two cores", "goal"],
            study,
        ),
    }
    for title, columns, rows in (tables[name] for name in given.only.split(",")):
        table = Table(*columns, title=title)
        for row in rows():
            table.add_row(*row)
        Console().print(table)


if __name__ == "__main__":
    main()
