"""The one folder outside a run that Coterie writes to: downloads, and what was measured on this machine."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`COTERIE_CACHE`, else `coterie` in the user's cache folder."""
    if chosen := os.environ.get("COTERIE_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "coterie"
