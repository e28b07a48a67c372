from torch import Tensor

from coterie.augmentations import Draw


def noise(x: Tensor, draw: Draw, *, deviation: float = 0.1) -> Tensor:
    """Every number of a sample has a normal one added to it, of this standard deviation."""
    return x + deviation * draw.normal(*x.shape[1:])
