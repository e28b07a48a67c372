"""Rules by their numbers and their theory, through the simulator's inbox and through a peer's."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie.config.configuration import Configuration
from coterie.contract import Fields, Inbox, Layout, Me, Message, Rule, State, Term
from coterie.errors import ConfigError
from coterie.network.graph import Graph
from coterie.node import merging
from coterie.node.sums import Packet, StreamInbox, Summed
from coterie.parts import find, names
from coterie.rules.cfa_ge import CFAGE
from merging import Nodes, alone, nodes, stacked

INBOXES = [stacked, alone]
Merged = Callable[..., tuple[Tensor, State]]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Column blocks as narrow as they get, so that there are several even here."""
    monkeypatch.setattr(merging, "BLOCK_BYTES", 1)


@pytest.fixture
def three() -> Nodes:
    """Node 0 with neighbours 1 and 2; tensors {0, 1} and {2}."""
    w = [[1, 2, 0], [3, -2, 4], [-1, 6, 8]]
    return nodes(w, [10, 30, 60], Graph.from_edges(3, [(0, 1), (0, 2)]), ((2,), (1,)))


def random_nodes(n: int = 7, width: int = 70, seed: int = 0, directed: bool = False) -> Nodes:
    rng = np.random.default_rng(seed)
    links = [(i, j) for i in range(n) for j in range(n) if (i != j if directed else i < j) and rng.random() < 0.5]
    graph = Graph.from_edges(n, links, rng.random(len(links)) + 0.1, directed)
    shapes = ((4, 8), (width - 33,), (1,))
    found = nodes(rng.normal(size=(n, width)), rng.integers(5, 50, n), graph, shapes)
    found.state = {
        "h": torch.from_numpy(rng.random((n, width), np.float32)),
        "seen": torch.ones(n, 1),
        "g": torch.zeros(n, width),
    }
    begun = {"begun": torch.ones(n, 1)}  # who has not yet merges towards a start, not towards a consensus
    found.state |= made("consensus_start").init(found.me(slice(None), 0), found.params) | begun
    return found


def made(name: str, **options: object) -> Rule:
    rule: Rule = find("rules", name).make(**options)
    return rule


