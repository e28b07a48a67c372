"""The configuration: layers, short names, notations, methods, and files that give back what was written."""

import itertools
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from coterie import methods, records
from coterie.config.build import build
from coterie.config.configuration import DEFAULT, merge, read
from coterie.config.layers import for_peers, layered
from coterie.config.slots import SLOTS, as_table, overlay
from coterie.errors import ConfigError
from coterie.runs.experiment import Experiment
from driving import samples


def only(experiment: Experiment) -> Experiment:
    """The one method of an experiment, resolved."""
    (resolved,) = experiment.resolved.values()
    return resolved


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# Layers.


def test_a_flag_wins_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = written(tmp_path / "x.toml", "nodes = 7\nrounds = 9\n")
    experiment = layered(file, {"rounds": 11})
    assert (experiment.nodes, experiment.rounds, experiment.batch_size) == (7, 11, Experiment().batch_size)


def test_without_a_file_the_default_experiment_runs() -> None:
    experiment = layered(None, {})
    assert list(experiment.resolved) == read(DEFAULT)["methods"]
    assert experiment.seeds == (0, 1, 2)


def test_settings_of_a_part_join_the_settings_below_unless_the_name_is_new() -> None:
    below = {"name": "er", "p": 0.2, "connect": True}
    assert overlay(below, {"p": 0.4}) == {"name": "er", "p": 0.4, "connect": True}
    assert overlay(below, "er") == below
    assert overlay(below, {"name": "ba", "m": 3}) == {"name": "ba", "m": 3}
    assert overlay("er", {"p": 0.4}) == {"name": "er", "p": 0.4}


def test_flags_join_the_slots_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path / "x.toml", '[topology]\nname = "er"\np = 0.3\nconnect = true\n')
    assert only(layered(file, {"topology": {"directed": True}})).topology == {
        "name": "er",
        "p": 0.3,
        "directed": True,
        "weights": "one",
        "connect": True,
        "assortativity": None,
        "mixing": "data",
        "own": 1.0,
    }
    ring = {"name": "ring", "directed": False, "connect": False, "assortativity": None, "mixing": "data", "own": 1.0}
    assert only(layered(file, {"topology": "ring"})).topology == ring


@pytest.mark.parametrize("flag", ["epochs", "batches"])
@pytest.mark.parametrize("below", ["epochs", "batches"])
def test_a_later_layer_chooses_between_epochs_and_batches(tmp_path: Path, below: str, flag: str) -> None:
    file = written(tmp_path / "x.toml", f"{below} = 3\n")
    chosen = only(layered(file, {flag: 5}))
    assert getattr(chosen, flag) == 5
    assert (chosen.epochs is None) != (chosen.batches is None)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('rule = "decavg"', {"name": "agreed", "base": {"name": "default"}}),
        ('methods = ["dechw"]', {"name": "agreed", "base": {"name": "default"}}),
        ('methods = ["gain-decavg"]', "gain"),
        ('initialiser = "he"', "he"),
        ('[initialiser]\nname = "default"', "default"),
    ],
)
def test_peers_agree_on_a_start_unless_they_are_told(text: str, start: Any, tmp_path: Path) -> None:
    found = as_table(only(for_peers(written(tmp_path / "x.toml", text))).initialiser)
    assert found["name"] == (start if isinstance(start, str) else start["name"])
    if isinstance(start, dict):
        assert as_table(found["base"])["name"] == "default"


def test_some_nodes_work_more_than_others() -> None:
    told = Experiment(nodes=6, epochs=2, work="0-2:1,5:7", partition="iid", total=480, validation=0.0, batch_size=10)
    assert told.work == {0: 1, 1: 1, 2: 1, 5: 7}
    (method,) = told.resolved.values()
    roster = build(method, samples(), 0).roster
    assert [roster.steps(i) for i in range(6)] == [8, 8, 8, 16, 16, 56]
    for wrong, said in (({"work": {6: 1}}, "0 to 5"), ({"work": {1: 2}, "batches": 3}, "in epochs")):
        with pytest.raises(ConfigError, match=said):
            Experiment(nodes=6, **wrong)


