"""How many tokens a language model wavers between."""

import numpy as np

from coterie.metrics import Values
from coterie.metrics.loss import Loss


class Perplexity(Loss):
    """Perplexity: between how many equally likely tokens, or classes, a model is in doubt on average.

    perplexity = exp(mean of −log softmax(z)_y)
    """

    def value(self) -> Values:
        """The exponential of the mean cross-entropy."""
        with np.errstate(over="ignore"):  # a model that is sure and wrong has an infinite one
            return np.exp(super().value())
