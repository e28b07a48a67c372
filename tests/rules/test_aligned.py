"""Hidden units put in order: what a network computes stays, and copies in other orders average to themselves."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from coterie.contract import Rule, State
from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.node.architecture import Architecture
from coterie.parts import find
from coterie.rules.trimmed_mean import TrimmedMean
from coterie.runs.experiment import Experiment
from merging import Nodes, alone, stacked

Merged = Callable[..., tuple[Tensor, State]]
BOTH = pytest.mark.parametrize("merge", [stacked, alone])
PAIR = Graph.from_edges(2, [(0, 1)])
IMAGE = (1, 12, 12)
MODELS = {
    "mlp": find("models", "mlp").make(sizes=(9, 7, 5)),
    "cnn": find("models", "cnn").make(channels=(4, 6), kernel=3, norm="layer"),
    "cnn_fashion": find("models", "cnn_fashion").make(),
    "logistic": find("models", "logistic").make(),
}
EVERY = pytest.mark.parametrize("model", MODELS)


def aligned(base: str | Rule = "decavg") -> Rule:
    rule: Rule = find("rules", "aligned").make(base=base)
    return rule


def drawn(model: str, seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = MODELS[model](IMAGE, 3)
        assert isinstance(module, nn.Sequential)
        for p in module.parameters():  # biases and norms that differ from unit to unit, too
            nn.init.normal_(p)
        return module


def shuffled(module: nn.Sequential, seed: int) -> nn.Sequential:
    """The same network with the units of each hidden layer in another order."""
    rng, other = np.random.default_rng(seed), copy.deepcopy(module)
    order = None
    with torch.no_grad():
        layers = [m for m in other if list(m.parameters())]
        last = [m for m in layers if isinstance(m, nn.Linear | nn.Conv2d)][-1]
        for layer in layers:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                if order is not None:
                    blocks = layer.weight.flatten(1).unflatten(1, (len(order), -1))[:, order]
                    layer.weight.copy_(blocks.reshape(layer.weight.shape))
                if layer is last:
                    break
                order = torch.from_numpy(rng.permutation(len(layer.weight)))
            for p in layer.parameters():
                p.copy_(p[order])
    return other


def row(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def job(modules: list[nn.Sequential], graph: Graph = PAIR, sizes: list[int] | None = None) -> Nodes:
    layout = Architecture("any", copy.deepcopy(modules[0])).layout
    weights = torch.tensor(sizes or [5] * len(modules), dtype=torch.float32)
    return Nodes(torch.stack([row(m) for m in modules]), weights, graph, layout)


def outputs(module: nn.Sequential, params: Tensor) -> Tensor:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(8, *IMAGE))).float()
    return Architecture("any", copy.deepcopy(module)).forward(params, x)


@EVERY
@BOTH
@pytest.mark.parametrize("base", ["decavg", "median", "cfa", "variance_corrected"])
def test_copies_in_other_orders_average_to_oneself(model: str, merge: Merged, base: str) -> None:
    mine = drawn(model, 0)
    who = job([mine, shuffled(mine, 1), shuffled(mine, 2)], Graph.from_edges(3, [(0, 1), (0, 2)]), [3, 5, 8])
    torch.testing.assert_close(merge(aligned(base), who)[0], who.params)
    if model != "logistic":
        plain, _ = merge(find("rules", base).make(), who)
        assert not torch.allclose(outputs(mine, plain[0]), outputs(mine, who.params[0]), atol=1e-2)


@EVERY
@BOTH
def test_a_neighbours_network_computes_the_same_in_ones_own_order(model: str, merge: Merged) -> None:
    """CFA takes a lone neighbour's model as it is: here it must be that network, in another order."""
    mine, theirs = drawn(model, 0), drawn(model, 1)
    who = job([mine, theirs])
    merged, _ = merge(aligned("cfa"), who)
    torch.testing.assert_close(outputs(mine, merged[0]), outputs(mine, who.params[1]), rtol=1e-4, atol=1e-4)
    if model != "logistic":
        assert not torch.allclose(merged[0], who.params[1])
        assert (merged[0] - who.params[0]).norm() < (who.params[1] - who.params[0]).norm()


@BOTH
def test_curvature_is_put_in_order_with_the_weights(merge: Merged) -> None:
    mine, curvature = drawn("cnn", 0), drawn("cnn", 7)
    who = job([mine, shuffled(mine, 1)])
    h = torch.stack([row(curvature), row(shuffled(curvature, 1))]).square()
    who.params[1] += 0.01 * h[1]
    who.state = {"h": h, "seen": torch.ones(2, 1)}
    merged, _ = merge(aligned("dechw"), who)
    torch.testing.assert_close(merged[0], who.params[0] + 0.005 * h[0])


@BOTH
@pytest.mark.parametrize("base", ["decavg", "cfa", "decdiff", "trimmed_mean"])
def test_models_in_one_order_are_merged_as_by_the_base(merge: Merged, base: str) -> None:
    mine = drawn("mlp", 0)
    graph = Graph.from_edges(4, [(0, 1), (0, 2), (0, 3), (2, 3)], [0.5, 2.0, 0.25, 1.0])
    who = job([mine] * 4, graph, [3, 5, 8, 2])
    who.params += 0.01 * torch.from_numpy(np.random.default_rng(0).normal(size=who.params.shape)).float()
    active = np.arange(len(graph.sources)) != 2
    torch.testing.assert_close(merge(aligned(base), who, active)[0], merge(find("rules", base).make(), who, active)[0])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)


@pytest.mark.parametrize(
    ("module", "got"),
    [
        (Residual(), "'first.weight' is not in one"),
        (nn.Sequential(nn.Linear(5, 5), Residual()), "'1.first.weight' is not in one"),
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 2, groups=2), nn.Conv2d(4, 2, 3)), r"'1.weight' of shape"),
        (nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(6), nn.Linear(4, 2)), "'1.weight' with 6 numbers for 4 units"),
    ],
)
def test_what_is_no_chain_is_refused(module: nn.Module, got: str) -> None:
    layout = Architecture("odd", module).layout
    who = Nodes(torch.zeros(2, layout.size), torch.ones(2), PAIR, layout)
    with pytest.raises(ConfigError, match=got):
        aligned().init(who.me(slice(None), 0), who.params)


def test_bases_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="not aligned itself"):
        aligned("aligned")
    with pytest.raises(ValueError, match="answers"):
        aligned("cfa_ge")
    with pytest.raises(ConfigError, match="unknown rule 'decavgg'"):
        aligned("decavgg")


def test_the_base_has_settings_of_its_own() -> None:
    table = {"name": "aligned", "base": {"name": "trimmed_mean", "share": 0.3}}
    (method,) = Experiment(rule=table).resolved.values()
    assert method.rule == table
    assert method.choice("rule").make() == aligned(TrimmedMean(share=0.3))
    with pytest.raises(ConfigError, match=r"rule\.base\.shar.*Did you mean rule\.base\.share"):
        _ = Experiment(rule={"name": "aligned", "base": {"name": "trimmed_mean", "shar": 0.3}}).resolved


def test_it_observes_if_its_base_does() -> None:
    assert aligned("dechw").observes
    assert not aligned().observes
