"""What the study of deployments runs: five families of models, how their data are dealt out, and at what size."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.config.configuration import Configuration
from coterie.report.convergence import Flatness
from coterie.runs.exhibits import Scale

DEPLOYMENTS = {
    "continuous-linear": "continuous linear",
    "continuous-ring": "continuous ring",
    "aggregate-linear": "aggregate linear",
    "aggregate-ring": "aggregate ring",
    "star": "star",
    "mesh": "mesh",
}
RELAYS = tuple(DEPLOYMENTS)[:4]
BASELINE = "one machine"
IID = "iid"


@dataclass(frozen=True)
class ModelFamily:
    """A kind of model with its data and settings: how it is trained in every deployment."""

    title: str
    settings: Mapping[str, Any]
    budget: int
    """E: the epochs of a model in all."""
    score: str
    """The column of the records by which it is judged; validation losses tell when it has converged."""
    levels: tuple[int, ...]
    """Levels of skew, beside the complete data on every device."""
    scaled: str
    flatness: Flatness = field(default_factory=Flatness)

    @property
    def splits(self) -> dict[str, str]:
        """How data are dealt out: name and title."""
        return {IID: "IID", **{f"level{level}": f"level {level}" for level in self.levels}}

    def run(self, split: str, **own: Any) -> Configuration:
        """All six deployments on one split; with some settings of its own."""
        dealt = "everything" if split == IID else {"name": "skew", "level": int(split.removeprefix("level"))}
        start = {"initialiser": self.settings["initialiser"]} if "initialiser" in self.settings else {}
        methods = {name: {"use": name, **start} for name in DEPLOYMENTS}
        settings = {**self.settings, **MEASURED, **own}
        return Configuration(**settings, nodes=5, partition=dealt, budget=self.budget, methods=methods)

    def convex(self, split: str) -> Configuration:
        """The same with a loss that is smooth and strongly convex, of which theory speaks."""
        sgd = {**self.settings["optimiser"], "weight_decay": 0.01, "decay_biases": False}
        smooth = {"objective": {"name": "hinge", "squared": True}} if "objective" in self.settings else {}
        return self.run(split, optimiser=sgd, measures=(), seeds=self.settings["seeds"][:3], **smooth)

    def alone(self) -> Configuration:
        """One machine with all data."""
        method = {"use": "isolation", "renew_optimiser": True}
        return Configuration(
            **self.settings,
            nodes=1,
            partition="everything",
            rounds=1,
            epochs=self.budget,
            methods={BASELINE: method},
            **MEASURED,
        )


MEASURED: dict[str, Any] = {"measures": ("epochs",), "evaluate": 1}


def families(scale: Scale) -> dict[str, ModelFamily]:
    """The families at a scale."""
    seeds = {"smoke": (10, 11), "laptop": tuple(range(10, 20)), "paper": tuple(range(10, 20))}[scale]
    return {**_linear(scale, seeds), **_deep(scale, seeds[:3])}


def _linear(scale: Scale, seeds: tuple[int, ...]) -> dict[str, ModelFamily]:
    """Two convex families at the paper's own size, except where runs only show that they run."""
    smoke = scale == "smoke"
    data: dict[str, Any] = {
        "dataset": {"name": "breast_cancer", "test_share": 0.1},
        "validation": 0.111,
        "optimiser": {"name": "sgd", "lr": 1e-3 if smoke else 1e-5, "momentum": 0.0},
        "batch_size": 1,
        "initialiser": "zeros",
        "metrics": ({"name": "f1", "average": "binary"}, "loss"),
        "seeds": seeds,
    }
    text = "Here: the paper's size, lr and epochs, five devices; its split of 455, 57 and 57 samples is drawn anew."
    if smoke:
        text = "Here: 20 epochs at a hundredfold lr: whether it runs, not what it shows."
    kinds: dict[str, tuple[str, dict[str, Any], int]] = {
        "svm": ("SVM", {"model": {"name": "svm", "one": True}, "objective": "hinge"}, 500),
        "logistic": ("logistic regression", {"model": {"name": "logistic", "one": True}}, 1000),
    }
    return {
        name: ModelFamily(title, {**data, **own}, 20 if smoke else budget, "test_f1", (1, 2, 3), text)
        for name, (title, own, budget) in kinds.items()
    }


