"""Where parameters start: whose draw it is, and how wide."""

import math

import pytest
import torch
from torch import Tensor, nn

from coterie.initialisers import Origin
from coterie.parts import find, names
from coterie.runs.experiment import Experiment


def started(
    name: str, node: int = 0, seed: int = 0, gain: float = 1.0, module: nn.Module | None = None, **options: object
) -> nn.Module:
    made = module or nn.Sequential(
        nn.Conv2d(3, 16, 5), nn.BatchNorm2d(16), nn.Flatten(), nn.Linear(200, 400), nn.Linear(400, 300)
    )
    find("initialisers", name).make(**options)(made, Origin(seed, node, gain))
    return made


def flat(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("name", names("initialisers"))
class TestEveryInitialiser:
    def test_same_seed_and_node_same_start(self, name: str) -> None:
        torch.manual_seed(1)
        first = flat(started(name, node=3, seed=5))
        torch.manual_seed(2)
        second = started(name, node=7, seed=5)  # whatever stood there before
        assert torch.equal(first, flat(started(name, node=3, seed=5, module=second)))

    def test_seeds_differ(self, name: str) -> None:
        assert torch.equal(flat(started(name, seed=0)), flat(started(name, seed=1))) == (name == "zeros")

    def test_nodes_differ_unless_they_agree(self, name: str) -> None:
        alike = torch.equal(flat(started(name, node=0)), flat(started(name, node=1)))
        assert alike == (name in ("common", "zeros"))

    def test_global_randomness_is_left_alone(self, name: str) -> None:
        module = started("he")
        torch.manual_seed(11)
        before = torch.get_rng_state()
        started(name, module=module)
        assert torch.equal(before, torch.get_rng_state())

    def test_normalisation_starts_as_the_identity(self, name: str) -> None:
        norm = started(name)[1]
        assert torch.equal(norm.weight, torch.ones(16))  # type: ignore[arg-type]
        assert torch.equal(norm.bias, torch.zeros(16))  # type: ignore[arg-type]


def test_zeros() -> None:
    module = started("zeros")
    assert not any(p.any() for layer in (module[0], module[3], module[4]) for p in layer.parameters())


@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_he(law: str) -> None:
    module = started("he", law=law)
    assert float(module[3].weight.detach().std()) == pytest.approx(math.sqrt(2 / 200), rel=0.02)  # type: ignore[union-attr, operator]
    assert float(module[0].weight.detach().std()) == pytest.approx(math.sqrt(2 / 75), rel=0.1)  # type: ignore[union-attr, operator]
    assert not module[3].bias.any()  # type: ignore[union-attr, operator]
    assert not module[0].bias.any()  # type: ignore[union-attr, operator]


@pytest.mark.parametrize(("activation", "variance"), [("relu", 2.0), ("tanh", 25 / 9), ("linear", 1.0)])
def test_he_follows_the_activation(activation: str, variance: float) -> None:
    module = started("he", activation=activation)
    wanted = math.sqrt(variance / 200)
    assert float(module[3].weight.detach().std()) == pytest.approx(wanted, rel=0.02)  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_glorot(law: str) -> None:
    module = started("glorot", law=law)
    assert float(module[3].weight.detach().std()) == pytest.approx(math.sqrt(2 / 600), rel=0.02)  # type: ignore[union-attr, operator]
    assert not module[3].bias.any()  # type: ignore[union-attr, operator]


def test_default_is_pytorchs() -> None:
    weight = started("default")[3].weight.detach()  # type: ignore[union-attr, operator]
    bound = 1 / math.sqrt(200)
    assert float(weight.abs().max()) <= bound
    assert float(weight.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_gain_scales_weights_and_not_biases() -> None:
    plain, scaled = started("default", gain=3.0), started("gain", gain=3.0, base="default", factor=0.5)
    for (name, p), (_, q) in zip(plain.named_parameters(), scaled.named_parameters(), strict=True):
        torch.testing.assert_close(q, p * (1.5 if p.ndim >= 2 else 1.0), msg=name)


def test_common_of_any_base() -> None:
    module = started("common", node=4, base="he")
    assert torch.equal(flat(module), flat(started("common", node=9, base="he")))
    assert float(module[3].weight.detach().std()) == pytest.approx(0.1, rel=0.02)  # type: ignore[union-attr, operator]


def test_what_the_gain_needs_is_taken_unless_said_otherwise() -> None:
    (needs,) = Experiment(initialiser="gain").resolved.values()
    assert (needs.merge_first, needs.clamp) == (True, 10.0)
    (said,) = Experiment(initialiser="gain", merge_first=False, clamp=3.0).resolved.values()
    assert (said.merge_first, said.clamp) == (False, 3.0)
    (other,) = Experiment(initialiser="he").resolved.values()
    assert (other.merge_first, other.clamp) == (False, None)
