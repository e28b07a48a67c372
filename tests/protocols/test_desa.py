"""Anchors: how they are made, what is learnt from them, and who is told what."""

from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.contract import Message
from coterie.errors import ConfigError
from coterie.lessons import Classroom, Loss
from coterie.protocols.desa import DESA
from coterie.runs.experiment import Experiment
from driving import LIGHT, drive, samples, session
from small import LOOP

LITTLE = DESA(ipc=2, steps=2, width=4)


def digits(*classes: int, count: int = 200) -> tuple[Tensor, Tensor]:
    """Some of the first digits."""
    which = torch.arange(count)
    y = samples().targets(which)
    held = torch.isin(y, torch.tensor(classes or range(10)))
    return samples().inputs(which)[held], y[held]


@dataclass
class Scholar:
    """A student whose model sees the mean of an image, and who notes what it is to be trained with."""

    node: int = 0
    to: list[int] = field(default_factory=lambda: [1, 2])
    held: tuple[int, ...] = (0, 1)
    given: tuple[Tensor, Tensor] | None = None
    """Inputs and targets in place of the digits held."""
    seed: int = 0
    classes: int = 10
    heard: dict[int, Message] = field(default_factory=dict)
    notes: dict[str, Tensor] = field(default_factory=dict)
    asked: list[Loss] = field(default_factory=list)
    round = 0

    @property
    def data(self) -> Classroom:
        return Classroom(*(self.given or digits(*self.held)), 0, 0, self.node)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.inputs.shape[1:])

    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.flatten(1), x.mean((1, 2, 3))[:, None].expand(-1, 10).contiguous()

    def train(self, loss: Loss) -> None:
        self.asked.append(loss)

    def hear(self, **said: Any) -> Any:
        self.heard = {int(n.removeprefix("n")): Message(f, torch.ones(1)) for n, f in said.items()}
        return self


def say(protocol: DESA, name: str, student: Any) -> dict[int, dict[str, Tensor]]:
    said: dict[int, dict[str, Tensor]] = getattr(protocol, name)(student)
    return said


def distil(
    inputs: Tensor, targets: Tensor, ipc: int, steps: int, width: int, seed: int, node: int
) -> dict[int, Tensor]:
    """The anchors of each class that a node with these data offers."""
    student = Scholar(node, [node + 1], given=(inputs, targets), seed=seed)
    (offered,) = say(DESA(ipc, steps, width), "offer", student).values()
    return {int(c): x.view(ipc, *inputs.shape[1:]) for c, x in offered.items()}


