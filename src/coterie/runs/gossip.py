"""The gain by gossip in the simulator: what every node estimates before the first round."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.config.build import gossip
from coterie.config.configuration import Method
from coterie.engines.local import Local
from coterie.job import Job, Roster, Samples, Training
from coterie.network.faults import Faults
from coterie.network.graph import Graph
from coterie.network.rounds import Network
from coterie.node.gossip import GossipGain, gossip_job
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


def survey(job: Job, samples: int, rounds: int) -> Iterator[NDArray[np.float64]]:
    """Every node's estimate of the gain after each round of gossip; NaN before it has one."""
    before = gossip_job(job, samples)
    assert isinstance(before.rule, GossipGain)
    session = Local(workers=1, mode="loop").open()
    try:
        session.begin(before)
        for number in range(1, rounds + 1):
            session.round(number, False)
            found = before.rule.gain(Snapshot.read(session.snapshot()).rows[0].state["minima"])
            yield found.squeeze(-1).numpy().copy()
    finally:
        session.close()


def with_estimated_gains(job: Job, method: Method) -> Job:
    """The job with the gains that its nodes estimate by gossip, if the method asks for it."""
    asking = gossip(method)
    return replace(job, gains=estimates(job, **asking)) if asking else job


def estimates(job: Job, samples: int, rounds: int) -> NDArray[np.float64]:
    """Every node's estimate of the gain after all rounds of gossip; 1 where a node has heard nobody."""
    *_, last = survey(job, samples, rounds)
    return np.where(np.isfinite(last), last, 1.0)
