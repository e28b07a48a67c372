"""Whether answers are right."""

from coterie.metrics._answers import Answers


class Strict(Answers):
    """The share of samples of which every answer names the right object, and no answer a wrong one.

        strict = mean over samples of [lenient and all objects of the right answers named]

    Answers are generated greedily to all prompts of a sample.
    """

    strict = True
