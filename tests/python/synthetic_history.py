"""Memory snapshots as PyTorch writes them, of a training run that never was: any number of events, for tests and benchmarks.

The run is a transformer's: parameters and optimizer state, then steps of forward (activations stay), backward (they go, gradients
come) and an optimizer. Addresses and segments come from the caching model. One line of it leaks.
"""

from __future__ import annotations

import random
from typing import Any

from caching_model import CachingModel, Conf

MIB = 1 << 20
Frames = list[dict[str, Any]]
BASE = [("_bootstrap", "/usr/lib/python3.11/threading.py", 1002), ("main", "/srv/run/train.py", 212), ("run_epoch", "/srv/run/train.py", 141)]
STEP = [*BASE, ("train_step", "/srv/run/train.py", 88)]
CALL = ("_call_impl", "/usr/lib/python3/torch/nn/modules/module.py", 1784)
FORWARD = [*STEP, CALL, ("forward", "/srv/run/model.py", 310), CALL]
PARTS = [  # name, line, saved activations, temporaries, size in units
    ("attention_norm", 141, 2, 1, 1), ("qkv", 77, 1, 1, 3), ("rotary", 83, 2, 3, 1), ("scaled_dot_product", 95, 3, 2, 2),
    ("projection", 101, 1, 1, 1), ("mlp_norm", 149, 2, 1, 1), ("up", 121, 1, 1, 4), ("gelu", 123, 1, 2, 4), ("down", 125, 1, 2, 1),
]  # fmt: skip


def frames(lines: list[tuple[str, str, int]]) -> Frames:
    """A stack, innermost first."""
    return [{"name": name, "filename": file, "line": line} for name, file, line in reversed(lines)]


class Run:
    """Records what a program allocates. Names of blocks are anything hashable."""

    def __init__(self, expandable: bool = False, seed: int = 1, device: int = 0) -> None:
        self.random = random.Random(seed)
        self.expandable, self.device = expandable, device
        self.entries: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.segments: dict[int, tuple[int, int, Frames]] = {}
        self.live: dict[Any, tuple[int, int, Frames]] = {}
        self.time_us = 1_700_000_000_000_000
        self.stack: Frames = []
        self._next = 0x7F0000000000
        self._model = CachingModel(141 << 30, 0, Conf(expandable_segments=expandable), self._place, self._segment)

    def _place(self, kind: str, size: int, stream: int) -> int:
        address = self._next
        self._next += (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB + 2 * MIB
        return address

    def _segment(self, kind: str, address: int, size: int, stream: int) -> None:
        self._entry(kind, address, size, self.stack)

    def _entry(self, action: str, address: int, size: int, stack: Frames) -> None:
        self.time_us += self.random.choice((3, 5, 8, 12, 20))
        self.entries.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.time_us, "frames": stack})

    def alloc(self, name: Any, size: int, stack: Frames) -> None:
        self.stack = stack
        address = self._model.alloc(size, 0)
        assert address is not None
        self._entry("alloc", address, size, stack)
        self.live[name] = (address, size, stack)

    def free(self, name: Any, delay: int = 0) -> None:
        address, size, stack = self.live.pop(name)
        self._entry("free_requested", address, size, stack)
        self._entry("free_completed", address, size, stack)
        self._model.dealloc(address)

    def out_of_memory(self, size: int, free: int, stack: Frames) -> None:
        self._entry("oom", 0, size, stack)
        self.entries[-1]["device_free"] = free
        del self.entries[-1]["addr"]

    def annotate(self, name: str, stage: str) -> None:
        self.annotations.append({"name": name, "stage": stage, "device": self.device, "time_us": self.time_us})

    def trace_segments(self) -> list[dict[str, Any]]:
        stacks = {address: stack for address, _, stack in self.live.values()}
        out: dict[int, dict[str, Any]] = {}
        for segment, address, size, requested, state in self._model.blocks():
            held = out.setdefault(segment, {"device": self.device, "address": segment, "total_size": 0, "allocated_size": 0, "active_size": 0,
                                            "requested_size": 0, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                                            "is_expandable": self.expandable, "frames": [], "blocks": []})  # fmt: skip
            live = state == "active_allocated"
            held["blocks"].append({"address": address, "size": size, "requested_size": requested, "state": state, "frames": stacks.get(address, [])})
            held["total_size"] += size
            held["allocated_size"] += size * live
            held["active_size"] += size * live
            held["requested_size"] += requested
        for held in out.values():
            if held["total_size"] == 2 * MIB:
                held["segment_type"] = "small"
        return sorted(out.values(), key=lambda held: held["address"])

    def snapshot(self) -> dict[str, Any]:
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True" if self.expandable else "", "expandable_segments": self.expandable}
        traces: list[list[dict[str, Any]]] = [[] for _ in range(self.device)] + [self.entries]
        return {"segments": self.trace_segments(), "device_traces": traces, "allocator_settings": settings, "external_annotations": self.annotations}


