"""Would autograd add a gradient in place?

Where two branches meet, the engine adds the second gradient into the first when nobody else holds that one, and takes new memory
otherwise (torch/csrc/autograd/input_buffer.cpp).  While a dispatch mode watches it always takes new memory, which is one activation
too much at every residual connection.  So capture answers in its place, from the same reference counts.
"""
from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def _counts(t: torch.Tensor) -> tuple[int, int, int]:
    return t._use_count(), torch._C._storage_Use_Count(t.untyped_storage()._cdata), sys.getrefcount(t)


class _Probe(TorchDispatchMode):
    """Sees the engine add two gradients that it alone holds."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: tuple[int, int, int] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is torch.ops.aten.add.Tensor and not torch.is_grad_enabled() and self.seen is None:
            self.seen = _counts(args[0])
        return func(*args, **(kwargs or {}))


class SoleOwner:
    """Tells by the reference counts of an addition's first argument; what "nobody else" looks like is measured, as it depends on the version."""

    alone: tuple[int, int, int] | None = None

    def measure(self) -> None:
        """Call under the FakeTensorMode with no recorder."""
        if SoleOwner.alone is None:
            x = torch.empty(2, device="cpu", requires_grad=True)
            y = x * 2
            z = (y.sin() + y.cos()).sum()
            with _Probe() as probe:
                z.backward()
            SoleOwner.alone = probe.seen

    def __call__(self, args: tuple) -> bool:
        if self.alone is None or len(args) != 2 or torch.is_grad_enabled():
            return False
        counts = _counts(args[0]) if isinstance(args[0], torch.Tensor) else ()  # before another name for it counts as well
        old, new = args
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
            return False
        if old.shape != new.shape or old.dtype != new.dtype or old.layout is not torch.strided or new.layout is not torch.strided:
            return False
        return all(a <= b for a, b in zip(counts, self.alone)) and _dense(old)


def _dense(t: torch.Tensor) -> bool:
    """Non-overlapping and dense."""
    expected = 1
    for stride, size in sorted((s, n) for n, s in zip(t.shape, t.stride()) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True
