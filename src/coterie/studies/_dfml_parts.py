"""Contests about the parts of DFML: each part against leaving it out or doing it another way."""

from collections.abc import Mapping, Sequence
from typing import Any

from coterie.studies._dfml_contests import Contest, Stake, Who
from coterie.studies._dfml_runs import SPLITS, Size, Split

PEAK = ":peak_accuracy"
CYCLIC = {"dfml": "DFML", f"dfml{PEAK}": "DFML, peak models"}
FEDAVG = {"dec-fedavg": "Dec. FedAvg"}


def contests_of_parts(size: Size, numbers: Mapping[str, Any]) -> dict[str, Contest]:
    """The contests by label, those of the headline claims first."""
    both: tuple[Split, ...] = tuple(SPLITS)
    fixed = {"fixed-0.5": "α = 0.5", "fixed-1": "α = 1"}
    ce = {"ce": "CE, cyclic α", f"ce{PEAK}": "CE, cyclic α, peak models"}
    ce_fixed = {"ce-fixed-0.5": "CE, α = 0.5", "ce-fixed-1": "CE, α = 1"}
    signals = {"dfml": "WSM", "ace": "ACE", "ce": "CE"}
    return {
        "figure 14": _part(
            size, "distillation and supervision, or supervision only", "supervision-only", both,
            {**CYCLIC, "supervision": "supervision only"}, [("dfml", "supervision")],
        ),
        "figure 25": _part(size, "supervision signals", "signals", both, signals, [("dfml", "ace"), ("dfml", "ce")]),
        "figure 21": _part(
            size, "mutual and vanilla knowledge transfer", "vanilla", ("dir",),
            {"dfml": "mutual", "vanilla": "vanilla: only the aggregator's model learns"}, [("dfml", "vanilla")],
        ),
        "figure 9": _part(
            size, "fixed and cyclic α", "alpha", both, {**CYCLIC, **fixed, **ce, **ce_fixed},
            [("dfml", "fixed-0.5"), ("dfml", "fixed-1"), ("ce", "ce-fixed-0.5"), ("ce", "ce-fixed-1")],
        ),
        "table 9": _table_9(size, numbers["table9"]),
        "figure 20": _part(
            size, "teachers weighted by size, or alike", "weights", both,
            {"dfml": "weighted by size", "equal": "weighted alike"}, [("dfml", "equal")],
        ),
        "figure 8": _part(
            size, "regular and peak models", "peaks", ("dir",),
            {
                **CYCLIC,
                f"top-3{PEAK}": "DFML, peak models at the 3 highest α",
                "half": "half cycles",
                f"half{PEAK}": "half cycles, peak models",
                **ce,
            },
            [(f"dfml{PEAK}", "dfml"), (f"top-3{PEAK}", "dfml"), (f"half{PEAK}", "half"), (f"ce{PEAK}", "ce")],
        ),
        "figure 13": _part(
            size, "an aggregator that wanders, or always the same", "fixed-aggregator", ("dir",),
            {"dfml": "wandering", "still": "always node 0"}, [("dfml", "still")],
        ),
        "figure 28": _part(
            size, "a growing period and a fixed one", "period", ("dir",),
            {"dfml": "growing", f"dfml{PEAK}": "growing, peak models", "period-10": "fixed at 10",
             f"period-10{PEAK}": "fixed at 10, peak models"},
            [("dfml", "period-10"), (f"dfml{PEAK}", f"period-10{PEAK}")],
        ),
        "figure 23": _networks(size, numbers["table12"]),
        "figure 12": _server(size),
        "figure 19": _senders(size),
        "figure 22": _turns(size),
        "figure 26": _part(
            size, "other ways to adapt distillation, with cross-entropy", "adaptive", ("dir",),
            {**ce, "ce-fixed-0.5": "CE, α = 0.5", "ce-wsl": "WSL", "ce-anl": "ANL-KD"},
            [("ce", "ce-wsl"), ("ce", "ce-anl"), ("ce-wsl", "ce-fixed-0.5"), ("ce-anl", "ce-fixed-0.5")],
        ),
        "figure 27": _part(
            size, "what α weighs, with cross-entropy", "varies", ("dir",),
            {
                "ce": "between both",
                "ce-supervision": "supervision",
                "ce-distillation": "distillation",
                "ce-both": "both alike",
                "ce-fixed-0.5": "α = 0.5",
            },
            [("ce", "ce-distillation"), ("ce", "ce-both"), ("ce-supervision", "ce-distillation")],
        ),
    }  # fmt: skip


def _part(
    size: Size,
    title: str,
    file: str,
    splits: Sequence[Split],
    names: Mapping[str, str],
    pairs: Sequence[tuple[str, str]],
) -> Contest:
    """Variants of DFML with any architectures, and of which pairs the first is said to be ahead."""
    runs = {size.title("h2", split): size.place(names, "h2", split) for split in splits}
    return Contest(title, runs, names, _stakes(runs, names, pairs), file=file)


