"""An architecture in words: enough to give a row its tensors' names back, and to build the module again."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from coterie.datasets import Shape
from coterie.errors import RunError
from coterie.node.architecture import Architecture, build
from coterie.parts import Choice, chosen

Named = list[tuple[str, tuple[int, ...]]]
"""Names and shapes of tensors, in the order in which a row has them."""


@dataclass(frozen=True)
class Description:
    """Which model it is, for which data, and where each of its tensors stands in a row."""

    model: dict[str, Any]
    """The part's name and settings."""
    shape: Shape
    """Of one sample, or of each of its tensors."""
    classes: int
    """How many numbers the model gives, if the data say so."""
    parameters: Named
    buffers: Named
    integers: Named
    fixed: str = ""
    """A digest of what is frozen in the model, or begins as given."""

    @classmethod
    def of(cls, architecture: Architecture, choice: Choice, shape: Shape, classes: int) -> "Description":
        """Describe an architecture that a model part made."""
        layouts = [list(zip(x.names, x.shapes, strict=True)) for x in (architecture.layout, architecture.buffers)]
        parameters, buffers = layouts
        about = {"name": choice.name, **choice.settings}
        return cls(about, shape, classes, parameters, buffers, architecture.counts, architecture.fixed)

    @classmethod
    def read(cls, text: str) -> "Description":
        """The description that `text()` wrote."""
        said = json.loads(text)
        named = {kind: [(n, tuple(shape)) for n, shape in said[kind]] for kind in ("parameters", "buffers", "integers")}
        return cls(said["model"], _tuples(said["shape"]), said["classes"], **named, fixed=said.get("fixed", ""))

    def text(self) -> str:
        """The description as JSON, for `read`."""
        return json.dumps(asdict(self))

    @property
    def runs_code(self) -> bool:
        """Whether its tensors are had only by building it with what is, or may be, a user's own part."""
        return bool(self.fixed) and _names_own(self.model)

    def words(self) -> str:
        """Which model it is, with its settings, as JSON."""
        return json.dumps(self.model)

    def tensors(self, row: Tensor, integers: Tensor) -> dict[str, Tensor]:
        """The model of one row as named tensors, as a module's state has them, with what is frozen in it."""
        if self.fixed:
            return {name: t.clone() for name, t in self.module(row, integers).state_dict().items()}
        return self._own(row, integers)

    def _own(self, row: Tensor, integers: Tensor) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for source, named in ((row, [*self.parameters, *self.buffers]), (integers, self.integers)):
            at = 0
            for name, shape in named:
                size = math.prod(shape)
                found[name] = source[at : at + size].reshape(shape).clone()
                at += size
        return found

    def module(self, row: Tensor, integers: Tensor) -> nn.Module:
        """The model of one row as a module of its own."""
        choice = chosen("models", self.model)
        made = build(choice.name, choice.make(), self.shape, self.classes, "cpu")
        if made.fixed != self.fixed:
            cure = "Bring back the weights it was trained with: those in the folder that it names, or in the cache."
            what = f"model {choice.name!r} has other frozen or given weights than when it was trained"
            raise RunError(what, expected=self.fixed, got=made.fixed or "none", cure=cure)
        made.module.load_state_dict(self._own(row, integers), strict=False)  # buffers that are not kept have no name
        return made.module.eval()


def _names_own(value: Any) -> bool:
    """Whether settings name a user's own part, wherever in them."""
    if isinstance(value, dict | list):
        return any(map(_names_own, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and ":" in value


def _tuples(shape: Any) -> Any:
    """A shape, or a dict or tuple of such, as it was before JSON made lists of its tuples."""
    if isinstance(shape, dict):
        return {name: _tuples(one) for name, one in shape.items()}
    return tuple(map(_tuples, shape)) if isinstance(shape, list) else shape
