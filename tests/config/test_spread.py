"""How models are spread over nodes: notation, mixes, files, numbers of nodes, and what makes no sense."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.config.build import build, load_samples
from coterie.config.spread import deal, mixed, notation, slots
from coterie.errors import ConfigError
from coterie.models import mixes
from coterie.parts import Choice, names
from coterie.runs import runner
from coterie.runs.experiment import Experiment
from driving import samples
from small import assert_same, interrupted, small

OWN = "tests/contracts/own_parts.py:scaled"


def dealt(**settings: Any) -> list[str]:
    """The model of each node, in notation."""
    (method,) = Experiment(**settings).resolved.values()
    return [notation({"name": m.name, **m.settings}) for m in method.models]


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


# The notation.


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("mlp", "mlp"),
        ("mlp,logistic", ["mlp", "logistic"]),
        (" mlp , logistic, ", ["mlp", "logistic"]),
        ("cnn[32,64]", {"name": "cnn", "channels": [32, 64]}),
        ("mlp[64]", {"name": "mlp", "sizes": [64]}),
        ("mlp[]", {"name": "mlp", "sizes": []}),
        ("vit[128]", {"name": "vit", "width": 128}),
        ("efficientnet[b2]", {"name": "efficientnet", "variant": "b2"}),
        ("vgg16[0.25]", {"name": "vgg16", "width": 0.25}),
        ("cnn-fashion[true]", {"name": "cnn-fashion", "dropout": True}),
        (
            "cnn[8]{norm=layer, hidden=[20,10],padding=none}",
            {"name": "cnn", "channels": [8], "norm": "layer", "hidden": [20, 10], "padding": None},
        ),
        ("mlp*3", {"name": "mlp", "nodes": 3}),
        (
            "cnn[32,64]*10,resnet[4,8]{stem=7}*5",
            [
                {"name": "cnn", "channels": [32, 64], "nodes": 10},
                {"name": "resnet", "channels": [4, 8], "stem": 7, "nodes": 5},
            ],
        ),
        (["mlp[8]*2", {"name": "svm"}], [{"name": "mlp", "sizes": [8], "nodes": 2}, {"name": "svm"}]),
        (["mlp"], "mlp"),
        (OWN, OWN),
        (f"{OWN}*2,mlp", [{"name": OWN, "nodes": 2}, "mlp"]),
    ],
)
def test_text_is_a_slot_or_several(said: Any, meant: Any) -> None:
    assert slots(said) == meant
    assert slots(meant) == meant  # what was read once is not read differently again


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("cnn[32,64", r"model: expected names with .*got 'cnn\[32,64'.*Write it like"),
        ("cnn]32[", "Write it like"),
        ("[32]", "Write it like"),
        ("cnn*2*3", "Write it like"),
        ("cnn{norm=layer}[3]", "Write it like"),
        ("cnn*x", "nodes of model cnn: expected a whole number of at least 1, got 'x'"),
        ("cnn*0", "at least 1, got '0'"),
        ("cnn*", "at least 1, got ''"),
        ("cnn{norm}", r"expected \{key=value,…\}, got 'norm'"),
        ("cnn{nrm=layer}", "unknown setting of model cnn 'nrm'. Did you mean 'norm'"),
        ("cnn-mnist[3]", "model cnn-mnist has no setting for the brackets"),
        ("cnnn", "unknown model or mix 'cnnn'. Did you mean 'cnn'"),
        ("h1-resnt", "Did you mean 'h1-resnet'"),
        ("h2[3]", "stands for several models and takes no brackets"),
        ("h2/0", "divisor above 0"),
        ("h2-efficientnet/2", r"expected widths to divide, got efficientnet\[b0\]"),
    ],
)
def test_text_that_names_no_models(said: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        slots(said)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("cnn[a]", "model.channels.0: expected a valid integer"),
        ("vit[8,8]", "model.width: expected a valid integer"),
        ([{"name": "mlp", "nodes": "2"}], "nodes of model mlp: expected a whole number of at least 1, got 2"),
        ([{"name": "mlp", "nodes": True}], "got True"),
        ([{"name": "mlp", "nodes": 0}], "got 0"),
        ([], "model: .*at least 1 item"),
        ("", "model: .*at least 1 item"),
        ([3], "model"),
    ],
)
def test_values_are_checked_as_ever(said: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Experiment(model=said)


@pytest.mark.parametrize("text", ["cnn[32,64]{norm=layer,padding=1}*10", "mlp[]", "vit[8]", "svm", "resnet[4]{stem=7}"])
def test_notation_is_read_back(text: str) -> None:
    slot = slots(text)
    assert not isinstance(slot, list)
    assert notation(slot) == text
    assert slots(notation(slot)) == slot


def test_notation_of_a_resolved_model_tells_what_is_unusual() -> None:
    assert dealt(model={"name": "cnn", "norm": "layer"}, nodes=1) == ["cnn[32,64]{norm=layer}"]


# Numbers of nodes.


def test_without_numbers_models_take_turns() -> None:
    assert dealt(models="mlp[8],logistic,mlp[4]", nodes=7) == ["mlp[8]", "logistic", "mlp[4]"] * 2 + ["mlp[8]"]


def test_with_numbers_nodes_are_taken_in_order() -> None:
    assert dealt(models="mlp[8]*2,logistic*1,mlp[4]*3", nodes=6) == ["mlp[8]"] * 2 + ["logistic"] + ["mlp[4]"] * 3


def test_models_without_a_number_share_what_is_left() -> None:
    assert dealt(models="mlp[8],logistic*3,mlp[4]", nodes=8) == ["logistic"] * 3 + ["mlp[8]", "mlp[4]"] * 2 + ["mlp[8]"]


@given(st.lists(st.one_of(st.none(), st.integers(1, 4)), min_size=1, max_size=5), st.integers(1, 30))
def test_every_node_has_a_model_and_every_number_is_kept(wanted: list[int | None], nodes: int) -> None:
    tables: list[Any] = [{"name": "mlp", **({"nodes": n} if n else {})} for n in wanted]
    claimed, others = sum(n or 0 for n in wanted), wanted.count(None)
    if claimed + others > nodes or (not others and claimed < nodes):
        with pytest.raises(ConfigError, match="nodes"):
            deal(tables, nodes)
        return
    counts = np.bincount(deal(tables, nodes), minlength=len(wanted))
    assert counts.sum() == nodes
    assert all(n is None or n == c for n, c in zip(wanted, counts, strict=True))
    rest = [c for n, c in zip(wanted, counts, strict=True) if n is None]
    assert not rest or 1 <= min(rest) <= max(rest) <= min(rest) + 1


@pytest.mark.parametrize(
    ("models", "complaint"),
    [
        ("mlp*4,logistic*3", "expected 6 nodes, got 7. Set --nodes to 7"),
        ("mlp*2,logistic*3", "expected 6 nodes, got 5. Set --nodes to 5"),
        ("mlp*7", "expected 6 nodes, got 7"),
        ("mlp*6,logistic", "more models than nodes: expected at most 6, got 6 nodes claimed, and 1 more model"),
        ("mlp*5,logistic,svm", "5 nodes claimed, and 2 more models"),
        ("fig6", "more models than nodes: expected at most 6, got 10 models"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_before_anything_runs(models: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Experiment(models=models, nodes=6)


def test_a_pooled_method_has_the_model_of_the_first_node() -> None:
    found = Experiment(models="logistic*2,mlp[8]*2", nodes=4, methods=["centralised"], partition="iid").resolved
    job = build(found["centralised"], samples(), 0)
    assert job.roster.models == (Choice("models", "logistic", {"one": False}),)
    assert job.roster.nodes == 1


def test_nodes_of_equal_models_are_one_group() -> None:
    (method,) = small(model="mlp[8]*2,logistic*1,mlp[8]*3").resolved.values()
    groups = build(method, load_samples(method), 0).roster.groups
    assert [g.tolist() for g in groups] == [[0, 1, 3, 4, 5], [2]]


# One setting of two names, and layers.


@pytest.mark.parametrize("name", ["model", "models"])
def test_both_names_do_in_python_in_files_and_in_methods(name: str, tmp_path: Path) -> None:
    from coterie.config.layers import layered

    wanted = ["mlp[8]", "logistic", "mlp[8]", "logistic"]
    assert dealt(**{name: "mlp[8],logistic"}, nodes=4) == wanted
    assert dealt(nodes=4, methods={"a": {name: "mlp[8],logistic", "rule": "decavg"}}) == wanted
    file = Path(written(tmp_path / "x.toml", f'{name} = "mlp[8],logistic"\nnodes = 4\n'))
    (method,) = layered(file, {}).resolved.values()
    assert [m.name for m in method.models] == ["mlp", "logistic"] * 2
    (method,) = layered(file, {name: "mlp[3]"}).resolved.values()
    assert {notation({"name": m.name, **m.settings}) for m in method.models} == {"mlp[3]"}


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="model and models are one setting"):
        Experiment(model="mlp", models="mlp")


def test_settings_join_a_model_in_notation(tmp_path: Path) -> None:
    from coterie.config.layers import layered

    file = Path(written(tmp_path / "x.toml", 'model = "cnn[4,8]"\n'))
    (method,) = layered(file, {"model": {"norm": "layer"}}).resolved.values()
    assert notation({"name": "cnn", **method.models[0].settings}) == "cnn[4,8]{norm=layer}"


# Mixes.


def test_mixes_are_those_of_the_paper() -> None:
    assert list(mixes()) == ["h0", "h1", "h1-resnet", "h1-vit", "h2", "h2-efficientnet", "fig6"]
    assert not set(mixes()) & set(names("models"))
    norm = "{norm=layer,norm_after=pool}"
    assert dealt(model="h0", nodes=2) == [f"cnn[32,64]{norm}"] * 2
    assert dealt(model="h1", nodes=5) == [f"cnn[{8 * k},{16 * k}]{norm}" for k in (16, 8, 4, 2, 1)]
    assert dealt(model="h1-resnet", nodes=5) == [f"resnet[{4 * k},{8 * k},{16 * k},{32 * k}]" for k in (16, 8, 4, 2, 1)]
    assert dealt(model="h1-vit", nodes=5) == [f"vit[{k}]" for k in (512, 256, 128, 64, 32)]
    channels = ["32,64,128,256", "32,64,128", "32,64", "16,32,64", "8,16,32,64"]
    assert dealt(model="h2", nodes=5) == [f"cnn[{c}]{norm}" for c in channels]
    ten = dealt(model="fig6", nodes=10)
    assert ten == [
        *dealt(model="h1-vit", nodes=5)[:2],
        *dealt(model="h1-resnet", nodes=5)[:4],
        *dealt(model="h2", nodes=5)[:4],
    ]


@pytest.mark.parametrize("name", mixes())
def test_every_mix_says_what_it_is(name: str) -> None:
    assert mixes()[name].summary.endswith(".")
    assert mixes()[name].reference
    assert mixed(name)


def test_a_divided_mix_has_narrower_models() -> None:
    """Halves are rounded up, and one channel is the least; what is no width stays."""
    norm = "{norm=layer,norm_after=pool}"
    assert dealt(model="h2/4", nodes=5)[-1] == f"cnn[2,4,8,16]{norm}"
    assert dealt(model="h2/16", nodes=5)[-1] == f"cnn[1,1,2,4]{norm}"
    assert dealt(model="h0/1.5", nodes=1) == [f"cnn[21,43]{norm}"]
    assert dealt(model="h1-vit/4", nodes=5) == [f"vit[{k}]" for k in (128, 64, 32, 16, 8)]
    assert dealt(model="h1-resnet/8", nodes=5)[-1] == "resnet[1,1,2,4]"


def test_mixes_take_numbers_settings_and_company() -> None:
    assert dealt(model="h1-vit*2", nodes=10) == [f"vit[{k}]" for k in (512, 256, 128, 64, 32) for _ in range(2)]
    assert dealt(model="h0{norm=none}", nodes=1) == ["cnn[32,64]{norm_after=pool}"]
    assert dealt(model="h0,mlp[8]*1", nodes=2) == ["mlp[8]", "cnn[32,64]{norm=layer,norm_after=pool}"]


# Files.


def test_a_file_says_which_node_has_which_model(tmp_path: Path) -> None:
    text = '0-1 = "mlp[8]"\n"2,4" = { name = "mlp", sizes = [4] }\n3 = "logistic"\n'
    file = written(tmp_path / "spread.toml", text)
    assert dealt(models=file, nodes=5) == ["mlp[8]", "mlp[8]", "mlp[4]", "logistic", "mlp[4]"]
    with pytest.raises(ConfigError, match="expected 6 nodes, got 5"):
        Experiment(models=file, nodes=6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('0-1 = "mlp"\n3 = "mlp"\n', "does not name node 2"),
        ('1 = "mlp"\n', "does not name node 0"),
        ('0-2 = "mlp"\n2 = "svm"\n', "names node 2 twice"),
        ('model = "mlp"\n', "expected nodes = model, .* got 'model'"),
        ('0 = "mlp*2"\n', "expected one model, and no number of nodes, got 'mlp"),
        ('0 = "h2"\n', "expected one model"),
        ('0 = "mlp,svm"\n', "expected one model"),
        ("0 = 3\n", "expected a name, or a table with a name, got 3"),
        ("", "names no node"),
        ("0 = \n", "not valid TOML"),
    ],
)
def test_files_that_make_no_sense(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Experiment(models=written(tmp_path / "spread.toml", text))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no such file of models"):
        Experiment(models="nowhere.toml")


# What is kept.


@pytest.mark.parametrize("said", ["h2/4", "mlp[8]*2,logistic*18", "cnn[4]{norm=layer},vit[8]{head=4}*3", "mlp[8]*20"])
def test_a_spread_comes_back_from_its_file(said: str) -> None:
    experiment = Experiment(models=said)
    again = Experiment(**tomllib.loads(experiment.to_toml()))
    assert again.model == experiment.model
    (one,), (other,) = experiment.resolved.values(), again.resolved.values()
    assert one.models == other.models
    whole = Experiment(**tomllib.loads(one.to_toml()))
    assert next(iter(whole.resolved.values())).models == one.models


def test_a_run_goes_on_without_the_file_of_models(tmp_path: Path) -> None:
    """What a file said is kept with the run."""
    file = written(tmp_path / "spread.toml", '0-2 = "mlp[8]"\n3-5 = "logistic"\n')
    experiment = small(model=file)
    whole = experiment.run().records
    interrupted(experiment, tmp_path / "run")
    Path(file).unlink()
    assert_same(runner.resume(tmp_path / "run").records, whole)


# What does not fit the data.


def test_models_that_do_not_fit_are_told_before_training(tmp_path: Path) -> None:
    own = written(
        tmp_path / "net.py",
        "from torch import nn\ndef net(shape, classes, *, scores: int = 7):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, scores))\n",
    )
    with pytest.raises(ConfigError, match=r"net' does not fit the data: expected a score for each of 10.*got \[2, 7\]"):
        small(model=f"{own}:net").run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"^\S*net\[9\]: model .*got \[2, 9\]"):
        small(model=f"mlp[8],{own}:net[9]").run()
    assert small(model=f"mlp[8],{own}:net[10]", rounds=1).run().records.height


def test_a_model_of_ones_own_that_fails_says_at_what(tmp_path: Path) -> None:
    own = written(
        tmp_path / "wrong.py",
        "from torch import nn\ndef wrong(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(63, classes))\n",
    )
    with pytest.raises(ConfigError, match=r"samples, float32 \[1, 8, 8\] -> 10 classes, got RuntimeError: mat1"):
        small(model=f"{own}:wrong").run()


def test_images_too_small_for_one_model_of_a_mix() -> None:
    with pytest.raises(ConfigError, match=r"^cnn\[8,16,32,64\].*: 8×8 pixels are too few"):
        small(model="h2/4").run()
