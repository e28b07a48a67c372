"""The study of deployments: what its tables and claims say of made-up records and curves."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from coterie.parts import find
from coterie.report.claims import FAILS, HOLDS, OPEN
from coterie.report.losses import jumps, mean_curves
from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit, Results

RELAYS = {"continuous-linear": 1, "continuous-ring": 2, "aggregate-linear": 1, "aggregate-ring": 2}
SEEDS = (10, 11, 12)


@cache
def study(scale: str) -> dict[str, Exhibit]:
    made: dict[str, Exhibit] = find("studies", "deployments").make()(scale)
    return made


def turns(method: str, budget: int) -> list[tuple[int, int, int, int]]:
    """Who trains when: (round, node, first epoch, last epoch)."""
    if method == "one machine":
        return [(1, 0, 0, budget)]
    if method in RELAYS:
        rounds, each = RELAYS[method], budget // (5 * RELAYS[method])
        return [(r + 1, n, (5 * r + n) * each, (5 * r + n + 1) * each) for r in range(rounds) for n in range(5)]
    each = budget // 5
    return [(r + 1, n, r * each, (r + 1) * each) for r in range(5) for n in range(5)]


Loss = Callable[[str, str, int], float]
Score = Callable[[str, str], float]


def made_up(exhibit: Exhibit, loss: Loss, score: Score = lambda run, method: 0.9) -> Results:
    """Records with these scores by run and method, and curves with these losses by run, method and epoch."""
    records, measures = {}, {}
    for run, e in exhibit.runs.items():
        rows, points = [], []
        for method, settings in e.resolved.items():
            budget = max(last for *_, last in turns(method, _budget(method, settings.epochs)))
            for seed in SEEDS:
                for number, node, first, last in turns(method, budget):
                    about = {"method": method, "seed": seed, "round": number, "node": node}
                    value = score(run, method) + 0.001 * seed + 0.0001 * node
                    rows.append(
                        {**about, "test_f1": value, "test_strict": value, "sent_bytes": 100, "train_seconds": 1.0}
                    )
                    curve = {"layer": None, "measure": "epoch_loss"}
                    points += [
                        {**about, **curve, "epoch": i, "value": loss(run, method, i)} for i in range(first, last + 1)
                    ]
        records[run], measures[run] = pl.DataFrame(rows), pl.DataFrame(points, infer_schema_length=None)
    return Results(records, measures)


def _budget(method: str, epochs: int) -> int:
    return epochs * {"one machine": 1, "star": 5, "mesh": 5}.get(method, 5 * RELAYS.get(method, 1))


def sheets(exhibit: Exhibit, found: Results, folder: Path) -> list[Sheet]:
    return [item for item in exhibit.show(found, folder) if isinstance(item, Sheet)]


def falling(run: str, method: str, epoch: int) -> float:
    """A loss that falls until epoch 72, and is flat from then on."""
    return max(1 - epoch / 80, 0.1)


def test_convergence_stands_beside_the_paper_s(tmp_path: Path) -> None:
    exhibit = study("laptop")["table IV"]
    (sheet,) = sheets(exhibit, made_up(exhibit, falling), tmp_path)
    told = {row[0]: row[1:] for row in sheet.rows}
    assert told["continuous linear"][1::2] == ["83", "100", "200", "300", "400"]
    first, *rest = told["continuous linear"][::2]
    assert 72 <= int(first) <= 80
    assert rest == ["100", "200", "300", "400"]
    assert told["continuous ring"][::2][0] == "250"
    assert [told["star"][::2], told["star"][1::2]] == [[first] * 5, ["97", "99", "93", "94", "95"]]


def test_misprints_are_marked(tmp_path: Path) -> None:
    exhibit = study("laptop")["table V"]
    (sheet,) = sheets(exhibit, made_up(exhibit, lambda *_: 0.5), tmp_path)
    assert {cell for row in sheet.rows for cell in row[1::2]} == {"NC"}
    assert any("misprinted" in note for note in sheet.notes)
    assert sheet.rows[1][2] == "500*"


def test_rules_and_scalings_are_counted_against_the_paper_s_tables(tmp_path: Path) -> None:
    """With inputs as they are nothing falls, and so nothing converges: that is right where the paper has NC."""
    exhibit = study("laptop")["table tried-svm"]

    def loss(run: str, method: str, epoch: int) -> float:
        return 1.0 if run.startswith("none") else falling(run, method, epoch)

    found = made_up(exhibit, loss, lambda run, method: 0.5 if run.startswith("none") else 0.9)
    equal, skewed, scored = sheets(exhibit, found, tmp_path)
    column = equal.headings.index("none")
    for sheet, right, never in ((equal, "30", "0"), (skewed, None, "12")):
        ours = next(row for row in sheet.rows if row[0] == "ours")
        assert ours[column] == never
        assert right is None or ours[1] == right
        assert any(f"would agree in {never}." in note for note in sheet.notes)
    assert len(equal.rows) == 14
    assert scored.rows[0][1].startswith("0.9")
    assert scored.rows[column - 1][1].startswith("0.5")
    (said,) = [item for item in exhibit.show(found, tmp_path) if isinstance(item, str)]
    assert "(30 IID, " in said


def test_claims_are_judged_by_records_and_curves(tmp_path: Path) -> None:
    exhibit = study("smoke")["table claims"]

    def loss(run: str, method: str, epoch: int) -> float:
        slow = 1 if run.endswith("iid") else 2
        return max(1 - epoch / (5 * slow), 0.05)

    def score(run: str, method: str) -> float:
        skewed = 0.0 if run.endswith(("iid", "machine")) else 0.2
        return 0.9 - skewed + 0.05 * (method.startswith("continuous") and run.startswith("svm"))

    brief, sheet = sheets(exhibit, made_up(exhibit, loss, score), tmp_path)
    told = {f"{where}: {text}": verdict for text, where, _, verdict in sheet.rows}
    assert told["SVM, continuous linear, IID: converges with IID data"] == HOLDS
    assert told["SVM, mesh, level 2: skew slows convergence, in epochs"] == HOLDS
    assert told["SVM, continuous linear, level 2: skew prevents convergence, share of NC"] == HOLDS
    assert told["SVM, mesh, level 2: skew lowers the score"] == HOLDS
    assert told["SVM, linear, level 1: continuous above aggregate"] == HOLDS
    assert told["logistic regression, ring, IID: continuous above aggregate"] == OPEN
    assert told["SVM, star, IID: as good as one machine with IID data"] == HOLDS
    assert told["SVM, continuous ring, IID: as good as one machine with IID data"] == FAILS
    assert told["SVM, level 1: star and mesh above lines and rings"] == FAILS
    assert told["SVM, level 3: lines and rings above star and mesh"] == HOLDS
    assert [row[0] for row in brief.rows] == [*dict.fromkeys(row[0] for row in sheet.rows)]


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_all_tables_of_the_paper_are_there(scale: str) -> None:
    numbers = ("III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV")
    assert {f"table {n}" for n in numbers} <= study(scale).keys()
    for label in ("table IV", "table XIII"):
        (run,) = study(scale)[label].runs.values()
        assert {m: s.epochs for m, s in run.resolved.items()} == {
            "continuous-linear": run.budget // 5,
            "continuous-ring": run.budget // 10,
            "aggregate-linear": run.budget // 5,
            "aggregate-ring": run.budget // 10,
            "star": run.budget // 5,
            "mesh": run.budget // 5,
        }


def test_curves_are_those_of_trained_models_and_jumps_what_merging_changes() -> None:
    rows = []
    for node in (0, 1):
        for number, values in ((1, [1.0, 0.8, 0.6]), (2, [0.2, 0.5, 0.4])):
            first = 2 * (number - 1)
            about = {"method": "star", "seed": 10, "round": number, "node": node, "measure": "epoch_loss"}
            rows += [{**about, "epoch": first + i, "value": v} for i, v in enumerate(values)]
    measures = pl.DataFrame(rows)
    assert np.allclose(mean_curves(measures)["value"], [1.0, 0.8, 0.6, 0.5, 0.4])
    assert jumps(measures) == {10: pytest.approx(0.4)}