def close(found: Tensor, wanted: object, tolerance: float = 2e-6) -> None:
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=torch.float32), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("merge", INBOXES)
class TestNumbers:
    def test_decavg(self, three: Nodes, merge: Merged) -> None:
        close(merge(made("decavg"), three)[0][0], [0.4, 3.2, 6.0])

    def test_decavg_weighs_links(self, three: Nodes, merge: Merged) -> None:
        three.graph = Graph.from_edges(3, [(0, 1), (0, 2)], [0.5, 0.25])
        wanted = (10 * three.params[0] + 15 * three.params[1] + 15 * three.params[2]) / 40
        close(merge(made("decavg"), three)[0][0], wanted)

    def test_cfa(self, three: Nodes, merge: Merged) -> None:
        close(merge(made("cfa"), three)[0][0], [0.666667, 2.666667, 3.333333])

    def test_cfa_takes_a_lone_neighbours_model(self, three: Nodes, merge: Merged) -> None:
        active = (three.graph.sources == 1) & (three.graph.targets == 0)
        merged, _ = merge(made("cfa"), three, active)
        assert torch.equal(merged[0], three.params[1])
        assert torch.equal(merged[1:], three.params[1:])  # they heard nobody

    def test_cfa_ge(self, three: Nodes, merge: Merged) -> None:
        """ψ − μβ·G, where G = ρ·(the gradients that two neighbours gave) after one round."""
        fresh = torch.tensor([2.0, 0, -4]) + torch.tensor([1.0, 1, 1])
        three.state = {"g": (0.99 * fresh).repeat(3, 1)}
        merged, state = merge(made("cfa_ge"), three)
        close(merged[0], [0.662212, 2.665182, 3.337788])
        close(state["g"], 0.01 * three.state["g"])  # nobody answered this time

    def test_decdiff_by_tensor(self, three: Nodes, merge: Merged) -> None:
        close(merge(made("decdiff"), three)[0][0], [0.732339, 2.535322, 0.869565])

    def test_decdiff_by_model(self, three: Nodes, merge: Merged) -> None:
        w, far = three.params[0], (30 * three.params[1] + 60 * three.params[2]) / 90
        step = (far - w) / ((far - w).norm() + 2)
        close(merge(made("decdiff", norm="model", s=2.0), three)[0][0], w + step)

    def test_dechw(self, three: Nodes, merge: Merged) -> None:
        three.state = {"h": torch.tensor([[0.6, 0.8, 0], [0.8, 0, 0], [0, 0.6, 0]]), "seen": torch.ones(3, 1)}
        close(merge(made("dechw"), three)[0][0], [2.142857, 3.714286, 6.0])

    def test_dechw_star_goes_over_to_data_sizes(self, three: Nodes, merge: Merged) -> None:
        three.state = {"h": torch.tensor([[1.0, 2, 3], [3, 1, 2], [2, 3, 1]]), "seen": torch.ones(3, 1)}
        three.round = 4
        close(merge(made("dechw", theta=3), three)[0][0], [0.4, 3.2, 6.0])
        three.round = 3
        assert not torch.allclose(merge(made("dechw", theta=3), three)[0][0], torch.tensor([0.4, 3.2, 6.0]))

    def test_variance_corrected(self, three: Nodes, merge: Merged) -> None:
        """The unit's weights lie 0.5, 2.5 and 3.5 to both sides of the mean, those of the average 2.9; then a bias."""
        three.layout = Layout(("0.weight", "0.bias"), ((1, 2), (1,)))
        three.params[1, :2] = torch.tensor([-2.0, 3.0])
        wide = (0.1 * 0.25 + 0.3 * 6.25 + 0.6 * 12.25) ** 0.5
        close(merge(made("variance_corrected"), three)[0][0], [1.8 - wide, 1.8 + wide, 6.0])

    def test_variance_corrected_blows_up_no_noise(self, three: Nodes, merge: Merged) -> None:
        three.layout = Layout(("0.weight", "0.bias"), ((1, 2), (1,)))
        three.params[1] = -three.params[0] / 3  # they cancel but for rounding, weighted by 10 and 30
        active = three.graph.sources != 2
        close(merge(made("variance_corrected"), three, active)[0][0], [0.0, 0.0, 0.0])

    def test_variance_corrected_averages_what_all_units_have_alike(self, three: Nodes, merge: Merged) -> None:
        three.layout = Layout(("0.weight", "0.bias"), ((2, 1), (1,)))  # one weight each: no spread but the mean itself
        close(merge(made("variance_corrected"), three)[0][0], [0.4, 3.2, 6.0])

    def test_median(self, three: Nodes, merge: Merged) -> None:
        close(merge(made("median"), three)[0], [[1, 2, 4], [2, 0, 2], [0, 4, 4]])


class Batches:
    """Data with given gradients, which training computed too."""

    def __init__(self, *gradients: list[float]) -> None:
        self.gradients = [torch.tensor(g) for g in gradients]

    def grads(self, params: Tensor, size: int = 100, batches: int | None = None, first: int = 0) -> Iterator[Tensor]:
        turn = first % len(self.gradients)
        return iter((self.gradients[turn:] + self.gradients[:turn])[:batches])

    def squares(self) -> Tensor:
        return torch.stack(self.gradients).square().sum(0)


