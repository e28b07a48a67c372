"""A number that nodes agree on before the first round, knowing only their neighbours: the smallest that any drew."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.contract import Fields, Inbox, Me, Message, Range, Rule, State, Term
from coterie.job import Indices, Job
from coterie.node.gossip import asking_job, enough_rounds
from coterie.parts import find
from coterie.randomness import generator

EXACT = 2**24
"""Whole numbers below this are exact in single precision, and four bytes long."""


@dataclass(frozen=True)
class SmallestNumber(Rule):
    """The smallest number among one's own and those heard; models stay as they are.

        x_i ~ U{0, …, 2²⁴ − 1};   x_i ← min_{j ∈ N_i ∪ {i}} x_j

    That two nodes draw the same does no harm, nor does a neighbour that lies: any number is as good as another.
    """

    span = "model"
    raw = True

    def init(self, me: Me, params: Tensor) -> State:
        drawn = [int(generator(me.seed, "number", node).integers(EXACT)) for node in me.node.reshape(-1).tolist()]
        return {"number": params.new_tensor(drawn).view(me.node.shape)}

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {"number": state["number"]}

    def ranges(self, round: int) -> dict[str, Range]:
        return {"number": Range(least=0.0, norm=float(EXACT))}

    def lift(self, message: Message) -> dict[str, Term]:
        return {}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        return params, {"number": torch.minimum(inbox.rows("number").amin(-2), state["number"])}


def numbers_job(job: Job) -> Job:
    """A job in which the same nodes, over the same network with its faults, agree on a number."""
    return asking_job(job, SmallestNumber())


def whole(numbers: Tensor) -> Indices:
    """The numbers of some nodes, as they stand in `Job.numbers`."""
    return numbers.double().squeeze(-1).numpy().astype(np.int64)


def asked(job: Job) -> bool:
    """Whether the job's initialiser wants nodes to agree on a number."""
    return getattr(find("initialisers", job.initialiser.name).target, "asks", None) == "number"


def rounds_before(job: Job) -> int:
    """For how many rounds peers that know the network ask around for a number before the first; 0 if they do not."""
    return (job.initialiser.settings.get("gossip_rounds") or enough_rounds(job.network)) if asked(job) else 0