def _stakes(runs: Mapping[str, Any], names: Mapping[str, str], pairs: Sequence[tuple[str, str]]) -> list[Stake]:
    return [
        Stake(f"{names[one]} above {names[other]}", Who(run, one), Who(run, other))
        for run in runs
        for one, other in pairs
    ]


def _table_9(size: Size, numbers: Mapping[str, Sequence[str]]) -> Contest:
    """Supervision signals with and without cycles; the paper has CIFAR-100 and other widths."""
    names = {
        "ce-fixed-0.5": "CE, α = 0.5",
        "ce": "CE, cyclic α",
        f"ce{PEAK}": "CE, cyclic α, peak models",
        "fixed-0.5": "WSM, α = 0.5",
        "dfml": "WSM, cyclic α",
        f"dfml{PEAK}": "WSM, cyclic α, peak models",
    }
    mix, data = ("h1", "cifar100") if size.scale == "paper" else ("h2", size.first)
    runs = {size.title(mix, split, data): size.place(names, mix, split, data) for split in SPLITS}
    paper = {run: {m: row[i] for m, row in numbers.items()} for i, run in enumerate(runs)}
    pairs = [("dfml", "fixed-0.5"), ("ce", "ce-fixed-0.5"), ("fixed-0.5", "ce-fixed-0.5"), ("dfml", "ce")]
    remark = "The paper's numbers are of CIFAR-100 and CNNs of mode H1; which fixed α it took is not said."
    return Contest("supervision and cycles", runs, names, _stakes(runs, names, pairs), paper, remark=remark)


def _networks(size: Size, numbers: Mapping[str, Sequence[str]]) -> Contest:
    """Figure 23, Table 12: two cliques with one link between them; and networks that the paper has not."""
    names = {**CYCLIC, **FEDAVG}
    networks: dict[str, Any] = {
        "complete": "complete",
        "two cliques": "cliques",
        "ER": {"name": "er", "p": 0.4, "connect": True},
        "ring": "ring",
    }
    runs, paper = {}, {}
    for label, topology in networks.items():
        run = f"{size.title('h2', 'dir')}, {label}"
        runs[run] = size.place(names, "h2", "dir", topology=topology)
        if label == "two cliques":
            paper[run] = {m: row[1] for m, row in numbers.items()}
    stakes = _stakes(runs, names, [("dfml", "dec-fedavg")])
    whole, *others = runs
    stakes += [
        Stake(f"DFML on the complete graph above {run.rpartition(', ')[2]}", Who(whole, "dfml"), Who(run, "dfml"))
        for run in others
    ]
    remark = "The paper's numbers are of CIFAR-10 with 50 nodes."
    return Contest("networks", runs, names, stakes, paper, "networks", remark)


def _server(size: Size) -> Contest:
    """Figure 12: a server that averages everyone's models, from one architecture."""
    names = {**CYCLIC, **FEDAVG, "fedavg:merged_accuracy": "FedAvg with a server"}
    runs = {size.title("h0", split): size.place(names, "h0", split) for split in SPLITS}
    pairs = [("fedavg:merged_accuracy", "dec-fedavg"), ("dfml", "fedavg:merged_accuracy")]
    remark = "Here the server hears everyone in every round; half of the nodes take part in a round of the others."
    return Contest("with a server and without", runs, names, _stakes(runs, names, pairs), {}, "server", remark)


def _senders(size: Size) -> Contest:
    """Figure 19: fewer senders."""
    names, pairs = {"dfml": "DFML, 50 %", "dec-fedavg": "Dec. FedAvg, 50 %"}, [("dfml", "dec-fedavg")]
    for share in size.shares:
        names |= {f"{m}-{share:g}": f"{name}, {share:.0%}" for m, name in (("dfml", "DFML"), *FEDAVG.items())}
        pairs.append((f"dfml-{share:g}", f"dec-fedavg-{share:g}"))
    run = size.title("h2", "dir")
    runs = {run: size.place(names, "h2", "dir")}
    return Contest("fewer senders", runs, names, _stakes(runs, names, pairs), file="senders")


def _turns(size: Size) -> Contest:
    """Figure 22: epochs of mutual learning, by rounds and by what is computed."""
    names = {**{f"K={k}": f"K = {k}" for k in size.turns}, **FEDAVG}
    run = size.title("h2", "dir")
    runs = {run: size.place(names, "h2", "dir")}
    pairs = [(f"K={more}", f"K={less}") for less, more in zip(size.turns, size.turns[1:], strict=False)]
    work = {**{f"K={k}": 1 + k for k in size.turns}, "dec-fedavg": 1}
    stakes = _stakes(runs, names, pairs)
    return Contest("epochs of mutual learning", runs, names, stakes, file="epochs", work=work)
