"""Linear models by hand: steps on one score that is linear in a sample, for many rows at once and without autograd."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.job import Indices, Roster, Samples
from coterie.node.architecture import Architecture
from coterie.objectives import Formula, shape_of
from coterie.optimisers import Optimiser
from coterie.optimisers.sgd import SGD
from coterie.protocols import Train

Float32s = NDArray[np.float32]
AfterEpoch = Callable[[int, int], None]
"""What is done after an epoch: (which of the rows, how many epochs its model has behind it)."""

BLOCK = 1 << 18
"""How many numbers of samples are gathered at a time: they stay in a fast cache."""


def by_hand(
    roster: Roster, samples: Samples, architecture: Architecture, optimiser: Optimiser
) -> "LinearTraining | None":
    """What trains such models by hand, if model, objective and optimiser allow it.

    The model says that it has one linear score for two classes (`one`), the objective its shape, and the optimiser is
    SGD that neither pulls back nor is kept with its momentum.
    """
    x, training = samples.train_x, roster.training
    shape = shape_of(roster.objective.make())
    plain = isinstance(optimiser, SGD) and not (optimiser.prox or (optimiser.momentum and training.keep_optimiser))
    plain &= training.clamp is None and training.clip is None and training.patience is None
    one = getattr(architecture.module, "one", None) is True and isinstance(x, Tensor) and x.dtype == torch.float32
    if not (one and plain) or roster.augment or shape is None or roster.device != "cpu":
        return None
    assert isinstance(optimiser, SGD)
    assert isinstance(x, Tensor)
    return LinearTraining(roster, x, samples.train_y, shape.slope, optimiser)


class LinearTraining:
    """Stochastic gradient descent on φ(y(w·x + b)), y = ±1, of several rows at once.

        g = mean over the mini-batch of φ'(z·w) z,   z = y·(x, 1), w with b as its last
        m ← momentum·m + g + weight_decay·w,   w ← w − lr·m

    Autograd spends a hundred times as long on what surrounds these two products as on themselves.
    """

    def __init__(self, roster: Roster, x: Tensor, y: Tensor, slope: Formula, optimiser: SGD) -> None:
        self.roster, self.slope, self.lr = roster, slope, np.float32(optimiser.lr)
        images = x.permute(0, 3, 1, 2) if x.dim() == 4 else x  # kept with their channels last
        self.x, self.sign = images.flatten(1).numpy(), (2 * y - 1).to(torch.float32).numpy()
        self.decay = np.full(self.x.shape[1] + 1, optimiser.lr * optimiser.weight_decay, np.float32)
        if optimiser.spares:
            self.decay[-1] = 0
        self.shrinks, self.momentum = bool(optimiser.weight_decay), np.float32(optimiser.momentum)

    @np.errstate(over="ignore", invalid="ignore")  # what diverges is found out afterwards
    def train(
        self, params: Float32s, nodes: Sequence[int], round: int, turns: Sequence[Train], look: AfterEpoch | None = None
    ) -> Indices:
        """Train these rows `[R, P]` for a round, in place; gives the number of mini-batches of each.

        Rows have fewer steps from first to last. `look` is called at the end of each epoch of a row.
        """
        steps = np.array([self.roster.steps(node, turn) for node, turn in zip(nodes, turns, strict=True)])
        assert (np.diff(steps) <= 0).all()
        renew = self.roster.training.renew_optimiser and bool(self.momentum)
        ends = self._ends(nodes, round, turns, steps) if look or renew else {}
        moving = np.zeros_like(params)
        batches = _Batches(self.roster, nodes, round, turns)
        width, size = self.x.shape[1] + 1, self.roster.training.batch_size
        done = 0
        for stop in np.unique(steps[steps > 0]).tolist():  # until when the same rows are at work
            live = int((steps >= stop).sum())
            while done < stop:
                count = min(stop - done, max(1, BLOCK // (live * size * width)))
                block = self._block(*batches.take(live, count))
                for z, share in block:
                    self._step(params[:live], moving[:live], z, share)
                    done += 1
                    for row, epoch in ends.get(done, ()):
                        if look:
                            look(row, epoch)
                        if renew:
                            moving[row] = 0
        return steps

    def _ends(
        self, nodes: Sequence[int], round: int, turns: Sequence[Train], steps: Indices
    ) -> dict[int, list[tuple[int, int]]]:
        """After which steps an epoch of which row ends, and how many its model then has behind it."""
        found: dict[int, list[tuple[int, int]]] = {}
        for row, (node, turn) in enumerate(zip(nodes, turns, strict=True)):
            per_epoch, behind = self.roster.per_epoch(node), self.roster.behind(node, round, turn)
            for epoch in range(behind // per_epoch + 1, (behind + int(steps[row])) // per_epoch + 1):
                found.setdefault(epoch * per_epoch - behind, []).append((row, epoch))
        return found

    def _block(self, index: Indices, real: Indices) -> Iterator[tuple[Float32s, Float32s | None]]:
        """Signed samples of each step `[R, B, P]` and their parts in it; `[R, P]` or `[P]` where it is one of each."""
        z = np.empty((*index.shape, self.x.shape[1] + 1), np.float32)
        np.multiply(self.x[index], self.sign[index][..., None], out=z[..., :-1])
        z[..., -1] = self.sign[index]
        if index.shape[2] == 1:
            yield from ((one, None) for one in (z[:, 0, 0] if z.shape[1] == 1 else z[:, :, 0]))
        else:
            within = np.arange(index.shape[2]) < real[..., None]
            yield from zip(z, (within * (self.lr / real[..., None])).astype(np.float32), strict=True)

    def _step(self, w: Float32s, moving: Float32s, z: Float32s, share: Float32s | None) -> None:
        """One step of all rows; `moving` is what they moved by in the step before."""
        if z.ndim == 1:
            w, moving = w[0], moving[0]
            change: NDArray[Any] = z * (self.slope(z.dot(w)) * self.lr)
        elif share is None:
            change = z * (self.slope(np.einsum("rp,rp->r", z, w)) * self.lr)[:, None]
        else:
            change = np.einsum("rb,rbp->rp", self.slope(np.einsum("rbp,rp->rb", z, w)) * share, z)
        if self.momentum:
            moving *= self.momentum
            change += moving
        if self.shrinks:
            change += w * self.decay
        if self.momentum:
            moving[...] = change
        w -= change


class _Batches:
    """The mini-batches of some rows, so many at a time."""

    def __init__(self, roster: Roster, nodes: Sequence[int], round: int, turns: Sequence[Train]) -> None:
        self.size = roster.training.batch_size
        self.orders = [roster.orders(node, round, turn) for node, turn in zip(nodes, turns, strict=True)]
        self.left = [np.empty(0, np.int64) for _ in nodes]
        """What is left of the epoch of each row."""

    def take(self, rows: int, count: int) -> tuple[Indices, Indices]:
        """The next mini-batches of the first rows: samples `[count, rows, B]`, and how many of them are real."""
        index = np.zeros((count, rows, self.size), np.int64)
        real = np.full((count, rows), self.size)
        for row in range(rows):
            at = 0
            while at < count:
                if not len(self.left[row]):
                    self.left[row] = next(self.orders[row])
                some, self.left[row] = np.split(self.left[row], [(count - at) * self.size])
                whole, rest = divmod(len(some), self.size)
                index[at : at + whole, row] = some[: whole * self.size].reshape(whole, self.size)
                at += whole
                if rest:  # the last mini-batch of an epoch
                    index[at, row, :rest], real[at, row] = some[whole * self.size :], rest
                    at += 1
        return index, real
