"""Tables and figures of the coordination-free paper: bounded steps (DecDiff) and a virtual teacher."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.config.build import load_samples
from coterie.config.configuration import Configuration
from coterie.config.networks import network
from coterie.config.slots import as_table, choice
from coterie.network import skew
from coterie.partitions import split
from coterie.report.allocation import draw_allocation
from coterie.report.curves import plot_accuracy, plot_nodes, plot_spread
from coterie.report.network import draw_graph
from coterie.report.races import accuracy_sheet, bytes_sheet, labelled, of_reference, pairs_sheet, times_sheet
from coterie.report.sheets import Sheet
from coterie.runs.exhibits import Exhibit, Results, Scale, Shown
from coterie.studies._cells import decdiff_cells
from coterie.studies._contenders import BASELINES, OURS, WITH_GAIN, named
from coterie.studies._race_claims import DECDIFF, DECDIFF_SOONER, judged, number
from coterie.studies._scales import FRESH, describe_scale, quickened, rounds_to_evaluate

PAPER = "50 nodes, all images, 1,000 rounds, 4 replicas"
LEVELS = (0.5, 0.8, 0.9, 0.95)
REMARK = " (the paper: Gini index within a class .70 to .85)"
CORE = {"dechetero": "DecHetero", "cfa": "CFA", "cfa-ge": "CFA-GE", "decdiff": "DecDiff", "decdiff-vt": "DecDiff+VT"}
NAMES = {**BASELINES, **CORE, "decdiff-rvt": "DecDiff + random VT", "dechw": "DecHW", **WITH_GAIN, **OURS}
DRAWN = {m: NAMES[m] for m in (*BASELINES, *CORE, "dechw", "gain-decavg", "agreed-start", "variance-corrected")}
"""Methods in the figures of curves: as many as can be told apart."""

# Accuracy (Table II, III) and characteristic times (Table IV) of the paper, by data set.
ACCURACY = {
    "centralised": ("0.9824 ± 0.0000", "0.9181 ± 0.0000", "0.9027 ± 0.0000"),
    "isolation": ("0.6473 ± 0.0900", "0.7594 ± 0.0392", "0.4654 ± 0.0864"),
    "fedavg": ("0.9410 ± 0.0156", "0.8939 ± 0.0034", "0.8344 ± 0.0211"),
    "dechetero": ("0.9071 ± 0.0249", "0.8837 ± 0.0029", "0.8301 ± 0.0278"),
    "cfa": ("0.8975 ± 0.0306", "0.8568 ± 0.0048", "0.7807 ± 0.0345"),
    "cfa-ge": ("0.9460 ± 0.0048", "0.8564 ± 0.0130", "0.8607 ± 0.0092"),
    "decdiff": ("0.9373", "0.8838", "0.8214"),
    "decdiff-vt": ("0.9530 ± 0.0154", "0.8904 ± 0.0043", "0.8653 ± 0.0128"),
}
TIMES = {
    "MNIST": {
        "dechetero": ("97.40", "235.60", "583.25", "-"),
        "cfa": ("109.40", "322.40", "609.67", "-"),
        "cfa-ge": ("102.80", "173.40", "327.60", "691.60"),
        "decdiff": ("52.80", "145.40", "395.60", "671.00"),
        "decdiff-vt": ("55.20", "161.00", "360.00", "540.75"),
        "fedavg": ("11.80", "57.40", "307.40", "662.67"),
        "isolation": ("262.20", "-", "-", "-"),
    },
    "Fashion-MNIST": {
        "dechetero": ("3.20", "53.20", "387.20", "-"),
        "cfa": ("10.60", "142.40", "-", "-"),
        "cfa-ge": ("10.20", "118.40", "693.60", "-"),
        "decdiff": ("6.80", "54.00", "319.80", "-"),
        "decdiff-vt": ("7.00", "53.80", "313.60", "-"),
        "fedavg": ("1.20", "25.00", "216.00", "-"),
        "isolation": ("3.80", "-", "-", "-"),
    },
    "EMNIST": {
        "dechetero": ("22.00", "91.00", "370.50", "-"),
        "cfa": ("62.80", "418.00", "-", "-"),
        "cfa-ge": ("33.20", "167.00", "324.20", "812.25"),
        "decdiff": ("17.60", "107.20", "566.75", "-"),
        "decdiff-vt": ("9.60", "106.80", "138.40", "400.25"),
        "fedavg": ("4.00", "53.80", "322.25", "-"),
        "isolation": ("28.00", "-", "-", "-"),
    },
}


def decdiff(scale: Scale) -> dict[str, Exhibit]:
    """Coordination-free decentralised learning: bounded steps and a virtual teacher against uncoordinated averaging.

    Reference: Valerio, Boldrini, Passarella, Kertész, Karsai, Iñiguez, Coordination-free Decentralised Federated
    Learning on Complex Networks: Overcoming Heterogeneity, 2023
    """
    if scale == "full":
        return decdiff_cells(TIMES["MNIST"], float(ACCURACY["centralised"][0].split()[0]))
    runs = _runs(scale)
    scaled = describe_scale(runs.values(), PAPER)

    def exhibit(title: str, show: Any) -> Exhibit:
        return Exhibit(title, show, runs, scaled)

    return {
        "table II": exhibit("accuracy at the last round", _accuracies),
        "table III": exhibit("ablation: the step and the teacher", _ablation),
        "table IV": exhibit("rounds to a share of the centralised accuracy", _times),
        "table cost": exhibit("bytes a node has sent by then", _bytes),
        "table claims": exhibit("what the paper claims, and whether it holds", _claims),
        "table pairs": exhibit("who is ahead of whom, seed by seed", _pairs),
        "figure 1": _disruption(scale),
        "figure 3": Exhibit("the network", lambda _, folder: [_graph(runs, folder)], scaled=scaled),
        "figure 4": Exhibit(
            "the allocation of data", lambda _, folder: allocations(runs, folder, REMARK), scaled=scaled
        ),
        "figure 5": exhibit("test loss by round", lambda found, folder: _curves(found, folder, "test_loss", "round")),
        "figure 6": exhibit("accuracy of every node at the last round", _boxes),
        "figure bytes": exhibit(
            "accuracy by bytes", lambda found, folder: _curves(found, folder, "test_accuracy", "sent_bytes")
        ),
        "figure accuracy": exhibit(
            "accuracy by round", lambda found, folder: _curves(found, folder, "test_accuracy", "round")
        ),
    }


def _runs(scale: Scale) -> dict[str, Configuration]:
    common: dict[str, Any] = {
        "topology": {"name": "er", "p": 0.2, "connect": True},
        "partition": "zipf",
        "epochs": 5,
    }
    if scale == "smoke":
        digits = {"dataset": "digits", "model": {"name": "mlp", "sizes": [64, 32]}, "batch_size": 16, "lr": 0.05}
        common |= {**digits, "momentum": 0.5, "nodes": 10, "rounds": 20, "epochs": 2, "seeds": (0, 1)}
        return {"digits": _race(**common, evaluate=rounds_to_evaluate(20, 2))}
    mlp = {"dataset": "mnist", "model": {"name": "mlp", "sizes": [512, 256, 128]}, "momentum": 0.5}
    fashion = {"dataset": "fashion_mnist", "model": "cnn_fashion", "momentum": 0.9}
    letters = {"dataset": "emnist_letters", "model": "cnn_emnist", "momentum": 0.9}
    if scale == "paper":
        letters |= {"total": 20_800, "test_share": 3_280 / 20_800}  # as many as the paper has
        common |= {"nodes": 50, "rounds": 1000, "batch_size": 100, "lr": 0.001, "seeds": tuple(range(4))}
        common["evaluate"] = rounds_to_evaluate(1000, 5)
        return {
            name: _race(**common, **s) for name, s in (("MNIST", mlp), ("Fashion-MNIST", fashion), ("EMNIST", letters))
        }
    common |= {"nodes": 20, "batch_size": 100, "seeds": FRESH, "test_share": 0.02, "total": 500}
    mlp |= {"lr": quickened(0.5)}
    fashion |= {"model": "cnn_mnist", "lr": quickened(0.9)}
    return {
        "MNIST": _race(**common, **mlp, rounds=48, evaluate=rounds_to_evaluate(48, 6)),
        "Fashion-MNIST": _race(**common, **fashion, rounds=48, evaluate=rounds_to_evaluate(48, 6)),
    }


def _race(**settings: Any) -> Configuration:
    """An experiment with all methods; CFA-GE's step has the paper's ratio to the learning rate."""
    step = round(1.5 * settings["lr"], 6)
    return Configuration(**settings, methods=named(NAMES) | {"cfa-ge": {"rule": {"name": "cfa_ge", "step": step}}})


def _accuracies(found: Results, folder: Path) -> list[Shown]:
    return [
        accuracy_sheet(
            "Test accuracy at the last round, mean over nodes ± 95 % interval over seeds",
            found.records,
            NAMES,
            _printed(found),
        )
    ]


def _printed(found: Results) -> dict[str, list[str]]:
    """What the paper prints of each method on the data sets that were run; nothing if one is not the paper's."""
    places = [list(TIMES).index(name) for name in found.records if name in TIMES]
    return {m: [row[i] for i in places] for m, row in ACCURACY.items() if len(places) == len(found.records)}


