"""The records of a trace as Python makes them: columns of integers, packed into the C structs of tonnage.h in one go.

Why not ctypes objects: a step has tens of thousands of records, and `struct` packs a million of them in the time that ctypes sets a
few thousand fields.  The formats below are checked against the header by tests/python/test_lib.py.
"""
from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

NONE = 0xFFFFFFFF

# In the order of tn_table.
MODULE = struct.Struct("=4I")
OP = struct.Struct("=3I4BI2I2IIddd")
REF = struct.Struct("=I")
BLOCK = struct.Struct("=Q3I2BH")
VALUE = struct.Struct("=8I")
SLOT = struct.Struct("=4I2BHI")
EVENT = struct.Struct("=2I")
FRAME = struct.Struct("=4I")
STACK_FRAME = struct.Struct("=I")
STACK = struct.Struct("=2I")
STREAM = struct.Struct("=Q")
POOL = struct.Struct("=2Q")
DEVICE = struct.Struct("=6I")
SEGMENT = struct.Struct("=5Q6I")
SEGMENT_BLOCK = struct.Struct("=3QI2BH")
ENTRY = struct.Struct("=3Q6I2BHI")
ANNOTATION = struct.Struct("=Q4I")
FORMATS = {
    "module": MODULE, "op": OP, "ref": REF, "block": BLOCK, "value": VALUE, "slot": SLOT, "event": EVENT,
    "frame": FRAME, "stack_frame": STACK_FRAME, "stack": STACK, "stream": STREAM, "pool": POOL, "device": DEVICE,
    "segment": SEGMENT, "segment_block": SEGMENT_BLOCK, "entry": ENTRY, "annotation": ANNOTATION,
}  # fmt: skip
CAPTURED = ("module", "op", "ref", "block", "value", "slot", "event")  # what a capture fills; the others are a snapshot's

CATEGORIES = ("parameter", "gradient", "optimizer", "activation", "input", "temporary", "workspace", "communication", "unknown")
PHASES = ("setup", "forward", "loss", "backward", "optimizer", "other")
RATES = ("none", "fp32", "tf32", "bf16", "fp16", "fp64")
PARAMETER, GRADIENT, OPTIMIZER, ACTIVATION, INPUT, TEMPORARY, WORKSPACE, COMMUNICATION, UNKNOWN = range(9)

OP_VIEW, OP_RANDOM, OP_REBUILDABLE = 1, 2, 4
BLOCK_HOST = 1
VALUE_VIEW = 1
ALLOC, DROP, PACK, UNPACK, RELEASE, OP_EVENT, MARK = range(1, 8)


class Strings:
    """Interned text; id 0 is ""."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids))

    def texts(self) -> list[str]:
        return list(self.ids)


@dataclass
class Tables:
    """A trace outside the C library: rows are tuples in the order of the struct's fields."""

    strings: Strings = field(default_factory=Strings)
    module: list[tuple] = field(default_factory=list)
    op: list[tuple] = field(default_factory=list)
    ref: list[int] = field(default_factory=list)
    block: list[tuple] = field(default_factory=list)
    value: list[tuple] = field(default_factory=list)
    slot: list[tuple] = field(default_factory=list)
    event: list[tuple[int, int]] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)

    def packed(self) -> dict[str, bytes]:
        """The records of each table as the bytes of the C array."""
        out = {name: _pack(FORMATS[name], getattr(self, name)) for name in CAPTURED if name != "ref"}
        out["ref"] = struct.pack(f"={len(self.ref)}I", *self.ref)
        return out


def _pack(layout: struct.Struct, rows: Iterable[tuple]) -> bytes:
    pack = layout.pack
    return b"".join([pack(*row) for row in rows])
