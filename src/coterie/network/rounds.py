"""The network of every round: one that stays, or another one from time to time."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from coterie.network._spectrum import left_fixed_vector
from coterie.network.graph import Graph

_KEPT = 4  # networks that are remembered: of the round under way, and of those next to it


class Network:
    """Who hears whom in which round.

    `since` gives the first round of those that have the same network as a given one, and None says that it never
    changes; `draw` gives the network of such a round. Rounds count from 1, and before the first is as in it.
    """

    def __init__(
        self, draw: Callable[[int], Graph], since: Callable[[int], int] | None = None, rounds: int = 1
    ) -> None:
        self._draw, self._since, self.rounds = functools.lru_cache(_KEPT)(draw), since, rounds
        self._links = functools.lru_cache(1)(self._of_rounds)

    @classmethod
    def still(cls, graph: Graph) -> "Network":
        """One network for all rounds."""
        return cls(lambda _: graph)

    @property
    def changes(self) -> bool:
        """Whether there is more than one."""
        return self._since is not None

    def graph(self, round: int) -> Graph:
        """The network of a round; the same object as long as it stays."""
        return self._draw(1 if self._since is None else self._since(max(round, 1)))

    def first(self, rounds: int) -> list[Graph]:
        """The networks of the first rounds, at most so many; one if it stays."""
        return [self.graph(r) for r in range(1, min(rounds, self.rounds) + 1)] if self.changes else [self.graph(1)]

    def around(self, node: int, rounds: int = 1) -> list[int]:
        """Whom a node hears or is heard by in any round, were there at least so many."""
        links = self._links(max(rounds, self.rounds))
        return sorted({*links.neighbours(node).tolist(), *links.audience(node).tolist()})

    def _of_rounds(self, rounds: int) -> Graph:
        """Everyone's links of so many rounds."""
        return union([self.graph(r) for r in range(1, rounds + 1)] if self.changes else [self.graph(1)])


def union(graphs: Sequence[Graph]) -> Graph:
    """The links of several networks of the same nodes, of weight 1 each; a network alone is its own union."""
    first, *others = graphs
    if not others:
        return first
    codes = np.unique(np.concatenate([g.targets * g.nodes + g.sources for g in graphs]))
    targets, sources = np.divmod(codes, first.nodes)
    directed = any(g.directed for g in graphs)
    return Graph(first.nodes, sources, targets, np.ones(len(codes)), directed)


def mean_gain(
    graphs: Sequence[Graph], sizes: ArrayLike, owns: Sequence[ArrayLike], links: float = 1.0, presence: float = 1.0
) -> float:
    """1 / ‖v‖₂, v the left fixed vector of the mean merge matrix of these networks: `Graph.gain` of one that changes.

    Exact if every matrix is doubly stochastic, as with `metropolis`: v is uniform then. Else the greatest value there
    can be, as with links that fail: the consensus fluctuates about its mean.
    """
    if len(graphs) == 1:
        return graphs[0].gain(sizes, links, presence, owns[0])
    mean: csr_array[np.float64] = csr_array((graphs[0].nodes,) * 2)
    for graph, own in zip(graphs, owns, strict=True):
        mean = csr_array(mean + graph.expected_merge_matrix(sizes, links, presence, own) * (1.0 / len(graphs)))
    steady = left_fixed_vector(mean, union(graphs).is_connected())
    return float(1.0 / np.linalg.norm(steady))
