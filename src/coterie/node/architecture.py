"""One module for all rows: parameters live in a matrix, and the module is re-pointed at whichever row is at work."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from coterie.contract import Layout
from coterie.datasets import Inputs, Shape
from coterie.errors import ConfigError
from coterie.job import Roster, Samples
from coterie.parts import Choice


class Architecture:
    """A module whose tensors are views of a row: trainable tensors first, then float buffers; integers stay apart."""

    def __init__(self, name: str, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.name = name
        self.module = module.to(device)
        self.parameters = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        floats = [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]
        self._floats = [b for _, b in floats]
        self._integers = [b for _, b in module.named_buffers() if not b.is_floating_point()]
        self.layout = _layout([(n, p) for n, p in self.parameters])
        self.buffers = _layout(floats)
        self.integers = sum(b.numel() for b in self._integers)
        self.signature = f"{name}({', '.join(str(list(s)) for s in self.layout.shapes)})"

    @property
    def width(self) -> int:
        """Columns of a row: trainable parameters and float buffers."""
        return self.layout.size + self.buffers.size

    def point(self, params: Tensor, buffers: Tensor | None = None, integers: Tensor | None = None) -> None:
        """Make the module's tensors views of these rows: nothing is copied, and training writes into the rows."""
        for (_, p), (a, b), shape in zip(self.parameters, self.layout.spans, self.layout.shapes, strict=True):
            p.data = params[a:b].view(shape)
        if buffers is not None:
            for t, (a, b), shape in zip(self._floats, self.buffers.spans, self.buffers.shapes, strict=True):
                t.data = buffers[a:b].view(shape)
        if integers is not None:
            at = 0
            for t in self._integers:
                t.data = integers[at : at + t.numel()].view(t.shape)
                at += t.numel()

    def read(self, row: Tensor, integers: Tensor) -> None:
        """Copy the module's present tensors into a row: how an initial draw enters the matrix."""
        tensors = [p for _, p in self.parameters] + self._floats
        if tensors:
            torch.cat([t.detach().reshape(-1) for t in tensors], out=row)
        if self._integers:
            torch.cat([t.reshape(-1).to(torch.int64) for t in self._integers], out=integers)

    def forward(self, params: Tensor, x: Inputs) -> Tensor:
        """Outputs at any parameters, differentiable in them (and usable under vmap)."""
        views = self.layout.views(params)
        outputs: Tensor = functional_call(self.module, views, (x,))
        return outputs

    def look(self, x: Inputs) -> tuple[Tensor, Tensor]:
        """What the last linear layer is given, `[B, F]`, and the outputs, of the row that the module points at."""
        given: list[Tensor] = []
        last = [m for m in self.module.modules() if isinstance(m, nn.Linear)][-1:]
        handles = [m.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0])) for m in last]
        try:
            outputs: Tensor = self.module(x)
        finally:
            for handle in handles:
                handle.remove()
        return (given[-1] if given else outputs).flatten(1), outputs


def build(name: str, factory: Callable[..., nn.Module], shape: Shape, classes: int, device: str) -> Architecture:
    """The architecture that a model part makes for this data; its own random draw is overwritten by an initialiser."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Architecture(name, factory(shape, classes), device)


def _layout(named: list[tuple[str, nn.Parameter]] | list[tuple[str, Tensor]]) -> Layout:
    return Layout(tuple(n for n, _ in named), tuple(tuple(t.shape) for _, t in named))


def architectures(roster: Roster, samples: Samples) -> list[Architecture]:
    """One module per model of the job, in this process."""
    return [architecture(model, samples, roster.device) for model in roster.models]


def architecture(model: Choice, samples: Samples, device: str) -> Architecture:
    """The architecture that a model is for these samples."""
    _check_samples(model, samples)
    return build(model.name, model.make(), samples.shape, samples.answers, device)


_sound: set[tuple[str, str]] = set()
"""Models and kinds of samples that `check_scores` has seen to fit in this process."""


def check_scores(model: Choice, samples: Samples, device: str) -> None:
    """Show a model two samples, and refuse it unless it gives a score for each class, where there are classes.

    Two, because a model may take statistics of its batch, of which one sample has none.
    """
    about = repr(model), samples.kind
    if about in _sound:
        return
    module = architecture(model, samples, device).module.eval()
    if samples.classes and samples.train_y.dim() == 1:
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                said = module(samples.inputs(torch.arange(2) % len(samples.train_y)))
        except Exception as error:
            error.add_note(f"While model {model.name} was shown two samples, {samples.kind}.")
            raise
        shape = list(said.shape) if isinstance(said, Tensor) else type(said).__name__
        if shape != [2, samples.classes]:
            raise ConfigError(
                f"model {model.name!r} does not fit the data",
                expected=f"a score for each of {samples.classes} classes, {[2, samples.classes]} for two samples",
                got=shape,
                cure="Let its last layer give as many scores as it is told by `classes`.",
            )
    _sound.add(about)


def _check_samples(model: Choice, samples: Samples) -> None:
    """Refuse samples that the models which come along cannot take; a user's own may take anything."""
    x = samples.train_x
    if ":" not in model.name and not (isinstance(x, Tensor) and x.is_floating_point() and samples.answers):
        raise ConfigError(
            f"model {model.name!r}",
            expected="samples of one tensor of floats, with class labels or numeric targets",
            got=samples.kind,
            cure="Bring a model that takes them: --model ./mine.py:Net.",
        )
