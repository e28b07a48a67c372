"""What nodes could know of the gain without knowing the network, beside the truth."""

from dataclasses import replace

import numpy as np

from coterie.network.estimates import GossipEstimates, count_nodes, from_degrees, from_nodes, gossip_push_sum, walk
from coterie.network.graph import Graph
from coterie.network.mixing import own_weights
from coterie.runs.gossip import on, survey
from coterie.topologies import Topology

ROUNDS, MINIMA, VISITS, NEAR = 20, 4000, 100, 0.05


def gain_table(graph: Graph, family: Topology, seed: int = 0) -> dict[str, object]:
    """The gain by size, by a walk, and by two kinds of gossip, each with how far it is from the exact one."""
    truth = graph.gain(own=own_weights(graph, "data"))
    found: dict[str, object] = {}

    def tell(what: str, guess: float) -> None:
        found[what] = f"{guess:.4g} ({100 * (guess / truth - 1):+z.1f} %)"

    power = 0.5 if family.gain_exponent is None else family.gain_exponent
    tell(f"gain by n^{power:.3g}", from_nodes(graph.nodes, power))
    if graph.nodes > 1 and not graph.directed:
        visited = walk(graph, VISITS, seed=seed)
        degrees = graph.degree[visited]
        tell(f"gain by {VISITS} degrees on a walk", from_degrees(degrees, graph.nodes, walked=True))
        if np.isfinite(nodes := count_nodes(visited, degrees)):
            tell("gain by that walk alone, n too", from_degrees(degrees, nodes, walked=True))
    asked = np.stack([np.ones(graph.nodes), *survey(on(graph, seed), MINIMA, ROUNDS)])
    spread = GossipEstimates(
        np.where(np.isfinite(asked), asked, 1.0), truth
    )  # who has heard nobody takes itself for alone
    sums = replace(gossip_push_sum(graph, ROUNDS, seed=seed), truth=truth)
    for name, gossip in (("gossip", spread), ("push-sum", sums)):
        until = gossip.rounds_until(NEAR)
        found[f"{name}: rounds to 5 % everywhere"] = f"more than {ROUNDS}" if until is None else until
        found[f"{name}: worst error after {ROUNDS}"] = f"{100 * gossip.errors[-1].max():.2g} %"
    return found
