"""What is printed, whoever chose the words."""

import pytest

from coterie.app.cli import main
from coterie.app.terminal import console, print_facts, print_paths
from coterie.report.sheets import Sheet

STEERS = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202eback"


def test_no_text_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_paths({STEERS: STEERS})
    print_facts({STEERS: STEERS})
    console().print(Sheet(STEERS, [STEERS], [[STEERS]], [STEERS]).render())
    assert main(["export", STEERS, "model.safetensors"]) == 2
    said = capsys.readouterr()
    assert said.out.count("red") == 8
    assert "red" in said.err
    assert not set("\x1b\x07\x9b\u202e") & set(said.out + said.err)
