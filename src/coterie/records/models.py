"""The trained models of a job: kept as rows, given back as named tensors or modules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor, nn

from coterie import files
from coterie.errors import RunError
from coterie.lessons import PEAK
from coterie.node.bests import BEST
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
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    """The rows that are kept beside the present one."""

    @property
    def peak(self) -> "NodeModel":
        """The model that a lesson kept beside this one."""
        cure = "Take the present model: lessons such as mutual keep a peak, once a model comes home from one."
        return self._beside(PEAK, cure)

    @property
    def best(self) -> "NodeModel":
        """The node's model as it was when it was judged best by the first metric, on its validation samples."""
        return self._beside(BEST, 'Take the present model, or run it with keep_models = "best".')

    def _beside(self, which: str, cure: str) -> "NodeModel":
        if which not in self.kept:
            whose = f"node {self.about['node']}" if "node" in self.about else "the node"
            raise RunError(f"{whose} has kept no {which}", cure=cure)
        about = {name: said for name, said in self.about.items() if name != "round"}  # it is of another one
        return replace(self, row=self.kept[which], kept={}, about={**about, "kept": which})

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
            rows, noted = kept.rows[g], kept.notes.get(node, {})
            beside = {name: noted[name] for name in (PEAK, BEST) if name in noted}
            return NodeModel(described[g], rows.matrix[r], rows.integers[r], {**about, "node": str(node)}, beside)

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
        """Copies of the rows in a snapshot, and of those kept beside them, without what only training needs."""
        rows = ("/nodes", "/matrix", "/integers")
        kept = [
            n for n in state if n.endswith(rows) or (n.startswith("notes/") and n.endswith((f"/{PEAK}", f"/{BEST}")))
        ]
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