class TestDecHW:
    def observe(self, rule: Rule, rounds: int, data: Batches, before: State | None = None) -> State:
        who = nodes([[0.0, 0.0]], [5], Graph.from_edges(1, []))
        state = before or rule.init(who.me(0, 0), who.params[0])
        for number in range(1, rounds + 1):
            state = rule.observe(who.me(0, number), who.params[0], state, data)
        return state

    def test_diagonal(self) -> None:
        h = self.observe(made("dechw"), 1, Batches([1.0, 2.0], [3.0, 0.0]))["h"]
        close(h, torch.tensor([10.0, 4.0]) / 116**0.5)

    def test_cap_on_batches(self) -> None:
        close(
            self.observe(made("dechw", batches=1), 1, Batches([3.0, 2.0], [9.0, 9.0]))["h"],
            torch.tensor([9, 4]) / 97**0.5,
        )

    def test_accumulates(self) -> None:
        h = self.observe(made("dechw", beta=0.5), 3, Batches([1.0, 2.0], [3.0, 0.0]))["h"]
        close(h, 2.0 * torch.tensor([10.0, 4.0]) / 116**0.5)

    def test_accumulates_exponentially(self) -> None:
        rule = made("dechw", accumulate="exponential", beta=0.25)
        first, second = (torch.tensor(h) / torch.tensor(h).norm() for h in ([1.0, 4.0], [9.0, 0.0]))
        state = self.observe(rule, 1, Batches([1.0, 2.0]))
        close(state["h"], first)
        state = self.observe(rule, 1, Batches([3.0, 0.0]), state)
        close(state["h"], 0.75 * first + 0.25 * second)

    def test_without_accumulation_only_the_present_counts(self) -> None:
        rule = made("dechw", accumulate="none")
        state = self.observe(rule, 1, Batches([3.0, 0.0]), self.observe(rule, 2, Batches([1.0, 2.0])))
        close(state["h"], [1.0, 0.0])

    @pytest.mark.parametrize("settings", [{"beta": -0.1}, {"beta": 1.1, "accumulate": "exponential"}])
    def test_weights_that_cannot_be_are_refused(self, settings: dict[str, object]) -> None:
        with pytest.raises(ValueError, match="beta must be"):
            made("dechw", **settings)

    def test_lite_takes_what_training_computed(self) -> None:
        data = Batches([1.0, 2.0], [3.0, 0.0])
        close(self.observe(made("dechw_lite"), 3, data)["h"], self.observe(made("dechw"), 3, data)["h"])
        # no pass to be set up
        assert set(find("rules", "dechw_lite").parameters) == {"beta", "theta", "accumulate", "trace"}

    def test_no_gradient_gives_zero(self) -> None:
        assert torch.equal(self.observe(made("dechw"), 2, Batches([0.0, 0.0]))["h"], torch.zeros(2))

    def test_tells_the_norm_before_the_division_and_one_element(self) -> None:
        who = nodes([[0.0, 0.0]], [5], Graph.from_edges(1, []))
        for trace, element in ((None, 4.0), (0, 10.0)):
            rule = made("dechw", trace=trace)
            state = self.observe(rule, 3, Batches([1.0, 2.0], [3.0, 0.0]))
            told = rule.tell(who.me(0, 3), who.params[0], state)
            close(told["h_norm"], [116**0.5])
            close(told["h_element"], [3 * element / 116**0.5])

    def test_an_element_that_the_model_does_not_have_is_refused(self) -> None:
        for trace in (-1, 2):
            with pytest.raises(ConfigError, match=rf"rule.trace: expected 0 to 1, got {trace}"):
                self.observe(made("dechw", trace=trace), 0, Batches())

    def test_a_curvature_that_comes_late_counts_for_nothing(self) -> None:
        """Asynchronous: a neighbour still says its own when this node does not any more, nor has a term for it."""
        rule, one = made("dechw", theta=1), torch.ones(1)
        who = nodes([[0.0, 0.0]], [1], Graph.from_edges(1, []))
        heard, mine = Summed(rule, "model", {1: 1.0}), Message({"w": who.params[0]}, one, 3)
        late = {"w": torch.tensor([4.0, 2.0]), "h": torch.tensor([1.0, 3.0])}
        heard.add(Packet(1, "model", Message(late, one, 1)))
        inbox = StreamInbox(rule, mine, heard)
        close(inbox.sum("h", own=True), late["h"])
        close(inbox.mean("h", own=True), late["h"])
        close(rule.merge(who.me(0, 3), who.params[0], {"h": torch.zeros(2)}, inbox)[0], [2.0, 1.0])

    def test_stops_after_theta(self) -> None:
        data = Batches([1.0, 2.0])
        close(self.observe(made("dechw", theta=2), 5, data)["h"], self.observe(made("dechw"), 2, data)["h"])

    @pytest.mark.parametrize("merge", INBOXES)
    def test_equal_curvature_is_uniform_averaging(self, merge: Merged) -> None:
        who = random_nodes()
        who.state["h"] = who.state["h"][:1].expand_as(who.params).contiguous()
        equal = random_nodes()
        equal.sizes = torch.ones_like(equal.sizes)
        close(merge(made("dechw"), who)[0], merge(made("decavg"), equal)[0], 1e-5)


