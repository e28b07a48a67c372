"""One module for all rows: parameters live in a matrix, and the module is re-pointed at whichever row is at work."""

import copy
import hashlib
import traceback
from collections.abc import Callable
from pathlib import Path
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from coterie.contract import Layout
from coterie.datasets import Inputs, Shape, tensors
from coterie.errors import ConfigError
from coterie.initialisers import frozen, given
from coterie.job import Roster, Samples
from coterie.parts import Choice, chosen

_fixed: "WeakValueDictionary[str, Tensor]" = WeakValueDictionary()
"""Frozen tensors of this process by what is in them: held once, however many modules have them."""


class Architecture:
    """A module whose tensors are views of a row: trainable tensors first, then float buffers; integers stay apart.

    Frozen parts, which have parameters and train none, are in no row: they are alike for all, held once in a process,
    and always in evaluation mode, so that nothing in them is drawn or counted. Nor are buffers that no state holds.
    """

    def __init__(self, name: str, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.name = name
        self.module = module.to(device)
        self.parameters = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        self._resting = frozen(module)
        fixed, state = {id(b) for part in self._resting for b in part.buffers()}, module.state_dict().keys()
        live = [(n, b) for n, b in module.named_buffers() if id(b) not in fixed and n in state]
        floats = [(n, b) for n, b in live if b.is_floating_point()]
        self._floats = [b for _, b in floats]
        self._integers = [b for _, b in live if not b.is_floating_point()]
        self.counts = [(n, tuple(b.shape)) for n, b in live if not b.is_floating_point()]
        """Names and shapes of the integers that each node has."""
        self.layout = _layout([(n, p) for n, p in self.parameters])
        self.buffers = _layout(floats)
        self.integers = sum(b.numel() for b in self._integers)
        self.signature = f"{name}({', '.join(str(list(s)) for s in self.layout.shapes)})"
        self._held = self._share()
        self.fixed = _digest([*self._held, *(p for part in given(module) for p in part.parameters())])
        """A digest of what all nodes must have alike: the frozen tensors, and those that begin as given; or ""."""
        self.train(module.training)

    def _share(self) -> list[Tensor]:
        """Let frozen tensors be those of other modules in this process that are equal."""
        named: list[tuple[str, Tensor]] = [(n, p) for n, p in self.module.named_parameters() if not p.requires_grad]
        inside = {id(b) for part in self._resting for b in part.buffers()}
        named += [(n, b) for n, b in self.module.named_buffers() if id(b) in inside]
        own = [t for _, t in named]
        held = [_fixed.setdefault(f"{n} {t.device} {_digest([t])}", t.detach()) for n, t in named]
        for tensor, known in zip(own, held, strict=True):
            tensor.data = known
        return held

    def train(self, training: bool = True) -> nn.Module:
        """The module in training or in evaluation mode; what is frozen is in the latter always."""
        self.module.train(training)
        for part in self._resting if training else ():
            part.eval()
        return self.module

    @property
    def draws(self) -> bool:
        """Whether outputs are drawn in training."""
        live = (m for m in self.train().modules() if m.training)
        return any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in live)

    def twin(self, device: torch.device) -> "Architecture":
        """The same with a module of its own, whose frozen tensors are these."""
        shared = {id(t): t for part in self._resting for t in (*part.parameters(), *part.buffers())}
        return Architecture(self.name, copy.deepcopy(self.module, shared), device)

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
        module = factory(shape, classes)
    if not isinstance(module, nn.Module):
        raise ConfigError(f"model {name!r}", expected="something that makes an nn.Module", got=type(module).__name__)
    return Architecture(name, module, device)


def _digest(tensors: list[Tensor]) -> str:
    """A digest of tensors, their types and shapes; nothing for none."""
    said = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        said.update(f"{tensor.dtype} {list(tensor.shape)} ".encode())
        said.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return said.hexdigest() if tensors else ""


def _layout(named: list[tuple[str, nn.Parameter]] | list[tuple[str, Tensor]]) -> Layout:
    return Layout(tuple(n for n, _ in named), tuple(tuple(t.shape) for _, t in named))


