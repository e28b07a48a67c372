"""Tables and figures of the mutual-learning paper: models of any architecture that teach each other (DFML)."""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from coterie.config.configuration import Configuration
from coterie.config.spread import notation
from coterie.report.claims import verdicts_sheet
from coterie.report.panels import DASHED, Line, Panel, draw_panels, line, shade
from coterie.report.races import bytes_sheet, of_reference, spent_sheet
from coterie.report.sheets import Sheet
from coterie.report.statistics import characteristic_time, complete, mean_ci, per_seed
from coterie.report.tables import NEVER, UNKNOWN, humanise
from coterie.runs.exhibits import Exhibit, Results, Scale, Shown
from coterie.studies._dfml_contests import ACCURACY, Contest, Stake, Who, against, judged
from coterie.studies._dfml_ours import ours
from coterie.studies._dfml_parts import contests_of_parts
from coterie.studies._dfml_runs import MORE, SPLITS, TITLES, Size, Split, models, size_of
from coterie.studies.decdiff import allocations

NUMBERS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "_dfml.toml").read_text("utf-8"))
PEAK = "dfml:peak_accuracy"
Show = Callable[[Results, Path], Iterable[Shown]]
NAMES = {
    "dfml": "DFML",
    PEAK: "DFML, peak models",
    "dec-fedavg": "Dec. FedAvg",
    "dec-fedprox": "Dec. FedProx",
    "def-kt": "Def-KT",
    "dec-heterofl": "Dec. HeteroFL",
    "dec-fedrolex": "Dec. FedRolex",
    "dec-fedrolex-rolled": "Dec. FedRolex, all rolled alike",
    "dec-dropout": "Dec. Federated Dropout",
    "fml": "Dec. FML, private models",
}
RIVALS = {
    "h0": ("dec-fedavg", "dec-fedprox", "def-kt"),
    "h1": ("dec-fedavg", "dec-heterofl", "dec-fedrolex", "dec-fedrolex-rolled", "dec-dropout"),
    "h2": ("dec-fedavg", "dec-fedprox", "fml"),
}
SETTINGS = {"h0": "homogeneous architectures", "h1": "architectures of other widths", "h2": "any architectures"}


def dfml(scale: Scale) -> dict[str, Exhibit]:
    """Mutual learning across architectures against averaging, on data that are alike or skewed.

    Reference: Khalil et al., DFML: Decentralized Federated Mutual Learning, 2024
    """
    if scale == "full":
        return {}
    size = size_of(scale)
    sets = [name for name in size.sets if name not in size.more]
    tables = {f"table {n}{'abc'[i]}": _main(size, m, d) for i, d in enumerate(sets) for n, m in _MODES.items()}
    first, others = ({k: t for k, t in tables.items() if k.endswith("a") is own} for own in (True, False))
    work = _work(size)
    parts = contests_of_parts(size, NUMBERS)
    free = {run: e for label, t in tables.items() if label.startswith("table 6") for run, e in t.runs.items()}
    near = {run: e for run, e in free.items() if run in first["table 6a"].runs}
    made = {label: contest.exhibit(size) for label, contest in first.items()}
    made |= {
        "table 8a": Exhibit("rounds to FedAvg's accuracy", lambda f, _: _rounds(f, size), near, size.scaled),
        "table local": _local(size, near),
        "figure 4": _heterogeneity(size),
        "figure 5": _clusters(size, near),
        "table computation": work.exhibit(size),
        "table cost": _cost(size, near),
        "table claims": _claims("what DFML is said to be ahead of", {**first, "table computation": work}, size),
        "table ours": ours(size),
    }
    made |= {label: contest.exhibit(size) for label, contest in parts.items()}
    made["table parts"] = _claims("what the parts of DFML are said to do", parts, size)
    made |= {label: contest.exhibit(size) for label, contest in others.items()}
    far = {run: e for run, e in free.items() if run not in near}
    if far:
        made["table 8b"] = Exhibit("rounds to FedAvg's accuracy", lambda f, _: _rounds(f, size), far, size.scaled)
    made["figure 6"] = _crowd(size).exhibit(size)
    dealt = {f"{size.first} {split}": size.place(["dfml"], "h2", split) for split in SPLITS}
    made["figure 10"] = Exhibit("the allocation of data", lambda _, f: allocations(dealt, f), scaled=size.scaled)
    made["table 5"] = _resnets(size).exhibit(size)
    if scale == "paper":
        made["table 7"] = _efficientnets(size).exhibit(size)
        made["table 11"] = _cliques(size, "h1-resnet", "table11").exhibit(size)
        made["table 12"] = _cliques(size, "h2", "table12").exhibit(size)
    return {label: replace(exhibit, show=_with_every_peak(exhibit.show)) for label, exhibit in made.items()}


