"""Each node's best model so far, which is kept among its notes: so it is in checkpoints, and goes on with a run."""

import numpy as np
import torch
from torch import Tensor

from coterie.job import Job, Ledger
from coterie.metrics import Values, label

BEST = "best"
"""The note of the best model of a node; beside it that of what it was worth."""
WORTH = f"{BEST} worth"


def worth(job: Job, ledger: Ledger) -> Values:
    """What each node's model is worth now, more being better: by the first metric, on its own validation samples.

    Nodes without any, and metrics that take none, go by the test samples.
    """
    first = job.roster.metrics[0]
    test, own = (ledger.latest.get(f"{where}_{label(first)}") for where in ("test", "validation"))
    assert test is not None, "the first metric is taken on test samples"
    found = test if own is None else np.where(np.isnan(own), test, own)
    return -found if first.make().lower else found


def hold(notes: dict[str, Tensor], row: Tensor, now: float) -> None:
    """Keep a copy of a row among a node's notes if it is worth more than the one that is there."""
    if np.isfinite(now) and (BEST not in notes or now > notes[WORTH].item()):
        notes.update({BEST: row.clone(), WORTH: torch.tensor([now], dtype=torch.float64)})
