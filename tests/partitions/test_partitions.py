import functools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import ConfigError, DataError
from coterie.network import skew
from coterie.partitions import Partition, overlaps, split
from coterie.parts import find, names
from coterie.randomness import generator
from coterie.runs.experiment import Experiment

SIZES = (130, 170, 150, 210, 190)  # unequal on purpose, and no multiple of the numbers of nodes used
LABELS = generator(0, "labels").permutation(np.repeat(np.arange(len(SIZES)), SIZES))
COMPLETE = ("dirichlet", "iid", "labels", "shards", "zipf")  # promise that every sample is given to someone
EQUAL = ("dirichlet_nodes", "everything", "iid_classes", "zipf_equal")  # promise equal totals
SHARED = ("everything", "skew")  # say that nodes may hold the same samples


def made(name: str, nodes: int, classes: int = len(SIZES), **more: Any) -> Partition:
    """The partition with the settings without which it cannot be used on these few samples."""
    needed: dict[str, dict[str, Any]] = {
        "shares": {"shares": ((0.7 / nodes,) * classes,) * nodes},
        "dirichlet": {"min_samples": 1},
    }
    partition: Partition = find("partitions", name).make(**needed.get(name, {}) | more)
    return partition


def dealt(name: str, labels: np.ndarray = LABELS, nodes: int = 7, seed: int = 0, **more: Any) -> list[np.ndarray]:
    return made(name, nodes, int(labels.max()) + 1, **more)(labels, nodes, generator(seed, "partition"))


def table(name: str, labels: np.ndarray = LABELS, nodes: int = 7, seed: int = 0, **more: Any) -> np.ndarray:
    return skew.counts(labels, dealt(name, labels, nodes, seed, **more), int(labels.max()) + 1)


def holds_contract(parts: list[np.ndarray], samples: int, nodes: int, shared: bool = False) -> None:
    assert len(parts) == nodes
    for part in parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()  # sorted, none twice
    together = np.concatenate(parts)
    assert shared or len(np.unique(together)) == len(together)
    assert together.min() >= 0
    assert together.max() < samples


# Every partition


@pytest.mark.parametrize("name", names("partitions"))
@pytest.mark.parametrize("nodes", [1, 2, 7, 40])
def test_parts_are_sorted_and_valid_and_disjoint_unless_the_partition_says_so(name: str, nodes: int) -> None:
    assert overlaps(made(name, nodes)) == overlaps(find("partitions", name).target) == (name in SHARED)
    holds_contract(dealt(name, nodes=nodes, seed=nodes), len(LABELS), nodes, name in SHARED)


