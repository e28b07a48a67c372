"""Data sets, weights and tokenizers by name, from the hub of Hugging Face."""

import importlib
from pathlib import Path
from typing import Any

from coterie import files, waiting
from coterie.errors import ConfigError, DataError

HUB = "hf://"
"""How a path begins that is a name on the hub: `hf://stanfordnlp/imdb`."""
WEIGHTS = ("*.safetensors", "*.json", "*.txt", "*.model")
"""What a model consists of: no file that would run somebody's code when it is read."""
WHOLE = ".whole"
"""Lies in a folder that was downloaded to its end."""


def local(path: str) -> Path:
    """A folder of the user's, or that of the cache with a model of this name on the hub."""
    return fetched(path, allow_patterns=list(WEIGHTS)) if path.startswith(HUB) else Path(path).expanduser()


def fetched(name: str, **how: Any) -> Path:
    """The folder of the cache with what is called so on the hub, downloaded if it is not there."""
    repository = name.removeprefix(HUB)
    target = files.cache_folder() / "hub" / f"{how.get('repo_type', 'model')}s" / repository.replace("/", "--")
    if (target / WHOLE).is_file():
        return target
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        cure = 'Install it: pip install "coterie[transformers]"; or download it elsewhere, and name its folder.'
        raise ConfigError(f"{name} needs huggingface_hub", cure=cure) from None
    waiting.tell(f"downloading {repository} from the hub")
    try:
        hub.snapshot_download(repository, local_dir=target, **how)
    except Exception as error:  # the library raises of all kinds
        said = str(error).strip().partition("\n")[0]
        cure = "Check the name and the connection; or download it elsewhere, and name its folder."
        raise DataError(f"cannot download {name} ({type(error).__name__}: {said})", cure=cure) from error
    (target / WHOLE).touch()
    return target