class TestCFAGE:
    def test_answers_with_another_batch_every_round(self) -> None:
        who, data = nodes([[0.0, 0.0]], [5], Graph.from_edges(1, [])), Batches([1.0, 2.0], [3.0, 0.0], [5.0, 1.0])
        theirs = Message({"w": who.params[0]}, who.sizes)
        said = [made("cfa_ge").answer(who.me(0, r), theirs, data)["gradient"].tolist() for r in range(1, 6)]
        assert said == [[1, 2], [3, 0], [5, 1], [1, 2], [3, 0]]

    def test_smoothing_the_sum_is_smoothing_each_summand(self) -> None:
        """Over several rounds, with everyone heard: one model of memory does for what would be one per neighbour."""
        rule, rng = CFAGE(rho=0.7, step=0.1), torch.Generator().manual_seed(0)
        who = nodes(torch.zeros(1, 4), [1], Graph.from_edges(1, []))
        each, state = torch.zeros(3, 4), {"g": torch.zeros(4)}
        for number in range(1, 5):
            told = torch.randn(3, 4, generator=rng)
            added = Summed(rule, "model", {1: 1.0, 2: 1.0, 3: 1.0})
            for j in (1, 2, 3):
                added.add(Packet(j, "model", Message({"w": torch.zeros(4)}, torch.ones(1))))
                added.add(Packet(j, "model", Message({"gradient": told[j - 1]}, torch.ones(1))), answer=True)
            inbox = StreamInbox(rule, Message({"w": torch.zeros(4)}, torch.ones(1)), added)
            merged, state = rule.merge(who.me(0, number), torch.zeros(4), state, inbox)
            close(merged, -0.1 * each.sum(0), 1e-5)
            each = 0.7 * told + 0.3 * each
            close(state["g"], each.sum(0), 1e-5)


