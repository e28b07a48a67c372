"""The ordinary loss of numeric targets."""

from torch import Tensor

from coterie.contract import Me
from coterie.errors import ConfigError


def squared_error(outputs: Tensor, target: Tensor, me: Me) -> Tensor:
    """Squared error: how far the model's numbers are from the target's, for regression.

    loss = mean over the numbers of a target of (ŷ − y)²
    """
    if outputs.numel() != target.numel():
        raise ConfigError(
            "objective squared_error",
            expected="an output for each number of a target",
            got=f"outputs {list(outputs.shape[1:])} for targets {list(target.shape[1:])}",
            cure="Let the model give as many numbers as a target has, or learn labels with --objective cross_entropy.",
        )
    apart = (outputs.reshape(target.shape) - target).square()
    return apart.flatten(1).mean(1) if apart.dim() > 1 else apart
