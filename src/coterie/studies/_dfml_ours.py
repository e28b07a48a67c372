"""Contenders of our own in the mutual-learning study, and what they are worth at the bytes that DFML sends."""

from collections.abc import Mapping
from pathlib import Path

from coterie.config.configuration import Configuration
from coterie.report.claims import claims_sheet
from coterie.report.races import accuracy_sheet, at_bytes
from coterie.runs.exhibits import Exhibit, Results, Shown
from coterie.studies._dfml_contests import Contest, Stake, Who
from coterie.studies._dfml_runs import SPLITS, Size

OURS = {
    "witnessed": "taught by who has seen the class",
    "corrected": "answers without the teacher's label shares",
    "corrected-ce": "the same with cross-entropy",
    "narrowed": "answers about classes the teacher has seen",
    "united": "equal architectures averaged first",
    "dfml-common": "DFML from a common start",
    "meetings": "several aggregators a round",
    "meetings-witnessed": "several, taught by who has seen the class",
    "supervision": "supervision only",
    "fixed-0.5": "α = 0.5",
}
"""Contenders, and parts of DFML alone, as the table `ours` calls them: add and remove here and in `_dfml_runs.py`."""
SPARSE = {
    "meetings": OURS["meetings"],
    "mentors": "every node taught by its neighbours",
    "supervision": OURS["supervision"],
}
"""Those that run on a ring, where an aggregator reaches two."""
EDGES = {"dfml": "DFML", "dec-fedavg": "Dec. FedAvg"}


def ours(size: Size) -> Exhibit:
    """Contenders against DFML: round by round, and with the bytes that DFML sends in all rounds."""
    runs = {size.title("h2", split): size.place({**EDGES, **OURS}, "h2", split) for split in SPLITS}
    ring = f"{size.title('h2', 'dir')}, ring"
    runs[ring] = size.place({**EDGES, **SPARSE}, "h2", "dir", topology="ring")
    names = {"dfml": EDGES["dfml"], **OURS, **SPARSE, "dec-fedavg": EDGES["dec-fedavg"]}
    contest = Contest("contenders of our own", runs, names, _stakes(runs, ring), file="ours")
    plain = contest.exhibit(size)

    def show(found: Results, folder: Path) -> list[Shown]:
        spent = {run: at_bytes(records, "dfml") for run, records in found.records.items()}
        title = "Test accuracy when nodes have sent what DFML sends in all rounds"
        return [
            *plain.show(found, folder),
            accuracy_sheet(f"{title} ± 95 % interval over seeds", spent, names, {}),
            claims_sheet("Claims at the bytes of DFML, seed by seed", contest.claims(spent), {"at equal bytes": 1}),
            "At equal bytes a method is judged by the last evaluated round in which it had sent no more (1 % aside).",
        ]

    return Exhibit(plain.title, show, runs, size.scaled)


def _stakes(runs: Mapping[str, Configuration], ring: str) -> list[Stake]:
    alone = f"{OURS['united']} above {OURS['dfml-common']}"  # which it begins with, too
    return [
        *(
            Stake(f"{name} above DFML", Who(run, m), Who(run, "dfml"))
            for run in runs
            for m, name in (SPARSE if run == ring else OURS).items()
        ),
        *(Stake(alone, Who(run, "united"), Who(run, "dfml-common")) for run in runs if run != ring),
    ]
