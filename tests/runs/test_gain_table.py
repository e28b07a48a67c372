"""What `coterie graph --estimates` prints."""

import re

import pytest

from coterie.app.cli import main
from coterie.network.graph import Graph, draw
from coterie.parts import find
from coterie.runs.gain_table import gain_table
from coterie.topologies import topology


def test_guesses_are_near_the_truth_and_say_how_far() -> None:
    graph = draw(find("topologies", "er").make(p=0.1).draw, 100, 0, connect=True)
    found = gain_table(graph, find("topologies", "er").make(p=0.1))
    for name in ("gain by n^0.5", "gain by 100 degrees on a walk"):
        guess, error = re.findall(r"[-+.\d]+", str(found[name]))
        assert float(guess) / graph.gain() - 1 == pytest.approx(float(error) / 100, abs=2e-3)
        assert abs(float(error)) < 15
    assert int(str(found["gossip: rounds to 5 % everywhere"])) <= 8
    assert float(str(found["push-sum: worst error after 20"]).split()[0]) < 5


def test_a_network_that_mixes_slowly_says_so() -> None:
    ring = find("topologies", "ring").make()
    found = gain_table(draw(ring.draw, 60, 0), ring)
    assert found["push-sum: rounds to 5 % everywhere"] == "more than 20"
    assert found["gain by n^0.5"] == "7.746 (+0.0 %)"
    assert "gain by n^0.5" in gain_table(Graph.from_edges(3, [(0, 1), (1, 2)]), topology(ring.draw))


def test_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "ba", "--nodes", "30", "--m", "2", "--estimates"]) == 0
    assert "gossip: rounds to 5 % everywhere" in capsys.readouterr().out