def test_what_a_draw_of_zipfs_law_came_to_is_told() -> None:
    for partition, low, high in (("zipf", 0.0, 1.0), ({"name": "zipf", "gini": [0.7, 0.75]}, 0.7, 0.75)):
        (method,) = Experiment(partition=partition, nodes=12, validation=0.0).resolved.values()
        (note,) = build(method, samples(), 3).notes
        assert note.startswith("seed 3: samples are dealt out with a Gini index of ")
        assert low <= float(note.split()[-4]) <= high
    (method,) = Experiment(partition="iid", nodes=12).resolved.values()
    assert build(method, samples(), 3).notes == ()


def test_a_method_chooses_between_epochs_and_batches_too() -> None:
    found = Experiment(batches=8, methods={"a": {"epochs": 2}, "b": {"rule": "dechw"}}).resolved
    assert (found["a"].epochs, found["a"].batches) == (2, None)
    assert (found["b"].epochs, found["b"].batches) == (None, 8)


@pytest.mark.parametrize("where", [{}, {"methods": {"a": {}}}])
def test_epochs_and_batches_exclude_each_other(where: dict[str, Any]) -> None:
    both: dict[str, Any] = {"epochs": 1, "batches": 2}
    with pytest.raises(ConfigError, match="epochs and batches exclude each other"):
        Experiment(**({"methods": {"a": both}} if where else both))


def test_one_epoch_is_what_a_round_is_unless_something_is_said() -> None:
    assert (only(Experiment()).epochs, only(Experiment()).batches) == (1, None)


def test_flags_of_a_part_that_all_methods_name_go_over_the_methods(tmp_path: Path) -> None:
    protocol = only(layered(None, {"methods": "def-kt", "protocol": {"senders": 2}})).protocol
    assert (protocol["name"], protocol["senders"], protocol["lesson"]["name"]) == ("meetings", 2, "def_kt")  # type: ignore[index, call-overload]
    file = tmp_path / "x.toml"
    file.write_text('[methods.mine]\nuse = "dfml"\nprotocol = { lesson = { epochs = 3 } }\n')
    lesson = only(layered(file, {"protocol": {"lesson": {"high": 0.5}}})).protocol["lesson"]  # type: ignore[index, call-overload]
    assert (lesson["epochs"], lesson["high"]) == (3, 0.5)
    below = {"methods": "dfml", "protocol": {"name": "wandering", "hops": 2, "lesson": {"name": "mutual", "epochs": 3}}}
    found = only(layered(None, below)).protocol  # named by the flag, so it lies below, and the method agrees with it
    assert (found["hops"], found["lesson"]["epochs"]) == (2, 3)  # type: ignore[index, call-overload]


def test_settings_of_no_part_that_methods_would_never_see_are_refused(tmp_path: Path) -> None:
    """A file's settings of a part without its name, where each method names its own."""
    file = tmp_path / "mine.toml"
    file.write_text('methods = ["dfml"]\n[protocol.lesson]\nepochs = 5\n')
    with pytest.raises(ConfigError, match=r"protocol has settings but no name \(lesson\).*\[methods\.dfml\.protocol\]"):
        layered(file, {})
    file.write_text("[methods.dfml.protocol.lesson]\nepochs = 5\n")
    (method,) = layered(file, {}).resolved.values()
    assert method.protocol["lesson"]["epochs"] == 5  # type: ignore[index]


def test_naming_a_rule_by_flag_asks_for_that_method_alone() -> None:
    assert list(layered(None, {"rule": {"name": "median"}}).resolved) == ["median"]
    assert list(layered(None, {"rule": "median"}).resolved) == ["median"]
    assert list(layered(None, {"rule": "median", "methods": "cfa,dechw"}).resolved) == ["cfa", "dechw"]
    assert len(layered(None, {"nodes": 5}).resolved) > 1


# The optimiser and its short names.


def test_short_names_reach_the_optimiser() -> None:
    chosen = only(Experiment(lr=0.3, momentum=0.7))
    assert chosen.optimiser == {
        "name": "sgd",
        "lr": 0.3,
        "momentum": 0.7,
        "weight_decay": 0.0,
        "decay_biases": True,
        "prox": 0.0,
    }
    assert chosen.lr is None
    assert chosen.momentum is None


