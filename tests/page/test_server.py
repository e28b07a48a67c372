"""The page's server answers its own machine, gives nothing that it should not, and changes nothing."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from browsing import answer, site
from coterie.page import STATIC
from coterie.page.serving import Site
from coterie.page.shown import Shown
from coterie.page.single import bundle, page, write_page
from runs import NASTY, finished

pytest.importorskip("fastapi")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = finished(tmp_path_factory.mktemp("runs") / "one", ["decavg"])
    with site(Shown([folder])) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/", 200),
        ("/static/app.js", 200),
        ("/static/echarts.min.js", 200),
        ("/api/runs", 200),
        ("/api/overview", 200),
        ("/api/job?job=one:0:decavg", 200),
        ("/api/job?job=one:0:decavg&column=test_accuracy", 200),
        ("/api/job?job=one:0:decavg&node=3", 200),
        ("/api/job?job=one:0:decavg&round=4", 200),
        ("/api/job?job=one:0:decavg&node=x", 404),
        ("/api/job?job=one:0:decavg&column=method", 404),
        ("/api/job?job=one:0:../../etc", 404),
        ("/api/overview?run=../../etc", 404),
        ("/static/../run.py", 404),
        ("/static/..%2frun.py", 404),
        ("/static/%2e%2e/%2e%2e/run.py", 404),
        ("/static/ECHARTS.txt", 404),
        ("/etc/passwd", 404),
        ("/docs", 404),
        ("/openapi.json", 404),
    ],
)
def test_what_is_there_and_what_is_not(url: str, path: str, code: int) -> None:
    assert answer(url, path)[0] == code


def test_every_answer_says_what_a_browser_may_do_with_it(url: str) -> None:
    for path in ("/", "/api/runs", "/nowhere"):
        _, head, _ = answer(url, path)
        policy = re.search(r"content-security-policy: (.*)", head, re.I)
        assert policy
        assert "default-src 'none'" in policy[1]
        assert "unsafe" not in policy[1]
        assert "nosniff" in head
        assert "access-control-allow-origin" not in head.lower()
        assert "server:" not in head.lower()


def test_only_names_of_this_machine_are_answered(url: str) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "192.168.1.7", "localhost.evil.example:80"):
        assert answer(url, "/", host)[0] == 403
    for host in ("localhost:1", "[::1]:80", "LocalHost"):
        assert answer(url, "/", host)[0] == 200
    assert answer(url, "/", more="Host: localhost\r\n")[0] in (400, 403)


def test_it_is_read_only(url: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert answer(url, "/api/runs", method=method, more="Content-Length: 0\r\n")[0] == 405


def test_elsewhere_a_token_is_asked_for(tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    from coterie.page.server import application

    folder = finished(tmp_path / "one", ["decavg"], seeds=1)
    app = application(Shown([folder]), token="secret", hosts=("10.0.0.1",))
    with TestClient(app, base_url="http://10.0.0.1") as client:
        assert client.get("/api/runs").status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        assert client.get("/?token=secret").status_code == 200
        assert client.get("/api/runs").status_code == 200, "the cookie is kept"
    with TestClient(app, base_url="http://evil.example") as client:
        assert client.get("/?token=secret").status_code == 403


def test_loopback_needs_no_token_and_all_else_does() -> None:
    assert Site().token is None
    everywhere = Site("0.0.0.0")
    assert everywhere.token
    assert everywhere.token in everywhere.url
    for each in (everywhere,):
        each.socket.close()


def test_the_front_end_makes_no_markup_of_text() -> None:
    for file in STATIC.iterdir():
        if file.name.endswith(".js") and "echarts" not in file.name:
            text = file.read_text("utf-8")
            for word in (
                "innerHTML",
                "outerHTML",
                "insertAdjacent",
                "document.write",
                "eval(",
                "new Function",
                "http://",
            ):
                assert word not in text, (file.name, word)
            assert len(text.splitlines()) <= 400


def test_the_page_in_one_file_ends_no_element_early(tmp_path: Path) -> None:
    folder = finished(tmp_path / "one", [NASTY], seeds=1)
    text = write_page([folder], tmp_path / "report.html").read_text("utf-8")
    inside = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert inside
    assert not {"<", ">", "&"} & set(inside[1])
    assert "onerror" in inside[1]
    assert text.count("</script>") == text.count("<script") == 3
    assert not re.search(r"(src|href)=\"(?!data:)", text.split("<style>")[0])


def test_every_module_of_the_front_end_is_in_the_one_file() -> None:
    made = bundle()
    own = {file.name for file in STATIC.iterdir() if file.name.endswith(".js")} - {"echarts.min.js"}
    assert set(re.findall(r'^modules\["([\w.]+)"\] =', made, re.M)) == own
    assert not re.search(r"^(import|export) ", made, re.M)
    assert "sha256-" in page({})
