"""Recorded allocator histories as plain data, for the tests that replay them.

The files are PyTorch memory snapshots beside a manifest of what ``torch.cuda.memory_stats()`` said at their end. They lie outside
the repository; a test that wants one skips with a reason when they are not there.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SNAPSHOTS = Path(os.environ.get("TONNAGE_TEST_DATA", REPOSITORY.parent / "shared" / "data")) / "snapshots"

SEGMENT_ACTIONS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")


class SafeUnpickler(pickle.Unpickler):
    """Plain containers, strings and numbers only: a snapshot needs nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a snapshot does not name {module}.{name}")


@dataclass(frozen=True)
class Recording:
    """One recorded history and what was measured at its end."""

    name: str
    settings: dict[str, Any]  # the snapshot's allocator_settings
    limit_bytes: int  # per-process limit on reserved memory, 0 = none
    total_bytes: int  # of the device
    stats: dict[str, int]  # torch.cuda.memory_stats() at the end
    events: list[dict[str, Any]]  # of the device that has any, oldest first
    segments: list[dict[str, Any]]  # at the end, by address


def manifest() -> list[dict[str, Any]]:
    """The manifest's entries of recordings, [] when the data is not there."""
    path = SNAPSHOTS / "MANIFEST.json"
    if not path.exists():
        return []
    return [entry for entry in json.loads(path.read_text()) if entry["file"].startswith("recorded__")]


def load(entry: dict[str, Any]) -> Recording:
    """The recording of a manifest entry; skips the test when its file is missing."""
    path = SNAPSHOTS / entry["file"]
    if not path.exists():
        pytest.skip(f"{entry['file']} is not there")
    with gzip.open(path, "rb") as file:
        snapshot = SafeUnpickler(file).load()
    (events,) = [trace for trace in snapshot["device_traces"] if trace]
    return Recording(
        name=entry["file"].removesuffix(".pickle.gz"),
        settings=snapshot["allocator_settings"],
        limit_bytes=entry["per_process_limit_bytes"] or 0,
        total_bytes=entry["device_total_bytes"],
        stats=entry["measured_stats"],
        events=events,
        segments=sorted(snapshot["segments"], key=lambda segment: segment["address"]),
    )
