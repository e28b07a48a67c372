"""The early-stage model and the exact gain, as ratios: a round / one sparse product, the gain / building the graph."""

import argparse
import time
from collections.abc import Callable

import networkx as nx
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from _setup import best_of
from coterie.network.dynamics import SparseProduct, column_chunks, simulate
from coterie.network.graph import Graph

ROUNDS = 10


def rounds_table(nodes: int, dimensions: int, repeats: int) -> Table:
    """Seconds of a round beyond the start, over the fastest product we know (in column blocks) and a plain one."""
    graph = Graph.from_networkx(nx.barabasi_albert_graph(nodes, 4, seed=0))
    graph.mixing_time()  # computed once and kept: no part of a round
    merge = graph.merge_matrix()
    product, plain = SparseProduct(merge), merge.astype(np.float32)
    whole = torch.randn(nodes, dimensions)
    blocks = [whole[:, b].contiguous() for chunk in column_chunks(nodes, dimensions, False) for b in chunk]
    runs: list[Callable[[int], object]] = [
        lambda _: [product(block) for block in blocks],
        lambda _: product(whole),
        lambda _: plain @ whole.numpy(),
        lambda _: simulate(graph, dimensions, 1),
        lambda _: simulate(graph, dimensions, 1 + ROUNDS),
        lambda _: simulate(graph, dimensions, 1, noise=0.0),
        lambda _: simulate(graph, dimensions, 1 + ROUNDS, noise=0.0),
    ]
    blocked, unblocked, scipy, one, many, one_still, many_still = best_of(repeats, *runs)
    table = Table("", "ratio", "goal", title=f"One round / one product: {nodes:,} nodes, BA m = 4, d = {dimensions:,}")
    table.add_row("a round / product in column blocks", f"{(many - one) / ROUNDS / blocked:.2f}", "3")
    table.add_row("a round without noise / the same", f"{(many_still - one_still) / ROUNDS / blocked:.2f}", "")
    table.add_row("a round / product of the whole matrix", f"{(many - one) / ROUNDS / unblocked:.2f}", "")
    table.add_row("a round / SciPy's product", f"{(many - one) / ROUNDS / scipy:.2f}", "")
    return table


def gain_table(nodes: int) -> Table:
    """Seconds of the exact gain over those networkx takes to build the graph."""
    start = time.perf_counter()
    built = nx.barabasi_albert_graph(nodes, 4, seed=0)
    building = time.perf_counter() - start
    links = Graph.from_networkx(built)
    arcs = Graph(nodes, links.sources, links.targets, np.linspace(0.5, 1.5, len(links.sources)), directed=True)
    sizes = np.random.default_rng(0).integers(1, 500, nodes)
    cases: dict[str, Callable[[], float]] = {
        "equal sizes (closed form)": lambda: Graph(nodes, links.sources, links.targets, links.weights).gain(),
        "data sizes (closed form)": lambda: links.gain(sizes),
        "links fail, equal sizes (closed form)": lambda: links.gain(links=0.5),
        "directed, weighted (first eigenvector)": arcs.gain,
        "links fail, data sizes (quadrature, first eigenvector)": lambda: links.gain(sizes, links=0.5),
    }
    table = Table("gain of", "ratio", title=f"Exact gain / networkx building the graph: {nodes:,} nodes, BA m = 4")
    for name, case in cases.items():
        start = time.perf_counter()
        case()
        table.add_row(name, f"{(time.perf_counter() - start) / building:.3f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--dimensions", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    Console().print(rounds_table(given.nodes, given.dimensions, given.repeats))
    Console().print(gain_table(10 * given.nodes))


if __name__ == "__main__":
    main()
