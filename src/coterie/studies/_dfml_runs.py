"""What the study of mutual learning runs: its sizes, the models of its modes, and who is run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie.config.configuration import Configuration
from coterie.config.slots import as_table
from coterie.config.spread import slots
from coterie.runs.exhibits import Scale
from coterie.studies._scales import rounds_to_evaluate

Split = Literal["iid", "dir"]
SPLITS: dict[Split, str] = {"iid": "IID", "dir": "Dir(0.1)"}
TITLES = {
    "digits": "digits",
    "fashion": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "caltech101": "Caltech101",
    "oxford_pets": "Oxford Pets",
    "stanford_cars": "Stanford Cars",
}
MORE = "+"
"""Ends the name of a method that trains for 1 + K epochs locally: as much as DFML computes in a round."""


@dataclass(frozen=True)
class Size:
    """How large the study is at a scale."""

    scale: Scale
    sets: Mapping[str, Any]
    """The data sets on which methods are compared; parts of DFML are on the first."""
    common: Mapping[str, Any]
    epochs: int
    """K: for how many epochs an aggregator teaches."""
    divisor: int
    """By what widths are divided."""
    marks: tuple[float, float]
    """At which shares of all rounds FedAvg's accuracy is the one to be reached."""
    cycle: int
    """How many of the last evaluated rounds go through all values of α."""
    nodes: tuple[int, ...]
    """How many nodes there are where architectures differ freely; elsewhere the middle one of these."""
    scaled: str
    shares: tuple[float, ...] = (0.2, 0.1)
    """Shares of the nodes that send, where there are fewer than half."""
    turns: tuple[int, ...] = (1, 2, 5, 10)
    """Values of K that are compared."""
    crowd: int = 0
    """How many nodes there are where ten architectures are."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """The data sets for ResNets only."""

    @property
    def first(self) -> str:
        return next(iter(self.sets))

    @property
    def usual(self) -> int:
        """How many nodes there are in most runs."""
        return self.nodes[len(self.nodes) // 2]

    def place(
        self, methods: Iterable[str], mix: str, split: Split = "dir", data: str = "", nodes: int = 0, **own: Any
    ) -> Configuration:
        """An experiment on a data set with these models and methods."""
        split_ = "iid" if split == "iid" else {"name": "dirichlet", "alpha": 0.1, "min_samples": 10}
        settings = {**self.common, **self.sets[data or self.first], "nodes": nodes or self.usual, "partition": split_}
        known = contenders(self, split)
        chosen = {m: known[m] for m in dict.fromkeys(name.partition(":")[0] for name in methods)}
        return Configuration(**{**settings, **own}, model=models(mix, self), methods=chosen)

    def title(self, mix: str, split: Split, data: str = "", nodes: int = 0) -> str:
        """What a place is called: `CIFAR-10, H2, Dir(0.1)`."""
        many = f", N = {nodes}" if nodes and len(self.nodes) > 1 else ""
        return f"{TITLES[data or self.first]}, {mix.upper()}, {SPLITS[split]}{many}"


def size_of(scale: Scale) -> Size:
    """The sizes of a scale."""
    common: dict[str, Any] = {"topology": "complete", "epochs": 1, "batch_size": 64}
    sgd = {"name": "sgd", "momentum": 0.9, "weight_decay": 5e-4}
    if scale == "smoke":
        common |= {"batch_size": 16, "optimiser": {**sgd, "lr": 0.05}, "total": 240, "rounds": 4, "evaluate": 1}
        text = "Here: digits, tiny nets, 6 nodes, 4 rounds: whether it runs, not what it shows."
        few: dict[str, Any] = {"turns": (1, 2), "shares": (0.2,), "crowd": 6}
        return Size(scale, {"digits": {"dataset": "digits"}}, common, 2, 1, (0.5, 1.0), 2, (6,), text, **few)
    if scale == "laptop":
        evaluate = (*range(7), 8, 10, 11, 13, 15, 17, 19, 21)
        common |= {"optimiser": {**sgd, "lr": 0.03}, "total": 3000, "rounds": 21, "evaluate": evaluate}
        common |= {"test_share": 0.1, "seeds": (10, 11, 12)}
        sets = {
            "fashion": {"dataset": {"name": "fashion_mnist", "size": 16}},
            "cifar10": {"dataset": {"name": "cifar10", "size": 16}},
        }
        text = (
            "Here: images of 16×16 pixels, 3,000 in all, 10% of the test images, 10 nodes, widths divided by 4, 21 "
            "rounds, K = 5, lr 0.03. Paper: all images, 10, 50 or 100 nodes, hundreds of rounds, K = 10, 3 trials."
        )
        return Size(scale, sets, common, 5, 4, (0.5, 1.0), 6, (10,), text, crowd=20)
    common |= {"optimiser": {**sgd, "lr": 0.01}, "rounds": 2000, "evaluate": rounds_to_evaluate(2000, 10)}
    common |= {"seeds": (0, 1, 2)}
    everything: dict[str, Any] = {"cifar10": {"dataset": "cifar10"}, "cifar100": {"dataset": "cifar100"}}
    photos = {"batch_size": 16}
    more: dict[str, Any] = {
        "fashion": {"dataset": "fashion_mnist"},
        **{name: {"dataset": name, **photos} for name in ("caltech101", "oxford_pets", "stanford_cars")},
    }
    text = "lr 0.01 of the paper's 0.1, 0.01 and 0.001."
    many: dict[str, Any] = {"turns": (1, 5, 10, 20), "crowd": 50, "more": more}
    return Size(scale, everything | more, common, 10, 1, (0.05, 0.25), 20, (10, 50, 100), text, **many)


# Who is run.


def contenders(size: Size, split: Split) -> dict[str, dict[str, Any]]:
    """The settings of every method of the study, by the name it has in the records."""
    k = size.epochs
    narrow = models("h0", size)[0]
    plain: dict[str, dict[str, Any]] = {name: {"use": name} for name in _AVERAGING}
    plain["dec-fedrolex-rolled"] = {
        "use": "dec-fedrolex",
        "protocol": {"lesson": {"name": "fedrolex", "order": "rolled"}},
    }
    work = {f"{name}{MORE}": {**own, "epochs": 1 + k} for name, own in plain.items()}
    return {
        **plain,
        **work,
        "fedavg": {"use": "fedavg", "objective": "wsm", "merged": True},
        "def-kt": {"use": "def-kt", "protocol": {"lesson": {"name": "def_kt", "epochs": 1}}},
        f"def-kt{MORE}": {"use": "def-kt", "protocol": {"lesson": {"name": "def_kt", "epochs": k}}},
        "fml": {"use": "fml", "protocol": {"meme": narrow}},
        f"fml{MORE}": {"use": "fml", "protocol": {"meme": narrow, "epochs": 1 + k}},
        **_mutual(size, split),
        **_ours(size),
    }


_AVERAGING = ("dec-fedavg", "dec-fedprox", "dec-heterofl", "dec-fedrolex", "dec-dropout")


def lesson(size: Size, **settings: Any) -> dict[str, Any]:
    """DFML with these settings of its lesson."""
    return {"use": "dfml", "protocol": {"lesson": {"name": "mutual", "epochs": size.epochs, **settings}}}


def wandering(size: Size, **settings: Any) -> dict[str, Any]:
    """DFML with these settings of its protocol."""
    return {"use": "dfml", "protocol": {**lesson(size)["protocol"], **settings}}


def _mutual(size: Size, split: Split) -> dict[str, dict[str, Any]]:
    """DFML, and DFML with one thing changed. With cross-entropy on skewed data α goes up to 1, as in the paper."""
    high = 1.0 if split == "dir" else 0.9
    ce = {"objective": "cross_entropy"}
    found = {
        "dfml": lesson(size),
        "ace": {**lesson(size), "objective": "ace"},
        "ce": {**lesson(size, high=high), **ce},
        "half": lesson(size, schedule="half"),
        "ce-half": {**lesson(size, high=high, schedule="half"), **ce},
        "top-3": lesson(size, peaks="top", top=3),
        "supervision": lesson(size, schedule="fixed", high=0.0),
        "vanilla": lesson(size, learners="own"),
        "equal": lesson(size, weights="equal"),
        "still": wandering(size, walks=False),
        "period-10": lesson(size, growth=0),
        "ce-wsl": {**lesson(size, schedule="fixed", high=0.5, samples="wsl"), **ce},
        "ce-anl": {**lesson(size, schedule="falling", high=1.0), **ce},
    }
    for alpha in (0.5, 1.0):
        found[f"fixed-{alpha:g}"] = lesson(size, schedule="fixed", high=alpha)
        found[f"ce-fixed-{alpha:g}"] = {**lesson(size, schedule="fixed", high=alpha), **ce}
    for part in ("supervision", "distillation", "both"):
        found[f"ce-{part}"] = {**lesson(size, high=high, varies=part), **ce}
    for epochs in size.turns:
        found[f"K={epochs}"] = lesson(size, epochs=epochs)
    for share in size.shares:
        top = max(1, round(0.5 / share))
        taught = lesson(size, peaks="top", top=top)["protocol"]["lesson"]
        found[f"dfml-{share:g}"] = wandering(size, lesson=taught, share=share)
        found[f"dec-fedavg-{share:g}"] = {"use": "dec-fedavg", "protocol": {"share": share}}
    return found


def _ours(size: Size) -> dict[str, dict[str, Any]]:
    """What contenders of our own are; those that are DFML with one thing changed are there already."""
    taught = {"epochs": size.epochs}
    witnessed = {"name": "witnessed", **taught}
    groups = {"name": "meetings", "senders": max(1, size.usual // 2 - 1)}
    return {
        "witnessed": wandering(size, lesson=witnessed),
        "corrected": wandering(size, lesson={"name": "corrected", **taught}),
        "corrected-ce": {**wandering(size, lesson={"name": "corrected", **taught}), "objective": "cross_entropy"},
        "narrowed": wandering(size, lesson={"name": "corrected", "strength": -1.0, **taught}),
        "united": {**wandering(size, lesson={"name": "united", **taught}), "initialiser": "common"},
        "dfml-common": {**lesson(size), "initialiser": "common"},
        "meetings": {"use": "dfml", "protocol": {**groups, **lesson(size)["protocol"]}},
        "meetings-witnessed": {"use": "dfml", "protocol": {**groups, "lesson": witnessed}},
        "mentors": {
            "use": "dfml",
            "protocol": {"name": "mentors", "lesson": {"name": "mutual", "learners": "own", **taught}},
        },
    }


# Models.

_TINY = {
    "h0": "mlp[8]",
    "h1": "mlp[16,16],mlp[8,8]",
    "h2": "mlp[16,8],mlp[16],mlp[8]",
    "h1-resnet": "mlp[8,8],mlp[4,4]",
    "fig6": "mlp[16,8],mlp[16],mlp[8],logistic",
}
"""What stands for the mixes where runs take a moment."""


def models(mix: str, size: Size) -> list[dict[str, Any]]:
    """The models of a mode, as wide as the study's size has them."""
    narrower = f"/{size.divisor}" if size.divisor > 1 else ""
    found = slots(_TINY[mix] if size.scale == "smoke" else mix + narrower)
    return [as_table(slot) for slot in (found if isinstance(found, list) else [found])]