def _ablation(found: Results, folder: Path) -> list[Shown]:
    three = {m: NAMES[m] for m in ("dechetero", "decdiff", "decdiff-vt", "decdiff-rvt")}
    added = [("decdiff", "dechetero"), ("decdiff-vt", "dechetero"), ("decdiff-vt", "decdiff")]
    printed = _printed(found)
    papers = {m: [number(cell) for cell in printed[m]] for m in three if m in printed}
    return [
        accuracy_sheet(
            "Cross-entropy and averaging, then the bounded step, then the teacher too", found.records, three, printed
        ),
        pairs_sheet("What each adds", found.records, NAMES, added, papers),
    ]


def _times(found: Results, folder: Path) -> list[Shown]:
    goal = of_reference("centralised")
    return [
        times_sheet(
            f"{name}: rounds to a share of the centralised accuracy", records, NAMES, LEVELS, goal, TIMES.get(name, {})
        )
        for name, records in found.records.items()
    ]


def _bytes(found: Results, folder: Path) -> list[Shown]:
    goal = of_reference("centralised")
    return [
        bytes_sheet(f"{name}: sent by a node until a share of the centralised accuracy", records, NAMES, LEVELS, goal)
        for name, records in found.records.items()
    ]


def _pairs(found: Results, folder: Path) -> list[Shown]:
    pairs = [("decdiff", "dechetero"), ("decdiff-vt", "decdiff"), ("decdiff-vt", "dechetero"), ("decdiff-vt", "cfa")]
    pairs += [("dechetero", "cfa"), ("dechw", "decdiff-vt"), ("gain-decavg", "dechw"), ("variance-corrected", "dechw")]
    pairs += [("variance-corrected", "gain-decavg"), ("agreed-start", "dechw"), ("agreed-start", "gain-decavg")]
    pairs += [("agreed-start", "variance-corrected"), ("agreed-start", "decavg")]
    return [pairs_sheet("Differences in test accuracy", found.records, NAMES, pairs)]