def test_short_names_reach_the_optimiser_of_a_method() -> None:
    found = Experiment(lr=0.3, methods={"a": {"lr": 0.1}, "b": {"rule": "dechw"}}).resolved
    assert [as_lr(found[m]) for m in "ab"] == [0.1, 0.3]


def as_lr(experiment: Experiment) -> float:
    assert isinstance(experiment.optimiser, dict)
    return float(experiment.optimiser["lr"])


def test_the_latest_word_on_the_learning_rate_wins_however_it_is_spelt(tmp_path: Path) -> None:
    short = written(tmp_path / "short.toml", "lr = 0.3\nmomentum = 0.7\n")
    long = written(tmp_path / "long.toml", '[optimiser]\nname = "sgd"\nlr = 0.3\nmomentum = 0.7\n')
    for file in (short, long):
        for flags in ({"lr": 0.1}, {"optimiser": {"name": "sgd", "lr": 0.1}}):
            assert only(layered(file, flags)).optimiser == {
                "name": "sgd",
                "lr": 0.1,
                "momentum": 0.7,
                "weight_decay": 0.0,
                "decay_biases": True,
                "prox": 0.0,
            }


def test_another_optimiser_does_not_inherit_the_short_names_of_the_one_below(tmp_path: Path) -> None:
    file = written(tmp_path / "x.toml", "lr = 0.3\nmomentum = 0.7\n")
    adam = only(layered(file, {"optimiser": "adam"}))
    assert isinstance(adam.optimiser, dict)
    assert adam.optimiser["name"] == "adam"
    assert adam.optimiser["lr"] == 0.001
    own = Experiment(momentum=0.7, methods={"a": {"optimiser": "adam", "lr": 0.2}}).resolved["a"].optimiser
    assert isinstance(own, dict)
    assert own["name"] == "adam"
    assert own["lr"] == 0.2


# Notations.


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (3, (3,)),
        ("3", (3,)),
        ("0-4", (0, 1, 2, 3, 4)),
        ("0,2,5-7", (0, 2, 5, 6, 7)),
        ([4, 1], (4, 1)),
        ("1, 0-2", (1, 0, 2)),
    ],
)
def test_seeds_from_numbers_lists_and_ranges(said: Any, meant: tuple[int, ...]) -> None:
    assert Experiment(seeds=said).seeds == meant


@pytest.mark.parametrize("said", ["", "a", "4-0", "1-", "-1", -1, [], [0, -3], 1.5, [[0]], "1.5"])
def test_text_that_names_no_seeds_is_refused(said: Any) -> None:
    with pytest.raises(ConfigError, match="seeds"):
        Experiment(seeds=said)


@pytest.mark.parametrize(
    ("said", "rounds", "meant"),
    [
        (5, 12, [0, 5, 10, 12]),
        ("5", 12, [0, 5, 10, 12]),
        (100, 12, [0, 12]),
        ("0,3,8", 12, [0, 3, 8, 12]),
        ([3, 99], 12, [0, 3, 12]),
        ("log", 1, [0, 1]),
        ("log", 10, [0, 1, 2, 3, 4, 5, 6, 8, 10]),
    ],
)
def test_evaluated_rounds(said: Any, rounds: int, meant: list[int]) -> None:
    assert Experiment(evaluate=said, rounds=rounds).evaluated() == meant


@given(st.integers(1, 10**6))
def test_log_spacing_begins_with_the_untrained_start_and_ends_with_the_last_round(rounds: int) -> None:
    found = Experiment.model_construct(rounds=rounds, evaluate="log").evaluated()
    assert found[0] == 0
    assert found[-1] == rounds
    assert found == sorted(set(found))
    assert len(found) <= 62
    gaps = [(b, b / a) for a, b in itertools.pairwise(found[1:])]
    assert all(ratio < 1.4 for b, ratio in gaps if b > 10)


@pytest.mark.parametrize("said", ["often", 0, -3, 1.5, [-5], "1,-2", "log,3", [[1]]])
def test_what_is_not_rounds_to_evaluate(said: Any) -> None:
    with pytest.raises(ConfigError, match="evaluate") as caught:
        Experiment(evaluate=said)
    assert "literal[" not in str(caught.value)


