"""Where a peer's model is: in main memory, where messages come and go, and on its device while that computes."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from coterie.contract import Fields, Message
from coterie.node.rows import Rows

RESTING = "cpu"
PLACED = ("matrix", "integers", "squares")
"""What of a trainer goes to the device and comes back, beside the state of its optimiser."""


@contextlib.contextmanager
def at_work(models: Rows, notes: dict[str, Tensor] | None = None) -> Iterator[None]:
    """Have these rows, and a node's notes, on the device of the job while this lasts."""
    device = models.roster.device
    if device == RESTING:
        yield
        return
    own = vars(models)
    rest = {name: own[name] for name in PLACED if own.get(name) is not None}
    optimiser: dict[str, Tensor] = own.get("optimiser_state", {})
    own.update({name: there(tensor, device) for name, tensor in rest.items()})
    own["optimiser_state"] = {name: there(tensor, device) for name, tensor in optimiser.items()}
    if notes is not None:
        notes.update(moved(notes, device))
    try:
        yield
    finally:
        for name, tensor in rest.items():
            tensor.copy_(own[name])
        for name, tensor in optimiser.items():
            tensor.copy_(own["optimiser_state"][name])
        own.update(rest, optimiser_state=optimiser)
        if notes is not None:
            notes.update(moved(notes))


def there(tensor: Tensor, device: str) -> Tensor:
    """A copy on a device."""
    return tensor.to(device, copy=True)


def moved(fields: Mapping[str, Tensor], device: str = RESTING) -> Fields:
    """The same tensors on a device, or in main memory."""
    return {name: tensor.to(device) for name, tensor in fields.items()}


def placed(message: Message, device: str) -> Message:
    """The same message on a device."""
    return replace(message, fields=moved(message.fields, device), size=message.size.to(device))


def available(device: str) -> None:
    """Refuse a device that PyTorch has not got here; ValueError."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {device!r} is not to be had here ({str(error).splitlines()[0]})") from None
