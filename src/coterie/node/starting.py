"""Nodes as they begin: a row for each, freshly drawn."""

import numpy as np
import torch

from coterie.job import Indices, Job
from coterie.node.architecture import architectures
from coterie.node.training import Trainer


def trainers(job: Job, nodes: Indices) -> list[Trainer]:
    """A trainer for each architecture of the job, with a freshly drawn row for each of these nodes that has it."""
    roster, made = job.roster, []
    initialise = job.initialiser.make()
    for g, (architecture, group) in enumerate(zip(architectures(roster, job.samples), roster.groups, strict=True)):
        own = group[np.isin(group, nodes)]
        matrix = torch.zeros(len(own), architecture.width, device=roster.device)
        integers = torch.zeros(len(own), architecture.integers, dtype=torch.int64, device=roster.device)
        for row, node in enumerate(own.tolist()):
            initialise(architecture.module, job.start(node))
            architecture.read(matrix[row], integers[row])
        trainer = Trainer(roster, job.samples, g, architecture, matrix.cpu(), integers.cpu(), own)
        if roster.training.keep_optimiser:
            width = architecture.layout.size
            trainer.optimiser_state = {s: torch.zeros(len(own), width) for s in trainer.optimiser.slots}
            trainer.optimiser_state["count"] = torch.zeros(len(own), dtype=torch.int64)
        if job.rule.squares:
            trainer.squares = torch.zeros(len(own), architecture.layout.size)
        made.append(trainer)
    return made
