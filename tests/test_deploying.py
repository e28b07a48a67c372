"""What is shipped for deploying: the wheel installs alone and works, and the service files say what peers mean."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml

from coterie.app.cli import main

ROOT = Path(__file__).parents[1]
FILES = ROOT / "deploy"


def test_a_wheel_installs_from_a_file_and_works(tmp_path: Path) -> None:
    """In a fresh environment, which borrows the dependencies of this one and nothing of Coterie."""
    source, fresh, wheels = tmp_path / "source", tmp_path / "fresh", tmp_path / "wheels"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    venv.create(fresh, with_pip=False)
    python = str(fresh / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    done(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source))
    (wheel,) = wheels.glob("coterie-*.whl")
    done(*pip, "--python", python, "install", "--no-compile", "--no-deps", "--no-index", str(wheel))
    (packages,) = fresh.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = done(python, "-c", "import coterie; print(coterie.__file__)", within=tmp_path)
    assert str(fresh) in where
    assert "dechw" in done(str(fresh / "bin" / "coterie"), "list", "rules", within=tmp_path)
    small = "--nodes 3 --topology ring --rounds 1 --total 60 --batches 1 --engine.workers 1 --engine.mode loop"
    said = done(str(fresh / "bin" / "coterie"), "run", *small.split(), "--out", "small", within=tmp_path)
    assert "accuracy" in said
    assert (tmp_path / "small" / "records.parquet").is_file() or list((tmp_path / "small").rglob("*.parquet"))


def done(*words: str, within: Path = ROOT) -> str:
    """What a command prints, in an environment that knows nothing of this source."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    found = subprocess.run(words, cwd=within, env=kept, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout + found.stderr


def peer_flags(words: list[str]) -> None:
    """These are words of a peer's command: with `--help` after them, nothing else happens."""
    assert main([*words[: words.index("run") + 1], "--help"]) == 0


def test_the_service_starts_a_peer_again_unless_somebody_must_mend_something(tmp_path: Path) -> None:
    text = (FILES / "coterie-peer.service").read_text()
    said = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
    assert said["Restart"] == "on-failure"
    assert said["RestartPreventExitStatus"] == "2"  # the code of `CoterieError`
    assert said["KillSignal"] == "SIGTERM"
    program, *words = said["ExecStart"].split()
    assert program.endswith("/coterie")
    peer_flags(words)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / "coterie-peer.service"  # its user and its program need not be on this machine
    unit.write_text(re.sub(r"^(User|Group)=.*$", r"\1=root", text, flags=re.M).replace(program, "/bin/true"))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    assert "Unknown" not in checked.stderr


def test_three_peers_are_composed() -> None:
    said = yaml.safe_load((FILES / "compose.yaml").read_text())
    assert list(said["services"]) == ["alice", "bob", "carol"]
    for name, service in said["services"].items():
        assert service["volumes"] == [f"./{name}:/peer"]
        assert (FILES / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert service["restart"].startswith("on-failure")


def test_the_image_copies_what_is_there_and_runs_a_peer() -> None:
    text = (FILES / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M) for word in line.split()[:-1]]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    (words,) = re.findall(r"^CMD \[(.*)\]$", text, re.M)
    peer_flags([word.strip().strip('"') for word in words.split(",")])
