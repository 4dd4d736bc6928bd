"""What a training run really takes: on a card by the allocator's and the driver's own accounts, on the CPU by PyTorch's profiler.

Neither knows anything of our capture, so what they say can be held against a prediction.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import _nvml, batches


class CudaMeter:
    """Peaks of the caching allocator and of the card. Make one before anything is put on the card, for the driver's count of other processes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.card = _nvml.Card(device.index or 0)
        memory = self.card.memory()
        self.others = memory.used if memory is not None and not torch.cuda.is_initialized() else None
        self.first: dict[str, int] = {}
        self.result: dict[str, int] = {}

    def run(self, n: int, step: Callable[[], Any], batch: Any = None) -> Any:
        """Runs step n, 0 first, and takes its peaks; from step 1 on the largest counts."""
        torch.cuda.reset_peak_memory_stats(self.device)
        value = step()
        torch.cuda.synchronize(self.device)
        peaks = {
            "allocated_bytes": torch.cuda.max_memory_allocated(self.device),
            "reserved_bytes": torch.cuda.max_memory_reserved(self.device),
        }
        used = self.used()
        if used is not None:
            # The driver is asked afterwards: what it counts beyond the segments that are held now, on top of the peak of those.
            peaks["device_used_bytes"] = peaks["reserved_bytes"] + used - torch.cuda.memory_reserved(self.device)
        if n == 0:
            self.first = peaks
        else:
            self.result = {key: max(value, self.result.get(key, 0)) for key, value in peaks.items()}
        return value

    def used(self) -> int | None:
        """Bytes that this process has on the card; None where the driver does not tell processes apart and we came too late to know."""
        own = self.card.process_bytes()
        if own is not None:
            return own
        memory = self.card.memory()
        return memory.used - self.others if memory is not None and self.others is not None else None

    def peaks(self) -> dict[str, dict[str, int]]:
        """{"first": ..., "steady": ...}; a run of one step has only the first."""
        return {"first": self.first, "steady": self.result or self.first}


class CpuMeter:
    """Peak of one steady step by the profiler's memory events, on top of what was live before it."""

    STEP = 1  # the step that is profiled; slower, so its time is not counted

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.result: dict[str, int] = {}

    def run(self, n: int, step: Callable[[], Any], batch: Any = None) -> Any:
        if n != self.STEP:
            return step()
        before = live_bytes(self.model, self.optimizer, batch)
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler writes of its starting and stopping to stderr
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
            value = step()
        self.result = {"allocated_bytes": before + profiled_peak(profiler)}
        return value

    def peaks(self) -> dict[str, dict[str, int]]:
        return {"first": {}, "steady": self.result}


def profiled_peak(profiler: torch.profiler.profile) -> int:
    """The most that the CPU allocations and frees of a profile add up to."""
    results = profiler.profiler.kineto_results
    changes = [(e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]" and e.device_type() == torch.autograd.DeviceType.CPU]
    live = peak = 0
    for _, size in sorted(changes, key=lambda change: change[0]):
        live += size
        peak = max(peak, live)
    return peak


def live_bytes(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> int:
    """Bytes of the storages that a model, its gradients, its optimizer and a batch hold."""
    sizes: dict[int, int] = {}

    def add(tensors: Iterable[Any]) -> None:
        for t in tensors:
            if isinstance(t, torch.Tensor) and t.layout is torch.strided:
                storage = t.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()

    add(model.parameters())
    add(model.buffers())
    add(p.grad for p in model.parameters())
    add(batches.leaves(optimizer.state_dict()["state"]))
    add(batches.leaves(batch))
    sizes.pop(0, None)
    return sum(sizes.values())
