"""How far models are apart, and weighted sums of them, by column blocks that fit the cache."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from coterie.job import Indices
from coterie.node.bundles import Scattered
from coterie.node.merging import blocks, operand, product


def squared_distances(
    matrix: Tensor,
    averages: sp.csr_array,
    first: int,
    last: int,
    present: Indices | None = None,
    others: Tensor | None = None,
    centre: Tensor | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Over these columns: ‖w_i − Σ_j a_ij w_j‖² of each row, and ‖w_i − mean of all rows, or of those present‖².

    `averages` may be of `others` than these rows, and the `centre` one that is known.
    """
    near, all_ = np.zeros(len(matrix)), np.zeros(len(matrix))
    sparse = operand(averages, matrix)
    for columns in blocks(first, last, len(matrix) if others is None else len(others)):
        block = matrix[:, columns].contiguous()
        heard = block if others is None else others[:, columns].contiguous()
        near += (block - product(sparse, heard)).square_().sum(1).double().cpu().numpy()
        if centre is None:
            middle = (block if present is None else block[torch.as_tensor(present)]).mean(0)
        else:
            middle = centre[columns]
        all_ += (block - middle).square_().sum(1).double().cpu().numpy()
    return near, all_


def weighted(arcs: sp.csr_array, rows: Scattered, found: Tensor) -> Tensor:
    """Σ_j a_ij w_j for each row of a sparse matrix, by column blocks, into `found`."""
    sparse, (height, width) = operand(arcs, found), rows.shape
    for columns in blocks(0, width, height):
        found[:, columns] = product(sparse, rows[:, columns])
    return found
