"""Anchors: a few made-up samples for each class that stand for a node's data, and what is learnt from them."""

from collections.abc import Callable
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.randomness import torch_generator

REAL = 256
"""Real samples of a class that a step looks at."""
LAYERS = 3
TEMPERATURE = 0.07
"""Of the contrast between features."""


def distil(
    inputs: Tensor, targets: Tensor, ipc: int, steps: int, width: int, seed: int, node: int
) -> dict[int, Tensor]:
    """Anchors `[ipc, *shape]` of each class held, by distribution matching, from noise with the data's mean and spread.

        minimise over x:  Σ_c ‖mean φ(T(real_c)) − mean φ(T(x_c))‖²,   new random net φ and augmentation T each step

    Reference: Zhao and Bilen, Dataset Condensation with Distribution Matching, 2023
    """
    draw = torch_generator(seed, "anchors", node)
    held = {int(c): inputs[targets == c] for c in targets.unique().tolist()}
    shape = inputs.shape[1:]
    noise = torch.randn(len(held), ipc, *shape, generator=draw).to(inputs)
    spread = inputs.std(correction=0)
    made = noise * spread + inputs.mean()
    velocity = torch.zeros_like(made)
    low, high = inputs.min(), inputs.max()  # φ hardly sees a scale: without bounds every step would add to it
    for step in range(steps):
        rng = torch_generator(seed, "anchors", node, step)
        features, augmented = _net(shape, width, rng, inputs), _augmentation(shape, rng, inputs)
        leaf = made.detach().requires_grad_()
        ours = features(augmented(leaf.flatten(0, 1))).unflatten(0, (len(held), ipc)).mean(1)
        with torch.no_grad():
            some = [x[torch.randperm(len(x), generator=rng)[:REAL].to(x.device)] for x in held.values()]
            theirs = torch.stack([features(augmented(x)).mean(0) for x in some])
        (gradient,) = torch.autograd.grad((ours - theirs).square().sum(), leaf)
        velocity = 0.5 * velocity + gradient
        made = (made - spread**2 * velocity).clamp(low, high)  # a rate of 1 for data of spread 1
    return dict(zip(held, made.detach(), strict=True))


def _net(shape: torch.Size, width: int, rng: torch.Generator, like: Tensor) -> Callable[[Tensor], Tensor]:
    """A random net: convolution, instance norm, ReLU and 2×2 mean; for what is no image dense layers instead."""

    def weights(*size: int) -> Tensor:
        scale = float((2 / prod(size[1:])) ** 0.5)
        return scale * torch.randn(*size, generator=rng).to(like)

    if len(shape) != 3:
        dense = [weights(width, fan_in) for fan_in in (prod(shape), *[width] * (LAYERS - 1))]

        def layers(x: Tensor) -> Tensor:
            x = x.flatten(1)
            for w in dense:
                x = F.relu(F.layer_norm(F.linear(x, w), (width,)))
            return x

        return layers
    kernels = [weights(width, depth, 3, 3) for depth in (shape[0], *[width] * (LAYERS - 1))]

    def convolutions(x: Tensor) -> Tensor:
        for kernel in kernels:
            x = F.relu(F.instance_norm(F.conv2d(x, kernel, padding=1)))
            if min(x.shape[2:]) >= 6:  # small images keep their few pixels
                x = F.avg_pool2d(x, 2)
        return x.flatten(1)

    return convolutions


def _augmentation(shape: torch.Size, rng: torch.Generator, like: Tensor) -> Callable[[Tensor], Tensor]:
    """One small rotation, stretch and shift for all images of a step, real and made; other samples stay as they are."""
    if len(shape) != 3:
        return lambda x: x
    turn, wide, high, right, down = (2 * torch.rand(5, generator=rng) - 1).tolist()
    angle = torch.tensor(0.26 * turn)  # at most 15 degrees
    matrix = torch.tensor(
        [
            [(1 + 0.2 * wide) * angle.cos(), -angle.sin(), 0.25 * right],
            [angle.sin(), (1 + 0.2 * high) * angle.cos(), 0.25 * down],
        ]
    ).to(like)

    def moved(x: Tensor) -> Tensor:
        grid = F.affine_grid(matrix.expand(len(x), 2, 3), list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)

    return moved


def contrast(real: Tensor, targets: Tensor, anchors: Tensor, labels: Tensor) -> Tensor:
    """Supervised contrast: real features towards the anchors of their class, away from the others'.

        mean over i of  −mean over p with y_p = y_i of  log softmax_p(f_i·a_p / τ),   f and a of length one

    Reference: Khosla et al., Supervised Contrastive Learning, 2020
    """
    near = F.normalize(real, dim=-1) @ F.normalize(anchors.detach(), dim=-1).T / TEMPERATURE
    alike = (targets[:, None] == labels).to(near)
    matched = alike.sum(1)
    found = matched > 0
    each = -(alike * F.log_softmax(near, -1)).sum(1)[found] / matched[found]
    return each.mean() if len(each) else near.sum() * 0


def taught(logits: Tensor, labels: Tensor, told: Tensor, temperature: float) -> Tensor:
    """Distillation from what others told, where it was: their logits z̄, NaN elsewhere.

        0.1·CE(z, y) + 0.9·T²·KL(softmax(z̄/T) ‖ softmax(z/T))

    Reference: Hinton et al., Distilling the Knowledge in a Neural Network, 2015
    """
    heard = told.isfinite().all(1)
    if not heard.any():
        return logits.sum() * 0
    logits, labels, told = logits[heard], labels[heard], told[heard]
    soft, wanted = F.log_softmax(logits / temperature, -1), F.log_softmax(told / temperature, -1)
    divergence = F.kl_div(soft, wanted, reduction="batchmean", log_target=True)
    return 0.1 * F.cross_entropy(logits, labels) + 0.9 * temperature**2 * divergence
