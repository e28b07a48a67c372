"""A network from a file."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np

from coterie.errors import GraphError
from coterie.network.graph import Graph
from coterie.topologies import Topology


@dataclass(frozen=True)
class File(Topology):
    """A network read from a file: GraphML (by its suffix), or an edge list of lines `a b [weight]`.

    In an edge list, with commas or without, nodes are numbered from 0, `#` starts a comment, and if directed a sends to
    b. GraphML says itself whether it is directed; its nodes, named at will, are numbered in the order of the file. A
    line `a a weight` says what a's own model weighs beside its links, ω_ii, else 1.
    """

    path: str
    directed: bool = False

    @property
    def gain_exponent(self) -> None:
        """None: a file may hold any network."""
        return None

    @property
    def size(self) -> int:
        """How many nodes the file has."""
        return self._read().nodes

    def draw(self, nodes: int, rng: np.random.Generator) -> Graph:
        graph = self._read()
        if graph.nodes != nodes:
            cure = f"Set nodes to {graph.nodes}; an edge list numbers them from 0."
            raise GraphError(
                f"the network in {self.path} is of another size", expected=f"{nodes} nodes", got=graph.nodes, cure=cure
            )
        return graph

    def _read(self) -> Graph:
        where = Path(self.path).expanduser()
        try:
            if where.suffix.lower() == ".graphml":
                return Graph.from_networkx(nx.read_graphml(where))
            return _edge_list(where, self.directed)
        except OSError as error:
            raise GraphError(
                "cannot read the network", got=f"{self.path} ({error.strerror})", cure="Check topology.path."
            ) from error
        except (ET.ParseError, UnicodeDecodeError, ValueError, nx.NetworkXError) as error:
            raise GraphError(
                "cannot read the network", got=f"{self.path} ({error})", cure="Check topology.path."
            ) from error


def _edge_list(where: Path, directed: bool) -> Graph:
    links, weights = [], []
    for number, line in enumerate(where.read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            if len(words) not in (2, 3):
                raise ValueError
            links.append((int(words[0]), int(words[1])))
            weights.append(float(words[2]) if len(words) == 3 else 1.0)
        except ValueError:
            expected, cure = "`a b [weight]`, nodes numbered from 0", "Number the nodes; GraphML may name them."
            raise GraphError(
                f"line {number} of {where}", expected=expected, got=repr(line.strip()), cure=cure
            ) from None
    return Graph.from_edges(1 + max((max(link) for link in links), default=0), links, weights, directed)
