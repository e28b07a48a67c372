"""The gain by gossip in the simulator: what every node estimates before the first round."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.config.build import gossip
from coterie.config.configuration import Method
from coterie.engines.local import Local
from coterie.job import Job, Roster, Samples, Training
from coterie.network.faults import Faults
from coterie.network.graph import Graph
from coterie.network.rounds import Network
from coterie.node.gossip import REST, GossipGain, gossip_job
from coterie.node.numbers import asked, numbers_job, whole
from coterie.node.snapshot import Snapshot
from coterie.parts import Choice


def on(graph: Graph, seed: int = 0) -> Job:
    """A job on this network, whose nodes have one sample each: to estimate the gain where there are no data."""
    one, whole = torch.zeros(graph.nodes, 1), np.arange(graph.nodes)
    label = torch.zeros(graph.nodes, dtype=torch.int64)
    roster = Roster(
        seed=seed,
        models=(Choice("models", "logistic"),),
        rule=Choice("rules", "decavg"),
        protocol=Choice("protocols", "neighbourhood"),
        objective=Choice("objectives", "cross_entropy"),
        optimiser=Choice("optimisers", "sgd"),
        training=Training(epochs=1, batches=None, batch_size=1, clamp=None, keep_optimiser=False),
        groups=(whole,),
        train=tuple(whole[[i]] for i in whole),
        validation=tuple(whole[:0] for _ in whole),
        degree=graph.degree,
        labels=torch.ones(graph.nodes, 1),
        device="cpu",
    )
    return Job(
        roster=roster,
        samples=Samples(one, label, one[:1], label[:1], classes=1, shape=(1,)),
        network=Network.still(graph),
        rule=roster.rule.make(),
        protocol=roster.protocol.make(),
        initialiser=Choice("initialisers", "default"),
        merge_first=False,
        faults=Faults(seed),
        gains=np.ones(graph.nodes),
        test=whole[:1],
    )


def survey(job: Job, samples: int, rounds: int | None = None) -> Iterator[NDArray[np.float64]]:
    """Every node's estimate of the gain after each round of gossip; NaN before it has one.

    Without a number of rounds, until nobody has learnt anything for a few.
    """
    before = gossip_job(job, samples)
    assert isinstance(before.rule, GossipGain)
    for minima in _asked_around(before, "minima", rounds):
        yield before.rule.gain(minima).squeeze(-1).numpy().copy()


def _asked_around(job: Job, field: str, rounds: int | None) -> Iterator[Tensor]:
    """What every node knows after each round, for so many rounds or until nobody has learnt anything for a few."""
    session = Local(workers=1, mode="loop").open()
    try:
        session.begin(job)
        chance = job.faults.links * job.faults.presence
        patience = REST if chance == 1 else math.ceil(3 * REST / chance)
        known, rested = torch.empty(0), 0
        for number in range(1, (rounds or patience * (2 + job.roster.nodes)) + 1):
            session.round(number, False)
            now = Snapshot.read(session.snapshot()).rows[0].state[field].clone()
            yield now
            rested = rested + 1 if torch.equal(known, now) else 0
            known = now
            if rounds is None and rested == patience:
                return
    finally:
        session.close()


def numbers(job: Job, rounds: int | None = None) -> NDArray[np.int64]:
    """What every node takes for the number that all have agreed on, after so many rounds or after enough."""
    *_, last = _asked_around(numbers_job(job), "number", rounds)
    return whole(last)


def with_findings(job: Job, method: Method) -> Job:
    """The job with what its nodes find out by gossip before the first round, if the method asks for it."""
    if asked(job):
        return replace(job, numbers=numbers(job, job.initialiser.settings.get("gossip_rounds")))
    asking = gossip(method)
    return replace(job, gains=estimates(job, **asking)) if asking else job


def estimates(job: Job, samples: int, rounds: int | None = None) -> NDArray[np.float64]:
    """Every node's estimate of the gain after so many rounds, or after enough; 1 where a node has heard nobody."""
    *_, last = survey(job, samples, rounds)
    return np.where(np.isfinite(last), last, 1.0)