def _with_every_peak(show: Show) -> Show:
    """Judge a node that has not kept a peak yet by its present model: means are then over all nodes in every round."""
    peak = pl.coalesce("peak_accuracy", "test_accuracy").alias("peak_accuracy")

    def shown(found: Results, folder: Path) -> Iterable[Shown]:
        return show(replace(found, records={run: f.with_columns(peak) for run, f in found.records.items()}), folder)

    return shown


_MODES = {"6": "h2", "4": "h1", "3": "h0"}


# Global accuracy (Tables 3 to 7, Figures 15 to 17 and 24), and who is ahead.


def _main(size: Size, mode: str, data: str) -> Contest:
    """All methods of a setting on a data set, on both splits."""
    names = {m: NAMES[m] for m in ("dfml", PEAK, *RIVALS[mode])}
    families = ("h1", "h1-resnet", "h1-vit") if mode == "h1" and size.scale == "paper" else (mode,)
    runs, paper, stakes = {}, {}, list[Stake]()
    for mix in families:
        for nodes in size.nodes if mode == "h2" else (size.usual,):
            for split in SPLITS:
                title = size.title(mix, split, data, nodes)
                runs[title] = size.place(names, mix, split, data, nodes)
                paper[title] = _beside(mode, mix, data, split, nodes)
                stakes += against(title, NAMES, RIVALS[mode])
    if not any(any(row.values()) for row in paper.values()):
        paper = {}
    return Contest(f"{SETTINGS[mode]}, {TITLES[data]}", runs, names, stakes, paper, file=f"curves-{mode}-{data}")


def _beside(mode: str, mix: str, data: str, split: Split, nodes: int) -> dict[str, str]:
    """The paper's numbers in a place, by method."""
    table: dict[str, Sequence[str]] = {
        "h0": NUMBERS["table3"],
        "h1": NUMBERS["table4"].get(mix, {}),
        "h2": NUMBERS["table6"].get(str(nodes), {}),
    }[mode]
    if data not in ("cifar10", "cifar100"):
        return {}
    place = 2 * ("cifar10", "cifar100").index(data) + list(SPLITS).index(split)
    return {method: row[place] for method, row in table.items()}


def _work(size: Size) -> Contest:
    """DFML against methods that compute as much in a round: as many epochs, but on everyone's own data."""
    runs, stakes, names = {}, list[Stake](), {"dfml": NAMES["dfml"]}
    for mode in _MODES.values():
        rivals = [f"{m}{MORE}" for m in RIVALS[mode] if m != "dec-fedrolex-rolled"]
        names |= {m: f"{NAMES[m.removesuffix(MORE)]}, as much computed" for m in rivals}
        for split in SPLITS:
            title = size.title(mode, split)
            runs[title] = size.place(["dfml", *rivals], mode, split)
            stakes += against(title, names, rivals)
    return Contest("baselines that compute as much as DFML", runs, names, stakes)


