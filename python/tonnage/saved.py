"""Saved tensors under capture: autograd keeps a note of each, and the memory itself dies as if nothing had been saved.

That gives both of the trace's timelines at once: DROP is when the last ordinary reference goes, RELEASE when autograd lets go of the
slot.  When backward asks for a slot whose storage is gone, a new storage stands for the same block.
"""
from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from . import tables as T
from .recorder import Block, Recorder
from .signature import signature


class Slot:
    """What autograd holds in place of a saved tensor."""

    __slots__ = ("index", "block", "offset", "shape", "stride", "dtype", "device", "module", "events")

    def __init__(self, index: int, block: Block, tensor: torch.Tensor, module: int, events: list[tuple[int, int]]):
        self.index, self.block, self.module, self.events = index, block, module, events
        self.offset, self.shape, self.stride = tensor.storage_offset(), tensor.shape, tensor.stride()
        self.dtype, self.device = tensor.dtype, tensor.device

    def __del__(self) -> None:
        self.events.append((T.RELEASE, self.index))


class SavedTensors:
    """The pack and unpack hooks of capture."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.in_pass = 0

    def begin(self) -> None:
        """A pass begins: slots are numbered from 0."""
        self.in_pass = 0

    def pack(self, tensor: torch.Tensor) -> Slot | torch.Tensor:
        r = self.recorder
        if type(tensor) is not FakeTensor:
            if not isinstance(tensor, FakeTensor):
                tensor = r.stand_in(tensor)
        tables = r.tables
        value = r.value_of(tensor)
        block = r.block_of(tensor)
        if block.quiet:  # an empty tensor that is saved: the slot's block must be live
            block.quiet = False
            r.events.append((T.ALLOC, block.id))
        slot = Slot(len(tables.slot), block, tensor, r.scopes.module(), r.events)
        if block.category == T.TEMPORARY:
            block.category = T.ACTIVATION
        tables.slot.append((value, block.id, tables.strings(signature(tensor)), slot.module, r.step, r.pass_, 0, self.in_pass))
        self.in_pass += 1
        r.events.append((T.PACK, slot.index))
        return slot

    def unpack(self, slot: Slot) -> torch.Tensor:
        r = self.recorder
        r.scopes.last_unpacked = slot.module
        r.events.append((T.UNPACK, slot.index))
        block = slot.block
        storage = block.ref() if block.ref is not None else None
        if storage is None:
            storage = torch.UntypedStorage(block.bytes, device="meta")
            r.watch(storage, block)
        return _on(storage, slot, r)


def _on(storage: torch.UntypedStorage, slot: Slot, recorder: Recorder) -> FakeTensor:
    """A fake tensor with the slot's window on a storage."""
    with torch._C._DisableTorchDispatch():
        meta = torch.empty((0,), dtype=slot.dtype, device="meta").set_(storage, slot.offset, slot.shape, slot.stride)
    return FakeTensor(recorder.fake, meta, slot.device)