@pytest.mark.parametrize("merge", INBOXES)
class TestRobust:
    def neighbourhoods(self, who: Nodes) -> Iterator[tuple[int, np.ndarray]]:
        for i in range(who.graph.nodes):
            if len(near := who.graph.neighbours(i)):
                yield i, who.params[[*near.tolist(), i]].numpy()

    @pytest.mark.parametrize("seed", range(3))
    def test_median_is_numpys(self, merge: Merged, seed: int) -> None:
        who = random_nodes(seed=seed)
        merged, _ = merge(made("median"), who)
        for i, models in self.neighbourhoods(who):
            close(merged[i], np.median(models, axis=0))

    @pytest.mark.parametrize("share", [0.0, 0.2, 0.34, 0.49])
    def test_trimmed_mean_is_numpys(self, merge: Merged, share: float) -> None:
        who = random_nodes(seed=4)
        merged, _ = merge(made("trimmed_mean", share=share), who)
        for i, models in self.neighbourhoods(who):
            cut = max(int(np.floor(share * len(models) + 1e-9)), int(share > 0 and len(models) >= 4))
            close(merged[i], np.sort(models, axis=0)[cut : len(models) - cut].mean(0), 1e-5)

    @pytest.mark.parametrize(
        ("rule", "neighbours", "borne"),
        [("trimmed_mean", n, b) for n, b in ((1, 0), (2, 0), (3, 1), (8, 1), (9, 2), (13, 2), (14, 3), (19, 4))]
        + [("median", n, b) for n, b in ((1, 0), (2, 1), (3, 1), (4, 2), (5, 2))],
    )
    def test_bears_as_many_liars_as_it_says_and_no_more(
        self, merge: Merged, rule: str, neighbours: int, borne: int
    ) -> None:
        star = Graph.from_edges(neighbours + 1, [(0, j) for j in range(1, neighbours + 1)])
        for liars in (borne, borne + 1):
            for lie in (1e30, -1e30):
                who = nodes(np.linspace(0, 1, 2 * (neighbours + 1)).reshape(-1, 2), [1] * (neighbours + 1), star)
                who.params[neighbours + 1 - liars :] = lie
                merged = merge(made(rule), who)[0][0]
                assert bool(((merged >= 0) & (merged <= 1)).all()) == (liars == borne)

    def test_one_liar_cannot_move_the_median(self, merge: Merged) -> None:
        who = nodes(np.zeros((5, 2)), [1] * 5, Graph.from_edges(5, [(i, j) for i in range(5) for j in range(i)]))
        who.params[3] = 1e9
        merged, _ = merge(made("median"), who)
        close(merged, np.zeros((5, 2)))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"rule": {"name": "decdiff", "s": 0.0}}, "s must be above 0"),
        ({"rule": {"name": "cfa_ge", "rho": 1.1}}, "rho must be from 0 to 1"),
        ({"rule": {"name": "cfa_ge", "step": -0.1}}, "step must be at least 0"),
        ({"rule": {"name": "dechw", "theta": -1}}, "theta must be at least 0"),
        ({"objective": {"name": "virtual_teacher", "beta": 1.5}}, "objective.beta"),
        ({"objective": {"name": "virtual_teacher", "beta": 0.0}}, "objective.beta"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Configuration(**settings)


def test_trimming_half_or_more_is_refused() -> None:
    with pytest.raises(ValueError, match="share"):
        made("trimmed_mean", share=0.5)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e4]))
@settings(max_examples=25, deadline=None)
def test_decdiff_moves_less_than_one_in_each_tensor(seed: int, scale: float) -> None:
    who = random_nodes(seed=seed)
    who.params *= scale
    merged, _ = stacked(made("decdiff"), who)
    for name, moved in who.layout.views(merged - who.params).items():
        assert (moved.flatten(1).norm(dim=1) <= 1 + 2e-6 * scale).all(), name


SPEAKING = [n for n in names("rules") if n != "isolation"]


def test_isolation_says_nothing(three: Nodes) -> None:
    assert made("isolation").send(three.me(slice(None), 1), three.params, {}) == {}


@pytest.mark.parametrize("name", SPEAKING)
@pytest.mark.parametrize("seed", [0, 1])
class TestEveryRule:
    """What holds for each of them, on random weighted graphs with some messages lost."""

    def job(self, seed: int) -> tuple[Nodes, np.ndarray]:
        who = random_nodes(seed=seed, directed=bool(seed))
        return who, np.random.default_rng(seed).random(len(who.graph.sources)) < 0.7

    def test_both_inboxes_agree(self, name: str, seed: int) -> None:
        who, active = self.job(seed)
        rule = made(name)
        (a, states), (b, peers) = stacked(rule, who, active), alone(rule, who, active)
        close(a, b, 1e-5)
        for k in who.state:
            close(states[k], peers[k], 1e-5)

    def test_rows_and_columns_agree(self, name: str, seed: int) -> None:
        rule = made(name)
        whole = type("Whole", (type(rule),), {"span": "model"})()
        who, active = self.job(seed)
        by_columns = stacked(rule, who, active)[0]
        for chunk in (1, 3, 100):
            close(stacked(whole, who, active, chunk)[0], by_columns, 1e-6)

    def test_consensus_is_kept(self, name: str, seed: int) -> None:
        """Where all agree already nobody moves."""
        who, active = self.job(seed)
        who.params = who.params[:1].expand_as(who.params).contiguous()
        close(stacked(made(name), who, active)[0], who.params, 1e-5)

    def test_nobody_heard_nothing_changed(self, name: str, seed: int) -> None:
        who, active = self.job(seed)
        active[:] = False
        for merge in INBOXES:
            assert torch.equal(merge(made(name), who, active)[0], who.params)

    def test_order_of_nodes_does_not_matter(self, name: str, seed: int) -> None:
        who, _ = self.job(seed)
        to = np.random.default_rng(seed + 9).permutation(len(who.params))
        back = np.argsort(to)
        g = who.graph
        moved = nodes(
            who.params[back],
            who.sizes[back],
            Graph(g.nodes, to[g.sources], to[g.targets], g.weights, g.directed),
            who.layout.shapes,
        )
        moved.state = {k: s[back] for k, s in who.state.items()}
        close(stacked(made(name), moved)[0][to], stacked(made(name), who)[0], 1e-5)


