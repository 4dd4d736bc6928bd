"""The driver's own account of a card's memory, read through NVML (libnvidia-ml.so.1) without any other package.

PyTorch's statistics see only what its allocator holds. What the process takes beyond that (CUDA context, kernels' code,
library handles) shows only here. Everything answers None where there is no NVML, and never raises.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple


class Memory(NamedTuple):
    """Bytes of one card: total = reserved (by the driver) + used + free."""

    total: int
    reserved: int
    free: int
    used: int


class _MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(name, ctypes.c_ulonglong) for name in Memory._fields]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


_NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE


def _open() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


class Card:
    """One card as NVML knows it. `index` counts the cards that this process may see, as in torch.cuda."""

    def __init__(self, index: int = 0) -> None:
        self._library = _open()
        self._handle = ctypes.c_void_p()
        if self._library is not None and not self._find(index):
            self._library = None

    def _find(self, index: int) -> bool:
        visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
        name = visible[index] if index < len(visible) else str(index)
        assert self._library is not None
        if name.isdigit():
            return self._library.nvmlDeviceGetHandleByIndex_v2(int(name), ctypes.byref(self._handle)) == 0
        return self._library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self._handle)) == 0

    def memory(self) -> Memory | None:
        """The card's memory now, of all processes together."""
        if self._library is None:
            return None
        info = _MemoryV2(version=ctypes.sizeof(_MemoryV2) | 2 << 24)
        try:
            if self._library.nvmlDeviceGetMemoryInfo_v2(self._handle, ctypes.byref(info)) != 0:
                return None
        except AttributeError:  # a driver before 510
            return None
        return Memory(info.total, info.reserved, info.free, info.used)

    def process_bytes(self) -> int | None:
        """What this process holds on the card; None where the driver does not say, as in most containers."""
        if self._library is None:
            return None
        processes = (_Process * 256)()
        count = ctypes.c_uint(len(processes))
        try:
            code = self._library.nvmlDeviceGetComputeRunningProcesses_v3(self._handle, ctypes.byref(count), processes)
        except AttributeError:
            return None
        if code != 0:
            return None
        for process in processes[: count.value]:
            if process.pid == os.getpid() and process.used_bytes != _NOT_AVAILABLE:
                return int(process.used_bytes)
        return None

    def driver(self) -> str | None:
        """The driver's version, "580.159.04"."""
        if self._library is None:
            return None
        text = ctypes.create_string_buffer(80)
        return text.value.decode() if self._library.nvmlSystemGetDriverVersion(text, 80) == 0 else None
