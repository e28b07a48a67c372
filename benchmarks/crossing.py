"""Rows between machines by three plans over six families of networks, and round times: computed, not run.

`python benchmarks/crossing.py` prints the tables of docs/cluster.md.
"""

import argparse

import numpy as np
import scipy.sparse as sp

from coterie.network.crossing import crossing
from coterie.network.graph import Graph, draw
from coterie.network.placement import place
from coterie.parts import find

FAMILIES = {
    "grid": ("grid", {}),
    "4-regular": ("regular", {"k": 4}),
    "small world, k = 6, β = 0.1": ("ws", {"k": 6, "p": 0.1}),
    "BA, m = 4": ("ba", {"m": 4}),
    "ER, mean degree 8": ("er", {"p": 8 / 1023}),
    "stochastic blocks": ("sbm", {"blocks": 4, "p_in": 0.05, "p_out": 0.0005}),
}
PARAMETERS = 567_434
FLOP = 6 * PARAMETERS * 16 * 8
"""Of a node's round: 8 mini-batches of 16, forward and backward."""
CORE, LINE = 70e9, 10e9 / 8
"""Floating-point operations a second of a core, and bytes a second of a machine's line, each way."""


def rows(graph: Graph, machines: int) -> dict[str, float]:
    """Rows on the wire in a round, by plan, in units of one row for each node."""
    owner = place(graph, np.ones(graph.nodes), machines, 0, "metis").owner
    shape = (graph.nodes, graph.nodes)
    arcs = sp.csr_array((np.ones(len(graph.sources), np.float32), (graph.targets, graph.sources)), shape=shape)
    return {plan: count / graph.nodes for plan, count in crossing(arcs, owner, owner, machines).rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--cores", type=int, default=16, help="of each machine")
    given = parser.parse_args()
    counts = (4, 8, 16, 64)
    print("| network | " + " | ".join(f"{m} machines" for m in counts) + " |")
    print("|---|" + "---|" * len(counts))
    found = {}
    for label, (name, settings) in FAMILIES.items():
        graph = draw(find("topologies", name).make(**settings).draw, given.nodes, 0, connect=True)
        found[label] = {m: rows(graph, m) for m in counts}
        cells = (
            " / ".join(f"**{v:.2f}**" if v == min(r.values()) else f"{v:.2f}" for v in r.values())
            for r in found[label].values()
        )
        print(f"| {label} | " + " | ".join(cells) + " |")
    print("\n| network | " + " | ".join(f"{m} machines" for m in (4, 16, 64)) + " |")
    print("|---|---|---|---|")
    for label, counted in found.items():
        cells = []
        for machines in (4, 16, 64):
            nodes = given.nodes / machines
            train = nodes * FLOP / (CORE * given.cores)
            wire = min(counted[machines].values()) * nodes * 4 * PARAMETERS / LINE
            cells.append(f"{1000 * train:.0f} + {1000 * wire:.0f} → {1000 * max(train, wire):.0f}")
        print(f"| {label} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
