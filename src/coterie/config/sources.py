"""The texts of classes and functions, also of those that were typed into a notebook or a console."""

import ast
import contextlib
import hashlib
import inspect
import linecache
import pickle
import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

import cloudpickle
import numpy as np
from torch import Tensor

PLAIN = (str, int, float, bool, type(None))


def text(thing: Any) -> str:
    """The text of a class or function; empty if there is none to be had."""
    with contextlib.suppress(OSError, TypeError, SyntaxError):
        if inspect.isclass(thing) and (typed := _typed(thing)):
            return typed
        return textwrap.dedent(inspect.getsource(thing))
    return ""


def _typed(kind: type) -> str:
    """The text of a class whose module is no file, such as a notebook's: from where its methods say that they are."""
    for name in _files(kind):
        lines = linecache.getlines(name)
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
    return ""


def _files(kind: type) -> Iterator[str]:
    """Where the text of a class may be: the files of its methods, then, of one without any, the cells of a notebook."""
    if hasattr(inspect.getmodule(kind), "__file__"):  # its text is in a file, which Python finds
        return
    own = [value.__code__.co_filename for value in vars(kind).values() if inspect.isfunction(value)]
    yield from (name for name in own if linecache.getlines(name))
    yield from (name for name in reversed(linecache.cache) if "ipykernel" in name or name.startswith("<ipython-input"))


def identity(thing: Any) -> str:
    """What tells a class or function from others of its name: its text, or of one without a text what it does."""
    return text(thing) or (_of_class(thing) if inspect.isclass(thing) else _of_function(thing))


def _of_class(kind: type) -> str:
    own = {k: v for k, v in vars(kind).items() if not (k.startswith("__") and k.endswith("__")) or callable(v)}
    own = {k: v for k, v in own.items() if inspect.isfunction(v) or isinstance(v, PLAIN)}
    said = [f"{k}={_of_function(v) if inspect.isfunction(v) else repr(v)}" for k, v in sorted(own.items())]
    return f"class {kind.__name__}({','.join(base.__name__ for base in kind.__bases__)}): {' '.join(said)}"


def _of_function(function: Any) -> str:
    return _of_code(function.__code__) if inspect.isfunction(function) else pickled(function)


def _of_code(code: CodeType) -> str:
    inner = [_of_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {inner}"


def closure(thing: Any) -> str:
    """What a function has taken from around it; of one without a name also its code, as a line may have several."""
    if not inspect.isfunction(thing):
        return ""
    own = "" if thing.__name__.isidentifier() else _of_code(thing.__code__)
    return own + " ".join(f"{k}={fingerprint(v)}" for k, v in sorted(inspect.getclosurevars(thing).nonlocals.items()))


def fingerprint(thing: Any) -> str:
    """A text that tells two values apart, and is the same again in another process."""
    if isinstance(thing, PLAIN):
        return repr(thing)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return identity(thing)
    if isinstance(thing, list | tuple):
        return f"[{','.join(map(fingerprint, thing))}]"
    if isinstance(thing, Mapping):
        return f"{{{','.join(f'{k}:{fingerprint(v)}' for k, v in thing.items())}}}"
    if isinstance(thing, Tensor):
        thing = thing.detach().cpu()
    if hasattr(thing, "__array__"):
        array = np.ascontiguousarray(np.asarray(thing))
        said = array.tolist().__repr__().encode() if array.dtype.hasobject else array.data
        return f"{array.dtype}{array.shape}{hashlib.blake2b(said, digest_size=16).hexdigest()}"
    if type(thing).__module__ == "__main__" and hasattr(thing, "__dict__"):  # pickling would number its class anew
        with contextlib.suppress(RecursionError):
            return f"{identity(type(thing))} {fingerprint(vars(thing))}"
    return pickled(thing)


def pickled(thing: Any) -> str:
    """A digest of how a value is pickled, or its type if it cannot be."""
    try:
        return hashlib.blake2b(cloudpickle.dumps(thing), digest_size=16).hexdigest()
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError):
        return repr(type(thing))
