"""Data sets are tested without a network and with a cache of their own."""

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """No network and an empty cache; the addresses that would have been asked."""
    urls: list[str] = []

    def refuse(request: urllib.request.Request, **_: Any) -> Any:
        urls.append(request.full_url)
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("COTERIE_CACHE", str(tmp_path / "cache"))
    return urls
