"""How much memory each worker of a cluster will need, before anything starts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from coterie.errors import ConfigError
from coterie.job import Indices, Job
from coterie.node.architecture import architectures

FLOAT = 4
SPARE = 0.95
"""The part of what is free that may be used."""


def needs(job: Job, owner: Indices, workers: int) -> list[int]:
    """Bytes of each worker's rows, of what stands beside them, and of the rows that come from others."""
    found, graph, rule = np.zeros(workers), job.graph(1), job.rule
    optimiser = len(job.roster.optimiser.make().slots) if job.roster.training.keep_optimiser else 0
    cut = owner[graph.sources] != owner[graph.targets]
    pairs = np.unique(owner[graph.targets[cut]] * graph.nodes + graph.sources[cut])
    halo, halo_nodes = np.divmod(pairs, graph.nodes)
    for nodes, made in zip(job.roster.groups, architectures(job.roster, job.samples), strict=True):
        width, own = made.layout.size, np.bincount(owner[nodes], minlength=workers)
        me = job.roster.me(nodes[:1], 0, made.layout)
        state = rule.init(me, torch.zeros(1, width))
        memory = sum(s.shape[1] for s in state.values())
        said = sum(f.shape[1] for f in rule.send(me, torch.zeros(1, width), state).values()) or width
        beside = width * (rule.span == "model") + width * rule.squares + 2 * width * ("steps" in job.measures)
        each = made.width + optimiser * width + memory + beside
        far = np.bincount(halo[np.isin(halo_nodes, nodes)], minlength=workers)
        found += FLOAT * (own * (each + said) + 2 * far * said)
    return [int(n) for n in found]


def check(needed: Sequence[int], about: Sequence[Mapping[str, Any]], most: float) -> None:
    """Refuse what cannot fit into the machines that workers are on, or into `most` bytes of each, if that is not 0."""
    for machine in sorted({a["machine"] for a in about}):
        here = [w for w, a in enumerate(about) if a["machine"] == machine]
        wanted, free = sum(needed[w] for w in here), min(about[w]["memory"] for w in here)
        free = min(free, most) if most else free
        if wanted > SPARE * free:
            cure = "Use more machines, fewer nodes, or a smaller model."
            who = f"worker {here[0]}" if len(here) == 1 else f"workers {here[0]} to {here[-1]}"
            what = f"the rows of {who} do not fit into the memory of {machine}"
            raise ConfigError(what, expected=f"up to {size(SPARE * free)}", got=size(wanted), cure=cure)


def size(amount: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError
