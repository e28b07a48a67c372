"""Whether answers are free of errors."""

from coterie.metrics._answers import Answers


class Lenient(Answers):
    """The share of samples of which no answer names a wrong object; an answer that names nothing is no error.

        lenient = mean over samples of [no object in the answers that is in no right answer]

    Objects are the words that are in the right answers of some samples and not of all. Answers are generated greedily
    to all prompts of a sample; see `strict` for a score that garbage does not get.
    """

    strict = False
