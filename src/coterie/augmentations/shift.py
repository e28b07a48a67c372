import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.augmentations import Draw


def shift(x: Tensor, draw: Draw, *, by: int = 2) -> Tensor:
    """Pictures are moved by up to `by` pixels each way; what comes in at the border is 0.

    This is the crop at random of a picture with a margin.
    """
    height, width = x.shape[-2:]
    down, right = (draw(2) * (2 * by + 1)).long().unbind(1)
    wide = F.pad(x, (by, by, by, by))
    rows = down[:, None] + torch.arange(height, device=x.device)
    columns = right[:, None] + torch.arange(width, device=x.device)
    which = torch.arange(len(x), device=x.device)[:, None, None]
    return wide.movedim(1, -1)[which, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)
