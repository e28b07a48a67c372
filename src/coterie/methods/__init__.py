"""Methods: big names as small compositions of parts, one TOML file each; found by looking."""

import tomllib
from pathlib import Path
from typing import Any

from coterie.parts import unknown

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """All presets."""
    return sorted(p.stem for p in FOLDER.glob("*.toml"))


def load(name: str) -> dict[str, Any]:
    """The settings of a preset."""
    if name not in names():
        raise unknown("method", name, names(), "`coterie list methods` shows all; a table [methods.NAME] is your own.")
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


def describe(name: str) -> tuple[str, str]:
    """Summary and reference of a preset: its first two comment lines."""
    load(name)
    lines = (FOLDER / f"{name}.toml").read_text().splitlines()
    comments = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    summary, reference = [*comments, "", ""][:2]
    return summary, reference.removeprefix("Reference:").strip()
