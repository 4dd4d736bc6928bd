"""Devices by name: the profile of a card, and the torch device that stands for it.  No torch is imported here."""
from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass, field
from typing import Any

from . import _nvml


@dataclass(frozen=True)
class Device:
    """`name` as the profile has it; `type` of torch device, "cpu" or "cuda"; `profile` as in profiles/NAME.json."""

    name: str
    type: str
    profile: dict[str, Any] = field(default_factory=dict, compare=False)

    def workspace_bytes(self, library: str) -> int:
        """What "cublas" or "cublaslt" takes for each thread that calls it, for good."""
        return int(self.profile.get(f"{library}_workspace_bytes", 0)) if self.type == "cuda" else 0

    @property
    def text(self) -> str:
        """The profile's JSON, as the C library takes it."""
        return json.dumps(self.profile)


def find(name: str) -> Device:
    """The device of a name ("h200", "cpu") or of a profile's file.  Raises ProfileError."""
    from . import profile

    found = profile.load(name)
    known = str(found.get("name") or name)
    return Device(known, "cpu" if known == "cpu" else "cuda", found)


def present() -> str:
    """The name of the device that this machine would train on: its first card's by the driver, else "cpu"."""
    library = None if os.environ.get("CUDA_VISIBLE_DEVICES") == "" else _nvml._open()
    if library is None:
        return "cpu"
    handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    memory = (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used
    if library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) or library.nvmlDeviceGetName(handle, text, len(text)):
        return "cpu"
    library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    from . import profile

    return profile.name_of(text.value.decode(errors="replace"), memory[0])