def _deep(scale: Scale, seeds: tuple[int, ...]) -> dict[str, ModelFamily]:
    """The three families of deep models: small where the paper's would take days, and images alone in a test."""
    judged: dict[str, Any] = {"seeds": seeds, "validation": 0.1, "metrics": ("f1", "accuracy", "loss")}
    # Batch norm takes a few images at the end of an epoch for the whole: no device has an epoch end in fewer than 20.
    images, texts = {**judged, "batch_size": 120}, {**judged, "batch_size": 16}
    talks = {**judged, "batch_size": 12, "metrics": ("strict", "lenient", "loss")}
    every, brief = (1, 2, 3, 4, 5), Flatness(window=2, patience=2)
    if scale == "smoke":
        images |= {"dataset": "digits", "total": 300, "model": {"name": "resnet18", "channels": (2, 2, 2, 2)}}
        images |= {"optimiser": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}
        text = "Here: digits and two channels, whether it runs; transformers have runs at the larger scales only."
        return {"resnet": ModelFamily("ResNet-18", images, 10, "test_f1", (2, 3), text, brief)}
    if scale == "laptop":
        images |= {"dataset": "mnist", "total": 2000, "test_share": 0.1}
        images |= {"model": {"name": "resnet18", "channels": (8, 16, 32, 64)}}
        images |= {"optimiser": {"name": "sgd", "lr": 0.01, "momentum": 0.9}}
        texts |= {"dataset": {"name": "trec6", "length": 16}, "total": 1200}
        texts |= {"model": {"name": "distilbert", "width": 64, "layers": 2, "heads": 4}}
        texts |= {"optimiser": {"name": "adamw", "lr": 1e-3}}
        talks |= {"dataset": "patterns", "model": "minigpt"}
        talks |= {"optimiser": {"name": "cosine", "of": "adamw", "lr": 1e-3, "floor": 3e-4, "start": 1e-4}}
        wide = (
            "Here: an eighth as wide, 2,000 images, batches of 120, 10 epochs, lr 0.01, momentum 0.9. Paper: all "
            "images, batches of 64, 100 epochs, lr 0.001."
        )
        small = (
            "Here: random weights, 2 layers of width 64, 1,200 questions of 16 word pieces, 10 epochs, AdamW at 0.001. "
            "Paper: pre-trained, all questions, 20 epochs, SGD at 1e-5."
        )
        tiny = (
            "Here: a tiny pair that we pre-train ourselves, ten patterns instead of photographs, 10 epochs, AdamW "
            "along a cosine from 1e-3. Paper: MiniGPT-4, 150 epochs."
        )
        return {
            "resnet": ModelFamily("ResNet-18", images, 10, "test_f1", every, wide, brief),
            "distilbert": ModelFamily("DistilBERT", texts, 10, "test_f1", every, small, brief),
            "minigpt": ModelFamily("vision-language model", talks, 10, "test_strict", (), tiny, brief),
        }
    images |= {"dataset": "mnist", "model": "resnet18", "optimiser": {"name": "sgd", "lr": 1e-3, "momentum": 0.0}}
    images |= {"batch_size": 71}
    texts |= {"dataset": "trec6", "model": "distilbert", "optimiser": {"name": "adamw", "lr": 1e-5}}
    talks |= {"dataset": "patterns", "model": "minigpt"}
    talks |= {"optimiser": {"name": "cosine", "of": {"name": "adamw", "weight_decay": 0.05}, "lr": 3e-5}}
    small = "AdamW: SGD at 1e-5 does not train it. A small model with random weights stands for the pre-trained one."
    alone = "Batches of 71: 64 would leave some devices a single image at the end of an epoch, too few for batch norm."
    tiny = "Ten patterns stand for the paper's photographs, and a tiny pair for its model."
    return {
        "resnet": ModelFamily("ResNet-18", images, 100, "test_f1", every, alone),
        "distilbert": ModelFamily("DistilBERT", texts, 20, "test_f1", every, small, brief),
        "minigpt": ModelFamily("vision-language model", talks, 150, "test_strict", (), tiny),
    }