class Elementwise(Rule):
    """A mean whose weights differ from coordinate to coordinate."""

    def send(self, me: Me, params: Tensor, state: State) -> Fields:
        return {"w": params, "h": state["h"]}

    def lift(self, message: Message) -> dict[str, Term]:
        return {"w": Term(message["w"], message["h"]), "size": Term(message.size)}

    def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
        return inbox.mean("w", own=True) + 0 * inbox.sum("size"), state


class TestInbox:
    """Corners of the contract that no rule of ours uses."""

    @pytest.mark.parametrize("merge", INBOXES)
    @pytest.mark.parametrize("span", ["coordinate", "model"])
    def test_weights_of_each_coordinate(self, merge: Merged, span: str) -> None:
        who = random_nodes()
        rule = type("Spanned", (Elementwise,), {"span": span})()
        merged, _ = merge(rule, who)
        omega = who.graph.matrix().todense() + np.eye(who.graph.nodes)
        w, h = who.params.double().numpy(), who.state["h"].double().numpy()
        heard = who.graph.degree > 0
        close(merged[heard], ((omega @ (h * w)) / (omega @ h))[heard], 1e-5)

    @pytest.mark.parametrize("merge", INBOXES)
    def test_count_and_membership(self, merge: Merged) -> None:
        seen: dict[int, float] = {}

        class Curious(Rule):
            def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
                seen.update(zip(me.node.reshape(-1).tolist(), inbox.count.reshape(-1).tolist(), strict=True))
                assert "w" in inbox
                assert "absent" not in inbox
                assert inbox.count.shape == me.size.shape
                return params, state

        who = random_nodes(directed=True)
        merge(Curious(), who)
        assert seen == {i: d for i, d in enumerate(who.graph.degree.tolist()) if d}

    @pytest.mark.parametrize("merge", INBOXES)
    @pytest.mark.parametrize("span", ["coordinate", "model"])
    def test_shares_are_those_of_the_rows(self, merge: Merged, span: str) -> None:
        """Rows averaged by their shares are the mean that the inbox itself takes."""

        class Averaging(Rule):
            raw = True

            def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
                def mean(own: bool) -> Tensor:
                    links, sizes = inbox.shares(own)
                    return (links * sizes * inbox.rows("w", own)).sum(-2) / (links * sizes).sum(-2)

                close(mean(False), inbox.mean("w"), 1e-5)
                return mean(True), state

        who = random_nodes(directed=True)
        rule = type("Spanned", (Averaging,), {"span": span})()
        close(merge(rule, who)[0], merge(made("decavg"), who)[0], 1e-5)

    @pytest.mark.parametrize("merge", INBOXES)
    def test_a_rule_of_whole_rows_speaks_of_whole_rows(self, merge: Merged) -> None:
        class Norms(Rule):
            span = "model"

            def send(self, me: Me, params: Tensor, state: State) -> Fields:
                return {"w": params, "norm": params.norm(dim=-1, keepdim=True)}

            def lift(self, message: Message) -> dict[str, Term]:
                return {"w": Term(message["w"]), "norm": Term(message["norm"])}

            def merge(self, me: Me, params: Tensor, state: State, inbox: Inbox) -> tuple[Tensor, State]:
                close(inbox.sum("norm", own=True) - inbox.sum("norm"), params.norm(dim=-1, keepdim=True), 1e-4)
                return inbox.mean("w", own=True), state

        merge(Norms(), random_nodes())
