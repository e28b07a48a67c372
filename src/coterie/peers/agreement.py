"""Which settings of peers must be alike, and what they may say to each other once these are."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coterie.config.configuration import Configuration
from coterie.config.slots import as_table, choice
from coterie.contract import Me, Message
from coterie.job import Job
from coterie.net.wire import Expected
from coterie.node.node import Node
from coterie.node.placing import at_work
from coterie.node.training import RowData, Trainer
from coterie.parts import find
from coterie.protocols import Protocol

SHARED = (
    "model",
    "rule",
    "protocol",
    "initialiser",
    "merge_first",
    "objective",
    "optimiser",
    "keep_optimiser",
    "renew_optimiser",
    "clamp",
    "clip",
    "rounds",
    "links",
    "presence",
    "outage",
    "absence",
    "joins",
    "leaves",
)
"""Settings that neighbours must have in common; what is not here is each peer's own business."""


def shared(settings: Configuration, protocol: Protocol | None = None, **more: Any) -> dict[str, str]:
    """The settings that neighbours compare, and more that they must have in common, each as JSON.

    The protocol is that of the settings, unless it is one that no settings can name.
    """
    counts = (protocol or choice("protocol", as_table(settings.protocol)).make()).counts_epochs
    return {key: json.dumps(value, sort_keys=True) for key, value in _compared(settings.model_dump(), counts, more)}


def written(settings: Mapping[str, Any]) -> dict[str, str]:
    """The same of settings that others wrote down, as their file has them: none of the parts that it names is touched.

    What they name may be anybody's code, so parts of their own are compared by name, and not looked for.
    """
    engine, protocol = as_table(settings["engine"]), str(as_table(settings["protocol"])["name"])
    more = {"seed": settings["seeds"][0]} | {f"engine.{k}": engine.get(k) for k in ("mode", "half")}
    counts = ":" not in protocol and find("protocols", protocol).make().counts_epochs
    found = _compared(settings, counts, more, lambda own: own.replace("\\", "/").rpartition("/")[2])
    return {key: json.dumps(value, sort_keys=True, default=str) for key, value in found}


def _digest(own: str) -> str:
    """A user's own part: the text counts, not where it lies."""
    file, _, thing = own.rpartition(":")
    text = Path(file).read_bytes() if Path(file).exists() else b""
    return f"{Path(file).name}:{thing} {sha256(text).hexdigest()[:12]}"


def _compared(
    settings: Mapping[str, Any], epochs: bool, more: Mapping[str, Any], own: Callable[[str], str] = _digest
) -> Iterable[tuple[str, Any]]:
    """Each setting that neighbours must have in common, with its value; their `epochs` only if these are counted."""
    dump = _placeless(dict(settings))
    whole = {key: dump.get(key) for key in (*SHARED, *(("epochs", "batches") if epochs else ()))}
    return _flat(whole | {"topology.mixing": as_table(dump["topology"]).get("mixing", "data"), **more}, own)


def _placeless(value: Any) -> Any:
    """Settings without the folders in which weights lie: what is in them is compared, not where they are."""
    if not isinstance(value, dict):
        return [_placeless(v) for v in value] if isinstance(value, list | tuple) else value
    placed = {k for k, v in value.items() if k in ("weights", "tokenizer") and isinstance(v, str)}
    return {k: "a folder" if k in placed else _placeless(v) for k, v in value.items()}


def fixed(trainers: Iterable[Trainer]) -> dict[str, str]:
    """What neighbours compare of weights that do not travel, or that all begin with: a digest for each model."""
    found: dict[str, str] = {}
    for made in sorted((t.architecture for t in trainers if t.architecture.fixed), key=lambda a: a.signature):
        about = f"frozen or given weights of {made.name}"
        found[about] = " ".join([*([found[about]] if about in found else []), made.fixed])
    return found


def _flat(value: Any, own: Callable[[str], str], path: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, own, f"{path}.{key}" if path else key)
    else:
        yield path, own(value) if isinstance(value, str) and ".py:" in value else value


def code(trainer: Trainer) -> str:
    """A short name for an architecture: its tensors' names, shapes and types."""
    layout, buffers = trainer.architecture.layout, trainer.architecture.buffers
    whole = [trainer.architecture.name, layout.names, layout.shapes, buffers.names, buffers.shapes, "float32"]
    return sha256(json.dumps(whole).encode()).hexdigest()[:16]


def vocabulary(job: Job, node: Node, rounds: int, half: bool) -> Expected:
    """What neighbours may say: the fields that rule and protocol send, for every architecture of the configuration."""
    rule, said, optional = job.rule, {}, set[str]()
    for trainer in node.classmates.values():
        zeros = torch.zeros(trainer.architecture.layout.size)
        variants = [{"w": zeros}] if job.protocol.keeps else []
        if job.protocol.informed:
            variants.append({"w": zeros, "labels": torch.zeros(job.samples.classes)})
        for number in (1, rounds):
            me = _me(job, node.node, trainer, number)
            variants.append(rule.send(me, zeros, rule.init(me, zeros)))
        spoken = [variant for variant in variants if variant]  # who says nothing sends no fields at all
        fields = {name: tensor.numel() for variant in spoken for name, tensor in variant.items()}
        optional |= fields.keys() - set(fields).intersection(*spoken)
        if trainer.architecture.buffers.size:
            fields["buffers"] = trainer.architecture.buffers.size
        said[code(trainer)] = fields
    answers: dict[str, dict[str, int]] = {}
    if rule.answers:
        own = node.trainer
        with at_work(own):
            zeros, me = own.matrix.new_zeros(own.architecture.layout.size), own.me(node.row, 1)
            message = Message(rule.send(me, zeros, rule.init(me, zeros)), me.size, 1)
            answer = rule.answer(me, message, RowData(own, node.row))
        answers = {code: {} for code in said}  # other kinds do not answer, and say so
        answers[code(own)] = {name: tensor.numel() for name, tensor in answer.items()}
    exercised, told = job.protocol.says(job.samples.shape, job.samples.classes), job.protocol.tells(job.roster.nodes)
    special = {tag: dict.fromkeys(said, exercised.get(tag, {})) for tag in (*told, *exercised)}
    known = {name for fields in said.values() for name in fields}
    optional |= {name for fields in exercised.values() for name in fields} - known
    tags = job.protocol.tags
    return Expected(
        architectures=lambda tag: special.get(tag) or (answers if tag.endswith(" answer") else said),
        optional=frozenset(optional),
        tags=lambda tag: tags is None or tag in tags,
        half=half,
        numbers=lambda tag: told.get(tag, 0),
    )


def _me(job: Job, node: int, trainer: Trainer, round: int) -> Me:
    m = job.roster.me(np.array([node]), round, trainer.architecture.layout)
    return replace(m, **{name: getattr(m, name)[0].cpu() for name in ("node", "size", "degree", "labels")})
