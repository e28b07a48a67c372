"""The one folder outside a run that Coterie writes to: downloads, and what was measured on this machine."""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from polars.exceptions import PolarsError
from safetensors import SafetensorError

from coterie.errors import RunError


def cache_folder() -> Path:
    """`COTERIE_CACHE`, else `coterie` in the user's cache folder."""
    if chosen := os.environ.get("COTERIE_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "coterie"


def write(path: Path, content: bytes) -> None:
    making = path.with_name(f".{path.name}.new")  # the next try takes the place of one that was cut short
    try:
        with open(making, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(making, path)
    finally:
        making.unlink(missing_ok=True)


@contextlib.contextmanager
def disk(path: Path, cure: str = "") -> Iterator[None]:
    """Turn a disk's refusal into an error with a cure; what was written before stays whole."""
    try:
        yield
    except (OSError, SafetensorError, PolarsError) as error:
        number = getattr(error, "errno", None) or _system_error(str(error))
        full = number in (errno.ENOSPC, errno.EDQUOT)
        why = os.strerror(number) if number else " ".join(str(error).split())
        what = f"the disk is full: cannot write to {path}" if full else f"cannot write to {path} ({why})"
        usual = f"Earlier records and checkpoints are whole: mend it, then `coterie resume {path}`."
        raise RunError(what, cure=cure or usual) from error


def _system_error(text: str) -> int | None:
    """The number of the system's error in the text of a library that writes files by itself."""
    found = re.search(r"\(os error (\d+)\)", text)
    return int(found[1]) if found else None


@contextlib.contextmanager
def undamaged(path: Path, cure: str) -> Iterator[None]:
    """Turn the many ways in which a damaged file is refused into an error with a cure."""
    try:
        yield
    except (OSError, ValueError, KeyError, SafetensorError, PolarsError) as error:
        raise RunError(f"{path} is damaged ({' '.join(str(error).split())})", cure=cure) from error
