"""Randomness is a function of its key, and of nothing else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from coterie.randomness import generator, key, permuted, torch_generator, uniforms


def test_keys_differ_by_every_part() -> None:
    parts = [
        (0, "order", 1, 2),
        (1, "order", 1, 2),
        (0, "start", 1, 2),
        (0, "order", 2, 1),
        (0, "order", 12),
        (0, "order", 1),
    ]
    assert len({key(*p) for p in parts}) == len(parts)  # type: ignore[arg-type]
    assert key(0, "order", 1, 2) == key(0, "order", 1, 2)


def test_keys_are_the_same_for_ever() -> None:
    """Runs of last year can be repeated: this number must not change."""
    assert key(0, "order", 1, 2) == 852456441368087581


def test_orders_are_those_of_the_generator_of_the_key() -> None:
    items = np.arange(40) * 3
    for epoch in (0, 1, 0):
        wanted = generator(5, "order", 2, epoch).permutation(items)
        np.testing.assert_array_equal(permuted(items, 5, "order", 2, epoch), wanted)


def test_generators_repeat_and_do_not_share() -> None:
    a, b = generator(0, "a", 1), generator(0, "a", 1)
    np.testing.assert_array_equal(a.random(5), b.random(5))
    assert generator(0, "a", 1).random() != generator(0, "b", 1).random()
    assert torch_generator(0, "a", 1).initial_seed() == torch_generator(0, "a", 1).initial_seed()
    assert torch_generator(0, "a", 1).initial_seed() != torch_generator(0, "a", 2).initial_seed()


class TestUniforms:
    def test_one_for_each_combination_whatever_is_drawn_beside(self) -> None:
        whole = uniforms(3, "link", np.arange(10), np.arange(10) + 1, 4)
        part = uniforms(3, "link", np.arange(5, 10), np.arange(5, 10) + 1, 4)
        np.testing.assert_array_equal(whole[5:], part)
        assert uniforms(3, "link", 7, 8, 4) == whole[7]

    def test_both_ends_of_a_link_agree(self) -> None:
        a, b = np.array([0, 5, 3]), np.array([4, 1, 2])
        here = uniforms(0, "link", np.minimum(a, b), np.maximum(a, b), 1)
        there = uniforms(0, "link", np.minimum(b, a), np.maximum(b, a), 1)
        np.testing.assert_array_equal(here, there)

    def test_order_of_ids_matters(self) -> None:
        assert uniforms(0, "x", 1, 2) != uniforms(0, "x", 2, 1)

    @pytest.mark.parametrize("change", [{"seed": 1}, {"purpose": "y"}, {"round": 2}])
    def test_differ_by_seed_purpose_and_round(self, change: dict[str, object]) -> None:
        given = {"seed": 0, "purpose": "x", "round": 1}

        def draw(seed: int, purpose: str, round: int) -> np.ndarray:
            return uniforms(seed, purpose, np.arange(200), round)

        one, other = draw(**given), draw(**{**given, **change})  # type: ignore[arg-type]
        assert (one != other).all()
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.25

    @pytest.mark.parametrize("ids", ["nodes", "rounds", "links"])
    def test_are_uniform(self, ids: str) -> None:
        n = np.arange(4000)
        found = {"nodes": (n, 1), "rounds": (1, n), "links": (n // 64, n % 64, 3)}[ids]
        draws = uniforms(0, "link", *found)
        assert draws.min() >= 0
        assert draws.max() < 1
        assert stats.kstest(draws, "uniform").pvalue > 0.001
        assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.06


ROOT = Path(__file__).parents[1]


DRAWING = ("key", "generator", "permuted", "torch_generator", "uniforms")


def purposes() -> Iterator[str]:
    """What draws are for, wherever the code names it in place; of a name that is put together, its beginning."""
    for path in (ROOT / "src" / "coterie").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="permuted"), args=[_, _, what, *_]):
                    yield str(ast.literal_eval(what))
                case ast.Call(
                    func=ast.Name(id="key" | "generator" | "torch_generator" | "uniforms"), args=[_, what, *_]
                ):
                    first = what.values[0] if isinstance(what, ast.JoinedStr) else what
                    if isinstance(first, ast.Constant):
                        yield str(first.value).strip()


def test_every_key_is_in_the_design() -> None:
    page = (ROOT / "docs" / "design.md").read_text("utf-8")
    chapter = page.partition("## Randomness is keyed")[2].partition("\n## ")[0]
    told, used = set(re.findall(r"`([a-z -]+)`", chapter)), set(purposes())
    assert len(used) > 15
    assert {what for what in used if not any(what.startswith(known) for known in told)} == set()