@pytest.mark.parametrize("name", names("partitions"))
def test_seed_decides_and_nothing_else(name: str) -> None:
    first, again, other = dealt(name), dealt(name), dealt(name, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    same = all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert same == (name == "everything")


@pytest.mark.parametrize("name", names("partitions"))
def test_labels_need_be_neither_sorted_nor_gapless(name: str) -> None:
    labels = np.array([3, 9, 12])[generator(2, "labels").integers(3, size=200)]
    holds_contract(dealt(name, labels, nodes=4), len(labels), 4, name in SHARED)


@pytest.mark.parametrize("name", names("partitions"))
@pytest.mark.parametrize("nodes", [0, -1, len(LABELS) + 1])
def test_impossible_numbers_of_nodes_are_refused(name: str, nodes: int) -> None:
    given = {"shares": {"shares": ((0.0,) * len(SIZES),)}}.get(name, {})
    with pytest.raises(DataError, match=r"nodes.*expected at least \d+, got -?\d+\. \w+"):
        find("partitions", name).make(**given)(LABELS, nodes, generator(0, "partition"))


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(names("partitions")),
    sizes=st.lists(st.integers(20, 60), min_size=1, max_size=6),
    nodes=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_contract_holds_for_any_sizes(name: str, sizes: list[int], nodes: int, seed: int) -> None:
    if name == "skew":
        sizes = [*sizes, 20]  # it needs two classes
    labels = generator(seed, "labels").permutation(np.repeat(np.arange(len(sizes)), sizes))
    more = {"k": 1} if name == "labels" else {}
    parts = dealt(name, labels, nodes, seed, **more)
    holds_contract(parts, len(labels), nodes, name in SHARED)
    total = sum(map(len, parts))
    if name in COMPLETE and not (name == "labels" and nodes < len(sizes)):
        assert total == len(labels)
    if name in EQUAL:
        assert len(set(map(len, parts))) == 1
        assert name in SHARED or len(labels) - total < nodes * (len(sizes) if name == "iid_classes" else 1)


# Each of them


def test_iid_sizes_differ_by_at_most_one_and_labels_are_alike() -> None:
    assert {len(part) for part in dealt("iid", nodes=7)} == {121, 122}
    large = np.repeat(np.arange(10), 2000)
    assert skew.label_kl(table("iid", large, nodes=10)).max() < 0.02


def test_iid_classes_gives_every_node_the_same_of_each_class() -> None:
    assert (table("iid_classes", nodes=8) == np.array(SIZES) // 8).all()


@pytest.mark.parametrize("name", ["iid_classes", "zipf"])
def test_a_class_too_small_for_one_each_is_named(name: str) -> None:
    labels = np.repeat([0, 1, 2], [50, 5, 50])
    with pytest.raises(DataError, match=r"class 1 has too few samples: expected at least 6 .*, got 5\."):
        dealt(name, labels, nodes=6)


def test_dirichlet_shares_have_the_mean_and_variance_of_the_law() -> None:
    nodes, alpha, size = 5, 0.5, 200
    labels = np.repeat(np.arange(60), size)
    share = table("dirichlet", labels, nodes, alpha=alpha, min_samples=0).ravel() / size
    # Var = m(1 − m)/(nα + 1) of the Dirichlet share, and what the multinomial adds to it
    mean, spread = 1 / nodes, 1 / (nodes * alpha + 1)
    expected = mean * (1 - mean) * (spread + (1 - spread) / size)
    assert share.mean() == pytest.approx(mean)
    assert share.var() == pytest.approx(expected, rel=0.25)


def test_dirichlet_is_more_uneven_with_smaller_alpha() -> None:
    ginis = [skew.gini(table("dirichlet", alpha=alpha)) for alpha in (0.1, 1.0, 100.0)]
    assert ginis == sorted(ginis, reverse=True)
    assert ginis[0] > 0.6
    assert ginis[2] < 0.15


def test_dirichlet_redraws_until_everyone_has_enough() -> None:
    least = [
        [table("dirichlet", nodes=20, seed=s, alpha=0.2, min_samples=m).sum(axis=1).min() for s in range(10)]
        for m in (0, 10)
    ]
    assert min(least[0]) < 10 <= min(least[1])


def test_dirichlet_says_so_when_the_minimum_cannot_be_reached() -> None:
    with pytest.raises(DataError, match="Raise alpha, lower min_samples"):
        dealt("dirichlet", nodes=40, alpha=0.01, min_samples=15)
    with pytest.raises(DataError, match=r"expected at least 1000, got 850\. Lower min_samples"):
        dealt("dirichlet", nodes=10, min_samples=100)


def test_dirichlet_balance_closes_a_node_at_its_fair_total() -> None:
    counts = table("dirichlet", nodes=10, alpha=0.2, balance=True)
    before = np.cumsum(counts, axis=1)[:, :-1]
    closed = before >= len(LABELS) / 10
    assert closed.any()
    assert (counts[:, 1:][closed] == 0).all()
    plain, balanced = (
        np.mean([table("dirichlet", nodes=10, seed=s, balance=b).sum(axis=1).std() for s in range(20)])
        for b in (False, True)
    )
    assert balanced < plain


def test_dirichlet_nodes_mixtures_follow_the_law_while_classes_last() -> None:
    # The variance of a share is m(1 − m)/(Cα + 1): with many classes and few nodes none runs out early.
    labels = np.repeat(np.arange(4), 4000)
    share = np.concatenate([table("dirichlet_nodes", labels, 8, s, alpha=5.0) / 2000 for s in range(20)])
    assert share.mean() == pytest.approx(0.25)
    assert share.var() == pytest.approx(0.25 * 0.75 / 21, rel=0.25)


def test_nodes_share_a_class_that_runs_out_and_go_on_to_the_others() -> None:
    # So steep a law that a node asks for its first class only: nodes 0 and 3 for the same one, of 100 samples.
    counts = table("zipf_equal", np.repeat(np.arange(3), 100), nodes=4, alpha=2000.0)
    assert (counts.sum(axis=1) == 75).all()
    assert (counts.sum(axis=0) == 100).all()
    wanted = counts[0].argmax()
    assert sorted(counts[1]) == sorted(counts[2]) == [0, 0, 75]  # nobody else wants theirs
    assert counts[[0, 3], wanted].sum() == 100
    assert (counts[[0, 3], wanted] > 30).all()  # by lot, not by place in the queue
    assert (np.delete(counts[[0, 3]], wanted, axis=1) > 0).all()  # what is left elsewhere, evenly


def test_a_class_that_ran_out_leaves_the_ranking_of_the_others() -> None:
    labels = np.repeat(np.arange(3), [6, 900, 900])
    counts = np.concatenate([table("zipf_equal", labels, 6, seed, alpha=1.8) for seed in range(10)])
    preferred = counts[:, 1:].max(axis=1).mean() / 301
    # Class 0 is next to nothing, and a third of the nodes each rank the two others 1 and 2, 1 and 3, 2 and 3.
    share = np.mean([1 / (1 + ratio**-1.8) for ratio in (2 / 1, 3 / 1, 3 / 2)])
    assert preferred == pytest.approx(share, abs=0.04)  # a little less: in the end these classes run out too


def dealt_by_zipf(x: np.ndarray, size: int) -> tuple[int, ...]:
    """How many samples of one class of this size each node gets from the variates x: the last one takes the rest."""
    counts = x * size // x.sum()
    return (*map(int, counts[:-1]), int(size - counts[:-1].sum()))


def of_one_class(nodes: int, size: int, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(map(len, find("partitions", "zipf").make()(np.zeros(size, np.int64), nodes, rng)))


@pytest.mark.parametrize(("n", "most"), [(3, 9), (6, 9)])  # most draws are small enough; hardly any is
def test_zipf_follows_the_law_given_the_size_of_the_class(n: int, most: int) -> None:
    # All outcomes that can be and their exact probabilities, against the frequencies of the partition.
    alpha, draws = 1.26, 2000
    variates = [np.array(t) + 1 for t in np.ndindex(*(most - n + 1,) * n) if sum(t) + n <= most]
    weight = np.array([np.prod(x.astype(float)) ** -alpha for x in variates])
    expected: Counter[tuple[int, ...]] = Counter()
    for x, w in zip(variates, weight / weight.sum(), strict=True):
        expected[dealt_by_zipf(x, most)] += draws * w
    rng = generator(5, "zipf")
    seen = Counter(of_one_class(n, most, rng) for _ in range(draws))
    assert set(seen) <= set(expected)
    assert len(expected) > 20
    chi2 = sum((seen[t] - e) ** 2 / e for t, e in expected.items())
    assert chi2 < len(expected) + 4 * np.sqrt(2 * len(expected))


def test_zipf_agrees_with_plain_rejection() -> None:
    n, most, alpha = 5, 40, 1.26
    rng = generator(6, "zipf")
    plain = rng.zipf(alpha, size=(30_000, n))
    kept = np.array([dealt_by_zipf(x, most) for x in plain[plain.astype(float).sum(axis=1) <= most]])
    ours = np.array([of_one_class(n, most, rng) for _ in range(1500)])
    assert len(kept) > 2000
    for measure in (
        lambda x: x.max(axis=1),
        lambda x: x.min(axis=1),
        lambda x: (x == 1).sum(axis=1),
        lambda x: x[:, 0],
        lambda x: x[:, -1],
    ):
        a, b = measure(kept), measure(ours)
        error = np.sqrt(a.var() / len(a) + b.var() / len(b))
        assert abs(a.mean() - b.mean()) < 4 * error


@pytest.mark.parametrize(("n", "most"), [(1, 1), (1, 40), (7, 7), (50, 174), (100, 5421), (2000, 5421), (5400, 5421)])
def test_zipf_draws_where_rejection_would_never_end(n: int, most: int) -> None:
    counts = of_one_class(n, most, generator(n, "zipf"))
    assert len(counts) == n
    assert min(counts) >= 1
    assert sum(counts) == most


def test_zipf_rotates_one_draw_and_leaves_nobody_without_a_class() -> None:
    labels = np.repeat(np.arange(4), 600)
    counts = table("zipf", labels, nodes=6)
    assert counts.min() >= 1
    for c in range(1, 4):
        # The last node takes the rest, so it and the place where its share comes from are left out.
        assert counts[1:5, c].tolist() == [counts[i - 1, c - 1] for i in range(1, 5)]
    fresh = table("zipf", labels, nodes=6, draw="fresh")
    assert fresh.min() >= 1
    assert len(np.unique(np.sort(fresh[:-1], axis=0), axis=1).T) == 4  # four draws, none a rearrangement of another


def test_zipf_gives_everyone_of_the_smallest_class_even_when_it_is_tight() -> None:
    labels = np.repeat([0, 1], [30, 500])
    for seed in range(20):
        counts = table("zipf", labels, nodes=30, seed=seed)
        assert (counts[:, 0] == 1).all()
        assert counts.min() >= 1


def test_zipf_is_as_skewed_as_the_paper_says() -> None:
    labels = np.repeat(np.arange(10), 6000)
    ginis = [skew.gini(table("zipf", labels, nodes=50, seed=seed)) for seed in range(8)]
    assert 0.70 <= np.mean(ginis) <= 0.87


@pytest.mark.parametrize("order", ["rotate", "random"])
def test_zipf_equal_prefers_classes_by_rank(order: str) -> None:
    labels = np.repeat(np.arange(10), 1000)
    counts = table("zipf_equal", labels, nodes=10, order=order)
    assert (counts.sum(axis=1) == 1000).all()
    ranked = np.sort(counts, axis=1)[:, ::-1].mean(axis=0)
    assert (np.diff(ranked) < 0).all()
    if order == "rotate":  # every class is first choice once, so none runs out early
        share = np.arange(1.0, 11) ** -1.8
        assert ranked[:3] / 1000 == pytest.approx(share[:3] / share.sum(), rel=0.1)
        assert sorted(counts.argmax(axis=1)) == list(range(10))


def test_shards_hold_few_labels() -> None:
    labels = np.repeat(np.arange(10), 60)
    counts = table("shards", labels, nodes=10, per_node=2)
    assert (counts.sum(axis=1) == 60).all()
    assert ((counts > 0).sum(axis=1) <= 2).all()
    with pytest.raises(DataError, match="Lower per_node"):
        dealt("shards", labels, nodes=10, per_node=61)


def test_shares_are_what_was_asked() -> None:
    labels = np.repeat([0, 1], [100, 50])
    asked = ((0.5, 0.0), (0.3, 0.2), (0.2, 0.4))
    assert table("shares", labels, 3, shares=asked).tolist() == [[50, 0], [30, 10], [20, 20]]


def test_shares_that_sum_to_one_leave_no_sample_behind() -> None:
    labels = np.repeat([0, 1], [101, 50])
    counts = table("shares", labels, 7, shares=((1 / 7, 1 / 7),) * 7)
    assert counts.sum(axis=0).tolist() == [101, 50]
    assert np.ptp(counts, axis=0).max() <= 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (((0.5, 0.6), (0.4, 0.5)), "class 1 sum to more than the class: expected at most 1, got 1.1"),
        (((0.5, 0.5),), r"expected 2 rows \(nodes\) of 2 numbers \(classes\), got 1 rows of 2 numbers"),
        (((0.5, 0.5), (0.5,)), "got 2 rows of 1 or 2 numbers"),
        (((0.5, 0.5, 0.1), (0.5, 0.5, 0.1)), "got 2 rows of 3 numbers"),
        (((0.5, -0.5), (0.5, 0.5)), "below zero: expected 0 to 1, got -0.5"),
    ],
)
def test_impossible_shares_are_refused(asked: tuple[tuple[float, ...], ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        dealt("shares", np.repeat([0, 1], 50), 2, shares=asked)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("nodes", [1, 3, 8, 21])
def test_labels_holds_exactly_k_classes_and_leaves_none_out(k: int, nodes: int) -> None:
    counts = table("labels", nodes=nodes, k=k)
    held = counts > 0
    assert (held.sum(axis=1) == k).all()
    assert np.ptp(held.sum(axis=0)) <= 1
    if nodes * k >= len(SIZES):
        assert held.any(axis=0).all()
    for c in range(len(SIZES)):
        own = counts[held[:, c], c]
        if own.size:
            assert np.ptp(own) <= 1
            assert own.sum() == SIZES[c]


def test_labels_refuses_more_labels_than_classes_and_more_holders_than_samples() -> None:
    with pytest.raises(DataError, match=r"expected 1 to 5 \(classes\), got 6"):
        dealt("labels", k=6)
    with pytest.raises(DataError, match="class 1 has too few samples"):
        dealt("labels", np.repeat([0, 1], [50, 3]), nodes=5, k=2)


@pytest.mark.parametrize("name", ["dirichlet", "dirichlet_nodes", "zipf", "zipf_equal"])
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_exponents_are_refused(name: str, alpha: float) -> None:
    with pytest.raises(ConfigError, match="expected a positive number"):
        dealt(name, alpha=alpha)


def test_everything_is_all_at_every_node() -> None:
    assert all(np.array_equal(part, np.arange(len(LABELS))) for part in dealt("everything"))


@pytest.mark.parametrize(
    ("level", "positive", "printed"),
    [
        (1, (50, 60, 70, 80, 90), 0.0206),
        (2, (10, 30, 50, 70, 90), 0.18013),
        (3, (100, 0, 70, 100, 0), 0.52371),
    ],
)
def test_skew_of_two_classes_is_that_of_the_paper(level: int, positive: tuple[int, ...], printed: float) -> None:
    labels = generator(1, "labels").permutation(np.repeat([0, 1], [200, 100]))
    counts = table("skew", labels, 5, level=level)
    assert counts.tolist() == [[2 * (100 - a), a] for a in positive]
    assert skew.describe(counts)["share_kl"] == pytest.approx(printed, abs=1e-4)
    sixth = table("skew", labels, 6, level=level)[5]
    assert sixth.tolist() == counts[0].tolist()  # the shares begin again


def test_skew_draws_each_nodes_samples_on_their_own() -> None:
    labels = np.repeat([0, 1], 1000)
    parts = dealt("skew", labels, 5, level=2)
    both = len(np.intersect1d(parts[0], parts[4]))  # .1 · .9 of the positives and .9 · .1 of the negatives
    assert both == pytest.approx(180, abs=40)
    assert len(np.intersect1d(parts[2], dealt("skew", labels, 5, level=2, seed=1)[2])) == pytest.approx(500, abs=80)


@pytest.mark.parametrize("level", [1, 2])
def test_skew_of_more_classes_gives_the_first_half_one_share_and_the_second_the_other(level: int) -> None:
    counts = table("skew", np.repeat(np.arange(5), 100), 5, level=level)
    a = {1: (50, 60, 70, 80, 90), 2: (10, 30, 50, 70, 90)}[level]
    assert counts.tolist() == [[k, k, k, 100 - k, 100 - k] for k in a]


@pytest.mark.parametrize(("level", "held"), [(3, 9), (4, 7), (5, 5)])
def test_skew_of_more_classes_leaves_labels_out(level: int, held: int) -> None:
    counts = table("skew", np.repeat(np.arange(10), 30), 8, level=level)
    assert set(counts.ravel().tolist()) == {0, 30}
    assert ((counts > 0).sum(axis=1) == held).all()
    assert len(np.unique(counts, axis=0)) > 1


def test_skew_says_which_levels_there_are() -> None:
    with pytest.raises(DataError, match=r"two classes: expected 1, 2 or 3, got 4\. Lower the level"):
        dealt("skew", np.repeat([0, 1], 50), 5, level=4)
    with pytest.raises(ConfigError, match="level"):
        Experiment(partition={"name": "skew", "level": 6})
    with pytest.raises(DataError, match="at least 2 classes, got 1"):
        dealt("skew", np.zeros(50, np.int64), 5)


# The split that is common to all


def parts_of(pairs: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    return [np.sort(np.concatenate(pair)) for pair in pairs]


@pytest.mark.parametrize("name", [name for name in names("partitions") if name not in SHARED])
def test_split_sets_a_share_of_each_nodes_own_data_aside(name: str) -> None:
    whole = parts_of(split(made(name, 5), LABELS, 5, 3, validation=0.0))
    pairs = split(made(name, 5), LABELS, 5, 3, validation=0.25)
    for part, (train, validation) in zip(whole, pairs, strict=True):
        assert abs(len(validation) - 0.25 * len(part)) <= 0.5
        assert len(train) >= 1
        assert np.array_equal(np.sort(np.concatenate([train, validation])), part)
    holds_contract(
        [half for pair in pairs for half in pair if half.size], len(LABELS), sum(v.size > 0 for _, v in pairs) + 5
    )


@pytest.mark.parametrize("name", SHARED)
def test_nodes_that_share_samples_share_validation_samples(name: str) -> None:
    pairs = split(made(name, 5), LABELS, 5, 3, validation=0.2)
    shared = pairs[0][1]
    assert len(shared) == round(0.2 * len(LABELS))
    for train, validation in pairs:
        assert np.array_equal(validation, shared)
        assert not np.isin(train, shared).any()
    assert not np.array_equal(shared, split(made(name, 5), LABELS, 5, 4, validation=0.2)[0][1])
    if name == "everything":
        assert {len(train) for train, _ in pairs} == {len(LABELS) - len(shared)}
    assert {len(train) for train, _ in split(made(name, 5), LABELS, 5, 3, items=20)} == {20}


def test_split_gives_the_sizes_of_the_paper() -> None:
    labels = np.repeat([0, 1], [191, 321])  # of 569 tumours, without 57 for testing
    everything = split(made("everything", 5), labels, 5, 0, validation=1 / 9)
    assert [(len(train), len(validation)) for train, validation in everything] == [(455, 57)] * 5
    sizes = [len(train) for train, _ in split(made("skew", 5, level=2), labels, 5, 0, validation=1 / 9)]
    assert sizes == sorted(sizes)
    assert sizes[0] == pytest.approx(181, abs=6)
    assert sizes[4] == pytest.approx(274, abs=6)


def test_split_refuses_samples_dealt_out_twice_unless_the_partition_says_so() -> None:
    def mine(labels: np.ndarray, nodes: int, rng: np.random.Generator) -> list[np.ndarray]:
        return [np.arange(10)] * nodes

    with pytest.raises(DataError, match=r"each sample at one node at most, got 10 more than there are\..*overlaps"):
        split(mine, LABELS, 2, 0)
    mine.overlaps = True  # type: ignore[attr-defined]
    assert [len(train) for train, _ in split(mine, LABELS, 2, 0)] == [10, 10]


def test_split_without_validation_gives_empty_arrays() -> None:
    pairs = split(made("iid", 4), LABELS, 4, 0, validation=0)
    assert all(validation.shape == (0,) and validation.dtype == np.int64 for _, validation in pairs)
    assert sum(len(train) for train, _ in pairs) == len(LABELS)


def test_split_mixes_before_it_sets_aside() -> None:
    ((train, validation),) = split(made("iid", 1), np.zeros(1000, np.int64), 1, 0, validation=0.5)
    assert abs(train.mean() - validation.mean()) < 100


def test_split_always_leaves_one_sample_to_train_on() -> None:
    pairs = split(made("iid", 10), np.zeros(10, np.int64), 10, 0, validation=0.9)
    assert all(len(train) == 1 and len(validation) == 0 for train, validation in pairs)


def test_split_caps_the_total_and_each_node() -> None:
    pairs = split(made("iid", 10), LABELS, 10, 0, total=300)
    assert sum(map(len, parts_of(pairs))) == 300
    pairs = split(made("iid", 10), LABELS, 10, 0, items=20)
    assert {len(part) for part in parts_of(pairs)} == {20}
    uncapped = parts_of(split(made("iid", 10), LABELS, 10, 0))
    assert all(np.isin(part, own).all() for part, own in zip(parts_of(pairs), uncapped, strict=True))
    assert sum(map(len, parts_of(split(made("iid", 10), LABELS, 10, 0, total=10**6)))) == len(LABELS)


@pytest.mark.parametrize("name", ["iid", "iid_classes", "zipf_equal", "dirichlet"])
def test_more_items_than_a_node_can_have_are_refused(name: str) -> None:
    with pytest.raises(DataError, match=r"expected at most \d+, got 1000000"):
        split(made(name, 10), LABELS, 10, 0, items=10**6)


def test_items_keep_classes_as_the_partition_has_them() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
    for train, _ in split(made("iid_classes", 10), labels, 20, 0, items=80, validation=0):
        assert np.bincount(labels[train]).tolist() == [8] * 10
    law = np.arange(1.0, 11) ** -1.8
    tops = [
        np.bincount(labels[train]).max() / 100
        for train, _ in split(made("zipf_equal", 10), labels, 20, 0, items=100, validation=0)
    ]
    assert np.mean(tops) == pytest.approx(law[0] / law.sum(), abs=0.03)


@pytest.mark.parametrize("seed", range(6))
def test_zipf_keeps_to_a_range_of_the_gini_index(seed: int) -> None:
    labels = np.repeat(np.arange(10), 600)
    partition = find("partitions", "zipf").make(gini=(0.7, 0.75))
    parts = [np.concatenate(pair) for pair in split(partition, labels, 50, seed)]
    assert 0.7 <= skew.gini(skew.counts(labels, parts, 10)) <= 0.75


@pytest.mark.parametrize(("said", "error"), [((0.9, 0.7), ConfigError), ((0.999, 1.0), DataError)])
def test_a_gini_index_that_cannot_be_is_refused(said: tuple[float, float], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"[Gg]ini"):
        find("partitions", "zipf").make(gini=said)(LABELS, 5, np.random.default_rng(0))


def test_split_of_a_subset_points_into_the_whole() -> None:
    # The shards of a subset hold few labels each and all labels together only if indices are mapped back.
    labels = np.repeat(np.arange(10), 100)
    seen: set[int] = set()
    for part in parts_of(split(made("shards", 10, per_node=1), labels, 10, 0, total=500)):
        assert len(np.unique(labels[part])) <= 2
        seen |= set(labels[part])
    assert seen == set(range(10))


def test_split_is_a_function_of_the_seed() -> None:
    runs = [split(made("dirichlet", 5), LABELS, 5, seed, items=60, total=500) for seed in (1, 1, 2)]
    same = [
        [np.array_equal(x, y) for a, b in zip(runs[0], r, strict=True) for x, y in zip(a, b, strict=True)] for r in runs
    ]
    assert all(same[1])
    assert not any(same[2])


def test_split_names_the_node_without_data() -> None:
    greedy = functools.partial(find("partitions", "shares").target, shares=((1.0,), (0.0,)))
    with pytest.raises(
        DataError, match=r"node 1 has too little training data: expected at least 1 samples, got 0\. Use"
    ):
        split(greedy, np.zeros(10, np.int64), 2, 0)
    with pytest.raises(DataError, match=r"node 0 .*expected at least 9 samples, got 8"):
        split(made("iid", 2), np.zeros(20, np.int64), 2, 0, min_samples=9)


def test_split_refuses_what_cannot_be() -> None:
    for share in (-0.1, 1.0):
        with pytest.raises(ConfigError, match="at least 0, below 1"):
            split(made("iid", 2), LABELS, 2, 0, validation=share)
    with pytest.raises(DataError, match="expected 2 parts, one per node, got 1"):
        split(lambda labels, nodes, rng: [np.arange(len(labels))], LABELS, 2, 0)
