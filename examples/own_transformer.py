"""A small transformer of one's own, and texts as tokens: is a sum of two digits, written in words, above nine?"""

import itertools

import polars as pl
import torch
from torch import Tensor, nn

import coterie

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class Transformer(nn.Module):
    """Tokens with their places, a layer of attention, the mean over what is no padding."""

    def __init__(self, classes: int, width: int = 32, length: int = 8) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(2000, width), nn.Parameter(0.1 * torch.randn(length, width))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.hidden, self.last = nn.Linear(width, 64), nn.Linear(64, classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Called with the tensors of a sample by their names."""
        x = self.tokens(tokens) + self.places
        x = x + self.attention(x, x, x, key_padding_mask=~mask, need_weights=False)[0]
        x = (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        out: Tensor = self.last(torch.relu(self.hidden(x)))
        return out


if __name__ == "__main__":
    pairs = list(itertools.product(range(10), repeat=2)) * 4
    texts = pl.DataFrame(
        {"text": [f"{WORDS[a]} plus {WORDS[b]}" for a, b in pairs], "label": [int(a + b > 9) for a, b in pairs]}
    )
    run = coterie.Experiment(
        dataset={"name": texts, "length": 8},
        model=Transformer,
        optimiser={"name": "adam", "lr": 0.003},
        partition="iid",
        nodes=4,
        rounds=15,
        topology="complete",
        methods=["decavg"],
    ).run()
    print(run.table().select("method", "accuracy"))
