"""Writes a small memory snapshot, as torch.cuda.memory._dump_snapshot() would.

    small_history.py FILE [rounds=N] [moved=1] [history=0] [fragmented=1]

Blocks of 40, 42, 44 ... MiB, one after the other. moved: one at an address that no allocator would choose. history: 0 leaves the
entries out. fragmented: instead, 60 MiB of which 20 are in use, and an allocation of 50 MiB that fails with 30 MiB free on the card.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

MIB = 2**20
BASE = 0x7F0000000000

path, *pairs = sys.argv[1:]
options = {"rounds": 8, "moved": 0, "history": 1, "fragmented": 0, **{k: int(v) for k, v in (pair.split("=") for pair in pairs)}}


def stack(function: str, line: int) -> list[dict[str, Any]]:
    return [{"filename": "train.py", "line": line, "name": function}]


ASKS, DROPS = stack("forward", 10), stack("backward", 20)
entries: list[dict[str, Any]] = []
segments: list[dict[str, Any]] = []


def entry(action: str, addr: int, size: int) -> None:
    frames = DROPS if action.startswith("free") else ASKS
    entries.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": len(entries), "frames": frames})


def take_and_drop(addr: int, size: int) -> None:
    entry("alloc", addr, size)
    entry("free_requested", addr, size)
    entry("free_completed", addr, size)


def segment(addr: int, *blocks: tuple[int, str]) -> None:
    """Blocks are (size, state) in order."""
    laid = []
    for size, state in blocks:
        requested = 0 if state == "inactive" else size
        laid.append({"address": addr, "size": size, "requested_size": requested, "state": state, "frames": []})
        addr += size
    active = sum(block["requested_size"] for block in laid)
    total = sum(block["size"] for block in laid)
    where = {"device": 0, "address": laid[0]["address"], "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0)}
    sizes = {"total_size": total, "allocated_size": active, "active_size": active, "requested_size": active}
    segments.append({**where, **sizes, "is_expandable": False, "frames": [], "blocks": laid})


def growing() -> None:
    addr = BASE
    for i in range(options["rounds"]):
        size = (40 + 2 * i) * MIB
        addr -= size
        entry("segment_alloc", addr, size)
        take_and_drop(addr + (512 if options["moved"] and i == 3 else 0), size)
        segment(addr, (size, "inactive"))


def fragmented() -> None:
    entry("segment_alloc", BASE, 60 * MIB)
    take_and_drop(BASE, 60 * MIB)
    entry("alloc", BASE, 20 * MIB)
    entry("oom", 30 * MIB, 50 * MIB)
    entries[-1]["device_free"] = entries[-1].pop("addr")
    segment(BASE, (20 * MIB, "active_allocated"), (40 * MIB, "inactive"))


fragmented() if options["fragmented"] else growing()
settings = {
    "PYTORCH_CUDA_ALLOC_CONF": "",
    "max_split_size": -1,
    "garbage_collection_threshold": 0.0,
    "expandable_segments": False,
    "graph_capture_record_stream_reuse": False,
    "roundup_power2_divisions": {str(2**i): 0 for i in range(16)},
}
traces = [entries if options["history"] else []]
with open(path, "wb") as file:
    snapshot = {"segments": segments, "device_traces": traces, "allocator_settings": settings, "external_annotations": []}
    pickle.dump(snapshot, file, protocol=4)
