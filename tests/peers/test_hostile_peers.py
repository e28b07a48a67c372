"""Peers over real wires, one of which lies: the others go on, name it, and end with sound models."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from coterie.errors import RunError
from coterie.node.sums import Packet
from coterie.peers.runtime import PeerConfig, PeerRuntime
from peering import given, kept, run, together

HUGE = 9.99e11


def lying(peer: PeerRuntime, fields: Any, size: float | None) -> None:
    """Let a peer say something else of every model that it sends."""
    send = peer.send

    def lie(sender: int, to: list[int], tag: str, packet: Packet | None) -> None:
        if packet is not None and packet.message.fields:
            said = {name: fields(name, field) for name, field in packet.message.fields.items()}
            told = packet.message.size if size is None else torch.tensor([size])
            packet = replace(packet, message=replace(packet.message, fields=said, size=told))
        send(sender, to, tag, packet)

    peer.send = lie  # type: ignore[method-assign]


def suffered(crew: list[PeerConfig], fields: Any, size: float | None = None) -> list[PeerRuntime]:
    """Run peers of which the last lies."""
    kept: list[PeerRuntime] = []

    async def beside(running: list[PeerRuntime]) -> None:
        kept.extend(running)

    async def scene() -> None:
        await together(crew, beside)

    begin = PeerRuntime.__init__

    def begun(self: PeerRuntime, config: PeerConfig) -> None:
        begin(self, config)
        if config is crew[-1]:
            lying(self, fields, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PeerRuntime, "__init__", begun)
        run(scene())
    return kept


def lines(config: PeerConfig, event: str) -> list[dict[str, Any]]:
    found = map(json.loads, (config.folder / "log.jsonl").read_text().splitlines())
    return [line for line in found if line["event"] == event]


def enormous(name: str, field: Tensor) -> Tensor:
    return torch.full_like(field, 1e4)


@pytest.mark.parametrize("rule", ["decavg", "dechw"])
def test_enormous_models_are_refused_by_name_and_nobody_keeps_any_of_them(rule: str, tmp_path: Path) -> None:
    crew = given(tmp_path, rule=rule)
    running = suffered(crew, enormous)
    for config, peer in zip(crew[:2], running, strict=False):
        about, state, _ = kept(config)
        assert about["round"] == "3"
        assert state["0/matrix"].abs().max() < 10
        refused = peer.status.neighbours["node-2"].refusals
        assert refused["too-large"] + refused["range"] > 0  # and what comes late, as nobody waits for it any more
        assert {line["neighbour"] for line in lines(config, "refused")} == {"node-2"}


def test_a_lie_about_the_data_size_is_cut_where_nobody_can_know_and_refused_where_all_do(tmp_path: Path) -> None:
    for introduced in (True, False):
        crew = given(tmp_path / str(introduced), {"introduced": introduced})
        running = suffered(crew, lambda name, field: field + 1, HUGE)
        assert (running[0].status.neighbours["node-2"].refusals["size"] > 0) == (not introduced)
        told = lines(crew[0], "strange")
        assert [line["neighbour"] for line in told] == (["node-2"] if introduced else [])
        assert all(f"says that it has {HUGE:g} samples" in line["detail"] for line in told)


def test_a_model_that_is_not_finite_is_not_kept(tmp_path: Path) -> None:
    """Whatever made it so: the checkpoint before it stands, and the peer goes on from that."""
    (config, *_) = crew = given(tmp_path)
    run(together(crew))
    peer = PeerRuntime(config)
    assert peer.keeper.restore(peer.journal) == 3
    peer.node.params[5] = torch.nan
    with pytest.raises(RunError, match="the model is not finite after round 4"):
        peer.keeper.save(4, peer.journal)
    assert kept(config)[0]["round"] == "3"
