"""Devices by name: the profile of a card, and the torch device that stands for it."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import Error

FOLDER = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class Device:
    """`name` as the user gave it; `type` of torch device, "cpu" or "cuda"; `profile` as in profiles/NAME.json."""

    name: str
    type: str
    profile: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def cublas_workspace_bytes(self) -> int:
        return int(self.profile.get("cublas_workspace_bytes", 0)) if self.type == "cuda" else 0

    @property
    def text(self) -> str:
        """The profile's JSON, as the C library takes it."""
        return json.dumps(self.profile)


def names() -> list[str]:
    """The devices that have a profile, "cpu" among them."""
    return sorted({"cpu", *(p.stem for p in FOLDER.glob("*.json"))})


def find(name: str) -> Device:
    """The device of a name ("h200", "cpu") or of a profile's file.  Raises Error."""
    path = Path(name) if name.endswith(".json") else FOLDER / f"{name}.json"
    if name == "cpu" and not path.is_file():
        return Device("cpu", "cpu", {"name": "cpu"})
    if not path.is_file():
        raise Error(f"unknown device {name!r}; known: {' '.join(names())}, or a profile's .json file")
    try:
        profile = json.loads(path.read_text())
    except ValueError as error:
        raise Error(f"{path}: not a device profile: {error}") from None
    if not isinstance(profile, dict):
        raise Error(f"{path}: not a device profile: expected an object")
    kind = "cpu" if profile.get("name", name) == "cpu" or profile.get("type") == "cpu" else "cuda"
    return Device(str(profile.get("name", name)), kind, profile)
