"""What a peer writes down: one event a line, no secrets, and no way for others to forge one."""

import json
import logging
import re
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import PeerError
from coterie.net import logs
from statuses import NASTY

KEY = "-----BEGIN PRIVATE KEY-----\nMIGH"


@pytest.fixture
def log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> logging.Logger:
    """A log whose stderr is captured."""
    return logs.setup(tmp_path, "alice", verbose=False)


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / logs.FILE).read_text().splitlines()]


def test_an_event_is_one_json_line(log: logging.Logger, tmp_path: Path) -> None:
    logs.say(log, logging.INFO, "merged", round=3, heard=4)
    log.info("merged", extra={"fields": {"round": 4}})
    first, second = written(tmp_path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {"level": "info", "event": "merged", "peer": "alice", "round": 3, "heard": 4}
    assert second["round"] == 4


@given(st.text(st.characters(), max_size=600))
def test_no_text_breaks_a_line(text: str) -> None:
    cleaned = logs.clean(text)
    assert cleaned.isprintable()
    assert len(cleaned) <= 10 * logs.LINE
    assert text == cleaned or len(text) > logs.LINE or not text.isprintable()


def test_text_from_elsewhere_stays_one_event(
    log: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.say(log, logging.WARNING, NASTY, detail=NASTY * 1000, **{NASTY: 1, "level": "info", "peer": "mallory"})
    (line,) = written(tmp_path)
    assert (line["level"], line["peer"]) == ("warning", "alice")
    assert (line["level_"], line["peer_"]) == ("info", "mallory")
    assert len(json.dumps(line)) < 4000
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_neither_tensors_nor_keys_are_logged(log: logging.Logger, tmp_path: Path) -> None:
    values = {"tensor": torch.ones(3), "inside": [torch.ones(2)], "raw": b"secret", "pem": KEY, "bad": float("nan")}
    logs.say(log, logging.INFO, "odd", **values, deep={"a": {"b": {"c": {"d": KEY}}}})
    logs.say(log, logging.INFO, KEY)
    text = (tmp_path / logs.FILE).read_text()
    assert "MIGH" not in text
    assert "secret" not in text
    assert "1." not in text.replace(written(tmp_path)[0]["time"], "").replace(written(tmp_path)[1]["time"], "")
    line = written(tmp_path)[0]
    assert (line["tensor"], line["inside"], line["raw"]) == ("<Tensor>", ["<Tensor>"], "<bytes>")
    assert (line["pem"], line["bad"]) == ("<withheld>", "nan")


def test_an_error_is_told_with_its_place(log: logging.Logger, tmp_path: Path) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("broke", extra={"fields": {"round": 2}})
    (line,) = written(tmp_path)
    assert line["error"] == r"ValueError: two\nlines"
    assert line["where"][-1].startswith("test_logs.py:")


@pytest.mark.parametrize(("verbose", "heard"), [(False, ["slow"]), (True, ["merged", "slow"])])
def test_people_hear_what_matters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verbose: bool, heard: list[str]
) -> None:
    made = logs.setup(tmp_path, "alice", verbose)
    logs.say(made, logging.INFO, "merged", accuracy=0.123456)
    logs.say(made, logging.WARNING, "slow", neighbour="bob")
    lines = capsys.readouterr().err.splitlines()
    assert [event for event in ("merged", "slow") if any(event in line for line in lines)] == heard
    assert lines[-1].endswith("alice: warning: slow (neighbour bob)")


def test_to_set_up_twice_does_not_log_twice(tmp_path: Path) -> None:
    theirs = logging.NullHandler()
    logs.setup(tmp_path / "old", "a", verbose=False).addHandler(theirs)
    made = logs.setup(tmp_path / "new", "a", verbose=False)
    logs.setup(tmp_path / "inner", "a.b", verbose=False).info("once")
    made.info("again")
    assert [line["event"] for line in written(tmp_path / "new")] == ["again"]
    assert written(tmp_path / "old") == []
    assert theirs in made.handlers, "a handler that others added is theirs"


def test_a_log_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LARGEST", 1000)
    made = logs.setup(tmp_path, "alice", verbose=False)
    for i in range(100):
        logs.say(made, logging.INFO, "merged", round=i)
    assert len(list(tmp_path.iterdir())) == logs.FILES
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert written(tmp_path)[-1]["round"] == 99


def test_a_full_disk_is_told_once_and_stops_nobody(
    log: logging.Logger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(record: logging.LogRecord) -> bool:
        raise OSError(28, "No space left on device")

    file = next(h for h in log.handlers if isinstance(h, RotatingFileHandler))
    monkeypatch.setattr(file, "shouldRollover", full)
    for _ in range(3):
        logs.say(log, logging.INFO, "merged")
    assert capsys.readouterr().err.count("No space left") == 1


def test_half_a_line_of_a_process_that_was_killed_on_a_full_disk_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / logs.FILE).write_text('{"event": "round"}\n{"event": "rou')
    logs.say(logs.setup(tmp_path, "alice", verbose=False), logging.INFO, "going on")
    first, half, last = (tmp_path / logs.FILE).read_text().splitlines()
    assert half == '{"event": "rou'
    assert [json.loads(line)["event"] for line in (first, last)] == ["round", "going on"]


def test_a_folder_that_cannot_be_is_an_error_with_a_cure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PeerError, match="may write to"):
        logs.setup(tmp_path / "file", "alice", verbose=False)


