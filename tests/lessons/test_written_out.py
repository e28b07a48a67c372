"""Whole runs of mutual learning and its baselines, against the same written out in plain PyTorch.

Modules, `torch.optim`, a loop over teachers, one sample-wise divergence after the other: only the draws (who sends, who
is next, mini-batches) are those of the run, by the keys that the design page lists.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from coterie.initialisers import Origin
from coterie.initialisers.default import default
from coterie.job import Job
from coterie.protocols.meetings import draw_groups
from coterie.randomness import generator, torch_generator
from driving import Outcome, job, outcome, session

ROUNDS, NODES, EPOCHS = 7, 5, 2
PERIOD, GROWTH = 4, 2
LR, MOMENTUM, DECAY = 0.1, 0.9, 1e-3
WORLD: dict[str, Any] = {
    "nodes": NODES,
    "rounds": ROUNDS,
    "topology": {"name": "er", "p": 0.6, "connect": True},
    "partition": {"name": "labels", "k": 3},
    "total": 150,
    "model": [{"name": "mlp", "sizes": [8]}, {"name": "mlp", "sizes": [6, 5]}, "logistic"],
    "objective": "wsm",
    "optimiser": {"name": "sgd", "lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY},
}
Objective = Callable[[Tensor, Tensor, Tensor], Tensor]


# Losses of a sample: scores [B, C], labels [B], and how many samples of each class the teaching node has.


def wsm(z: Tensor, y: Tensor, held: Tensor) -> Tensor:
    share, present = held / held.sum(), held > 0
    return -(z[range(len(y)), y] - (share[present] * z[:, present].exp()).sum(1).log())


def ace(z: Tensor, y: Tensor, held: Tensor) -> Tensor:
    return -(z[range(len(y)), y] - z[:, held > 0].exp().sum(1).log())


def ce(z: Tensor, y: Tensor, held: Tensor) -> Tensor:
    return -(z[range(len(y)), y] - z.exp().sum(1).log())


def alphas(count: int, schedule: str = "cycle", low: float = 0.0, high: float = 0.9) -> list[float]:
    """Equation 4, beginning low, cycle after cycle."""
    if schedule == "fixed":
        return [high] * count
    if schedule == "falling":
        return [high * (1 - t / ROUNDS) for t in range(count)]
    found, period = list[float](), PERIOD
    while len(found) < count:
        steps, whole = (period + 1, math.pi) if schedule == "half" else (period, 2 * math.pi)
        found += [low + 0.5 * (high - low) * (1 - math.cos(whole * tau / period)) for tau in range(steps)]
        period += GROWTH
    return found[:count]


class Plain:
    """The nodes of a job, each with a module of its own as the job draws it."""

    def __init__(self, made: Job, objective: Objective = wsm) -> None:
        running = session("loop")
        running.begin(made)
        begun, roster = outcome(running, made).models, made.roster
        self.job, self.roster, self.objective = made, roster, objective
        self.models = dict[int, nn.Module]()
        for choice, group in zip(roster.models, roster.groups, strict=True):
            for node in group.tolist():
                module = choice.make()(made.samples.shape, made.samples.classes)
                vector_to_parameters(begun[node], module.parameters())
                self.models[node] = module
        self.peaks = dict[int, tuple[float, Tensor]]()

    def held(self, node: int) -> Tensor:
        labels = self.job.samples.train_y[torch.as_tensor(self.roster.train[node])]
        return torch.bincount(labels, minlength=self.job.samples.classes).float()

    def optimiser(self, module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(module.parameters(), LR, momentum=MOMENTUM, weight_decay=DECAY)

    def batch(self, where: Any) -> tuple[Tensor, Tensor]:
        index = torch.as_tensor(where)
        x = self.job.samples.inputs(index)
        assert isinstance(x, Tensor)
        return x, self.job.samples.targets(index)

    def train(self, node: int, round: int, prox: float = 0.0) -> None:
        """A node's own training of a round."""
        module, held = self.models[node], self.held(node)
        optimiser, before = self.optimiser(module), parameters_to_vector(module.parameters()).detach().clone()
        for where in self.roster.schedule(node, round):
            x, y = self.batch(where)
            away = parameters_to_vector(module.parameters()) - before
            optimiser.zero_grad()
            (self.objective(module(x), y, held).mean() + 0.5 * prox * (away**2).sum()).backward()
            optimiser.step()

    def lesson_batches(self, node: int, round: int, epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
        own, size = self.roster.train[node], self.roster.training.batch_size
        for epoch in range(epochs):
            order = generator(self.roster.seed, "lesson", node, round, epoch).permutation(own)
            for start in range(0, len(order), size):
                yield self.batch(order[start : start + size])

    def walk(self, share: float = 0.5) -> Iterator[tuple[int, int, list[int]]]:
        """Round, aggregator, senders: the lowest first, then a neighbour of the last one."""
        graph, seed, hub = self.job.graph(1), self.roster.seed, 0
        for turn in range(ROUNDS):
            near = graph.neighbours(hub)
            count = min(len(near), max(1, int(share * NODES)))
            team = generator(seed, "senders", hub, turn).choice(near, count, replace=False)
            yield turn + 1, hub, sorted(team.tolist())
            hub = int(generator(seed, "next", hub, turn).choice(near, 1)[0])

    def learn_together(
        self,
        hub: int,
        models: dict[int, nn.Module],
        round: int,
        epochs: int,
        weight: Callable[[int, int, list[Tensor], Tensor], Tensor],
        parts: tuple[float, float],
        learners: Sequence[int],
    ) -> None:
        """Supervision and divergences from all teachers, one by one; all step from the same answers."""
        optimisers, held = {n: self.optimiser(m) for n, m in models.items()}, self.held(hub)
        for x, y in self.lesson_batches(hub, round, epochs):
            said = {n: m(x) for n, m in models.items()}
            errors = [F.cross_entropy(z.detach(), y, reduction="none") for z in said.values()]
            losses = {}
            for i, n in enumerate(models):
                loss = parts[0] * self.objective(said[n], y, held).mean()
                for j, q in enumerate(models):
                    if q != n:
                        p, log = F.softmax(said[q].detach(), 1), F.log_softmax(said[n], 1)
                        apart = F.kl_div(log, p, reduction="none").sum(1)
                        loss = loss + parts[1] * (weight(n, q, [errors[i], errors[j]], y) * apart).mean()
                losses[n] = loss
            for n in learners:
                optimisers[n].zero_grad()
                losses[n].backward()
            for n in learners:
                optimisers[n].step()

    def row(self, node: int) -> Tensor:
        return parameters_to_vector(self.models[node].parameters()).detach()


def mutual(plain: Plain, settings: dict[str, Any]) -> None:
    """All rounds of DFML."""
    shaped = {k: v for k, v in settings.items() if k in ("schedule", "low", "high")}
    alpha, peaks, top = alphas(60, **shaped), settings.get("peaks", "rule"), settings.get("top", 1)
    maximum = {"half": PERIOD, "cycle": PERIOD // 2}.get(settings.get("schedule", "cycle"), 0)
    for turn, (round, hub, team) in enumerate(plain.walk()):
        everyone = sorted([hub, *team])
        for node in everyone:
            plain.train(node, round)
        models, a = {n: plain.models[n] for n in everyone}, alpha[turn]
        size = {n: sum(p.numel() for p in m.parameters()) for n, m in models.items()}

        def weight(
            n: int,
            q: int,
            errors: list[Tensor],
            y: Tensor,
            size: dict[int, int] = size,
            everyone: list[int] = everyone,
        ) -> Tensor:
            others = [u for u in everyone if u != n]
            share = size[q] / sum(size[u] for u in others)
            if settings.get("weights") == "equal":
                share = 1 / len(others)
            bias = 1 - torch.exp(-errors[0] / errors[1]) if settings.get("samples") == "wsl" else torch.ones(len(y))
            return share * bias

        varies = settings.get("varies", "between")
        parts = {"supervision": (1 - a, 1.0), "distillation": (1.0, a), "both": (a, a)}.get(varies, (1 - a, a))
        learners = [hub] if settings.get("learners") == "own" else everyone
        plain.learn_together(hub, models, round, EPOCHS, weight, parts, learners)
        for n in learners:
            kept = plain.peaks.get(n, (-1.0, plain.row(n)))[0]
            cycle = _cycle_of(turn, alpha)
            high = a >= sorted(cycle, reverse=True)[min(top, len(cycle)) - 1] - 1e-9 if peaks == "top" else a >= kept
            if kept < 0 or turn <= maximum or high:
                plain.peaks[n] = a, plain.row(n).clone()


def _cycle_of(turn: int, alpha: list[float]) -> list[float]:
    """The weights of the cycle that a turn is in: cycles begin where nothing is distilled."""
    starts = [t for t, a in enumerate(alpha) if a == alpha[0]]
    first = max(t for t in starts if t <= turn)
    return alpha[first : min((t for t in starts if t > turn), default=len(alpha))]


def ran(lesson: Any, **settings: Any) -> tuple[Outcome, Job]:
    """What all rounds come to around an aggregator that wanders."""
    return carried_out({"name": "wandering", "lesson": lesson}, **settings)


def carried_out(protocol: dict[str, Any], **settings: Any) -> tuple[Outcome, Job]:
    made, running = job(**{**WORLD, **settings, "protocol": protocol}), session("loop")
    running.begin(made)
    for number in range(1, made.roster.rounds + 1):
        running.round(number, False)
    return outcome(running, made), made


def close(found: Outcome, plain: Plain) -> None:
    for node in range(NODES):
        same(found.models[node], plain.row(node))


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "as it is": ({}, "wsm"),
    "classes present": ({}, "ace"),
    "cross-entropy": ({}, "cross_entropy"),
    "teachers alike": ({"weights": "equal"}, "wsm"),
    "half cycles": ({"schedule": "half", "low": 0.1}, "wsm"),
    "fixed": ({"schedule": "fixed", "high": 0.5}, "wsm"),
    "supervision only": ({"schedule": "fixed", "high": 0.0}, "wsm"),
    "distillation only": ({"schedule": "fixed", "high": 1.0}, "wsm"),
    "ANL-KD": ({"schedule": "falling", "high": 1.0}, "cross_entropy"),
    "WSL": ({"schedule": "fixed", "high": 0.5, "samples": "wsl"}, "cross_entropy"),
    "supervision varies": ({"varies": "supervision"}, "wsm"),
    "distillation varies": ({"varies": "distillation"}, "wsm"),
    "both vary": ({"varies": "both"}, "wsm"),
    "vanilla": ({"learners": "own"}, "wsm"),
    "peaks of the highest three": ({"peaks": "top", "top": 3}, "wsm"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_mutual_learning(variant: str) -> None:
    """Seven rounds, over the end of a cycle: every model and every peak."""
    settings, objective = VARIANTS[variant]
    settings = {"epochs": EPOCHS, "period": PERIOD, "growth": GROWTH, **settings}
    found, made = ran({"name": "mutual", **settings}, objective=objective)
    plain = Plain(made, {"wsm": wsm, "ace": ace, "cross_entropy": ce}[objective])
    mutual(plain, {k: v for k, v in settings.items() if k not in ("epochs", "period", "growth")})
    close(found, plain)
    assert {n for n, noted in found.notes.items() if "peak" in noted} == {*plain.peaks}
    for node, (weight, row) in plain.peaks.items():
        same(found.notes[node]["peak"], row)
        assert float(found.notes[node]["peak weight"]) == pytest.approx(weight, abs=1e-6)


def test_variants_differ() -> None:
    """What is tested above are fifteen things, not one."""
    seen = set()
    for settings, objective in VARIANTS.values():
        lesson = {"name": "mutual", "epochs": 1, "period": PERIOD, "growth": GROWTH, **settings}
        found, _ = ran(lesson, objective=objective, rounds=3)
        seen.add(round(sum(float(row.double().sum()) for row in found.models.values()), 6))
    assert len(seen) >= len(VARIANTS) - 1  # which peaks are kept changes no present model


@pytest.mark.parametrize("prox", [0.0, 1.0], ids=["FedAvg", "FedProx"])
def test_averages_within_an_architecture(prox: float) -> None:
    found, made = ran("average", optimiser={**WORLD["optimiser"], "prox": prox}, initialiser="common")
    plain = Plain(made)
    for round, hub, team in plain.walk():
        for node in (hub, *team):
            plain.train(node, round, prox)
        alike: dict[Any, list[int]] = {}
        for node in sorted([hub, *team]):
            alike.setdefault(next(g for g, nodes in enumerate(made.roster.groups) if node in nodes), []).append(node)
        for nodes in alike.values():
            sizes = [len(made.roster.train[n]) for n in nodes]
            mean = sum(s * plain.row(n) for s, n in zip(sizes, nodes, strict=True)) / sum(sizes)
            for n in nodes:
                vector_to_parameters(mean.clone(), plain.models[n].parameters())
    close(found, plain)


@pytest.mark.parametrize("lesson", ["heterofl", "fedrolex", "federated_dropout"])
def test_narrow_models_as_parts_of_the_widest(lesson: str) -> None:
    """Hidden units of one layer: for each, the average over all who have it, everyone counting alike."""
    widths = [{"name": "mlp", "sizes": [8]}, {"name": "mlp", "sizes": [4]}]
    found, made = ran(lesson, model=widths, initialiser="common")
    plain = Plain(made)
    for turn, (round, hub, team) in enumerate(plain.walk(0.5)):
        everyone = sorted([hub, *team])
        for node in everyone:
            plain.train(node, round)
        tensors = {n: [p.detach() for p in plain.models[n].parameters()] for n in everyone}
        widest = max(len(t[1]) for t in tensors.values())
        units = {}
        for n, t in tensors.items():
            k = len(t[1])
            rolled = sorted((turn + i) % widest for i in range(k))
            draw = torch_generator(made.roster.seed, "units", n, round, widest, k)
            drawn = sorted(torch.randperm(widest, generator=draw)[:k].tolist())
            units[n] = {"heterofl": [*range(k)], "fedrolex": rolled, "federated_dropout": drawn}[lesson]
        for unit in range(widest):
            having = [(n, units[n].index(unit)) for n in everyone if unit in units[n]]
            if having:
                row = sum(tensors[n][0][i] for n, i in having) / len(having)
                bias = sum(tensors[n][1][i] for n, i in having) / len(having)
                column = sum(tensors[n][2][:, i] for n, i in having) / len(having)
                for n, i in having:
                    tensors[n][0][i], tensors[n][1][i], tensors[n][2][:, i] = row, bias, column
        last = sum(tensors[n][3] for n in everyone) / len(everyone)
        for n in everyone:
            tensors[n][3].copy_(last)
    close(found, plain)


def test_def_kt() -> None:
    """Pairs: both learn on the receiver's data, which goes on with the model that came; the sender keeps its own."""
    wanted = {"model": {"name": "mlp", "sizes": [8]}, "initialiser": "common"}
    lesson = {"name": "def_kt", "epochs": EPOCHS}
    found, made = carried_out({"name": "meetings", "senders": 1, "lesson": lesson}, **wanted)
    plain = Plain(made)
    for round in range(1, ROUNDS + 1):
        for hub, (sender,) in draw_groups(made.graph(1), made.roster.seed, round, 1, None).items():
            for node in (hub, sender):
                plain.train(node, round)
            came = copy.deepcopy(plain.models[sender])
            pair = {hub: plain.models[hub], sender: came}
            plain.learn_together(hub, pair, round, EPOCHS, lambda *_: torch.ones(1), (1.0, 1.0), [hub, sender])
            plain.models[hub] = came
    close(found, plain)


def test_fml() -> None:
    """Private models and memes learn from each other at home; the aggregator averages memes by data."""
    found, made = carried_out({"name": "fml", "meme": {"name": "mlp", "sizes": [4]}})
    plain, memes = Plain(made), dict[int, nn.Module]()
    for round, hub, team in plain.walk():
        for node in (hub, *team):
            if node not in memes:
                memes[node] = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 10))
                default(memes[node], Origin(made.roster.seed, -1, 1.0))
            both = {-2: plain.models[node], -1: memes[node]}
            plain.learn_together(node, both, round, 1, lambda *_: torch.ones(1), (0.5, 0.5), [-2, -1])
        sizes = {n: len(made.roster.train[n]) for n in (hub, *team)}
        mean = sum(s * parameters_to_vector(memes[n].parameters()).detach() for n, s in sizes.items())
        for n in sizes:
            vector_to_parameters(mean / sum(sizes.values()), memes[n].parameters())
    close(found, plain)
    for node, meme in memes.items():
        same(found.notes[node]["meme"], parameters_to_vector(meme.parameters()).detach())