class Training:
    """A transformer's steps on a Run; a step of 32 layers is about 8000 entries."""

    def __init__(self, run: Run, layers: int = 32, unit: int = 24 * MIB, varied: bool = False) -> None:
        self.run, self.layers, self.unit, self.varied = run, layers, unit, varied
        self.steps = 0
        build = frames([*BASE[:2], ("build_model", "/srv/run/train.py", 60), ("__init__", "/srv/run/model.py", 280)])
        state = frames([*STEP, ("step", "/usr/lib/python3/torch/optim/adamw.py", 243), ("_init_group", "/usr/lib/python3/torch/optim/adamw.py", 176)])
        for layer in range(layers):
            for part, (_, line, _, _, size) in enumerate(PARTS):
                stack = frames([*BASE[:2], ("build_model", "/srv/run/train.py", 60), ("__init__", "/srv/run/model.py", line)])
                run.alloc(("parameter", layer, part), size * unit // 3, stack)
        run.alloc("embedding", 12 * unit, build)
        for layer in range(layers):
            for moment in (1, 2):
                run.alloc(("state", layer, moment), unit * 3, state)

    def _size(self, units: float) -> int:
        scale = self.run.random.uniform(0.4, 1.0) if self.varied else 1.0
        return max(512, int(units * self.unit * scale) // 4)

    def forward(self) -> None:
        for layer in range(self.layers):
            for name, line, saved, temporaries, size in PARTS:
                stack = frames([*FORWARD, ("forward", "/srv/run/model.py", 205), CALL, (name, "/srv/run/model.py", line)])
                for k in range(temporaries):
                    self.run.alloc(("temporary", k), self._size(size), stack)
                for k in range(saved):
                    self.run.alloc(("saved", layer, name, k), self._size(size), stack)
                for k in range(temporaries):
                    self.run.free(("temporary", k))
        head = frames([*STEP, ("loss_fn", "/srv/run/train.py", 52), ("cross_entropy", "/usr/lib/python3/torch/nn/functional.py", 3462)])
        self.run.alloc("logits", self._size(180), head)
        self.run.alloc("softmax", self._size(180), head)

    def backward(self) -> None:
        back = [*STEP, ("backward", "/usr/lib/python3/torch/_tensor.py", 648), ("_engine_run_backward", "/usr/lib/python3/torch/autograd/graph.py", 824)]
        self.run.free("softmax")
        self.run.free("logits")
        for layer in reversed(range(self.layers)):
            for part, (name, line, saved, _temporaries, size) in reversed(list(enumerate(PARTS))):
                stack = frames([*back, (name, "/srv/run/model.py", line)])
                for k in range(3):
                    self.run.alloc(("temporary", k), self._size(size), stack)
                self.run.alloc(("gradient", layer, part), size * self.unit // 3, stack)
                for k in range(saved):
                    self.run.free(("saved", layer, name, k))
                for k in range(3):
                    self.run.free(("temporary", k))

    def step(self) -> None:
        run = self.run
        run.annotate(f"ProfilerStep#{self.steps}", "START")
        run.annotate("forward", "START")
        self.forward()
        run.annotate("forward", "END")
        run.annotate("backward", "START")
        self.backward()
        run.annotate("backward", "END")
        run.alloc(("leak", self.steps), 9 * MIB + 100, frames([*STEP, ("log_metrics", "/srv/run/train.py", 97)]))
        for layer in range(self.layers):
            for part in range(len(PARTS)):
                run.free(("gradient", layer, part))
        run.annotate(f"ProfilerStep#{self.steps}", "END")
        run.time_us += 30_000
        self.steps += 1


def training(events: int, *, expandable: bool = False, varied: bool = False, seed: int = 1, layers: int = 32) -> dict[str, Any]:
    """A snapshot with at least that many entries, ending out of memory."""
    run = Run(expandable, seed)
    job = Training(run, layers, varied=varied)
    while len(run.entries) < events:
        job.step()
    job.forward()
    run.out_of_memory(6 << 30, 2 << 30, frames([*FORWARD, ("forward", "/srv/run/model.py", 205), CALL, ("up", "/srv/run/model.py", 121)]))
    return run.snapshot()
