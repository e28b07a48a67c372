from torch import Tensor

from coterie.augmentations import Draw


def flip(x: Tensor, draw: Draw, *, share: float = 0.5) -> Tensor:
    """Pictures are mirrored, left to right, each with probability `share`."""
    return x.flip(-1).where((draw() < share).view(-1, *[1] * (x.dim() - 1)), x)