def _resnets(size: Size) -> Contest:
    """Table 5: ResNets of several widths."""
    names = {m: NAMES[m] for m in ("dfml", PEAK, "dec-fedavg", "dec-heterofl", "dec-fedrolex")}
    runs, paper, stakes = {}, {}, list[Stake]()
    for data in size.more or (size.first,):
        for i, split in enumerate(SPLITS):
            title = size.title("h1-resnet", split, data)
            runs[title] = size.place(names, "h1-resnet", split, data)
            paper[title] = {m: row[i] for m, row in NUMBERS["table5"].get(data, {}).items()}
            stakes += against(title, NAMES, [m for m in names if ":" not in m and m != "dfml"])
    return Contest("ResNets of other widths", runs, names, stakes, paper, file="resnets")


def _efficientnets(size: Size) -> Contest:
    """Table 7: EfficientNets."""
    names = {m: NAMES[m] for m in ("dfml", PEAK, "dec-fedavg")}
    runs, paper = {}, {}
    for data in ("caltech101", "oxford_pets", "stanford_cars"):
        for i, split in enumerate(SPLITS):
            title = size.title("h2-efficientnet", split, data)
            runs[title] = size.place(names, "h2-efficientnet", split, data, nodes=10, batch_size=8)
            paper[title] = {m: row[i] for m, row in NUMBERS["table7"].get(data, {}).items()}
    return Contest("EfficientNets", runs, names, paper=paper)


def _cliques(size: Size, mix: str, table: str) -> Contest:
    """Tables 11 and 12: two cliques with one link between them."""
    names = {m: NAMES[m] for m in ("dfml", PEAK, *(m for m in NUMBERS[table] if m != PEAK))}
    runs, paper = {}, {}
    for i, (data, split) in enumerate((d, s) for d in ("cifar10", "cifar100") for s in SPLITS):
        title = size.title(mix, split, data)
        runs[title] = size.place(names, mix, split, data, topology="cliques")
        paper[title] = {m: row[i] for m, row in NUMBERS[table].items()}
    return Contest("two cliques", runs, names, paper=paper)


def _crowd(size: Size) -> Contest:
    """Figure 6: ten architectures."""
    names = {m: NAMES[m] for m in ("dfml", PEAK, "dec-fedavg")}
    runs = {f"{size.title('fig6', s)}": size.place(names, "fig6", s, nodes=size.crowd) for s in ("dir",)}
    stakes = [s for run in runs for s in against(run, NAMES, ["dec-fedavg"])]
    return Contest("ten architectures", runs, names, stakes, file="ten-architectures")


def _claims(title: str, contests: Mapping[str, Contest], size: Size) -> Exhibit:
    """All claims of some contests in one table; with those about local accuracy and sizes, which have no contest."""
    runs = {f"{label}: {run}": e for label, contest in contests.items() for run, e in contest.runs.items()}

    def show(found: Results, folder: Path) -> list[Shown]:
        claims = []
        for label, contest in contests.items():
            claims += contest.claims({run: found.records[f"{label}: {run}"] for run in contest.runs})
            if label == "table 6a":
                about = Contest("", contest.runs, {}, [*_local_stakes(contest.runs), *_size_stakes(size, contest.runs)])
                claims += about.claims({run: found.records[f"{label}: {run}"] for run in contest.runs})
        claims = [*{(c.text, c.where): c for c in claims}.values()]  # several contests may claim the same
        brief = [verdicts_sheet("At the last round", claims), verdicts_sheet("Over a cycle of α", claims, size.cycle)]
        return [*brief, judged(claims, size)]

    return Exhibit(title, show, runs, size.scaled)


# Rounds to FedAvg's accuracy (Table 8).


def _rounds(found: Results, size: Size) -> list[Shown]:
    """In which round DFML has the accuracy that FedAvg has at a mark with the same seed."""
    rows = []
    for share, mark in zip(size.marks, ("100", "500"), strict=True):
        for run, records in found.records.items():
            whole = complete(records)
            at = int(share * max(whole["round"].to_list()))
            row = [run, str(at), _reached(whole, at, "dfml"), _reached(whole, at, "dfml", "peak_accuracy")]
            rows.append([*row, _told(run, mark)])
    heads = ["run", "FedAvg's round", "DFML", "DFML, peak models", "paper, for rounds 100 and 500"]
    note = f"{NEVER}: never reached; (k/n): only k of n seeds reached it, their mean."
    return [
        Sheet("Rounds in which DFML has the accuracy that decentralised FedAvg has at a round", heads, rows, [note])
    ]