def term(name: str, real: Tensor, targets: Tensor, anchors: Tensor, labels: Tensor, **more: Any) -> Tensor:
    """What one term adds to the loss of a mini-batch: with one anchor a class, of which features or logits are given.

    `told` are others' logits on the anchors of each class, `look` is what the model makes of its inputs.
    """
    notes = {"anchors 0": anchors, "classes 0": labels, "holds": torch.empty(0, dtype=torch.int64)}
    student = Scholar(given=(real, targets), classes=more.get("classes", 2), notes=notes)
    student.hear(n1={f"yours {c}": row for c, row in more.get("told", {}).items()})
    enough = -(-len(anchors) // len(real))  # a mini-batch sees as many anchors as it has samples: let it see all

    def loss(**weights: float) -> Tensor:
        protocol = DESA(ipc=1, temperature=more.get("temperature", 1.0), **{"contrast": 0, "teaching": 0, **weights})
        say(protocol, "learn", student)
        return student.asked[-1](more["look"], real.repeat(enough, 1), targets.repeat(enough))

    return loss(**{name: 1.0}) - loss()


def contrast(real: Tensor, targets: Tensor, anchors: Tensor, labels: Tensor) -> Tensor:
    """The contrast between features of real samples and of anchors."""
    return term("contrast", real, targets, anchors, labels, look=lambda x: (x, torch.zeros(len(x), 10).to(x)))


def taught(logits: Tensor, labels: Tensor, told: dict[int, Tensor], temperature: float) -> Tensor:
    """Distillation from what was told, by class, to a model with these logits on the anchors."""
    given: Any = {"told": told, "temperature": temperature, "look": lambda x: (torch.zeros(len(x), 3), x)}
    return term(
        "teaching", torch.zeros_like(logits), torch.zeros(len(logits), dtype=torch.int64), logits, labels, **given
    )


class TestDistil:
    def test_one_set_for_each_class_held(self) -> None:
        made = distil(*digits(3, 7), ipc=4, steps=1, width=4, seed=0, node=0)
        assert made.keys() == {3, 7}
        assert all(x.shape == (4, 1, 8, 8) for x in made.values())

    def test_draws_are_keyed_by_seed_and_node(self) -> None:
        def made(seed: int, node: int) -> Tensor:
            return distil(*digits(1), ipc=2, steps=2, width=4, seed=seed, node=node)[1]

        assert torch.equal(made(0, 0), made(0, 0))
        assert not torch.equal(made(0, 0), made(1, 0))
        assert not torch.equal(made(0, 0), made(0, 1))

    def test_anchors_teach_what_the_data_do_and_noise_does_not(self) -> None:
        x, y = digits(count=300)

        def accuracy(steps: int) -> float:
            made = distil(x, y, ipc=5, steps=steps, width=16, seed=0, node=0)
            anchors, labels = torch.cat(list(made.values())), torch.tensor(list(made)).repeat_interleave(5)
            w = torch.zeros(65, 10, requires_grad=True)
            for _ in range(200):
                (gradient,) = torch.autograd.grad(F.cross_entropy(_linear(anchors, w), labels), w)
                w = (w - 0.5 * gradient).detach().requires_grad_()
            return float((_linear(x, w).argmax(1) == y).float().mean())

        assert accuracy(0) < 0.4
        assert accuracy(30) > 0.75

    def test_samples_that_are_no_images(self) -> None:
        x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) + 3 * F.one_hot(torch.arange(40) % 2, 6)
        made = distil(x, torch.arange(40) % 2, ipc=3, steps=40, width=16, seed=0, node=0)
        means = torch.stack([made[c].mean(0)[:2] for c in (0, 1)])
        assert (means.diagonal() > means.flip(1).diagonal()).all()

    def test_one_sample_of_one_colour(self) -> None:
        made = distil(torch.full((1, 1, 8, 8), 0.5), torch.tensor([4]), ipc=2, steps=2, width=4, seed=0, node=0)
        assert made[4].isfinite().all()


def _linear(x: Tensor, w: Tensor) -> Tensor:
    return x.flatten(1) @ w[:-1] + w[-1]


class TestLosses:
    def test_contrast(self) -> None:
        """Two anchors at right angles: log(1 + e^{−1/τ}) for what lies on its own, and 1/τ more on the other."""
        anchors, labels = torch.tensor([[2.0, 0], [0, 5]], dtype=torch.float64), torch.tensor([0, 1])
        good, bad = (contrast(anchors[:1], torch.tensor([c]), anchors, labels) for c in (0, 1))
        torch.testing.assert_close(good, torch.tensor(-1 / 0.07).double().exp().log1p(), rtol=1e-6, atol=0)
        torch.testing.assert_close(bad - good, torch.tensor(1 / 0.07).double())

    def test_a_class_without_anchors_is_left_out(self) -> None:
        anchors, labels = torch.tensor([[2.0, 0], [0, 5]]), torch.tensor([0, 1])
        features = torch.tensor([[3.0, 1], [1, 1]])
        both = contrast(features, torch.tensor([0, 9]), anchors, labels)
        torch.testing.assert_close(both, contrast(features[:1], torch.tensor([0]), anchors, labels))
        assert both > 0
        assert contrast(features, torch.tensor([9, 9]), anchors, labels) == 0

    def test_anchors_features_are_not_moved(self) -> None:
        real, anchors = torch.rand(3, 4, requires_grad=True), torch.rand(2, 4, requires_grad=True)
        contrast(real, torch.tensor([0, 1, 0]), anchors, torch.tensor([0, 1])).backward()
        assert real.grad is not None
        assert real.grad.norm() > 0
        assert anchors.grad is None or not anchors.grad.any()

    def test_taught(self) -> None:
        """z = (ln 3, 0), z̄ = 0, T = 1: 0.1·ln(4/3) + 0.9·½ ln(4/3); and nothing where nothing was told."""
        z, labels = torch.tensor([[3.0, 1], [9, 9]]).log(), torch.tensor([0, 1])
        torch.testing.assert_close(
            taught(z, labels, {0: torch.zeros(2)}, 1.0), torch.tensor(4 / 3).log() * (0.1 + 0.45)
        )
        assert taught(z, labels, {}, 1.0) == 0

    def test_temperature(self) -> None:
        z, told, label = torch.tensor([[4.0, 0]]), torch.tensor([[0.0, 4]]), torch.tensor([0])
        hot = taught(z, label, {0: told[0]}, 20.0)
        wanted = 400 * F.kl_div(F.log_softmax(z / 20, -1), F.softmax(told / 20, -1), reduction="sum")
        torch.testing.assert_close(hot, 0.1 * F.cross_entropy(z, label) + 0.9 * wanted)


