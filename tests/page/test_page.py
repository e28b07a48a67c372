"""The page in a browser: what it shows is what was recorded, and what a person does with it works."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browsing import Watched, browser, site
from coterie import records
from coterie.page.shown import Shown
from coterie.page.single import write_page
from coterie.runs.experiment import Experiment
from runs import NASTY, evaluation, event, finished, journal


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("runs") / "one", ["decavg", "dechw"])


def test_a_run_is_looked_at_from_all_sides(chromium: Any, folder: Path) -> None:
    with site(Shown([folder])) as url:
        seen = Watched(chromium, url)
        page = seen.drawn("canvas.network[data-drawn='one:0:dechw 4']")  # the best method comes first
        page.select_option("select[aria-label='method']", "decavg")
        page.wait_for_selector("canvas.network[data-drawn='one:0:decavg 4']")
        mean = records.load(folder).filter(method="decavg", seed=0, round=4)["test_accuracy"].mean()
        assert page.text_content("#mean") == f"{mean:.3f}"
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector("canvas.network[data-drawn='one:0:decavg 2']")
        mean = records.load(folder).filter(method="decavg", seed=0, round=2)["test_accuracy"].mean()
        assert page.text_content("#mean") == f"{mean:.3f}"
        page.keyboard.press("Home")
        page.wait_for_selector("[data-round='0']")
        page.keyboard.press(" ")
        page.wait_for_selector("[data-round='4']")  # it has played to the end
        page.select_option("select[aria-label='colour']", "main class")
        page.wait_for_selector(".legend:has-text('class 1')")
        page.select_option("select[aria-label='colour']", "test_accuracy")
        page.select_option("select[aria-label='layout']", "ring")
        page.wait_for_selector("canvas.network[data-layout='ring']")
        box = page.locator("canvas.network").bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 26)  # node 0 is at the top of a ring
        page.wait_for_selector(".node h2:has-text('Node 0')")
        assert "It hears 2" in page.text_content(".node")
        parts = page.locator(".node tbody td:last-child").all_text_contents()
        assert parts == ["30.6 %", "41.7 %", "27.8 %"], "11, 15 and its own 10 samples of 36"
        page.keyboard.press("Escape")
        page.wait_for_selector("#mean")
        for key, text in (("2", "each seed"), ("3", "dechw"), ("4", "How uneven"), ("5", "topology.name")):
            page.keyboard.press(key)
            page.wait_for_function("text => document.body.textContent.includes(text)", arg=text)
        assert "network ring, 6 nodes" in page.text_content("#about")
        page.click("#about button:has-text('dirichlet')")
        page.wait_for_selector("nav button[aria-selected='true']:has-text('Data')")
        page.keyboard.press("3")
        page.wait_for_selector("tbody tr:first-child th:has-text('dechw')")
        page.click("thead button:has-text('accuracy')")
        page.click("thead button:has-text('accuracy')")
        page.wait_for_selector("tbody tr:first-child th:has-text('decavg')")
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.keyboard.press("t")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        with page.expect_download() as saved:
            page.click("button:has-text('csv') >> nth=0")
        assert "dechw" in Path(saved.value.path()).read_text()
        assert seen.troubles == []
        page.close()


def test_two_runs_are_compared_and_differences_stand_out(chromium: Any, folder: Path) -> None:
    other = folder.with_name("two")
    shutil.copytree(folder, other)
    text = (other / "config.toml").read_text()
    (other / "config.toml").write_text(text.replace("rounds = 4", "rounds = 5"))
    with site(Shown([folder.parent])) as url:
        seen = Watched(chromium, url)
        for label in ("one", "two"):
            seen.page.check(f"input[value='{label}']")
        seen.page.click("button:has-text('Compare')")
        page = seen.drawn()
        page.keyboard.press("5")
        page.wait_for_selector("tr.differs th:has-text('rounds')")
        page.keyboard.press("3")
        page.wait_for_selector("tbody th:has-text('two/dechw')")
        assert seen.troubles == []
        page.close()


def test_a_run_that_has_just_begun_says_so_and_is_then_coloured_by_accuracy(chromium: Any, tmp_path: Path) -> None:
    folder, about = tmp_path / "live", {"method": "decavg", "seed": 0}
    records.RunFolder(folder).create(Experiment(nodes=3, rounds=9))
    journal(folder, event("begin", jobs=[["decavg", 0]], left=[["decavg", 0]], rounds=9))
    with site(Shown([folder])) as url:
        seen = Watched(chromium, url)
        page = seen.drawn()
        for key in "234512":
            page.keyboard.press(key)
        assert page.locator(".warn").count() == 0
        journal(folder, event("begin", **about, round=0, rounds=9, nodes=3))
        page.keyboard.press("1")
        journal(folder, evaluation("decavg", 0, 0, [0.1, 0.2, 0.3]))
        page.wait_for_function("() => document.getElementById('mean')?.textContent == '0.200'")
        assert page.locator("select[aria-label='colour']").input_value() == "test_accuracy"
        assert seen.troubles == []
        page.close()


def test_a_real_run_is_followed_and_its_numbers_are_those_of_the_records(chromium: Any, tmp_path: Path) -> None:
    """As a user does it: a command with `--watch`, and the address that it prints."""
    words = "run --nodes 4 --topology ring --rounds 2000 --batches 1 --seeds 0 --methods decavg --evaluate 1 --watch"
    words += " --total 200 --engine.workers 1 --engine.mode loop --keep-models false --out real"
    command = [sys.executable, "-m", "coterie", *words.split()]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout
        url = next(found[0] for line in run.stdout if (found := re.search(r"http://\S+", line)))
        seen = Watched(chromium, url)
        seen.page.wait_for_function("() => Number(document.querySelector('[data-round]')?.dataset.round) > 3")
        seen.page.keyboard.press("ArrowLeft")
        both = "[document.querySelector('[data-round]').dataset.round, document.getElementById('mean').textContent]"
        round, mean = seen.page.evaluate(both)
        running = "running" in seen.page.text_content(".pill")
        troubles = [*seen.troubles]  # when the run ends, so does its page
        seen.page.close()
        run.stdout.read()
    assert running
    assert troubles == []
    recorded = records.load(tmp_path / "real").filter(round=int(round))["test_accuracy"]
    assert mean == f"{recorded.mean():.3f}"


def test_a_run_under_way_is_followed(chromium: Any, tmp_path: Path) -> None:
    records.RunFolder(tmp_path / "live").create(Experiment(nodes=3, rounds=9))
    about = {"method": "decavg", "seed": 0}
    journal(tmp_path / "live", event("begin", jobs=[["decavg", 0]], left=[["decavg", 0]], rounds=9))
    begins = event("begin", **about, round=0, rounds=9, nodes=3)
    journal(tmp_path / "live", begins, evaluation("decavg", 0, 0, [0.1] * 3))
    with site(Shown([tmp_path / "live"])) as url:
        seen = Watched(chromium, url)
        page = seen.drawn()
        assert page.text_content("#mean") == "0.100"
        assert "running" in page.text_content(".pill")
        journal(tmp_path / "live", evaluation("decavg", 0, 1, [0.2, 0.3, 0.4]))
        page.wait_for_selector("[data-round='1']")
        page.wait_for_function("() => document.getElementById('mean').textContent == '0.300'")
        journal(tmp_path / "live", event("end", **about, how="done", round=9), event("end", how="done"))
        page.wait_for_selector(".pill:has-text('done')")
        assert seen.troubles == []
        page.close()


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_one_file_is_enough_with_the_network_off_and_names_are_only_names(
    chromium: Any, tmp_path: Path, width: int, theme: str
) -> None:
    hostile = finished(tmp_path / "one", [NASTY], seeds=1)
    path = write_page([hostile], tmp_path / "report.html")
    seen = Watched(chromium, path.as_uri(), width, color_scheme=theme, offline=True)
    page = seen.drawn()
    for key in "12345":
        page.keyboard.press(key)
        page.wait_for_timeout(50)
    page.keyboard.press("3")
    page.wait_for_function("name => document.querySelector('tbody th').textContent.includes(name)", arg=NASTY)
    assert page.locator("img:not(.mark)").count() == 0
    assert page.evaluate("window.broken") is None
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.troubles == []
    page.close()
