"""The walk of examples/three_peers.py, on namespaces where they can be made."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import three_peers

REASON = three_peers.why_not()


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_three_peers_one_behind_a_router(tmp_path: Path) -> None:
    assert three_peers.main(tmp_path / "walk") > 0.8  # alone, nobody knows more than four of ten digits