def _reached(records: pl.DataFrame, at: int, method: str, column: str = "test_accuracy") -> str:
    goals = per_seed(records.filter(pl.col("method") == "dec-fedavg", pl.col("round") <= at), "test_accuracy")
    curves = per_seed(records.filter(pl.col("method") == method), column)
    times = []
    for (seed,), goal in goals.group_by("seed", maintain_order=True):
        times.append(characteristic_time(curves.filter(pl.col("seed") == seed), goal["value"][-1]))
    known = [t for t in times if t is not None]
    if not known:
        return NEVER
    return f"{sum(known) / len(known):.3g}" + ("" if len(known) == len(times) else f" ({len(known)}/{len(times)})")


def _told(run: str, mark: str) -> str:
    """The paper's Table 8 for a run, if it is there."""
    for data in ("cifar10", "cifar100"):
        for split, name in SPLITS.items():
            for nodes, table in NUMBERS["table8"].items():
                place = 2 * ("cifar10", "cifar100").index(data) + list(SPLITS).index(split)
                if run.startswith(f"{TITLES[data]}, H2, {name}") and run.endswith((name, f"N = {nodes}")):
                    return str(table[mark][place])
    return ""


# Local accuracy (Figure 18), clusters of architectures (5), homogeneous and heterogeneous (1, 4), cost.


def _local_stakes(runs: Mapping[str, Configuration]) -> list[Stake]:
    what = "validation_accuracy"
    return [
        Stake("local accuracy of DFML above Dec. FedAvg's", Who(r, "dfml", what), Who(r, "dec-fedavg", what))
        for r in runs
    ]


def _local(size: Size, runs: Mapping[str, Configuration]) -> Exhibit:
    names = {m: NAMES[m] for m in ("dfml", *RIVALS["h2"])}
    local = {f"{m}:validation_accuracy": name for m, name in names.items()}
    contest = Contest("accuracy on a node's own validation data", runs, local, _local_stakes(runs), file="local")
    return contest.exhibit(size)


def _members(size: Size, nodes: int) -> dict[str, tuple[int, ...]]:
    """Which nodes have each architecture of mode H2, the largest first."""
    kinds = models("h2", size)
    return {notation(kind).partition("{")[0]: tuple(range(i, nodes, len(kinds))) for i, kind in enumerate(kinds)}


def _size_stakes(size: Size, runs: Mapping[str, Configuration]) -> list[Stake]:
    stakes = []
    for run, e in runs.items():
        groups = _members(size, e.nodes)
        (large, most), *_, (small, least) = groups.items()
        text = f"with DFML, {large} above {small}"
        stakes.append(Stake(text, Who(run, "dfml", nodes=most), Who(run, "dfml", nodes=least)))
        for kind, nodes in groups.items():
            text = f"{kind} with DFML above Dec. FedAvg"
            stakes.append(Stake(text, Who(run, "dfml", nodes=nodes), Who(run, "dec-fedavg", nodes=nodes)))
    return stakes


def _clusters(size: Size, runs: Mapping[str, Configuration]) -> Exhibit:
    contest = Contest("accuracy of each architecture", runs, {}, _size_stakes(size, runs))

    def show(found: Results, folder: Path) -> list[Shown]:
        panels, rows = [], []
        for run, records in found.records.items():
            drawn: list[Line] = []
            groups = _members(size, runs[run].nodes)
            for i, (kind, nodes) in enumerate(groups.items()):
                tone, cells = shade(len(groups) - 1 - i, len(groups)), []
                for m, style in (("dfml", "-"), ("dec-fedavg", DASHED)):
                    mine = records.filter(pl.col("method") == m, pl.col("node").is_in(nodes))
                    drawn.append(line(mine, f"{kind}, {NAMES[m]}", tone, style, column="test_accuracy"))
                    cells.append(f"{mean_ci(Who(run, m, nodes=nodes).side(found.records).by_seed().values()).mean:.3f}")
                rows.append([run, kind, *cells])
            panels.append(Panel(run, drawn, **ACCURACY))
        sheet = Sheet("Test accuracy at the last round", ["run", "architecture", "DFML", "Dec. FedAvg"], rows)
        picture = draw_panels(panels, folder / "clusters.png")
        return [picture, sheet, judged(contest.claims(found.records), size)]

    return Exhibit(contest.title, show, runs, size.scaled)


