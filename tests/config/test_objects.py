"""Python objects as parts: what they are called, what they become, what is refused."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest
import torch
from numpy.typing import NDArray
from polars.testing import assert_frame_equal
from scipy import sparse
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from coterie import Experiment
from coterie.config.build import load_samples
from coterie.config.configuration import Method
from coterie.config.networks import network
from coterie.contract import Rule
from coterie.datasets import Dataset
from coterie.errors import ConfigError, CoterieError, DataError, GraphError
from coterie.initialisers import Origin
from coterie.job import Samples
from coterie.lessons.average import Average
from coterie.network.graph import Graph
from coterie.optimisers.sgd import SGD
from coterie.protocols.aggregator import Aggregator
from coterie.rules.decdiff import DecDiff
from coterie.topologies.er import ER

X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
Y = np.arange(40) % 3


@dataclass(frozen=True)
class Sluggish(Rule):
    """Found by others in this module."""

    share: float = 0.5


def only(experiment: Experiment) -> Method:
    (method,) = experiment.resolved.values()
    return method


def loaded(dataset: Any) -> Samples:
    return load_samples(only(Experiment(dataset=dataset)))


def test_parts_that_come_along_are_named_whatever_stands_for_them() -> None:
    own = Experiment(
        rule=DecDiff(s=2.0), topology=ER(p=0.4), protocol=Aggregator(hub=2, lesson=Average()), optimiser=SGD(lr=0.1)
    )
    said = Experiment(
        rule={"name": "decdiff", "s": 2.0},
        topology={"name": "er", "p": 0.4},
        protocol={"name": "aggregator", "hub": 2, "lesson": "average"},
        optimiser={"name": "sgd", "lr": 0.1},
    )
    assert only(own) == only(said)
    assert only(Experiment(rule=DecDiff)).rule == only(Experiment(rule="decdiff")).rule
    assert Experiment(**read_again(own)) == own


def read_again(experiment: Experiment) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(experiment.to_toml())


def test_what_can_be_imported_is_named_by_its_module() -> None:
    assert Experiment(rule=Sluggish(share=0.2)).rule == {"name": f"{__name__}:Sluggish", "share": 0.2}
    assert list(Experiment(rule=Sluggish).resolved) == ["sluggish"]


def test_what_cannot_is_held_and_called_by_what_it_says() -> None:
    def made(share: float) -> type[Rule]:
        @dataclass(frozen=True)
        class Own(Rule):
            """Held by this process."""

            part: float = share

        return Own

    first, again = Experiment(rule=made(0.5)), Experiment(rule=made(0.5))
    assert first.rule == again.rule
    assert str(first.rule["name"]).startswith("object@")  # type: ignore[index]
    assert list(first.resolved) == ["own"]
    assert only(Experiment(rule={"name": made(0.5), "part": 0.1})).choice("rule").make().part == 0.1
    assert only(Experiment(methods={"a": {"rule": made(0.5)}})).choice("rule").make().part == 0.5


def test_functions_are_told_apart_by_text_code_and_what_they_took() -> None:
    def named(function: Any) -> Any:
        return Experiment(objective=function).objective["name"]  # type: ignore[index]

    def of(power: int) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda out, target: out.sum(1) ** power

    one, two = (lambda out, target: out.sum(1)), (lambda out, target: out.mean(1))
    assert len({named(f) for f in (one, two, of(1), of(2))}) == 4
    assert named(of(2)) == named(of(2))


class Net(nn.Module):
    def __init__(self, classes: int, hidden: int = 5) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def made_without_a_word() -> nn.Module:
    return nn.Linear(6, 3)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (Net, 6 * 5 + 5 + 5 * 3 + 3),
        ({"name": Net, "hidden": 2}, 6 * 2 + 2 + 2 * 3 + 3),
        (functools.partial(Net, hidden=2), 6 * 2 + 2 + 2 * 3 + 3),
        (lambda shape, classes: nn.Linear(shape[0], classes), 21),
        (made_without_a_word, 21),
        (nn.Linear(6, 3), 21),
    ],
)
def test_models(model: Any, parameters: int) -> None:
    (choice, *_) = only(Experiment(model=model)).models
    module = choice.make()((6,), 3)
    assert sum(p.numel() for p in module.parameters()) == parameters


def test_a_module_begins_with_its_own_weights() -> None:
    mine = nn.Linear(6, 3)
    experiment = Experiment(model=mine, dataset=(X, Y), nodes=3, rounds=1, lr=1e-12, partition="iid", topology="ring")
    trained = experiment.run().model(node=2)
    assert trained is not mine
    assert torch.allclose(trained.weight, mine.weight, atol=1e-6)  # type: ignore[arg-type]


def test_several_models_are_spread_over_nodes() -> None:
    method = only(Experiment(model=[Net, "mlp"], nodes=4))
    assert [m.name.rpartition(":")[2] for m in method.models] == ["Net", "mlp"] * 2


FRAME = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": Y})


class Pandas:
    """A table as pandas has them, for those who have no pandas."""

    columns, iloc = FRAME.columns, None

    def __getitem__(self, name: str) -> pl.Series:
        return FRAME[name]


@pytest.mark.parametrize(
    ("data", "shape", "classes", "train"),
    [
        ((X, Y), (6,), 3, 31),
        (((X, Y), (X[:9], Y[:9])), (6,), 3, 40),
        ((X, Y, X[:9], Y[:9]), (6,), 3, 40),
        ((torch.tensor(X), torch.tensor(Y)), (6,), 3, 31),
        ((X.astype(np.float64), Y), (6,), 3, 31),
        ((X, X[:, :2]), (6,), 0, 32),
        ((X, np.array(["oak", "ash", "elm"])[Y]), (6,), 3, 31),
        ((np.zeros((40, 8, 8), np.uint8), Y), (1, 8, 8), 3, 31),
        ((Y[:, None], Y), (1,), 3, 31),
        (({"a": X, "b": Y}, Y), {"a": (6,), "b": ()}, 3, 31),
        (FRAME, (2,), 3, 31),
        (Pandas(), (2,), 3, 31),
        (TensorDataset(torch.tensor(X), torch.tensor(Y)), (6,), 3, 31),
        (
            (TensorDataset(torch.tensor(X), torch.tensor(Y)), TensorDataset(torch.tensor(X), torch.tensor(Y))),
            (6,),
            3,
            40,
        ),
        (Dataset("own", torch.tensor(X), torch.tensor(Y), torch.tensor(X), torch.tensor(Y), 3), (6,), 3, 40),
        (lambda folder: Dataset("own", *[torch.tensor(t) for t in (X, Y, X, Y)], classes=3), (6,), 3, 40),
    ],
)
def test_data_in_hand(data: Any, shape: Any, classes: int, train: int) -> None:
    samples = loaded(data)
    assert (samples.shape, samples.classes, len(samples.train_y)) == (shape, classes, train)


def test_data_in_hand_have_settings() -> None:
    assert loaded({"name": (X, Y), "classes": 7, "test": 0.5}).classes == 7
    assert len(loaded({"name": (X, Y), "classes": 7, "test": 0.5}).test_y) == 19


RING = nx.cycle_graph(7)


@pytest.mark.parametrize(
    "network", [RING, Graph.from_networkx(RING), nx.to_numpy_array(RING), sparse.csr_array(nx.to_numpy_array(RING))]
)
def test_networks_in_hand(network: Any) -> None:
    experiment = Experiment(topology=network)
    assert experiment.nodes == 7
    graph = only(experiment).choice("topology").make()(7, np.random.default_rng(0))
    assert graph.degree.tolist() == [2] * 7
    with pytest.raises(ConfigError, match="Leave out nodes, or set it to 7"):
        Experiment(topology=network, nodes=5, partition="iid", dataset=(X, Y)).run()


def test_a_matrix_that_is_not_symmetric_has_a_direction() -> None:
    matrix = np.zeros((3, 3))
    matrix[0, 1] = matrix[1, 2] = matrix[2, 0] = 1
    graph = only(Experiment(topology=matrix)).choice("topology").make()(3, np.random.default_rng(0))
    assert graph.directed
    assert graph.neighbours(1).tolist() == [0]


def test_a_file_says_how_many_nodes_there_are(tmp_path: Any) -> None:
    (tmp_path / "net").write_text("0 1\n1 2\n2 3\n")
    assert Experiment(topology={"name": "file", "path": str(tmp_path / "net")}).nodes == 4


def test_a_file_stands_for_data_or_a_network(tmp_path: Any) -> None:
    (tmp_path / "houses.csv").write_text("rooms,label\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(20)))
    for named in (str(tmp_path / "houses.csv"), {"name": str(tmp_path / "houses.csv"), "test": 0.5}):
        data = only(Experiment(dataset=named)).choice("dataset").make()(None)
        assert data.classes == 2
        assert len(data.test_y) == (10 if isinstance(named, dict) else 4)
    with pytest.raises(ConfigError, match=r"unknown setting dataset\.tests"):
        Experiment(dataset={"name": str(tmp_path / "houses.csv"), "tests": 0.5})
    with pytest.raises(DataError, match=r"no such data file.*got flats\.csv"):
        only(Experiment(dataset="flats.csv")).choice("dataset").make()(None)
    (tmp_path / "net.edgelist").write_text("alice bob\n")
    with pytest.raises(GraphError, match=r"line 1 of .*numbered from 0, got 'alice bob'\. Number the nodes; GraphML"):
        Experiment(topology=str(tmp_path / "net.edgelist"))


def test_partitions_in_hand() -> None:
    parts = [[0, 1, 2, 3, 4], np.array([9, 8, 7, 6])]
    dealt = only(Experiment(partition=parts, nodes=2)).choice("partition").make()
    assert [p.tolist() for p in dealt(Y, 2, np.random.default_rng(0))] == [[0, 1, 2, 3, 4], [6, 7, 8, 9]]
    assert not dealt.func.overlaps
    assert only(Experiment(partition=[[0, 1], [1, 2]])).choice("partition").make().func.overlaps


def half_right(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs.argmax(-1) == targets)


def test_metrics_and_initialisers_are_functions() -> None:
    def tenths(module: nn.Module, origin: Origin) -> None:
        for p in module.parameters():
            nn.init.constant_(p, 0.1)

    experiment = Experiment(
        dataset=(X, Y), nodes=3, rounds=2, partition="iid", topology="ring", initialiser=tenths,
        metrics=["accuracy", half_right],
    )  # fmt: skip
    found = experiment.run().records
    assert (found["test_half_right"] * 2 - found["test_accuracy"]).abs().max() < 1e-6  # type: ignore[operator]


Wrong = tuple[dict[str, Any], str]
WRONG: list[Wrong] = [
    ({"rule": Net}, "Net is no rule"),
    ({"rule": 3.5j}, "complex is no rule"),
    ({"dataset": (X, Y, Y)}, "data in hand: expected"),
    ({"dataset": [(X, Y, Y), (X, Y, Y)]}, "samples and targets"),
    ({"partition": [[0.5], [1.5]]}, "a list of the samples of each node"),
    ({"partition": [[0, 99], [1]], "nodes": 2}, "numbers from 0 to"),
    ({"topology": np.zeros((2, 3))}, "as many rows as columns"),
    ({"objective": nn.functional.cross_entropy}, "reduction='none'"),
    ({"metrics": [lambda out, target: out.sum()]}, "one number for each sample"),
    ({"model": lambda shape, classes: 3}, "nn.Module|int"),
    ({"model": nn.Linear(9, 3)}, "Linear does not take the data: expected .*float32 .*got RuntimeError: mat1"),
    ({"objective": nn.CrossEntropyLoss}, r"one that is made: CrossEntropyLoss\(reduction='none'\)"),
    ({"optimiser": torch.optim.RMSprop}, "expected torch.optim.SGD, Adam or AdamW.*got RMSprop"),
    ({"optimiser": lambda parameters: None}, "is no optimiser: expected a class that inherits"),
    ({"metrics": {"wrong": "accuracy"}}, "metric wrong: expected a function"),
    ({"rule": 3}, "rule: expected a name or a table with a name, got 3"),
]


@pytest.mark.parametrize(("settings", "told"), WRONG)
def test_what_is_no_part_is_told_in_a_line(settings: dict[str, Any], told: str) -> None:
    given = {"dataset": (X, Y), "nodes": 2, "partition": "iid", "topology": "ring", "rounds": 1} | settings
    with pytest.raises(CoterieError, match=told):
        Experiment(**given).run()


def test_an_instance_says_what_it_was_made_with() -> None:
    class Forgetful(Rule):
        def __init__(self, share: float) -> None:
            self.half = share / 2

    class Open(Rule):
        def __init__(self, share: float) -> None:
            self.share = share

    with pytest.raises(ConfigError, match=r"keep the argument: `self.share = share`"):
        Experiment(rule=Forgetful(0.5))
    assert only(Experiment(rule=Open(0.3))).choice("rule").make().share == 0.3


def test_metrics_that_have_no_name_are_given_one() -> None:
    given: dict[str, Any] = {"wrong": lambda out, target: out.argmax(-1) != target, "half": half_right}
    found = Experiment(
        dataset=(X, Y), nodes=2, rounds=1, partition="iid", topology="line", metrics=["accuracy", given]
    ).run(progress=False)  # fmt: skip
    last = found.records.tail(2)
    assert (last["test_wrong"] + last["test_accuracy"] - 1).abs().max() < 1e-6  # type: ignore[operator]
    assert (last["test_half"] * 2 - last["test_accuracy"]).abs().max() < 1e-6  # type: ignore[operator]


def test_labels_that_are_names_are_numbered_in_alphabetical_order() -> None:
    names = np.array(["oak", "ash", "elm"])
    said = loaded(((X, names[Y]), (X, names[Y]))).train_y
    assert said.tolist() == np.array([2, 0, 1])[Y].tolist()


def test_what_pytorch_trains_with_is_taken_for_what_there_is_here() -> None:
    def trained(**settings: Any) -> pl.DataFrame:
        given = {"dataset": (X, Y), "nodes": 3, "rounds": 2, "partition": "iid", "topology": "ring"}
        return Experiment(**given, **settings).run(progress=False).records.drop("^.*seconds$")

    theirs = trained(
        optimiser=functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        objective=nn.CrossEntropyLoss(reduction="none"),
    )
    ours = trained(optimiser=SGD(lr=0.1, momentum=0.9), objective="cross_entropy")
    assert_frame_equal(theirs, ours)


def indices(labels: NDArray[np.int64], nodes: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    return [np.arange(k, len(labels), nodes) for k in range(nodes)]


def test_functions_that_deal_and_draw() -> None:
    def path(nodes: int, rng: np.random.Generator) -> Graph:
        return Graph.from_edges(nodes, [(i, i + 1) for i in range(nodes - 1)])

    run = Experiment(dataset=(X, Y), nodes=4, rounds=1, partition=indices, topology=path).run()
    assert run.records["node"].n_unique() == 4
    theirs = Experiment(topology=lambda nodes, rng: nx.path_graph(nodes), nodes=4)
    assert network(only(theirs), 0).graph(1).edges == 3
