"""Averaging weighted by second-order information that training leaves behind."""

from dataclasses import dataclass, field

from torch import Tensor

from coterie.contract import Data
from coterie.rules.dechw import DecHW


@dataclass(frozen=True)
class DecHWLite(DecHW):
    """DecHW with the squared gradients that local training computes anyway, instead of a pass over the data.

        h_i = Σ_{steps of the round} (∂ loss/∂w)²,   and all else as in DecHW

    Costs no gradient of its own. The price: each square is taken where the parameters were at that step, in training
    mode, and of the training objective with its clamp, so the diagonal lags behind the model that is sent with it.

    Reference: a variant of Ahmad et al., DecHW: Heterogeneous Decentralized Federated Learning Exploiting Second-Order
    Information
    """

    squares = True
    batch_size: int = field(default=1, init=False)  # no pass, no batches: not to be set
    batches: int | None = field(default=None, init=False)

    def _diagonal(self, params: Tensor, data: Data) -> Tensor:
        return data.squares()
