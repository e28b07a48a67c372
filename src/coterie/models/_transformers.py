"""What models from the library transformers share: whether it is there, and weights from a folder of the user's."""

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from torch import nn

from coterie.errors import ConfigError
from coterie.files import named


def library(model: str, name: str = "transformers", extra: str = "transformers") -> ModuleType:
    """The library, or an error that says how to get it."""
    try:
        found = importlib.import_module(name)
    except ImportError:
        cure = f'Install it: pip install "coterie[{extra}]".'
        raise ConfigError(f"{model} needs {name}", cure=cure) from None
    if name == "transformers":
        _quieten()
    return found


@functools.cache
def _quieten() -> None:
    """Let the library neither draw bars nor list what it did not load: that is checked here."""
    logging = importlib.import_module("transformers.utils.logging")
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def configuration(setting: str, kind: Any, folder: str) -> Any:
    """The configuration of this kind that is kept in a folder."""
    path = named(folder)
    cure = "Save the model there: model.save_pretrained(folder)."
    if not (path / "config.json").is_file():
        raise ConfigError(setting, expected="a folder with config.json and weights", got=folder, cure=cure)
    try:
        found = kind.from_pretrained(path, local_files_only=True)
    except Exception as error:  # the library raises of all kinds
        raise ConfigError(f"{setting}: {path / 'config.json'} cannot be read ({_line(error)})", cure=cure) from error
    if kind.model_type not in ("", found.model_type):
        raise ConfigError(setting, expected=f"a model of the type {kind.model_type}", got=found.model_type, cure=cure)
    return found


def pretrained(setting: str, kind: Any, folder: str, **settings: Any) -> nn.Module:
    """The module of this kind with the weights that are kept in a folder, all of them, and marked as given."""
    path = named(folder)
    cure = "Save weights and configuration together: model.save_pretrained(folder)."
    try:
        found, told = kind.from_pretrained(
            path, local_files_only=True, output_loading_info=True, ignore_mismatched_sizes=True, **settings
        )
    except Exception as error:  # the library raises of all kinds
        raise ConfigError(f"{setting}: the weights in {path} do not fit ({_line(error)})", cure=cure) from error
    other = [f"{name} of {_size(held)} instead of {_size(wanted)}" for name, held, wanted in told["mismatched_keys"]]
    if wrong := [*sorted(other), *(f"no {name}" for name in sorted(told["missing_keys"]))]:
        what = f"{setting}: the weights in {path} do not fit their configuration"
        more = f" and {len(wrong) - 2} more" if len(wrong) > 2 else ""
        got = f"{', '.join(wrong[:2])}{more}"
        raise ConfigError(what, expected="all of the model's tensors", got=got, cure=cure)
    found.given = True
    assert isinstance(found, nn.Module)
    return found


def unlike(setting: str, asked: dict[str, int | None], found: dict[str, int], folder: str) -> None:
    """Refuse settings that say something else than the configuration in a folder does."""
    for name, wanted in asked.items():
        if wanted is not None and wanted != found[name]:
            cure = f"Leave {name} out, or name other weights."
            raise ConfigError(f"{setting} in {folder}", expected=f"{name} {wanted}", got=found[name], cure=cure)


class Embedding(nn.Embedding):
    """An embedding that is drawn as transformers draw theirs: N(0, 0.02²)."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)
        self._fill_padding_idx_with_zero()


def drawn_small(module: nn.Module) -> nn.Module:
    """Let a module's embeddings be drawn as the library draws them, whoever draws."""
    for layer in module.modules():
        if type(layer) is nn.Embedding:
            layer.__class__ = Embedding
            layer.reset_parameters()
    return module


def _size(tensor: Sequence[int]) -> str:
    return "×".join(map(str, tensor)) or "1"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
