import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.errors import ConfigError
from coterie.models._layers import image


def vit(
    shape: tuple[int, ...],
    classes: int,
    *,
    width: int = 128,
    depth: int = 2,
    patch: int = 4,
    head: int = 64,
    dropout: float = 0.1,
) -> nn.Module:
    """A vision transformer for small data: shifted patches, and attention that looks elsewhere than at itself.

        tokens = W·norm(patches of [x, x moved by half a patch along each diagonal])
        attention = softmax(s·q·kᵀ, without its diagonal)·v,   s learnt, one for each head

    It has `depth` layers of `width` and max(1, width // head) heads of `head` dimensions each; the layers in between
    are twice as wide. `dropout` follows the embedding and every layer. Queries, keys and values have a matrix each, in
    which heads follow each other, so that a model cut narrower keeps whole heads.

    Reference: Lee et al., Vision Transformer for Small-Size Datasets, 2021
    """
    channels, high, wide = image("vit", shape)
    if min(width, depth, patch, head) < 1:
        got = f"{width}, {depth}, {patch} and {head}"
        raise ConfigError("model 'vit'", expected="width, depth, patch and head of at least 1", got=got)
    if not 0 <= dropout < 1:
        raise ConfigError("dropout", expected="a share from 0 to below 1", got=dropout)
    if high % patch or wide % patch:
        fits = [p for p in range(2, min(high, wide) + 1) if high % p == wide % p == 0]
        best = min(fits, key=lambda p: abs(p - patch), default=1)
        cure = f"Choose one that does: --model.patch {best}."
        raise ConfigError("model 'vit'", expected=f"patches that divide {high}×{wide} pixels", got=patch, cure=cure)
    tokens = (high // patch) * (wide // patch)
    layers = [_Layer(width, max(1, width // head), head, dropout) for _ in range(depth)]
    return nn.Sequential(
        _Patches(patch, channels, width),
        _Places(tokens, width, dropout),
        *layers,
        _First(),
        nn.LayerNorm(width),
        nn.Linear(width, classes),
    )


def _drop(share: float) -> nn.Module:
    """Dropout; nothing at all for a share of 0, so that the model can be stacked."""
    return nn.Dropout(share) if share else nn.Identity()


class _Patches(nn.Module):
    """Shifted patch tokenisation: the image and four shifted copies of it, cut into patches, as tokens."""

    def __init__(self, patch: int, channels: int, width: int) -> None:
        super().__init__()
        self.patch = patch
        inside = 5 * channels * patch * patch
        self.norm, self.project = nn.LayerNorm(inside), nn.Linear(inside, width)

    def forward(self, x: Tensor) -> Tensor:
        (high, wide), size, by = x.shape[-2:], self.patch, self.patch // 2
        larger = F.pad(x, (by, by, by, by))
        moved = [larger[..., up : up + high, left : left + wide] for up in (0, 2 * by) for left in (0, 2 * by)]
        whole = torch.cat([x, *moved], dim=1)
        cut = whole.reshape(len(x), -1, high // size, size, wide // size, size)
        flat = cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        tokens: Tensor = self.project(self.norm(flat))
        return tokens


class _Places(nn.Module):
    """Where tokens stand is added to them, and one more is set before them, from which the class is read."""

    def __init__(self, tokens: int, width: int, dropout: float) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.empty(1 + tokens, width))
        self.drop = _drop(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.places, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        placed = F.pad(tokens, (0, 0, 1, 0)) + self.places
        dropped: Tensor = self.drop(placed)
        return dropped


class _Attention(nn.Module):
    """Locality self-attention: a temperature that is learnt, and no token attends to itself."""

    def __init__(self, width: int, heads: int, head: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.head = heads, head
        inner = heads * head
        self.query, self.key, self.value = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.scale = nn.Parameter(torch.empty(heads))
        self.drop, self.out = _drop(dropout), nn.Linear(inner, width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.scale, self.head**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, self.head)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) * self.scale[:, None, None]
        itself = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        attention = self.drop(scores.masked_fill(itself, float("-inf")).softmax(-1))
        found: Tensor = self.out((attention @ v).transpose(1, 2).flatten(2))
        return found


class _Layer(nn.Module):
    """Attention, then two dense layers, each beside a shortcut and after a norm."""

    def __init__(self, width: int, heads: int, head: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), _Attention(width, heads, head, dropout)
        self.drop = _drop(dropout)
        self.dense = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            _drop(dropout),
            nn.Linear(2 * width, width),
            _drop(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        attended = x + self.drop(self.attention(self.norm(x)))
        out: Tensor = attended + self.dense(attended)
        return out


class _First(nn.Module):
    """The first token alone."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]
