"""The trained models of a job: kept as rows, given back as named tensors or modules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor, nn

from coterie import files
from coterie.errors import RunError
from coterie.lessons import PEAK
from coterie.node.description import Description
from coterie.node.snapshot import Snapshot
from coterie.records.tensors import read_tensors, write_tensors

ARCHITECTURE = "architecture"
"""What a file says of each architecture in it begins so; its number follows."""


@dataclass(frozen=True)
class NodeModel:
    """One node's model."""

    description: Description
    row: Tensor
    integers: Tensor
    about: dict[str, str] = field(default_factory=dict)
    """Whose it is: method, seed, node, round."""
    kept: Tensor | None = None
    """The row that a lesson kept beside the present one."""

    @property
    def peak(self) -> "NodeModel":
        """The model that a lesson kept beside this one."""
        if self.kept is None:
            whose = f"node {self.about['node']}" if "node" in self.about else "the node"
            cure = "Take the present model: lessons such as mutual keep a peak, once a model comes home from one."
            raise RunError(f"{whose} has kept no peak", cure=cure)
        return replace(self, row=self.kept, kept=None, about={**self.about, "kept": PEAK})

    def tensors(self) -> dict[str, Tensor]:
        """The model as named tensors, as the state of its module has them."""
        return self.description.tensors(self.row, self.integers)

    def module(self) -> nn.Module:
        """The model as a module of its own, ready to be used."""
        return self.description.module(self.row, self.integers)

    def export(self, path: Path, build: bool = True) -> dict[str, str]:
        """Write the model as a safetensors file that needs no Coterie; what the file says of itself.

        What is frozen in a model is had by building it, which runs the code of its part: a user's own only if `build`.
        """
        if self.description.runs_code and not build:
            cure = "If you would run that file as a script, say --build."
            raise RunError(f"the code of {self.description.words()} gives what is frozen in this model", cure=cure)
        said = {"model": self.description.words(), **self.about}
        with files.disk(path, "Name another file."):
            write_tensors(path, self.tensors(), said)
        return said


class NodeModels(Mapping[int, NodeModel]):
    """The models of a job's nodes, by node."""

    def __init__(self, found: Iterable[tuple[int, NodeModel]]) -> None:
        self._models = dict(sorted(found, key=lambda one: one[0]))

    @classmethod
    def of(cls, kept: Snapshot, described: Mapping[int, Description], **about: str) -> "NodeModels":
        """The models in a snapshot, whose architectures are described so."""

        def model(g: int, r: int, node: int) -> NodeModel:
            rows, peak = kept.rows[g], kept.notes.get(node, {}).get(PEAK)
            return NodeModel(described[g], rows.matrix[r], rows.integers[r], {**about, "node": str(node)}, peak)

        return cls((n, model(g, r, n)) for g, rows in kept.rows.items() for r, n in enumerate(rows.nodes.tolist()))

    @classmethod
    def read(cls, path: Path, **about: str) -> "NodeModels":
        """The models in a file of snapshots: a simulation's or a peer's."""
        with files.undamaged(path, "Run it again, or name another run."):
            tensors, said = read_tensors(path)
            found = {int(k.split()[1]): Description.read(v) for k, v in said.items() if k.startswith(ARCHITECTURE)}
            return cls.of(Snapshot.read(tensors), found, **{k: said[k] for k in ("round",) if k in said}, **about)

    def __getitem__(self, node: int) -> NodeModel:
        if node not in self._models:
            shown = (
                ", ".join(map(str, self._models)) if len(self) < 20 else f"{min(self._models)} to {max(self._models)}"
            )
            raise RunError("no such node", expected=f"one of {shown}", got=node)
        return self._models[node]

    def __iter__(self) -> Iterator[int]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)


@dataclass(frozen=True)
class Trained:
    """The rows of all nodes at the end of a job, and what architectures they are of."""

    tensors: dict[str, Tensor]
    descriptions: Mapping[int, Description]

    @classmethod
    def of(cls, state: Mapping[str, Tensor], descriptions: Mapping[int, Description]) -> "Trained":
        """Copies of the rows in a snapshot, and of the peaks beside them, without what only training needs."""
        rows = ("/nodes", "/matrix", "/integers")
        kept = [n for n in state if n.endswith(rows) or (n.startswith("notes/") and n.endswith(f"/{PEAK}"))]
        return cls({name: state[name].detach().cpu().clone() for name in kept}, descriptions)

    def models(self, **about: str) -> "NodeModels":
        """The models, by node."""
        return NodeModels.of(Snapshot.read(self.tensors), self.descriptions, **about)

    def write(self, path: Path, **about: str) -> None:
        """Keep the models in a file that `NodeModels.read` reads."""
        write_tensors(path, self.tensors, {**described(self.descriptions), **about})


def described(descriptions: Mapping[int, Description]) -> dict[str, str]:
    """What a file of snapshots says of the architectures in it."""
    return {f"{ARCHITECTURE} {g}": description.text() for g, description in descriptions.items()}
