"""A memory snapshot of any length, written as PyTorch would pickle it, without holding it in memory.

What is copied from real snapshots (PyTorch 2.11): the keys and their order, which objects are shared through the memo (keys, frames, one list of
frames for each allocation, an empty one for each free) and the number of frames; so a million entries take about 85 MB. A test holds the bytes
against those of the pickle module.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

FRAME_BYTES = 64 * 1024
BATCH = 1000  # how many items pickle adds to a list at once
ALLOC, FREE, COMPLETED = "alloc", "free_requested", "free_completed"


class Pickler:
    """Protocol 4 for what a snapshot is made of. Objects are told apart by identity, as in pickle."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.parts: list[bytes] = []
        self.held = 0
        self.memo: dict[int, bytes] = {}
        self.kept: list[Any] = []  # an id is an object's only while the object lives
        self.count = 0
        file.write(b"\x80\x04")

    def add(self, data: bytes) -> None:
        self.parts.append(data)
        self.held += len(data)

    def flush(self) -> None:
        if self.held:
            self.file.write(b"\x95" + struct.pack("<Q", self.held) + b"".join(self.parts))
        self.parts, self.held = [], 0

    def remember(self, value: Any, lasting: bool) -> None:
        if lasting:
            index = self.count
            self.memo[id(value)] = b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)
            self.kept.append(value)
        self.count += 1
        self.add(b"\x94")

    def number(self, value: int) -> None:
        if 0 <= value < 256:
            self.add(b"K" + bytes([value]))
        elif 0 <= value < 65536:
            self.add(b"M" + struct.pack("<H", value))
        elif -(2**31) <= value < 2**31:
            self.add(b"J" + struct.pack("<i", value))
        else:
            length = (value.bit_length() >> 3) + 1
            self.add(b"\x8a" + bytes([length]) + value.to_bytes(length, "little", signed=True))

    def text(self, value: str, lasting: bool) -> None:
        data = value.encode()
        self.add(b"\x8c" + bytes([len(data)]) + data if len(data) < 256 else b"X" + struct.pack("<I", len(data)) + data)
        self.remember(value, lasting)

    def value(self, value: Any, lasting: bool = True) -> None:
        """lasting: the same object may come again."""
        known = self.memo.get(id(value))
        if known is not None:
            self.add(known)
        elif value is None or isinstance(value, bool):
            self.add(b"N" if value is None else b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.number(value)
        elif isinstance(value, float):
            self.add(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            self.text(value, lasting)
        elif isinstance(value, tuple):
            for item in value:
                self.value(item)
            self.add(b"\x85\x86\x87"[len(value) - 1 : len(value)])
            self.remember(value, lasting)
        elif isinstance(value, dict):
            self.dictionary(value, lasting)
        else:
            self.list(iter(value), value, lasting)
        if self.held >= FRAME_BYTES:
            self.flush()

    def dictionary(self, value: dict[str, Any], lasting: bool) -> None:
        self.add(b"}")
        self.remember(value, lasting)
        self.add(b"(")
        for key, item in value.items():
            self.value(key)
            self.value(item)
        self.add(b"u")

    def list(self, items: Iterator[Any], value: Any, lasting: bool) -> None:
        """The items may be made while they are written: value is only what the memo knows the list by."""
        self.add(b"]")
        self.remember(value, lasting)
        batch, is_first = list(islice(items, BATCH)), True
        while batch:
            alone = is_first and len(batch) == 1
            self.add(b"" if alone else b"(")
            for item in batch:
                self.value(item, lasting=isinstance(item, dict) and "filename" in item)
            self.add(b"a" if alone else b"e")
            batch, is_first = list(islice(items, BATCH)), False

    def stop(self) -> None:
        self.add(b".")
        self.flush()


class Stacks:
    """Frames of a program: a few hundred lines of code, called from one another."""

    def __init__(self, draw: random.Random) -> None:
        names = ["forward", "_call_impl", "linear", "layer_norm", "softmax", "dropout", "backward", "step", "zero_grad", "checkpoint"]
        self.draw = draw
        self.frames = [
            {"name": draw.choice(names), "filename": f"/opt/venv/lib/python3.12/site-packages/torch/nn/modules/file{k % 60}.py", "line": 10 + k}
            for k in range(400)
        ]
        self.stacks = [[draw.choice(self.frames) for _ in range(draw.randrange(6, 14))] for _ in range(300)]

    def next(self) -> list[dict[str, Any]]:
        return list(self.draw.choice(self.stacks))


def entries(count: int, draw: random.Random) -> Iterator[dict[str, Any]]:
    """A history in which what is allocated is freed again, about 600 blocks being live at a time."""
    stacks, live, time_us = Stacks(draw), [], 1796039417385814
    address = 0x7F4000000000
    while count > 0:
        time_us += draw.randrange(1, 40)
        if len(live) > 600 or (live and draw.random() < 0.48):
            addr, size = live.pop(draw.randrange(len(live)))
            for action in (FREE, COMPLETED):
                yield entry(action, addr, size, time_us, [])
            count -= 2
        else:
            address += 2 << 20
            addr, size = address, draw.choice((8, 2048, 6144, 400_000, 3_145_728, 16_777_216, 139_264_000))
            live.append((addr, size))
            yield entry(ALLOC, addr, size, time_us, stacks.next())
            count -= 1


def entry(action: str, addr: int, size: int, time_us: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    none = "".join(("N", "/A"))  # a text of its own in each entry, as the binding makes it
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": time_us,
        "compile_context": none,
        "user_metadata": "",
        "frames": frames,
    }


def segments(count: int) -> list[dict[str, Any]]:
    large = "large"
    return [
        {
            "device": 0,
            "address": 0x7F3000000000 + k * (20 << 20),
            "total_size": 20 << 20,
            "allocated_size": 0,
            "active_size": 0,
            "requested_size": 0,
            "stream": 0,
            "segment_type": large,
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": [{"address": 0x7F3000000000 + k * (20 << 20), "size": 20 << 20, "requested_size": 0, "state": "inactive", "frames": []}],
        }
        for k in range(count)
    ]


SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0, "expandable_segments": False}


def write(path: str, count: int, seed: int = 1) -> None:
    """A snapshot of at least count entries."""
    draw = random.Random(seed)
    with open(path, "wb") as file:
        pickler = Pickler(file)
        pickler.add(b"}")
        pickler.remember(object(), lasting=False)
        pickler.add(b"(")
        pickler.value("segments")
        pickler.value(segments(64))
        pickler.value("device_traces")
        pickler.add(b"]")
        pickler.remember(object(), lasting=False)
        pickler.list(entries(count, draw), object(), lasting=False)
        pickler.add(b"a")
        pickler.value("allocator_settings")
        pickler.value(SETTINGS)
        pickler.value("external_annotations")
        pickler.value([])
        pickler.add(b"u")
        pickler.stop()


def objects(count: int, seed: int = 1) -> dict[str, Any]:
    """The same as Python objects, for tests."""
    return {
        "segments": segments(64),
        "device_traces": [list(entries(count, random.Random(seed)))],
        "allocator_settings": SETTINGS,
        "external_annotations": [],
    }
