"""What is in a picture: its words, its lines and their numbers, read from the figure that was saved."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray


def panels(figure: Figure) -> list[Axes]:
    """The panels that can be seen."""
    return [axes for axes in figure.axes if axes.get_visible()]


def title(axes: Axes) -> str:
    return axes.get_title(loc="left") or axes.get_title()


def legend(axes: Axes) -> list[str]:
    """The words of a legend, in its order."""
    found = axes.get_legend()
    return [text.get_text() for text in found.get_texts()] if found else []


def named(axes: Axes) -> dict[str, Line2D]:
    """The lines that a legend names."""
    return {str(line.get_label()): line for line in axes.lines if not str(line.get_label()).startswith("_")}


def points(line: Line2D) -> NDArray[np.float64]:
    """The numbers behind a line, [points, 2]."""
    return np.asarray(line.get_xydata(), np.float64)


def words(figure: Figure) -> str:
    """Every word that stands anywhere in a figure."""
    parts = [text.get_text() for text in figure.texts]
    for axes in panels(figure):
        parts += [title(axes), axes.get_xlabel(), axes.get_ylabel(), *legend(axes), *(t.get_text() for t in axes.texts)]
    return "\n".join([*parts, figure.get_suptitle()])
