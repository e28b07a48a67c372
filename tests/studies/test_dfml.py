"""The mutual-learning study: what its tables say of made-up records, and that its runs are what they are called."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from coterie.config.slots import as_table
from coterie.parts import find
from coterie.report.claims import FAILS, HOLDS, OPEN
from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit, Results


@cache
def study(scale: str) -> dict[str, Exhibit]:
    made: dict[str, Exhibit] = find("studies", "dfml").make()(scale)
    return made


def made_up(exhibit: Exhibit, accuracy: Callable[[str, str, int], float]) -> Results:
    """Records of three seeds in which methods have these accuracies: of (run, method, node), a tenth a round."""
    columns = ("test_accuracy", "peak_accuracy", "validation_accuracy", "merged_accuracy")
    frames = {}
    for run, e in exhibit.runs.items():
        rows = [
            {
                "method": m,
                "seed": s,
                "round": r,
                "node": n,
                **dict.fromkeys(columns, 0.1 * r * (accuracy(run, m, n) + 0.01 * s)),
                "sent_bytes": 100 * r,
                "received_bytes": 200 * r,
                "flops": int(5e9 * r),
            }
            for m in e.resolved
            for s in range(3)
            for r in range(11)
            for n in range(e.nodes)
        ]
        frames[run] = pl.DataFrame(rows)
    return Results(frames, {})


def sheets(exhibit: Exhibit, found: Results, folder: Path) -> list[Sheet]:
    return [item for item in exhibit.show(found, folder) if isinstance(item, Sheet)]


def test_claims_are_judged_by_the_records_of_their_runs(tmp_path: Path) -> None:
    claims = study("smoke")["table claims"]

    def accuracy(run: str, method: str, node: int) -> float:
        larger = 0.01 * (node % 3 == 0)
        return 0.5 + larger if method == "dfml" else 0.6 if "H0" in run else 0.5 if "H1" in run else 0.4

    brief, _, sheet = sheets(claims, made_up(claims, accuracy), tmp_path)
    told = {f"{where}: {text}": verdict for text, where, _, verdict, *_ in sheet.rows}
    ahead = "digits, H2, IID; digits, H2, Dir(0.1); digits, H1, IID; digits, H1, Dir(0.1)"
    assert brief.rows[0] == ["DFML above Dec. FedAvg", ahead, "digits, H0, IID; digits, H0, Dir(0.1)", ""]
    assert told["digits, H2, IID: DFML above Dec. FedAvg"] == HOLDS
    assert told["digits, H0, Dir(0.1): DFML above Def-KT"] == FAILS
    assert told["digits, H2, Dir(0.1): with DFML, mlp[16,8] above mlp[8]"] == HOLDS
    assert told["digits, H2, Dir(0.1): mlp[8] with DFML above Dec. FedAvg"] == HOLDS
    assert told["digits, H2, IID: local accuracy of DFML above Dec. FedAvg's"] == HOLDS
    assert told["digits, H0, IID: DFML above Dec. FedAvg, as much computed"] == FAILS
    assert {*told.values()} == {HOLDS, FAILS}
    parts = study("smoke")["table parts"]
    *_, sheet = sheets(parts, made_up(parts, lambda *_: 0.5), tmp_path)
    assert len(sheet.rows) > 20
    assert len({tuple(row[:2]) for row in sheet.rows}) == len(sheet.rows)  # each is told once
    assert {row[3] for row in sheet.rows} == {OPEN}


def test_rounds_to_fedavg_s_accuracy_are_those_of_the_same_seed(tmp_path: Path) -> None:
    rounds = study("smoke")["table 8a"]
    (sheet,) = sheets(rounds, made_up(rounds, lambda run, method, node: 0.8 if method == "dfml" else 0.4), tmp_path)
    assert [row[1:4] for row in sheet.rows] == [["5", "3", "3"]] * 2 + [["10", "5.67", "5.67"]] * 2


def test_costs_are_told_by_round_and_until_a_level(tmp_path: Path) -> None:
    cost = study("smoke")["table cost"]
    found = made_up(cost, lambda run, method, node: 0.9 if method == "dfml" else 0.4)
    a_round, sent, operations, *_ = sheets(cost, found, tmp_path)
    assert a_round.rows[0] == ["DFML", "100 B", "200 B", "5 G"]
    goal = sent.headings.index("100 %")
    assert [row[goal] for row in (sent.rows[0], operations.rows[0])] == ["500 B", "25 G"]  # 0.41, in round 5 of 10
    assert [row[-1] for row in (sent.rows[1], operations.rows[1])] == ["1.0 kB", "50 G"]


def test_every_method_is_what_it_is_called() -> None:
    runs = study("laptop")["table computation"].runs
    assert {m.epochs for run in runs.values() for name, m in run.resolved.items() if name == "dfml"} == {1}
    trained = {name: m for run in runs.values() for name, m in run.resolved.items() if name.endswith("+")}
    for name in ("dec-fedavg+", "dec-heterofl+", "dec-fedprox+"):
        assert trained[name].epochs == 6  # one, and as many as an aggregator teaches
    assert as_table(trained["fml+"].protocol)["epochs"] == 6
    assert as_table(trained["def-kt+"].protocol)["lesson"]["epochs"] == 5


@pytest.mark.parametrize(("mode", "kinds"), [("6a", 5), ("4a", 5), ("3a", 1)])
def test_laptop_runs_have_the_architectures_of_their_mode(mode: str, kinds: int) -> None:
    for run in study("laptop")[f"table {mode}"].runs.values():
        for method in run.resolved.values():
            assert len(set(map(repr, method.models))) == kinds
            assert as_table(method.objective)["name"] == "wsm"
            assert method.seeds == (10, 11, 12)


def test_numbers_of_the_paper_stand_beside_the_same_data(tmp_path: Path) -> None:
    table = study("laptop")["table 3b"]
    shown = list(table.show(made_up(table, lambda *_: 0.5), tmp_path))
    (accuracies,) = [item for item in shown if isinstance(item, Sheet) and "paper" in item.headings]
    told = {row[0]: (row[2], row[4]) for row in accuracies.rows}
    assert told["Dec. FedAvg"] == ("80.00 ± 0.19", "74.68 ± 0.06")
    assert told["DFML, peak models"] == ("80.96 ± 0.07", "76.27 ± 0.40")
    assert told["DFML"] == ("", "")  # the paper judges peak models


def test_nodes_without_a_peak_count_with_their_present_model(tmp_path: Path) -> None:
    table = study("smoke")["table 6a"]
    found = made_up(table, lambda *_: 0.5)
    few = pl.when(pl.col("node") == 0).then(0.9).alias("peak_accuracy")
    frames = {run: f.with_columns(few) for run, f in found.records.items()}
    sheet = sheets(table, Results(frames, {}), tmp_path)[0]
    (cell,) = {row[1] for row in sheet.rows if row[0] == "DFML, peak models"}
    nodes = next(iter(table.runs.values())).nodes
    assert float(cell.split()[0]) == pytest.approx((0.9 + (nodes - 1) * 0.51) / nodes, abs=1e-3)


def test_contenders_of_our_own_are_judged_at_equal_bytes_too(tmp_path: Path) -> None:
    """Here all are alike by rounds; one sends twice as much as DFML, and has half of its rounds for the same."""
    table = study("smoke")["table ours"]
    found = made_up(table, lambda *_: 0.5)
    twice = pl.when(pl.col("method") == "meetings").then(2).otherwise(1) * pl.col("sent_bytes")
    frames = {run: f.with_columns(twice.alias("sent_bytes")) for run, f in found.records.items()}
    *_, rounds, _, sent = sheets(table, Results(frames, {}), tmp_path)
    assert {row[3] for row in rounds.rows} == {OPEN}
    told = {(text, where.rpartition(", ")[2]): verdict for text, where, _, verdict in sent.rows}
    assert {text for (text, _), verdict in told.items() if verdict == FAILS} == {
        "several aggregators a round above DFML"
    }
    assert told["several aggregators a round above DFML", "ring"] == FAILS
    assert told["every node taught by its neighbours above DFML", "ring"] == OPEN
    assert ("every node taught by its neighbours above DFML", "IID") not in told


def test_contenders_are_what_they_are_called() -> None:
    methods = {name: m for run in study("laptop")["table ours"].runs.values() for name, m in run.resolved.items()}
    lessons = {name: as_table(m.protocol).get("lesson") for name, m in methods.items()}
    assert {lessons[name]["epochs"] for name in lessons if name != "dec-fedavg"} == {5}
    assert (lessons["corrected"]["strength"], lessons["narrowed"]["strength"]) == (1.0, -1.0)
    assert lessons["mentors"]["learners"] == "own"  # nobody else's model comes back
    assert as_table(methods["united"].initialiser)["name"] == "common"
