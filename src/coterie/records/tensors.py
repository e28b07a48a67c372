"""Named tensors in a safetensors file that says its own checksum, written without a copy of them."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from coterie import files
from coterie.files import MARK, MARKED

KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
_HEAD = 256
"""The mark is within so many bytes of the beginning."""


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None, before: Path | None = None
) -> None:
    """Write tensors, and words about them, whole or not at all; what stood there may be kept as `before`."""
    files.write(path, *pieces(tensors, about), before=before)


def pieces(tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> list[files.Bytes]:
    """A safetensors file in pieces: its head, and each tensor as it lies in memory."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so that all lie straight
    head: dict[str, object] = {"__metadata__": {MARKED: MARK, **(about or {})}}
    found, small, start = list[files.Bytes](), bytearray(), 0
    for name in order:
        tensor = tensors[name].detach().cpu().contiguous()
        flat = tensor.flatten().as_strided((tensor.numel(),), (1,))  # a single number may have any stride
        content = flat.view(torch.uint8).numpy().data
        end = start + content.nbytes
        head[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
        if content.nbytes < files.BLOCK:  # many a tensor is a number or two, and not worth a call
            small += content
        else:
            found += [bytes(small), content]
            small.clear()
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return files.sealed_pieces([len(text).to_bytes(8, "little") + text, *filter(len, [*found, bytes(small)])], _HEAD)


def check_tensors(path: Path) -> None:
    """Refuse a damaged file, with a ValueError."""
    with files.opened(path) as whole:
        files.check(np.memmap(whole, np.uint8, "r").data, _HEAD)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file and the words about them, checked; ValueError or another of its reader's if damaged.

    Tensors are copies, because sums over some that lie askew in a file may differ in their last bits.
    """
    check_tensors(path)
    with safe_open(path, "pt") as file:
        about: dict[str, str] = dict(file.metadata() or {})
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    about.pop(MARKED, None)
    return tensors, about