# Methods.


def _holds(got: Any, asked: Any) -> bool:
    """Whether a setting is as it was asked for; parts may be asked for by name, and have more settings then."""
    if isinstance(got, dict) and not isinstance(asked, dict):
        return bool(got["name"] == asked)
    return all(_holds(got[key], value) for key, value in asked.items()) if isinstance(asked, dict) else got == asked


def test_all_presets_load_and_resolve() -> None:
    found = Experiment(methods=methods.names()).resolved
    assert list(found) == methods.names()
    for name, method in found.items():
        asked = methods.load(name)
        assert all(isinstance(getattr(method, slot), dict) for slot in SLOTS)
        assert all(_holds(getattr(method, key), value) for key, value in asked.items())
        summary, reference = methods.describe(name)
        assert summary
        assert reference


def test_methods_are_named_by_text_list_or_table() -> None:
    for said in ("cfa, dechw", ["cfa", "dechw"], {"cfa": {}, "dechw": {}}):
        found = Experiment(methods=said).resolved
        assert [(name, m.rule["name"]) for name, m in found.items()] == [("cfa", "cfa"), ("dechw", "dechw")]  # type: ignore[index]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"validation": 0.0, "epochs": 5}, "validation"),
        ({"batches": 5}, "got batches = 5"),
        ({"epochs": 2, "patience": 2}, "at least 3 epochs"),
        ({}, "got epochs = 1"),
    ],
)
def test_early_stopping_needs_epochs_and_validation_data(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Experiment(early_stopping=True, **settings)
    Experiment(**settings)
    Experiment(early_stopping=True, epochs=5, methods={"a": {"use": "decavg"}, "b": {"use": "dechw", "patience": 3}})


@pytest.mark.parametrize(("hub", "settings"), [(20, {}), (-1, {}), (1, {"nodes": 1}), (1, {"pooled": True})])
def test_a_hub_is_one_of_the_nodes(hub: int, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"protocol\.hub: expected 0 to"):
        Experiment(**settings, protocol={"name": "aggregator", "hub": hub})
    with pytest.raises(ConfigError, match=r"protocol\.hub: expected 0 to"):
        Experiment(**settings, methods={"fedavg": {"protocol": {"hub": hub}}})


def test_a_hub_without_deputies_neither_joins_nor_leaves() -> None:
    for churn in ({"joins": {2: 3}}, {"leaves": {2: 3}}):
        with pytest.raises(ConfigError, match=r"protocol\.hub: expected a node that is always there, got 2"):
            Experiment(protocol={"name": "aggregator", "hub": 2, "deputies": 0}, **churn)
        Experiment(protocol={"name": "aggregator", "hub": 2}, **churn)
        Experiment(protocol={"name": "aggregator", "hub": 1}, **churn)


def test_a_table_of_ones_own_may_use_a_preset() -> None:
    found = Experiment(methods={"mine": {"use": "dechw", "rule": {"theta": 5}, "lr": 0.2}}).resolved["mine"]
    assert found.rule["theta"] == 5  # type: ignore[index]
    assert found.rule["beta"] == 1.0  # type: ignore[index]
    assert as_lr(found) == 0.2


def test_a_table_of_ones_own_lies_over_the_experiment() -> None:
    found = Experiment(rule="dechw", methods={"slow": {"lr": 0.001}}).resolved["slow"]
    assert found.rule["name"] == "dechw"  # type: ignore[index]
    assert as_lr(found) == 0.001


def test_a_presets_name_means_the_preset_even_with_settings_of_its_own() -> None:
    found = Experiment(methods={"dechw": {"rule": {"theta": 5}}, "fedavg": {"lr": 0.2}}).resolved
    assert found["dechw"].rule["theta"] == 5  # type: ignore[index]
    assert found["fedavg"].protocol["name"] == "aggregator"  # type: ignore[index]


def test_settings_of_methods_are_checked_like_any_other() -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        Experiment(methods={"a": {"batch_size": 0}})
    with pytest.raises(ConfigError, match="Did you mean 'rule'"):
        Experiment(methods={"a": {"ruel": "decavg"}})
    for shared in ("seeds", "dataset", "engine", "data_dir", "methods"):
        with pytest.raises(ConfigError, match="unknown setting of a method"):
            Experiment(methods={"a": {shared: 1}})
    assert Experiment(rounds=20, methods={"a": {"evaluate": "5"}}).resolved["a"].evaluated() == [0, 5, 10, 15, 20]


def test_a_method_may_have_its_own_rounds() -> None:
    found = Experiment(rounds=20, methods={"a": {"rounds": 3}, "b": {"lr": 0.1}}).resolved
    assert {name: method.rounds for name, method in found.items()} == {"a": 3, "b": 20}
    with pytest.raises(ConfigError, match="rounds"):
        Experiment(methods={"a": {"rounds": 0}})


def test_what_the_gain_initialiser_needs_is_filled_in_unless_said_otherwise() -> None:
    filled = only(Experiment(initialiser="gain"))
    assert (filled.merge_first, filled.clamp) == (True, 10.0)
    said = only(Experiment(initialiser="gain", merge_first=False, clamp=3.0))
    assert (said.merge_first, said.clamp) == (False, 3.0)
    plain = only(Experiment(initialiser="he"))
    assert (plain.merge_first, plain.clamp) == (False, None)
    preset = Experiment(methods="gain-decavg,dechetero", clamp=4.0).resolved
    assert (preset["gain-decavg"].merge_first, preset["gain-decavg"].clamp) == (True, 4.0)
    assert (preset["dechetero"].merge_first, preset["dechetero"].clamp) == (False, 4.0)


def test_a_users_own_rule_gives_the_method_its_name() -> None:
    assert list(Experiment(rule="coterie.rules.median:Median").resolved) == ["median"]


def test_a_copy_with_other_settings_resolves_to_them() -> None:
    experiment = Experiment(rounds=5)
    assert only(experiment).rounds == 5
    assert only(experiment.model_copy(update={"rounds": 3})).rounds == 3


# Files give back what was written.


def again(text: str) -> Experiment:
    return Experiment(**tomllib.loads(text))


def dumped(experiment: Experiment) -> dict[str, dict[str, Any]]:
    return {name: method.model_dump() for name, method in experiment.resolved.items()}


@pytest.mark.parametrize("name", methods.names())
def test_every_preset_comes_back_from_its_file(name: str) -> None:
    experiment = Experiment(methods=[name], batches=3, lr=0.02)
    assert dumped(again(experiment.to_toml())) == dumped(experiment)
    assert dumped(again(records.frozen(experiment))) == dumped(experiment)


@pytest.mark.parametrize("below", methods.names())
def test_all_presets_come_back_together_over_any_of_them(below: str) -> None:
    experiment = Experiment(**{**methods.load(below), "methods": methods.names(), "batches": 3})
    assert dumped(again(records.frozen(experiment))) == dumped(experiment)


def test_a_frozen_file_does_not_follow_presets_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = layered(None, {})
    text, before = records.frozen(experiment), dumped(experiment)
    monkeypatch.setattr(methods, "load", lambda name: {"rule": "median", "merge_first": True, "clamp": 1.0})
    assert dumped(again(text)) == before


def test_what_a_method_does_without_is_not_inherited_from_the_file() -> None:
    experiment = Experiment(
        initialiser="gain",
        rule={"name": "dechw", "theta": 3},
        methods={"a": {"initialiser": "he"}, "b": {"rule": {"name": "dechw", "theta": None}}, "c": {"use": "decavg"}},
    )
    assert dumped(experiment)["a"]["clamp"] is None
    assert dumped(experiment)["b"]["rule"]["theta"] is None
    assert dumped(again(records.frozen(experiment))) == dumped(experiment)


def test_odd_names_and_mixed_models_come_back() -> None:
    experiment = Experiment(
        model=["logistic", {"name": "mlp", "sizes": [3]}],
        data_dir='~/a "b"\\n',
        clamp=float("inf"),
        methods={"a.b c": {"rule": "cfa"}, 'ü"/x': {"model": "svm", "objective": "hinge"}},
    )
    for text in (experiment.to_toml(), records.frozen(experiment)):
        assert dumped(again(text)) == dumped(experiment)


def test_what_methods_share_need_not_make_sense_alone() -> None:
    """A hub that only the method's own number of nodes has, and one that no method uses."""
    hub = {"name": "aggregator", "hub": 2}
    for methods_ in ({"a": {"nodes": 4}}, {"continuous-linear": {}}):
        experiment = Experiment(nodes=1, protocol=hub, methods=methods_)
        assert dumped(again(records.frozen(experiment))) == dumped(experiment)


SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "nodes": st.integers(1, 500),
    "epochs": st.integers(1, 9),
    "batches": st.integers(1, 9),
    "batch_size": st.integers(1, 64),
    "lr": st.floats(1e-6, 1e3),
    "keep_optimiser": st.booleans(),
    "items": st.integers(1, 999),
    "validation": st.floats(0, 0.99),
    "links": st.floats(0.01, 1),
    "presence": st.floats(0.01, 1),
    "pooled": st.booleans(),
    "merge_first": st.booleans(),
    "clamp": st.floats(0.1, 100),
    "test_share": st.floats(0.01, 1),
    "evaluate": st.one_of(st.just("log"), st.integers(1, 50), st.lists(st.integers(0, 99), min_size=1)),
    "rule": st.sampled_from(["decavg", {"name": "dechw", "theta": 4}, {"name": "dechw", "beta": 0.5}, "median"]),
    "topology": st.sampled_from(["ring", {"name": "er", "p": 0.7}, {"name": "er", "connect": True}, {"name": "grid"}]),
    "partition": st.sampled_from(["iid", {"name": "zipf", "alpha": 1.9}, "shards"]),
    "initialiser": st.sampled_from(
        ["default", "gain", {"name": "gain", "factor": 0.5}, {"name": "he", "law": "uniform"}]
    ),
    "objective": st.sampled_from(["cross_entropy", "virtual_teacher", {"name": "virtual_teacher", "beta": 0.9}]),
    "optimiser": st.sampled_from(["sgd", "adam", {"name": "sgd", "momentum": 0.3}, {"name": "adam", "lr": 0.5}]),
    "model": st.sampled_from(
        ["mlp", {"name": "mlp", "sizes": [5, 4]}, ["mlp", "logistic"], {"name": "cnn", "padding": 2}]
    ),
    "protocol": st.sampled_from(["neighbourhood", "relay", {"name": "aggregator", "hub": 2}]),
}


