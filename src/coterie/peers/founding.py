"""What peers find out from one another before they train: the gain of their network, or a number to start from."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from coterie.config.build import gossip
from coterie.job import Job
from coterie.net.logs import say
from coterie.node.gossip import UNKNOWN, GossipGain, enough_rounds, gossip_job, greatest, own_estimate
from coterie.node.numbers import asked, numbers_job, whole
from coterie.peers.checkpoint import has_checkpoint
from coterie.peers.runtime import PeerConfig, PeerRuntime


def run(config: PeerConfig) -> pl.DataFrame:
    """Be a peer until all rounds are done; gives this peer's records."""
    asking = gossip(config.settings)
    if asking and not has_checkpoint(config.folder):
        config = asyncio.run(with_estimated_gain(config, **asking))
    elif asked(config.job) and not has_checkpoint(config.folder):
        config = asyncio.run(with_agreed_number(config))
    return asyncio.run(PeerRuntime(config).go())


async def with_estimated_gain(config: PeerConfig, samples: int, rounds: int | None = None) -> PeerConfig:
    """The same with this peer's own estimate of the gain: some rounds of gossip with its neighbours tell it."""
    job = gossip_job(config.job, samples)
    peer = await _asked_around(config, job, {"name": "gossip", "samples": samples}, rounds)
    assert isinstance(job.rule, GossipGain)
    assumed = config.settings.choice("initialiser").settings["assumed_nodes"]
    nodes = assumed or (None if config.introduced else job.roster.nodes)
    gain = own_estimate(job.rule, peer.node.state["minima"], nodes)
    level = logging.INFO if gain < greatest(nodes) else logging.WARNING  # as large as can be: it may be a lie
    say(peer.log, level, "gain", estimate=gain)
    origin = replace(config.job.origin, gain=gain) if config.job.origin else None
    gains = np.full(config.job.roster.nodes, gain)
    return replace(config, job=replace(config.job, gains=gains, origin=origin))


async def with_agreed_number(config: PeerConfig) -> PeerConfig:
    """The same with the number that this peer and its neighbours have agreed on, from which all draw their start."""
    rounds = config.job.initialiser.settings.get("gossip_rounds")
    peer = await _asked_around(config, numbers_job(config.job), {"name": "numbers"}, rounds)
    (number,) = whole(peer.node.state["number"].view(1, 1)).tolist()
    say(peer.log, logging.INFO, "start agreed", number=number)
    return replace(config, job=replace(config.job, numbers=np.full(config.job.roster.nodes, number)))


async def _asked_around(config: PeerConfig, job: Job, rule: dict[str, Any], rounds: int | None) -> PeerRuntime:
    """A peer after some rounds of gossip with its neighbours, before the training."""
    rounds = rounds or (UNKNOWN if config.introduced else enough_rounds(job.network))
    told = {"rounds": rounds, "rule": rule, "protocol": {"name": "gossip"}}
    settings, timing = config.settings.model_copy(update=told), replace(config.timing, mode="sync")
    before = replace(config, method="gossip", phase="gossip", folder=config.folder / "gossip", job=job)
    peer = PeerRuntime(replace(before, settings=settings, timing=timing))
    await peer.go()
    return peer
