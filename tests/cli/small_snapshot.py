"""Writes the memory snapshot of a small training run, as torch.cuda.memory._dump_snapshot() would.

    small_snapshot.py FILE [leak=BYTES] [steps=N] [batch=N] [oom=1] [history=0]

Four layers, a loss, Adam; what autograd's thread allocates has no frames. Each block has a segment of its own, so the arithmetic is plain.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

MIB = 1 << 20
TORCH = "/usr/lib/python3.12/site-packages/torch/"


def frame(text: str) -> dict[str, Any]:
    place, name = text.rsplit(" ", 1)
    filename, line = place.rsplit(":", 1)
    return {"filename": filename, "line": int(line), "name": name}


def stack(*frames: str) -> list[dict[str, Any]]:
    return [frame(f) for f in frames] + [frame("train.py:90 <module>")]


CALL = TORCH + "nn/modules/module.py:1790 _call_impl"
MODEL = stack(TORCH + "nn/modules/module.py:965 _apply", "train.py:10 build")
INPUT = stack("train.py:30 step")
LAYER = stack(TORCH + "nn/modules/linear.py:134 forward", CALL, "model.py:20 forward", CALL, "train.py:31 step")
LOSS = stack(TORCH + "nn/functional.py:3504 cross_entropy", "train.py:32 step")
BACKWARD = stack(TORCH + "autograd/__init__.py:231 _make_grads", TORCH + "_tensor.py:631 backward", "train.py:33 step")
AUTOGRAD: list[dict[str, Any]] = []
STATE = stack(TORCH + "optim/adam.py:178 _init_group", TORCH + "optim/optimizer.py:533 wrapper", "train.py:34 step")
ZERO = stack(TORCH + "optim/optimizer.py:1000 zero_grad", "train.py:35 step")
KEPT = stack("train.py:40 step")


class Memory:
    """Blocks of whole MiB, from 10 on; each in a segment of its own, used again by blocks of the same size."""

    def __init__(self) -> None:
        self.trace: list[dict[str, Any]] = []
        self.segments: dict[int, dict[str, Any]] = {}
        self.cache: dict[int, list[int]] = {}
        self.annotations: list[dict[str, Any]] = []
        self.next = 0x7F0000000000
        self.time = 1_700_000_000_000_000

    def entry(self, action: str, addr: int, size: int, frames: list[dict[str, Any]]) -> None:
        self.time += 10
        self.trace.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": self.time, "compile_context": "N/A",
                           "user_metadata": "", "frames": frames})  # fmt: skip

    def alloc(self, mib: int, frames: list[dict[str, Any]]) -> int:
        size = mib * MIB
        free = self.cache.setdefault(size, [])
        if not free:
            self.next += 0x40000000
            self.entry("segment_alloc", self.next, size, frames)
            self.segments[self.next] = {}
            free.append(self.next)
        addr = free.pop()
        self.segments[addr] = {"size": size, "live": True, "frames": frames}
        self.entry("alloc", addr, size, frames)
        return addr

    def free(self, addr: int, frames: list[dict[str, Any]]) -> None:
        segment = self.segments[addr]
        self.entry("free_requested", addr, segment["size"], frames)
        self.entry("free_completed", addr, segment["size"], frames)
        segment["live"] = False
        self.cache[segment["size"]].append(addr)

    def annotate(self, name: str, stage: str) -> None:
        self.time += 10
        self.annotations.append({"name": name, "stage": stage, "device": 0, "time_us": self.time})

    def oom(self, mib: int, frames: list[dict[str, Any]], device_free: int) -> None:
        for addr in [addr for addr, s in self.segments.items() if not s["live"]]:
            self.entry("segment_free", addr, self.segments.pop(addr)["size"], frames)
        self.entry("oom", 0, mib * MIB, frames)
        del self.trace[-1]["addr"]
        self.trace[-1]["device_free"] = device_free

    def snapshot(self, history: bool) -> dict[str, Any]:
        segments = [_segment(addr, s) for addr, s in sorted(self.segments.items())]
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0, "expandable_segments": False,
                    "roundup_power2_divisions": {"1": 0}}  # fmt: skip
        return {"segments": segments, "device_traces": [self.trace if history else []], "allocator_settings": settings,
                "external_annotations": self.annotations if history else []}  # fmt: skip


def _segment(addr: int, s: dict[str, Any]) -> dict[str, Any]:
    live = s["size"] if s["live"] else 0
    block = {"address": addr, "size": s["size"], "requested_size": s["size"], "state": "active_allocated" if live else "inactive", "frames": s["frames"]}
    return {"device": 0, "address": addr, "total_size": s["size"], "allocated_size": live, "active_size": live, "requested_size": live, "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": [block]}  # fmt: skip


def step(m: Memory, first: bool, batch: int, leak: int) -> None:
    inputs = m.alloc(10, INPUT)
    saved = [m.alloc(12 * batch, LAYER) for _ in range(4)]
    loss = m.alloc(16, LOSS)
    one = m.alloc(10, BACKWARD)
    gradients = []
    for block in reversed(saved):
        gradients.append(m.alloc(14, AUTOGRAD))
        m.free(block, AUTOGRAD)
    m.free(loss, AUTOGRAD)
    m.free(one, BACKWARD)
    if leak:
        m.alloc(leak, KEPT)
    m.annotate("Optimizer.step#Adam.step", "START")
    if first:
        for _ in range(8):
            m.alloc(14, STATE)
    m.annotate("Optimizer.step#Adam.step", "END")
    for block in gradients:
        m.free(block, ZERO)
    m.free(inputs, INPUT)


def main() -> None:
    given = dict(pair.split("=", 1) for pair in sys.argv[2:])
    m = Memory()
    for _ in range(4):
        m.alloc(14, MODEL)
    for k in range(int(given.get("steps", 6))):
        step(m, k == 0, int(given.get("batch", 1)), int(given.get("leak", 0)) // MIB)
    if given.get("oom"):
        m.oom(60, LAYER, 40 * MIB)
    with open(sys.argv[1], "wb") as file:
        pickle.dump(m.snapshot(given.get("history") != "0"), file, 4)


if __name__ == "__main__":
    main()
