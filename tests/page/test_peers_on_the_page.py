"""The page of peers: what they say of themselves and of neighbours, whatever neighbours call themselves or say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browsing import Watched, browser, site
from coterie.errors import PeerError
from coterie.net import status
from coterie.net.identity import Home
from coterie.page.peers import PeersShown
from runs import NASTY, evaluation, event, journal
from statuses import example


def hostile(value: Any) -> Any:
    """The same with markup in every string, keys too."""
    if isinstance(value, dict):
        named = ("bob", "carol", "dave", "shape")
        return {f"{key}{NASTY}" if key in named else key: hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return value + NASTY if isinstance(value, str) else value


@pytest.fixture
def shown(homes: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch) -> PeersShown:
    """Two peers: alice, whose every word is markup, and one who does not answer."""
    paths = [homes(name).path for name in ("alice", "quiet")]
    about = {"method": NASTY, "seed": 0, "peer": "alice", "node": 0}
    (paths[0] / "run").mkdir(exist_ok=True)
    told = [
        event("begin", **about, round=0, rounds=4, neighbours=["bob"]),
        evaluation(NASTY, 0, 1, [0.5]),
        event("fault", **about, round=1, refused={f"bob{NASTY}": {f"shape{NASTY}": 2}}),
        event("fault", **about, round=1, gone=[f"carol{NASTY}"]),
        event("warning", **about, round=1, text=NASTY),
    ]
    journal(paths[0] / "run", *told)
    said = example()
    said.add_error("no route")
    alice = hostile(said.as_dict())
    monkeypatch.setattr(status, "read", lambda folder: alice if folder.parent.name == "alice" else None)
    return PeersShown(paths)


def test_peers_tell_what_they_know_and_what_happened(shown: PeersShown) -> None:
    alice, quiet = shown.overview([])["peers"]
    assert quiet["status"] is None
    assert alice["status"]["round"] == 7
    assert alice["curve"]["columns"]["test_accuracy"] == [0.5]
    assert any("refused from bob" in mark["text"] for mark in alice["marks"])
    assert shown.listing()["peers"]


def test_a_peer_that_has_finished_is_done_and_not_missing(
    homes: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "read", lambda folder: None)
    paths = {name: homes(name).path for name in ("alice", "bob")}
    for name, how in (("alice", "done"), ("bob", "interrupted")):
        about = {"method": "decavg", "seed": 0, "peer": name, "node": 0}
        (paths[name] / "run").mkdir(exist_ok=True)
        rounds = [event("round", **about, round=number) for number in (1, 2)]
        begun = event("begin", **about, round=0, rounds=4, neighbours=["bob"])
        journal(paths[name] / "run", begun, *rounds, event("end", **about, how=how))
    alice, bob = PeersShown([*paths.values()]).overview([])["peers"]
    assert (alice["done"], alice["round"]) == (True, 2)
    assert not bob["done"]


def test_a_folder_without_a_peer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"peer\.toml"):
        PeersShown([tmp_path])


@pytest.mark.parametrize("width", [1280, 390])
def test_no_word_of_a_neighbour_is_markup(shown: PeersShown, width: int) -> None:
    with browser() as made, site(shown) as url:
        seen = Watched(made, url, width)
        page = seen.drawn()
        page.wait_for_function("name => document.body.textContent.includes(name)", arg=f"bob{NASTY}")
        text = page.text_content("body")
        for name in ("carol", "shape", "refused from bob", "no route"):
            assert f"{name}{NASTY}" in text
        assert "does not answer" in text
        assert page.locator("img:not(.mark)").count() == 0
        assert page.locator("main b, #app img[src='x']").count() == 0
        assert page.evaluate("window.broken") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.troubles == []
