"""Which worker has which nodes: few links cut, and everyone as much to compute."""

from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from coterie.network.graph import Graph
from coterie.randomness import key

Indices = NDArray[np.int64]
VOLUME = 1
"""METIS's name for what is least where each row goes once to every worker that needs it: a tenth less than by cuts."""
UNEVEN = 1.1
"""How much more than an even deal's one worker may have to compute, for fewer links that are cut."""


@dataclass(frozen=True)
class Placement:
    """The worker of each node, how that was found, and how many links it cuts."""

    owner: Indices
    by: str
    cut: int
    links: int

    @property
    def words(self) -> str:
        """For people."""
        share = 100 * self.cut / max(self.links, 1)
        return f"nodes placed by {self.by}: {self.cut:,} of {self.links:,} links between workers ({share:.0f} %)"


def place(graph: Graph, loads: np.ndarray, workers: int, seed: int, by: str = "auto") -> Placement:
    """Deal nodes out so that few links are cut and loads are even: by METIS, or by Kernighan and Lin behind it.

    Reference: Karypis and Kumar, A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs, 1998;
    Kernighan and Lin, An Efficient Heuristic Procedure for Partitioning Graphs, 1970
    """
    names = {"metis": _metis, "kernighan-lin": _kernighan_lin}
    if workers == 1:
        owner, by = np.zeros(graph.nodes, np.int64), "nobody"
    else:
        if by == "auto":
            by = "metis" if _pymetis() is not None else "kernighan-lin"
        owner = names[by](graph, loads, workers, seed)
    owner = _everyone(owner, workers)
    cut = owner[graph.sources] != owner[graph.targets]
    links = cut if graph.directed else cut[graph.sources < graph.targets]
    return Placement(owner, by, int(links.sum()), len(links))


def _pymetis() -> Any:
    try:
        import pymetis
    except ImportError:
        return None
    return pymetis


def _metis(graph: Graph, loads: np.ndarray, workers: int, seed: int) -> Indices:
    pairs = np.unique(np.concatenate([graph.sources * graph.nodes + graph.targets,
                                      graph.targets * graph.nodes + graph.sources]))  # fmt: skip
    rows, columns = np.divmod(pairs, graph.nodes)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=graph.nodes))])
    weights = np.maximum(1, np.round(100 * loads / loads.max())).astype(int)
    pymetis = _pymetis()
    chance = key(seed, "placement") % 2**31
    options = pymetis.Options(objtype=VOLUME, seed=chance, ufactor=10, niter=50, ncuts=4)
    links = pymetis.CSRAdjacency(starts.tolist(), columns.tolist())
    _, found = pymetis.part_graph(workers, adjacency=links, vweights=weights.tolist(), recursive=False, options=options)
    return np.array(found, np.int64)


def _kernighan_lin(graph: Graph, loads: np.ndarray, workers: int, seed: int) -> Indices:
    """Bisection after bisection, of sets that are to be shared by so many workers."""
    whole: Any = nx.Graph(graph.to_networkx().to_undirected())
    owner = np.zeros(graph.nodes, np.int64)

    def split(nodes: list[int], first: int, count: int) -> None:
        if count == 1 or not nodes:
            owner[nodes] = first
            return
        few = count // 2
        order = sorted(nodes, key=lambda n: (-loads[n], n))
        share, parts, sums = few / count, (list[int](), list[int]()), [0.0, 0.0]
        for node in order:  # heavy ones first, to the side that lacks most
            side = int(sums[0] / share > sums[1] / (1 - share))
            parts[side].append(node)
            sums[side] += loads[node]
        if count == 2 * few and len(parts[0]) and len(parts[1]):
            halves = nx.algorithms.community.kernighan_lin_bisection(
                whole.subgraph(nodes), (set(parts[0]), set(parts[1])), max_iter=10, seed=key(seed, "placement") % 2**31
            )
            better = sorted(halves[0]), sorted(halves[1])
            if max(sum(loads[half]) for half in better) <= UNEVEN * max(sums):  # it moves nodes, heavy or not
                parts = better
        split(parts[0], first, few)
        split(parts[1], first + few, count - few)

    split(list(range(graph.nodes)), 0, workers)
    return owner


def _everyone(owner: Indices, workers: int) -> Indices:
    """Give each worker that has no node one of whoever has most."""
    owner = owner.copy()
    for worker in range(workers):
        if not (owner == worker).any():
            most = int(np.bincount(owner, minlength=workers).argmax())
            owner[np.flatnonzero(owner == most)[-1]] = worker
    return owner