def _heterogeneity(size: Size) -> Exhibit:
    """Figures 1 and 4: the same average size, homogeneous and heterogeneous, alike and skewed."""
    cases: list[tuple[str, str, Split]] = [
        ("homogeneous, IID", "h0", "iid"),
        ("heterogeneous, IID", "h1", "iid"),
        ("heterogeneous, Dir(0.1)", "h1", "dir"),
    ]
    rivals = ("dec-fedavg", "dec-heterofl", "dfml")
    runs = {name: size.place(rivals[: 1 + 2 * (mix != "h0")], mix, split) for name, mix, split in cases}

    def show(found: Results, folder: Path) -> list[Shown]:
        frames = {run: found.records[run] for run in runs}
        panels, rows = [], []
        for m in rivals:
            there = [run for run in runs if m in runs[run].resolved]
            panel = [
                line(frames[r].filter(pl.col("method") == m), r, shade(i, 3), column="test_accuracy")
                for i, r in enumerate(runs)
                if r in there
            ]
            panels.append(Panel(NAMES[m], panel, **ACCURACY))
            cells = [
                f"{mean_ci(Who(r, m).side(frames).by_seed().values()).mean:.3f}" if r in there else "" for r in runs
            ]
            rows.append([NAMES[m], *cells])
        sheet = Sheet("Test accuracy at the last round", ["method", *runs], rows)
        return [draw_panels(panels, folder / "heterogeneity.png", columns=3), sheet]

    return Exhibit("what differing architectures and data cost", show, runs, size.scaled)


def _cost(size: Size, runs: Mapping[str, Configuration]) -> Exhibit:
    names = {m: NAMES[m] for m in ("dfml", *RIVALS["h2"])}
    columns = {"sent_bytes": "sent", "received_bytes": "received", "flops": "operations"}

    def show(found: Results, folder: Path) -> list[Shown]:
        shown: list[Shown] = []
        for run, records in found.records.items():
            there = [c for c in columns if c in records.columns]
            rows = [[name, *(_each_round(records, m, column) for column in there)] for m, name in names.items()]
            shown.append(Sheet(f"{run}: a node in a round", ["method", *(columns[c] for c in there)], rows))
            goal, share = of_reference("dec-fedavg"), "a share of decentralised FedAvg's last accuracy"
            shown.append(bytes_sheet(f"{run}: sent by a node until {share}", records, names, SHARES, goal))
            if "flops" in there:
                title = f"{run}: operations of a node until {share}"
                shown.append(spent_sheet(title, records, names, SHARES, goal, "flops", _operations))
        return shown

    return Exhibit("what a round costs, and what an accuracy costs", show, runs, size.scaled)


SHARES = (0.8, 1.0, 1.2)


def _operations(count: float) -> str:
    return UNKNOWN if math.isnan(count) else f"{count / 1e9:.3g} G"


def _each_round(records: pl.DataFrame, method: str, column: str) -> str:
    """What a node has of a total, divided by the rounds."""
    mine = complete(records.filter(pl.col("method") == method))
    if mine.is_empty():
        return UNKNOWN
    last = mine.filter(pl.col("round") == pl.col("round").max())
    mean = mean_ci(per_seed(last, column)["value"]).mean / last["round"][0]
    return humanise(mean) if column.endswith("bytes") else _operations(mean)