def _claims(found: Results, folder: Path) -> list[Shown]:
    printed = _printed(found)
    papers = {
        name: {m: number(row[place]) for m, row in printed.items() if m != "centralised"}
        for place, name in enumerate(found.records)
    }
    return judged(found.records, papers, NAMES, DECDIFF, DECDIFF_SOONER)


def _curves(found: Results, folder: Path, column: str, x: Any) -> list[Shown]:
    return [
        plot_accuracy(
            labelled(records, DRAWN),
            folder / f"{column}-by-{x}-{name.lower()}.png",
            x=x,
            column=column,
            reference="Centralised",
        )
        for name, records in found.records.items()
    ]


def _boxes(found: Results, folder: Path) -> list[Shown]:
    return [
        plot_spread(labelled(records, NAMES), folder / f"boxes-{name.lower()}.png", reference="Centralised")
        for name, records in found.records.items()
    ]


def _graph(runs: Mapping[str, Configuration], folder: Path) -> Path:
    first = next(iter(next(iter(runs.values())).resolved.values()))
    path = folder / "network.png"
    draw_graph(network(first, first.seeds[0]).graph(1), path)
    return path


def allocations(runs: Mapping[str, Configuration], folder: Path, remark: str = "") -> list[Shown]:
    """The allocation of data to nodes for the first seed of each run, drawn, with its measures of skew."""
    shown: list[Shown] = []
    rows = []
    for name, experiment in runs.items():
        e = next(iter(experiment.resolved.values()))
        samples = load_samples(e)
        labels = samples.train_y.cpu().numpy()
        deal: Any = choice("partition", as_table(e.partition)).make()
        pairs = split(deal, labels, e.nodes, e.seeds[0], items=e.items, total=e.total, validation=0.0)
        counts = skew.counts(labels, [train for train, _ in pairs], samples.classes)
        path = folder / f"allocation-{name.lower().replace(' ', '-')}.png"
        draw_allocation(counts, path, f"{as_table(e.dataset)['name']}, {e.nodes} nodes")
        facts = skew.describe(counts)
        rows += [
            [name, key.replace("_", " "), f"{value:.3f}"] for key, value in facts.items() if isinstance(value, float)
        ]
        shown.append(path)
    return [
        *shown,
        Sheet(f"How uneven it is{remark}", ["data", "measure", "value"], rows),
    ]


