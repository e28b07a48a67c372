"""Eigenvalues and eigenvectors of merge matrices: dense for small networks, iterated for large ones."""

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs, eigsh, spsolve

from coterie.errors import GraphError
from coterie.network.faults import Floats
from coterie.randomness import generator

_DENSE = 500  # up to here all eigenvalues of the dense matrix cost less than a good guess at one


_REST = 0.15  # the share of a flow that stays where it is in a step


def left_fixed_vector(merge: csr_array[np.float64], connected: bool) -> Floats:
    """The left eigenvector of a merge matrix with eigenvalue 1: v with v M = v and sum 1.

    With m_i = 1 − M_ii the flow u_i = v_i m_i is fixed under the moves alone, P_ij = M_ij / m_i, which do not linger
    where nodes mostly keep to themselves.
    """
    if not connected:
        raise GraphError("the network has no single steady state", cure="Add links until it is strongly connected.")
    nodes, stays = merge.shape[0], merge.diagonal()
    if nodes == 1:
        return np.ones(1)
    moves = 1.0 - stays
    onward = (diags_array(1.0 / moves) @ merge - diags_array(stays / moves)).T.tocsr()
    flow = _first_vector(onward, moves / moves.sum()) if nodes > _DENSE else None
    if flow is None:  # few nodes, or a long ring, sparse enough to solve: fix u_0 = 1, drop the first equation
        system = (eye_array(nodes) - onward).tocsc()
        flow = np.concatenate([[1.0], np.atleast_1d(spsolve(system[1:, 1:], -system[1:, [0]].toarray()[:, 0]))])
    return np.asarray(flow / moves / (flow / moves).sum(), np.float64)


def _first_vector(onward: csr_array[np.float64], start: Floats) -> Floats | None:
    """The fixed vector of a column-stochastic matrix; None if it mixes too slowly to be iterated."""
    # a little rest keeps the eigenvalue −1 of bipartite networks from being as large as the first
    rested = LinearOperator(onward.shape, lambda x: _REST * x + (1.0 - _REST) * (onward @ x), dtype=np.float64)
    try:
        _, vectors = eigs(rested, 1, which="LM", v0=start, ncv=20, maxiter=100, tol=1e-12)
    except ArpackNoConvergence:
        return None
    return np.abs(vectors[:, 0].real)


def second_of_symmetric(similar: csr_array[np.float64], first: Floats) -> float:
    """The second eigenvalue in modulus, the first being 1 with eigenvector `first`."""
    nodes = similar.shape[0]
    if nodes <= _DENSE:
        values = np.linalg.eigvalsh(similar.toarray())
        return float(max(values[-2], -values[0]))
    start = generator(0, "spectrum").standard_normal(nodes)
    rest = LinearOperator(similar.shape, lambda x: similar @ x - first * (first @ x), dtype=np.float64)
    if np.linalg.norm(rest @ start) < 1e-12 * np.linalg.norm(start):
        return 0.0
    try:
        return float(np.abs(eigsh(rest, 1, which="LM", v0=start, maxiter=50, ncv=40, return_eigenvectors=False)[0]))
    except ArpackNoConvergence:
        # many eigenvalues crowd near 1, as on long lines: such graphs are sparse, and inverting spreads the crowd
        columns = similar.tocsc()
        high = float(eigsh(columns, 2, sigma=1 + 1e-9, v0=start, return_eigenvectors=False).min())
        if high >= 1 - 2 * similar.diagonal().min():  # no eigenvalue is below 2 min M_ii − 1 (Gershgorin)
            return high
        return float(max(high, -eigsh(columns, 1, sigma=-1.0, v0=start, return_eigenvectors=False)[0]))


def second_of_general(merge: csr_array[np.float64]) -> float:
    """|λ₂| of any merge matrix; above 500 nodes the rate at which disagreement decays, to about three digits."""
    if merge.shape[0] <= _DENSE:
        return float(np.sort(np.abs(np.linalg.eigvals(merge.toarray())))[-2])
    start = generator(0, "spectrum").standard_normal(merge.shape[0])
    models, shrinkage = start, np.empty(400)
    for step in range(len(shrinkage)):
        models = np.asarray(merge @ models, np.float64)
        models = models - models.mean()
        shrinkage[step] = np.linalg.norm(models)
        if shrinkage[step] < 1e-12:
            return 0.0
        models = models / shrinkage[step]
    before, rate = np.exp(np.log(shrinkage[-200:]).reshape(2, -1).mean(axis=1))
    if rate < 0.98 or abs(rate - before) < 1e-3 * (1 - rate):
        return float(rate)
    # every node keeps a share of itself, so eigenvalues of modulus near 1 lie near 1 itself; the first is 1
    values = eigs(merge.tocsc(), 4, sigma=1 + 1e-9, v0=start, return_eigenvectors=False)
    return float(np.sort(np.abs(values))[-2])
