"""How far predicted numbers are off."""

from torch import Tensor

from coterie.errors import ConfigError
from coterie.metrics import Mean


class Error(Mean):
    """Mean squared error of numeric targets.

    error = mean of (ŷ − y)², over samples and over the numbers of a target
    """

    def each(self, outputs: Tensor, targets: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The mean squared difference of each sample's numbers."""
        if outputs.numel() != targets.numel():
            raise ConfigError(
                "metric error",
                expected="an output for each number of a target",
                got=f"outputs {list(outputs.shape[1:])} for targets {list(targets.shape[1:])}",
                cure="Let the model give as many numbers as a target has, or judge by something else: --metrics loss.",
            )
        apart = (outputs.reshape(targets.shape) - targets).square()
        return apart.flatten(2).mean(2) if apart.dim() > 2 else apart, real