def _disruption(scale: Scale) -> Exhibit:
    """Per-node curves of averaging with and without a common start, beside the bound."""
    settings: dict[str, Any] = {"topology": {"name": "ba", "m": 5}, "partition": "iid", "seeds": (0,), "evaluate": 1}
    settings["merged"] = True
    if scale == "smoke":
        settings |= {
            "nodes": 20,
            "rounds": 15,
            "epochs": 2,
            "batch_size": 16,
            "lr": 0.05,
            "model": {"name": "mlp", "sizes": [64, 32]},
        }
    elif scale == "laptop":
        settings |= {"dataset": "mnist", "model": {"name": "mlp", "sizes": [128, 64, 32]}, "nodes": 50, "total": 5000}
        settings |= {"rounds": 60, "epochs": 2, "batch_size": 25, "lr": 0.05, "momentum": 0.5, "test_share": 0.03}
    else:
        settings |= {"dataset": "mnist", "model": {"name": "mlp", "sizes": [512, 256, 128]}, "nodes": 100}
        settings |= {"rounds": 300, "epochs": 5, "batch_size": 100, "lr": 0.001, "momentum": 0.5}
    names = {"fedavg": "FedAvg", "dechetero": "DecHetero", "centralised": "Centralised"}
    run = Configuration(**settings, methods=named(names))

    def show(found: Results, folder: Path) -> list[Shown]:
        records = labelled(found.records["disruption"], names)
        drawn = {"disruption.png": "test_accuracy", "disruption-merged.png": "merged_accuracy"}
        return [plot_nodes(records, folder / name, column, reference="Centralised") for name, column in drawn.items()]

    scaled = describe_scale([run], "100 nodes, all images")
    return Exhibit(
        "every node's accuracy after training and after the merge, with a common start and without",
        show,
        {"disruption": run},
        scaled,
    )
