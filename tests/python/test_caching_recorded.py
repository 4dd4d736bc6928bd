"""The caching model against histories recorded on a GPU: every segment event, the final map and the statistics, exactly."""

from __future__ import annotations

from typing import Any

import pytest

import recorded
from caching_model import CachingModel
from recorded import SEGMENT_ACTIONS, Recording

# Settings that the model does not have, and what a history holds that it does not model.
SETTINGS = ("default", "expandable")
NOT_MODELLED = {
    "recorded__graph__default": "private pools of CUDA graphs are not modelled yet",
    "recorded__mempool__default": "memory pools are not modelled yet",
}
# Blocks that wait for another stream (record_stream) are freed where the history says they were: the segments are exact, the
# counts between the request to free and its completion are not.
WITH_PENDING_FREES = ("recorded__stress_streams__default",)
SEGMENT_STATS = ("reserved_bytes", "segment", "num_device_alloc", "num_device_free")
# A torch.cuda.empty_cache() that finds nothing to give back leaves no event.  The same program's expandable history shows one
# after 1500 allocations and frees.
SILENT_EMPTY_CACHE = {"recorded__stress__default": 1500}


class Replay:
    """Drives the model with the recorded events; segments are placed where the recording has them."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.wanted = [e for e in recording.events if e["action"] in SEGMENT_ACTIONS]
        self.got: list[tuple[str, int, int, int]] = []
        handles = sorted({event["stream"] for event in recording.events})
        self.stream_ids = {handle: index for index, handle in enumerate(handles)}
        self.model = CachingModel(
            recording.total_bytes,
            recording.limit_bytes,
            recording.config == "expandable",
            segment_addr=self.segment_addr,
            segment_event=lambda *event: self.got.append(event),
        )

    def segment_addr(self, kind: str, size: int, stream: int) -> int:
        """The recorded address of the segment event that comes next; 0 (out of memory) if the recording has none there."""
        at = len(self.got)
        return self.wanted[at]["addr"] if at < len(self.wanted) and self.wanted[at]["action"] == kind else 0

    def run(self) -> None:
        pending_frees = self.recording.name in WITH_PENDING_FREES
        free_action = "free_completed" if pending_frees else "free_requested"
        silent_empty_cache = SILENT_EMPTY_CACHE.get(self.recording.name)
        segment_events = allocs_and_frees = 0  # recorded so far
        for at, event in enumerate(self.recording.events):
            if allocs_and_frees == silent_empty_cache:
                self.model.empty_cache()
                silent_empty_cache = None
            action = event["action"]
            allocs_and_frees += action in ("alloc", "free_requested")
            if action in SEGMENT_ACTIONS:
                segment_events += 1
                # Under a limit frees belong to the allocation that follows; without one they are torch.cuda.empty_cache().
                gives_back = action in ("segment_free", "segment_unmap")
                if gives_back and not self.recording.limit_bytes and segment_events > len(self.got):
                    self.model.empty_cache()
            elif action == "alloc":
                address = self.model.alloc(event["size"], self.stream_ids[event["stream"]])
                assert address == event["addr"], f"event {at}: {event['size']} bytes"
            elif action == free_action:
                self.model.dealloc(event["addr"])
            elif action == "oom":
                # The event has the rounded size, which rounds to itself.
                assert self.model.alloc(event["size"], self.stream_ids[event["stream"]]) is None, f"event {at}"


def final_map(segments: list[dict[str, Any]]) -> list[tuple[int, int, int, int, bool]]:
    out = []
    for segment in segments:
        for block in segment["blocks"]:
            live = block["state"] == "active_allocated"
            out.append((segment["address"], block["address"], block["size"], block["requested_size"] if live else 0, live))
    return out


def cases() -> list[Any]:
    out = []
    for entry in recorded.manifest():
        name = entry["file"].removesuffix(".pickle.gz")
        reason = NOT_MODELLED.get(name)
        if entry["config"] not in SETTINGS:
            reason = f"the setting {entry['conf']} is not modelled yet"
        marks = [pytest.mark.skip(reason=reason)] if reason else []
        out.append(pytest.param(entry, id=name.removeprefix("recorded__"), marks=marks))
    return out or [pytest.param({}, marks=pytest.mark.skip(reason="no recorded histories here"))]


@pytest.mark.parametrize("entry", cases())
def test_replay_is_exact(entry: dict[str, Any]) -> None:
    recording = recorded.load(entry)
    replay = Replay(recording)
    replay.run()
    wanted = [(e["action"], e["addr"], e["size"], replay.stream_ids[e["stream"]]) for e in replay.wanted]
    assert replay.got == wanted
    assert replay.model.blocks() == final_map(recording.segments)
    stats = replay.model.stats()
    for name, value in recording.stats.items():
        if recording.name not in WITH_PENDING_FREES or name.split(".")[0] in SEGMENT_STATS:
            assert stats[name] == value, name
    replay.model.close()
