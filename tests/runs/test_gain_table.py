"""What `coterie graph --estimates` prints."""

import re
from pathlib import Path

import numpy as np
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


def test_own_weights_and_settings_of_a_file_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hub.edges"
    file.write_text("".join(f"{i} 0\n0 {i}\n" for i in range(1, 40)) + "0 0 5\n1 2\n")
    own = np.where(np.arange(40) == 0, 5.0, 1.0)
    assert main(["graph", str(file), "--directed", "--estimates"]) == 0
    said = dict(re.findall(r"^(.+?)  +(.+?) *$", capsys.readouterr().out, re.MULTILINE))
    graph = find("topologies", "file").make(path=str(file), directed=True).draw(40, np.random.default_rng(0))
    exact = graph.gain(own=own)
    assert abs(exact / graph.gain() - 1) > 0.05
    assert float(said["gain"]) == pytest.approx(exact, rel=1e-3)
    guess, error = re.findall(r"[-+.\d]+", said["gain by n^0.5"])
    assert float(guess) / exact - 1 == pytest.approx(float(error) / 100, abs=2e-3)