def architectures(roster: Roster, samples: Samples) -> list[Architecture]:
    """One module per model of the job, in this process."""
    return [architecture(model, samples, roster.device) for model in roster.models]


def architecture(model: Choice, samples: Samples, device: str) -> Architecture:
    """The architecture that a model is for these samples."""
    _check_samples(model, samples)
    return build(model.name, model.make(), samples.shape, samples.answers, device)


_sound: dict[tuple[str, str], str] = {}
"""Models and kinds of samples that `check_scores` has seen to fit in this process, with what a model notes."""


def check_scores(model: Choice, samples: Samples, device: str) -> str:
    """Show a model two samples, and refuse it unless it gives a score for each class, where there are classes.

    Two, because a model may take statistics of its batch, of which one sample has none. Gives what is to be noted.
    """
    about = repr(model), samples.kind
    if about in _sound:
        return _sound[about]
    module = architecture(model, samples, device).module.eval()
    if known := getattr(module, "vocabulary", None):
        _check_tokens(model, samples, known)
    if samples.classes and samples.train_y.dim() == 1:
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                said = module(samples.inputs(torch.arange(2) % len(samples.train_y)))
        except Exception as error:
            raise ConfigError(
                f"model {model.called} does not take the data",
                expected=f"a module that takes samples, {samples.kind}",
                got=f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}{_place(error)}",
                cure="Its class or function is told `shape` and `classes` if it has such arguments.",
            ) from error
        shape = list(said.shape) if isinstance(said, Tensor) else type(said).__name__
        if shape != [2, samples.classes]:
            raise ConfigError(
                f"model {model.called!r} does not fit the data",
                expected=f"a score for each of {samples.classes} classes, {[2, samples.classes]} for two samples",
                got=shape,
                cure="Let its last layer give as many scores as it is told by `classes`.",
            )
    _sound[about] = getattr(module, "note", "")
    return _sound[about]


def _place(error: Exception) -> str:
    """Where in somebody's own file an error came from, in words to be added."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not {"torch", "coterie"} & set(Path(frame.filename).parts):
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""


def _check_samples(model: Choice, samples: Samples) -> None:
    """Refuse samples that the models which come along cannot take; a user's own may take anything."""
    x, takes = samples.train_x, _takes(model)
    if takes:
        if not isinstance(x, dict) or set(takes) - set(x):
            cure = "Choose data of that kind (`coterie list datasets`), or another model."
            expected = f"samples that are {' and '.join(takes)}"
            raise ConfigError(f"model {model.name!r}", expected=expected, got=samples.kind, cure=cure)
    elif ":" not in model.name and not (isinstance(x, Tensor) and x.is_floating_point() and samples.answers):
        raise ConfigError(
            f"model {model.name!r}",
            expected="samples of one tensor of floats, with class labels or numeric targets",
            got=samples.kind,
            cure="Bring a model that takes them: --model ./mine.py:Net.",
        )


def _takes(model: Choice) -> tuple[str, ...]:
    """The tensors that a model wants samples to have, by name, or the one that it holds; none if it wants one alone."""
    part, own = model.part, tuple[str, ...](getattr(model.part.target, "takes", ()))
    inner = [model.settings.get(key, part.parameters[key][1]) for key, room in part.holds.items() if room == "models"]
    return own or next((_takes(chosen("models", table)) for table in inner), ())


def _check_tokens(model: Choice, samples: Samples, known: int) -> None:
    """Refuse tokens that a model has no place for."""
    parts = [t for x in (samples.train_x, samples.test_x) for t in tensors(x) if not t.is_floating_point()]
    highest = max((int(t.max()) for t in parts), default=0)
    if highest >= known:
        cure = f"Let both have one vocabulary: --model.pieces {highest + 1}, or the tokenizer of the model's weights."
        raise ConfigError(f"model {model.name!r}", expected=f"tokens below {known}", got=highest, cure=cure)
