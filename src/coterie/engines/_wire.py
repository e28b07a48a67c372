"""Rows between the workers of one simulation: torch.distributed moves them, by gloo, whatever device they lie on."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_stores: Any = dist  # which does not say that it exports them
PrefixStore, TCPStore = _stores.PrefixStore, _stores.TCPStore
PATIENCE = timedelta(hours=12)
"""Nobody gives up before the one who looks after all workers does."""


class WireError(Exception):
    """Another worker is not there any more."""


@dataclass
class Coming:
    """Tensors that are on their way here."""

    tensors: list[Tensor]
    works: list[dist.Work]
    patience: "Patience"

    def wait(self) -> list[Tensor]:
        """The tensors, once all are there."""
        self.patience.wait(self.works)
        self.works.clear()
        return self.tensors


class Patience:
    """Waits for others, and counts the seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wait(self, works: Sequence[dist.Work]) -> None:
        """Until all of these are done."""
        start = time.perf_counter()
        for work in works:
            try:
                work.wait()
            except RuntimeError as error:
                raise WireError(str(error)) from None
        self.seconds += time.perf_counter() - start


class Wire:
    """A worker's end: what is sent is copied at once, so its rows may change while it is still under way."""

    def __init__(self, host: str, port: int, worker: int, count: int, name: str, device: str) -> None:
        self.worker, self.count, self.device = worker, count, torch.device(device)
        self.sent_bytes = 0
        self.patience = Patience()
        self._going: list[tuple[dist.Work, Tensor]] = []
        if count > 1:
            store = PrefixStore(name, TCPStore(host, port, is_master=False, timeout=timedelta(minutes=5)))
            dist.init_process_group("gloo", store=store, rank=worker, world_size=count, timeout=PATIENCE)

    def send(self, peer: int, tensor: Tensor) -> None:
        """Begin to send a tensor."""
        kept = tensor.detach().contiguous()
        if kept.device.type != "cpu":
            pinned = torch.empty(kept.shape, dtype=kept.dtype, pin_memory=kept.device.type == "cuda")
            kept = pinned.copy_(kept)
        if not kept.numel():
            return
        try:
            work = dist.isend(kept, peer)
        except RuntimeError as error:
            raise WireError(str(error)) from None
        assert work is not None
        self.sent_bytes += kept.numel() * kept.element_size()
        self._going.append((work, kept))

    def room(self, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Memory for tensors that are to come."""
        return torch.empty(rows, width, dtype=dtype, pin_memory=self.device.type == "cuda")

    def receive(self, peer: int, here: Tensor) -> Coming:
        """Begin to receive a tensor."""
        if not here.numel():
            return Coming([here], [], self.patience)
        try:
            work = dist.irecv(here, peer)
        except RuntimeError as error:
            raise WireError(str(error)) from None
        assert work is not None
        return Coming([here], [work], self.patience)

    def sent(self) -> None:
        """Wait until all that is under way from here has left."""
        self.patience.wait([work for work, _ in self._going])
        self._going.clear()

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of everyone's tensor, who all must call this."""
        total = tensor.detach().cpu().contiguous()
        if self.count > 1:
            try:
                dist.all_reduce(total)
            except RuntimeError as error:
                raise WireError(str(error)) from None
        return total.to(self.device)

    def close(self) -> None:
        """Part from the others."""
        if self.count > 1 and dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()
