"""The methods that every table carries: baselines, each rule with and without the gain, and rules of our own."""

from collections.abc import Iterable
from typing import Any

GOSSIP = {"name": "gain", "estimate": "gossip"}

BASELINES = {
    "centralised": "Centralised",
    "isolation": "Isolation",
    "fedavg": "FedAvg (server)",
    "decavg": "DecAvg, common start",
}
WITH_GAIN = {
    "gain-decavg": "gain + DecAvg",
    "gain-decavg-gossip": "gain by gossip + DecAvg",
    "gain-decavg-vt": "gain + DecAvg + VT",
    "gain-cfa": "gain + CFA",
    "gain-decdiff-vt": "gain (which is 1) + DecDiff+VT",
    "gain-dechw": "gain + DecHW",
}
OURS = {"agreed-start": "agreed start", "variance-corrected": "variance-corrected merge", "aligned": "aligned merge"}

_OWN: dict[str, dict[str, Any]] = {
    "gain-decavg-gossip": {"use": "gain-decavg", "initialiser": GOSSIP},
    "gain-decavg-vt": {"use": "gain-decavg", "objective": "virtual_teacher"},
    "gain-cfa": {"use": "cfa", "initialiser": "gain"},
    "gain-decdiff-vt": {"use": "decdiff-vt", "initialiser": "gain"},
    "gain-dechw": {"use": "dechw", "initialiser": "gain"},
}


def named(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The settings of these methods, by name, as `Configuration.methods` takes them."""
    return {name: _OWN.get(name, {}) for name in methods}
