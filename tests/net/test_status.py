"""What a peer shows of itself: true, well-formed, and safe whatever a neighbour said."""

import asyncio
import io
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from coterie.app import peer_status
from coterie.app.cli import main
from coterie.app.watch import table
from coterie.errors import PeerError
from coterie.net import web
from coterie.net.status import FILE, NeighbourStatus, Status, announce, metrics, read
from statuses import NASTY, example, row, visiting


def test_a_status_survives_json_with_lags_and_counts() -> None:
    status = example()
    status.add_error("disk full")
    said = json.loads(json.dumps(status.as_dict(), allow_nan=False))
    assert said["round"] == 7
    assert said["pid"] == os.getpid()
    assert {name: n["lag"] for name, n in said["neighbours"].items()} == {"bob": 0, "carol": 3, "dave": None}
    assert said["neighbours"]["carol"]["refusals"] == {"not-finite": 1, "shape": 2}
    assert said["neighbours"]["carol"]["last_refusal"] == "shape: 3 for 4"
    assert [e["text"] for e in said["errors"]] == ["disk full"]


def test_what_is_not_finite_becomes_nothing() -> None:
    status = example()
    status.accuracy, status.round_seconds = float("nan"), float("inf")
    said = json.loads(json.dumps(status.as_dict(), allow_nan=False))
    assert said["accuracy"] is None
    assert said["round_seconds"] is None


def test_the_latest_errors_are_kept_and_no_more() -> None:
    status = Status("alice")
    for i in range(50):
        status.add_error(i)
    assert [e["text"] for e in status.as_dict()["errors"]] == [str(i) for i in range(30, 50)]


LABEL = r'[a-z_]+="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"(coterie_[a-z_]+)(?:\{{({LABEL}(?:,{LABEL})*)\}})? (NaN|[+-]Inf|-?[0-9.e+-]+)")


def parsed(text: str) -> dict[str, float]:
    """The samples by name and labels, after checking every line and the order of the families."""
    assert text.endswith("\n")
    samples: dict[str, float] = {}
    kinds: dict[str, str] = {}
    family = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in kinds, "a family must stand together"
        elif line.startswith("# TYPE "):
            _, _, name, kinds[family] = line.split(" ")
            assert name == family
            assert (kinds[name] == "counter") == name.endswith("_total")
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] == family
            key = line.rpartition(" ")[0]
            assert key not in samples
            samples[key] = float(found[3])
    return samples


def test_metrics_tell_what_the_status_says() -> None:
    samples = parsed(metrics(example()))
    assert samples["coterie_round"] == 7
    assert samples["coterie_accuracy"] == 0.75
    assert samples['coterie_score{metric="accuracy"}'] == 0.75
    assert samples["coterie_sent_bytes_total"] == 1400
    assert samples['coterie_state{state="training"}'] == 1
    assert sum(v for k, v in samples.items() if k.startswith("coterie_state")) == 1
    assert samples['coterie_neighbour_alive{neighbour="carol"}'] == 0
    assert samples['coterie_neighbour_lag_rounds{neighbour="carol"}'] == 3
    assert samples['coterie_neighbour_refusals_total{neighbour="carol",reason="shape"}'] == 2
    assert samples['coterie_neighbour_missed_deadlines_total{neighbour="carol"}'] == 3


def test_metrics_leave_out_what_is_not_known() -> None:
    samples = parsed(metrics(Status("alice", neighbours={"dave": NeighbourStatus("dave")})))
    assert "coterie_accuracy" not in samples
    assert 'coterie_neighbour_round{neighbour="dave"}' not in samples
    assert samples['coterie_neighbour_received_messages_total{neighbour="dave"}'] == 0


@given(st.text(), st.text(), st.floats())
def test_metrics_are_well_formed_whatever_the_names(name: str, method: str, accuracy: float) -> None:
    status = Status(name, method=method, accuracy=accuracy, neighbours={name: NeighbourStatus(name, alive=True)})
    status.neighbours[name].refuse(method)
    samples = parsed(metrics(status))
    assert sum(k.startswith("coterie_neighbour_alive{") for k in samples) == 1


def test_an_announced_status_is_read_past_any_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    async def visit(server: web.Server) -> Any:
        announce(tmp_path / "home", server.port)
        return await asyncio.to_thread(read, tmp_path / "home")

    assert visiting(visit)["name"] == "alice"
    assert [p.name for p in (tmp_path / "home").iterdir()] == [FILE], "nothing half-written is left"
    assert read(tmp_path / "home") is None, "it has been closed"


def test_one_that_listens_everywhere_is_found(tmp_path: Path) -> None:
    async def visit(server: web.Server) -> Any:
        announce(tmp_path, server.port, server.host)
        return await asyncio.to_thread(read, tmp_path)

    assert visiting(visit, host="0.0.0.0")["name"] == "alice"


def test_another_process_at_the_port_does_not_pass_for_the_peer(tmp_path: Path) -> None:
    async def visit(server: web.Server) -> Any:
        (tmp_path / FILE).write_text(json.dumps({"port": server.port, "pid": os.getpid() + 1}))
        return await asyncio.to_thread(read, tmp_path)

    assert visiting(visit) is None


def test_what_stands_where_it_is_to_be_announced_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(PeerError, match="move away what stands there"):
        announce(tmp_path, 1)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"port": "x", "pid": 1}', '{"port": 99999999, "pid": 1}', "\xff"])
def test_a_damaged_announcement_is_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    assert read(tmp_path) is None
    assert read(tmp_path / "nowhere") is None


def test_a_listener_that_never_answers_is_nobody(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        announce(tmp_path, mute.getsockname()[1])
        assert read(tmp_path, patience=0.05) is None


def printed(thing: Any, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, markup=False, highlight=False).print(thing)
    return out.getvalue()


def test_the_table_shows_neighbours_and_troubles() -> None:
    status = example()
    status.add_error("checkpoint: disk full")
    text = printed(table(status.as_dict()))
    assert "alice: training, round 7 of 20, accuracy 0.750, 1 of 3 neighbours alive" in text
    assert row(text, "bob")[1:4] == ["yes", "7", "0"]
    assert row(text, "carol")[1:5] == ["no", "4", "3", "never"]
    assert "1 not-finite, 2 shape" in text
    assert row(text, "dave")[2:4] == ["—", "—"]
    assert "carol: connection refused" in text
    assert "checkpoint: disk full" in text


def test_no_text_from_elsewhere_steers_the_terminal() -> None:
    status = example()
    status.neighbours[NASTY] = NeighbourStatus(NASTY, last_error=NASTY)
    status.add_error(NASTY)
    text = printed(table(status.as_dict()), width=300)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]" in text


def test_the_command_prints_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def visit(server: web.Server) -> Any:
        (tmp_path / "peer.toml").touch()
        (tmp_path / "run").mkdir()
        announce(tmp_path / "run", server.port)
        asked = ["peer", "status", "--home", str(tmp_path)]
        return [await asyncio.to_thread(main, [*asked, *more]) for more in ([], ["--csv"], ["--json"])]

    assert visiting(visit) == [0, 0, 0]
    shown, _, rest = capsys.readouterr().out.partition("\n{")
    assert "carol" in shown
    assert "neighbour,name," in shown
    assert json.loads("{" + rest)["name"] == "alice"


def test_the_command_tells_no_peer_from_a_silent_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path))
    with pytest.raises(PeerError, match=r"no peer lives here.*coterie peer init"):
        peer_status.status()
    (tmp_path / "peer.toml").touch()
    with pytest.raises(PeerError, match="does not answer"):
        peer_status.status()
