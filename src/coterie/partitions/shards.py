import numpy as np

from coterie.partitions._deal import Indices, by_class, check, positive


def shards(labels: Indices, nodes: int, rng: np.random.Generator, *, per_node: int = 2) -> list[Indices]:
    """Sort the samples by label, cut them into nodes × per_node shards of equal size, and deal these out at random.

    Every sample is given to someone; shards differ by at most one sample. Two shards mean about two labels.

    Reference: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, Communication-Efficient Learning of Deep Networks from
    Decentralized Data, 2017
    """
    positive("per_node", per_node)
    check(labels, nodes, per_node, "per_node")
    pieces = np.array_split(np.concatenate(by_class(labels, rng)), nodes * per_node)
    hands = rng.permutation(len(pieces)).reshape(nodes, per_node)
    return [np.sort(np.concatenate([pieces[s] for s in hand])) for hand in hands]
