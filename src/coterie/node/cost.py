"""What an architecture costs: operations, and memory that training needs beside the parameters."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from coterie.datasets import each
from coterie.job import Samples
from coterie.node.architecture import architecture
from coterie.parts import Choice

TRAINING = 3
"""Passes that training on a sample costs, in units of a forward pass: the backward one is taken for two."""

SHOWN = 2
"""How many samples a model is shown: one has no batch statistics, which some models take."""


class Cost(NamedTuple):
    """What one sample costs, in evaluation mode; a batch costs as many times as much."""

    flops: int
    """Floating-point operations of a forward pass in products, convolutions and attention; a multiply-add is two."""
    activation_bytes: int
    """What a forward pass keeps for the backward pass, the sample itself included and parameters not."""


class _Operations(TorchDispatchMode):
    """Counts operations as `torch.utils.flop_counter` does, without PyTorch's compiler, whose import takes a second."""

    count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, counts = kwargs or {}, flop_registry.get(func._overloadpacket)
        if counts is None and func is not torch.ops.prim.device.default:
            with self:
                parts = func.decompose(*args, **kwargs)  # into operators that are known, if it is made of such
            if parts is not NotImplemented:
                return parts
        found = func(*args, **kwargs)
        self.count += 0 if counts is None else int(counts(*args, **kwargs, out_val=found))
        return found


_known: dict[tuple[str, str], Cost] = {}
"""Costs by model and kind of samples: they do not depend on numbers."""


def cost(model: Choice, samples: Samples) -> Cost:
    """The cost of one sample of these with this model."""
    about = repr(model), samples.kind
    if about not in _known:
        _known[about] = measured(architecture(model, samples, "cpu").module, samples)
    return _known[about]


def measured(module: nn.Module, samples: Samples) -> Cost:
    """The cost of one sample of these with this module."""
    module.eval()
    own = {p.untyped_storage().data_ptr() for p in (*module.parameters(), *module.buffers())}
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    x = each(samples.inputs(torch.zeros(SHOWN, dtype=torch.int64)), lambda t: t.to(device))
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()  # what several layers keep, or keep views of, is there once
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would hold its own history, and never be freed

    with torch.random.fork_rng(devices=[]), saved_tensors_hooks(keep, lambda tensor: tensor):
        with _Operations() as operations:  # type: ignore[no-untyped-call]
            outputs = module(x)  # held until the counts are read: memory that is freed may be used again
        found = Cost(operations.count // SHOWN, sum(kept.values()) // SHOWN)
        del outputs
    return found
