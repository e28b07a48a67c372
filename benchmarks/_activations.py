"""A start rescaled by its activations, which is compared with the others in `starts.py` and is no part of Coterie.

Untrained He models are merged once; then each node multiplies its layers, one after the other, so that on its own data
what they say has the spread that it had before the merge.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from coterie.initialisers import Initialiser, Origin
from coterie.initialisers.he import he
from coterie.job import Inputs, Job
from coterie.node.architecture import architectures
from coterie.node.gossip import Ready

SAMPLES = 256
"""The most of its own samples that a node looks at."""


def rescaled(job: Job) -> Ready:
    """The initialiser that gives every node of this job such a start; who joins later has a He start of its own."""
    module = architectures(job.roster, job.samples)[0].module
    own = torch.stack([_drawn(module, job.start(node)) for node in range(job.roster.nodes)])
    here, sizes = job.members(1), np.array([len(t) for t in job.roster.train])
    shares = (np.eye(len(here)) + job.graph(1).matrix().toarray() * here) * sizes
    merged = torch.from_numpy(shares / shares.sum(1, keepdims=True)).float() @ own
    starts = [
        _mended(module, before, after, job.samples.inputs(torch.as_tensor(job.roster.train[node][:SAMPLES])))
        if here[node]
        else before
        for node, (before, after) in enumerate(zip(own, merged, strict=True))
    ]

    def start(module: nn.Module, origin: Origin) -> None:
        vector_to_parameters(starts[origin.node], module.parameters())

    thing: Initialiser = start
    return Ready("initialisers", "he", thing=thing)


def _drawn(module: nn.Module, origin: Origin) -> Tensor:
    he(module, origin)
    return parameters_to_vector(module.parameters()).detach().clone()


def _mended(module: nn.Module, before: Tensor, after: Tensor, x: Inputs) -> Tensor:
    """The merged parameters, each layer rescaled to the spread that it had."""
    wanted: list[Tensor] = []
    _shown(module, before, x, lambda layer, _, said: wanted.append(said.std()))

    def rescale(layer: nn.Module, _: object, said: Tensor) -> Tensor:
        factor = wanted.pop(0) / said.std()
        layer.weight.data.mul_(factor)
        return said * factor  # biases are zero

    _shown(module, after, x, rescale)
    return parameters_to_vector(module.parameters()).detach().clone()


def _shown(module: nn.Module, row: Tensor, x: Inputs, hook: object) -> None:
    """Show a model the data, with a hook on each layer that has weights."""
    vector_to_parameters(row.clone(), module.parameters())
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    hooks = [layer.register_forward_hook(hook) for layer in layers]  # type: ignore[arg-type]
    with torch.no_grad():
        module(x)
    for each in hooks:
        each.remove()
