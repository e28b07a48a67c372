"""What a peer's own terminal and log show while it runs."""

import io
import threading

import grpc
import pytest
from rich.console import Console

from coterie.app.peer_screen import PeerScreen, doing, listed
from coterie.app.progress import Rhythm
from coterie.net.dialling import in_words
from coterie.net.status import NeighbourStatus, Status


def alice(**more: object) -> Status:
    made = Status("alice", rounds=100, **more)  # type: ignore[arg-type]
    made.neighbours = {name: NeighbourStatus(name, "10.0.0.2:7001") for name in ("bob", "carol")}
    return made


def test_whom_a_peer_waits_for_is_said_by_name() -> None:
    status = alice()
    assert doing(status) == "waiting for bob and carol"
    status.neighbours["bob"].alive = True
    status.neighbours["carol"].last_error = "nobody listens"
    assert doing(status) == "waiting for carol (nobody listens)"
    status.state, status.round, status.score = "training", 7, 0.5
    assert doing(status) == "round 7 of 100, accuracy 0.500, without carol"
    assert doing(status, "gossip") == "agreeing with the neighbours on how to begin"
    status.state, status.neighbours["carol"].alive = "finished", True
    assert doing(status) == "finished; waiting for bob and carol to come to the end"
    assert listed(["a"]) == "a"
    assert listed(list("abcdefg")) == "a, b, c, d and 3 more"


def shown(terminal: bool) -> tuple[PeerScreen, io.StringIO]:
    out = io.StringIO()
    return PeerScreen(Console(file=out, force_terminal=terminal, width=100, highlight=False)), out


def test_a_log_says_whom_it_waits_for_once_and_then_how_far_it_is() -> None:
    screen, out = shown(False)
    status = alice()
    screen.attend(status, "training")
    screen.look(status)
    screen.look(status)
    status.state = "training"
    for name in status.neighbours.values():
        name.alive = True
    now = [0.0]  # three seconds a round: too soon for a line after the first
    screen.rhythm = Rhythm(lambda: now[0])
    for round in range(1, 100):
        status.round, now[0] = round, 2.9 * round
        screen.look(status)
    first, *lines = out.getvalue().splitlines()
    assert first == "waiting for bob and carol"
    assert [line.partition(" %")[0] for line in lines] == ["2", *(f"{10 * tenth}" for tenth in range(1, 10))]
    assert lines[4].startswith("40 %: round 40 of 100, about ")


def test_a_terminal_has_a_bar() -> None:
    screen, out = shown(True)
    status = alice(state="training", round=50, score=0.25)
    with screen:
        screen.attend(status, "training")
        screen.look(status)
    assert "round 50 of 100, accuracy 0.250, without bob and carol" in out.getvalue()
    screen.thread.join(5)
    assert screen.thread not in threading.enumerate()


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ("connections to all backends failing; Failed to connect to remote host: Connection refused", "nobody listens"),
        ("Failed to connect to remote host: Timeout occurred: FD Shutdown", "no answer"),
        ("DNS resolution failed for nowhere.example:7001", "name is not known"),
        ("Failed to connect to remote host: No route to host", "no way to that network"),
        ("Socket closed", "unavailable: Socket closed"),
    ],
)
def test_why_a_neighbour_cannot_be_reached_is_said_in_words(details: str, said: str) -> None:
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, details)
    assert said in in_words(error, "10.0.0.2:7001")