class TestExercises:
    def test_what_is_said_is_what_was_announced(self) -> None:
        """Names and sizes: the receiver of a real peer lets nothing else in."""
        said, one, two = LITTLE.says((1, 8, 8), 10), Scholar(), Scholar(1, [0], (1, 5))
        anchors = say(LITTLE, "offer", one)
        say(LITTLE, "offer", two)
        assert anchors.keys() == {1, 2}
        assert anchors[1].keys() == {"0", "1"}
        logits = say(LITTLE, "tell", two.hear(n0=anchors[1]))[0]
        assert logits.keys() == {"mine 1", "mine 5", "yours 0", "yours 1"}
        for tag, fields in (("anchors", anchors[1]), ("logits", logits)):
            assert {n: f.numel() for n, f in fields.items()}.items() <= said[tag].items()
            assert all(f.dim() == 1 for f in fields.values())

    def test_anchors_are_made_once_and_offered_until_they_are_spoken_of(self) -> None:
        one = Scholar()
        first = say(LITTLE, "offer", one)[1]["0"].clone()
        yours = {"yours 0": torch.zeros(20)}
        say(LITTLE, "learn", one.hear(n1=yours, n2={"mine 3": torch.zeros(20)}))
        again = say(LITTLE, "offer", one.hear())
        assert again.keys() == {2}
        assert torch.equal(again[2]["0"], first)
        say(LITTLE, "learn", one.hear(n2=yours))
        assert say(LITTLE, "offer", one) == {}
        say(LITTLE, "learn", one.hear(n1={"mine 3": torch.zeros(20)}))  # it has lost them
        assert say(LITTLE, "offer", one).keys() == {1}

    def test_logits_are_of_ones_own_model(self) -> None:
        one = Scholar()
        say(LITTLE, "offer", one)
        said = say(LITTLE, "tell", one.hear(n1={"4": torch.full((128,), 3.0)}))
        torch.testing.assert_close(said[1]["yours 4"], torch.full((20,), 3.0))
        assert {name for name in said[2] if name.startswith("yours")} == set()

    def test_the_mean_of_those_who_spoke(self) -> None:
        """Two told of my class 0, one of its own class 4; what they say of anchors that nobody has is not heard."""
        mine, theirs, other, void = torch.rand(20), torch.rand(20), torch.rand(20), torch.rand(20)
        x, y = digits(0, 1)

        def loss(**said: Any) -> Tensor:
            one = Scholar()
            say(LITTLE, "offer", one)
            say(LITTLE, "tell", one.hear(n1={"4": torch.zeros(128)}))
            say(replace(LITTLE, temperature=1.0), "learn", one.hear(**said))
            return one.asked[-1](one.look, x, y)

        found = loss(n1={"yours 0": mine, "mine 4": other, "mine 9": void}, n2={"yours 0": theirs, "mine 0": void})
        torch.testing.assert_close(found, loss(n1={"yours 0": (mine + theirs) / 2, "mine 4": other}))
        assert not torch.isclose(found, loss(n1={"yours 0": mine, "mine 4": other}))
        assert not torch.isclose(found, loss(n1={"yours 0": (mine + theirs) / 2}))

    def test_the_loss_is_the_sum_of_its_parts(self) -> None:
        one, x, y = Scholar(), *digits(0, 1)
        say(LITTLE, "offer", one)
        say(LITTLE, "tell", one.hear(n1={"4": torch.full((128,), 0.3)}))
        one.hear(n1={f"{whose} {c}": torch.rand(20) for whose, c in (("mine", 4), ("yours", 0), ("yours", 1))})

        def loss(**weights: float) -> Tensor:
            say(replace(LITTLE, **weights), "learn", one)  # type: ignore[arg-type]
            return one.asked[-1](one.look, x, y)

        anchors = torch.cat([one.notes["anchors 0"], one.notes["anchors 1"]])
        labels = torch.tensor([0, 0, 1, 1, 4, 4])
        plain = F.cross_entropy(one.look(torch.cat([x, anchors]))[1], torch.cat([y, labels]))
        torch.testing.assert_close(loss(contrast=0, teaching=0), plain)
        contrasted, told = loss(contrast=1, teaching=0) - plain, loss(contrast=0, teaching=1) - plain
        assert min(contrasted, told) > 0
        torch.testing.assert_close(loss(contrast=2, teaching=3), plain + 2 * contrasted + 3 * told)

    @pytest.mark.parametrize("wrong", [{"ipc": 0}, {"steps": -1}, {"width": 0}, {"temperature": 0.0}])
    def test_settings_that_cannot_be(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="at least"):
            Experiment(protocol={"name": "desa", **wrong})