def some(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={**SETTINGS, **more})


@settings(max_examples=40, deadline=None)
@given(
    some(rounds=st.integers(1, 99), seeds=st.sampled_from(["0-2", 4, [1, 3]])),
    st.dictionaries(st.text(min_size=1, max_size=6), some(use=st.sampled_from(methods.names())), max_size=2),
    st.lists(st.sampled_from(methods.names()), max_size=2, unique=True),
)
def test_any_experiment_comes_back_from_its_files(
    shared: dict[str, Any], own: dict[str, dict[str, Any]], named: list[str]
) -> None:
    try:
        experiment = Experiment(**shared, methods=own | {name: {} for name in named})
    except ConfigError:
        reject()
    for text in (experiment.to_toml(), records.frozen(experiment)):
        assert again(text).evaluated() == experiment.evaluated()
        assert again(text).seeds == experiment.seeds
        assert dumped(again(text)) == dumped(experiment)


@settings(max_examples=50, deadline=None)
@given(some(), some(), some())
def test_the_last_layer_has_the_last_word(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    merged = merge(merge(a, b), c)
    for key, value in c.items():
        got = merged[key]
        assert got == value or (key in SLOTS and overlay(got, value) == got)
    assert merge(merged, {}) == merged
    if merged.get("epochs") is not None and merged.get("batches") is not None:
        assert any({"epochs", "batches"} <= layer.keys() for layer in (a, b, c))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        layered(tmp_path / "absent.toml", {})
    with pytest.raises(ConfigError, match=r"not valid TOML \(.*line 2"):
        layered(written(tmp_path / "bad.toml", "nodes = 3\nrounds =\n"), {})
    (tmp_path / "latin.toml").write_bytes('data_dir = "\xe9"'.encode("latin-1"))
    with pytest.raises(ConfigError, match="not valid TOML"):
        layered(tmp_path / "latin.toml", {})