def test_warnings_can_be_followed_without_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = logs.setup(tmp_path, "alice", verbose=False, screen=False)
    logs.say(old, logging.WARNING, "of yesterday")
    tail = logs.Tail(tmp_path)
    assert tail.warnings() == []
    logs.say(old, logging.INFO, "merged")
    logs.say(old, logging.WARNING, "missed the deadline", neighbour="bob", round=3)
    logs.say(old, logging.ERROR, "no checkpoint", round=3)
    logs.say(old, logging.ERROR, logs.END)  # told by whoever started the peer
    with (tmp_path / logs.FILE).open("a") as file:
        file.write("half a li")
        file.flush()
        told = ["alice: warning: missed the deadline (neighbour bob, round 3)", "alice: error: no checkpoint (round 3)"]
        assert tail.warnings() == told
        file.write("ne\n")
    assert tail.warnings() == []
    (tmp_path / logs.FILE).write_text('{"peer": "alice", "level": "warning", "event": "anew"}\n')
    assert tail.warnings() == ["alice: warning: anew"]
    assert logs.Tail(tmp_path / "nowhere").warnings() == []
    assert capsys.readouterr().err == ""


def test_what_happens_all_day_is_told_more_and_more_seldom() -> None:
    now = 0.0
    seldom, told = logs.Seldom(lambda: now), []
    for _ in range(24 * 3600 * 10):  # ten times a second
        if times := seldom.due("refused", "bob", "shape"):
            told.append((round(now), times))
        now += 0.1
    assert [when for when, _ in told[:6]] == [0, 1, 3, 7, 15, 31]
    assert len(told) < 12 + 24
    assert told[0][1] == 1
    assert sum(times for _, times in told) == pytest.approx(24 * 3600 * 10, rel=0.1)
    assert not seldom.due("refused", "bob", "shape")
    assert seldom.due("refused", "bob", "size") == 1  # another thing
    now += 2 * 3600
    assert seldom.due("refused", "bob", "shape")
    now += 1.0
    assert seldom.due("refused", "bob", "shape") == 1  # it is news again


def test_who_comes_every_few_seconds_is_told_more_and_more_seldom_as_well() -> None:
    now = 0.0
    seldom, told = logs.Seldom(lambda: now), 0
    for _ in range(24 * 1200):  # after each pause that doubles there is one of three seconds
        told += bool(seldom.due("gone", "bob"))
        now += 3.0
    assert told < 12 + 24


def test_what_libraries_tell_of_each_call_that_fails_is_told_seldom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # a peer that starts again
        logs.setup(tmp_path, "alice", verbose=False)
    for library in logs.LIBRARIES:
        caplog.clear()
        for number in range(100):
            logging.getLogger(library).error(f"a call failed in it\ntask {number}")
        assert len(caplog.records) == 1