def test_anchors_travel_once_and_logits_every_round() -> None:
    """ipc·pixels for each class held and partner once; ipc·classes for each class of either, every round."""
    first, third = drive("loop", rounds=1, protocol=LIGHT["desa"]), drive("loop", rounds=3, protocol=LIGHT["desa"])
    held = [int((row > 0).sum()) for row in first.job.roster.labels]
    for i in range(6):
        partners = first.job.graph(1).neighbours(i).tolist()
        anchors = 4 * 2 * 64 * held[i] * len(partners)
        logits = sum(4 * 2 * 10 * (held[i] + held[j]) for j in partners)
        assert first.ledger["sent_bytes"][i] == anchors + logits
        assert third.ledger["sent_bytes"][i] == anchors + 3 * logits


def test_neighbours_who_missed_the_anchors_get_them_later() -> None:
    """Where links fail, all partners have each other's anchors sooner or later."""
    found = drive("loop", rounds=8, protocol=LIGHT["desa"], links=0.5)
    notes = {name for name in session("loop").snapshot() if name.startswith("notes/")}
    for i in range(6):
        for j in found.job.graph(1).neighbours(i).tolist():
            assert f"notes/{i}/anchors {j}" in notes


def test_nodes_learn_classes_that_they_never_saw() -> None:
    """Each holds four of ten digits; models differ, and none of them travels."""
    settings: dict[str, Any] = {
        "nodes": 6,
        "rounds": 6,
        "evaluate": 6,
        "epochs": 2,
        "batch_size": 10,
        "lr": 0.1,
        "momentum": 0.7,
        "topology": "complete",
        "partition": {"name": "labels", "k": 4},
        "model": [{"name": "mlp", "sizes": [48]}, {"name": "mlp", "sizes": [32]}],
        "engine": LOOP,
    }
    desa = {"use": "desa", "protocol": {"name": "desa", "ipc": 5, "steps": 30, "width": 16}}
    frame = Experiment(**settings, methods={"isolation": {"use": "isolation"}, "desa": desa}).run().records
    last = frame.filter(pl.col("round") == 6)
    alone, together = (last.filter(pl.col("method") == m)["test_accuracy"] for m in ("isolation", "desa"))
    assert alone.max() < 0.45  # type: ignore[operator]
    assert together.mean() > 0.65  # type: ignore[operator]
    assert together.min() > alone.max()  # type: ignore[operator]
