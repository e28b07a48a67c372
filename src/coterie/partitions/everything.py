import numpy as np

from coterie.partitions._deal import Indices, check, overlapping


@overlapping
def everything(labels: Indices, nodes: int, rng: np.random.Generator) -> list[Indices]:
    """Let every node hold the complete data set; nodes share all samples.

    Reference: Jiang, Fan, Halabi, Haque, Performance Analysis of Decentralized Federated Learning Deployments, 2025
    """
    check(labels, nodes)
    return [np.arange(len(labels)) for _ in range(nodes)]
