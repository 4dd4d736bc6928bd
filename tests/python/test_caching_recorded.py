"""The caching model against histories recorded on a GPU: every segment event, the final map and the statistics, exactly."""

from __future__ import annotations

from typing import Any

import pytest

import recorded
from caching_model import CachingModel, conf_of
from recorded import SEGMENT_ACTIONS, Recording

# torch.cuda.empty_cache() that finds nothing to give back leaves no event, and only this statistic knows of it.
SILENT = "num_sync_all_streams"


class Pools:
    """Whose memory an allocation is from: the snapshot says it of the segments that are there at the end."""

    def __init__(self, recording: Recording) -> None:
        self.of_event: dict[int, int] = {}
        ids = sorted({tuple(segment["segment_pool_id"]) for segment in recording.segments} | {(0, 0)})
        held = [(s["address"], s["address"] + s["total_size"], ids.index(tuple(s["segment_pool_id"]))) for s in recording.segments]
        for at in reversed(range(len(recording.events))):
            event = recording.events[at]
            if event["action"] == "segment_alloc":
                held = [segment for segment in held if segment[0] != event["addr"]]
            elif event["action"] == "alloc":
                self.of_event[at] = max((pool for begin, end, pool in held if begin <= event["addr"] < end), default=0)


class Replay:
    """Drives the model with the recorded events; segments are placed where the recording has them."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.wanted = [e for e in recording.events if e["action"] in SEGMENT_ACTIONS]
        self.got: list[tuple[str, int, int, int]] = []
        handles = sorted({event["stream"] for event in recording.events})
        self.stream_ids = {handle: index for index, handle in enumerate(handles)}
        self.other_stream = len(handles)
        self.pools = Pools(recording).of_event
        self.model = CachingModel(
            recording.total_bytes,
            recording.limit_bytes,
            conf_of(recording.settings),
            segment_addr=self.segment_addr,
            segment_event=lambda *event: self.got.append(event),
        )

    def segment_addr(self, kind: str, size: int, stream: int) -> int:
        """The recorded address of the segment event that comes next; 0 (out of memory) if the recording has none there."""
        at = len(self.got)
        return self.wanted[at]["addr"] if at < len(self.wanted) and self.wanted[at]["action"] == kind else 0

    def frees_now(self, at: int) -> bool:
        """Whether a free is complete at once: otherwise another stream still uses the block."""
        after = self.recording.events[at + 1 : at + 2]
        addr = self.recording.events[at]["addr"]
        return bool(after) and after[0]["action"] == "free_completed" and after[0]["addr"] == addr

    def is_empty_cache(self, at: int) -> bool:
        """Memory given back from another line of the program than the next allocation, which would do it when it finds none."""
        asks = (event for event in self.recording.events[at:] if event["action"] in ("alloc", "oom"))
        ask = next(asks, None)
        return ask is None or ask["frames"] is not self.recording.events[at]["frames"]

    def run(self) -> None:
        segment_events = 0  # recorded so far
        for at, event in enumerate(self.recording.events):
            action = event["action"]
            if action in SEGMENT_ACTIONS:
                segment_events += 1
                gives_back = action in ("segment_free", "segment_unmap")
                if gives_back and segment_events > len(self.got) and self.is_empty_cache(at):
                    self.model.empty_cache()
            elif action == "alloc":
                address = self.model.alloc(event["size"], self.stream_ids[event["stream"]], self.pools[at])
                assert address == event["addr"], f"event {at}: {event['size']} bytes"
            elif action == "free_requested":
                if not self.frees_now(at):
                    self.model.record_stream(event["addr"], self.other_stream)
                self.model.dealloc(event["addr"])
            elif action == "free_completed":
                self.model.complete(event["addr"])
            elif action == "oom":
                # The event has the rounded size, which rounds to itself.
                assert self.model.alloc(event["size"], self.stream_ids[event["stream"]]) is None, f"event {at}"


def final_map(segments: list[dict[str, Any]]) -> list[tuple[int, int, int, int, str]]:
    out = []
    for segment in segments:
        for block in segment["blocks"]:
            requested = 0 if block["state"] == "inactive" else block["requested_size"]
            out.append((segment["address"], block["address"], block["size"], requested, block["state"]))
    return out


def cases() -> list[Any]:
    out = [pytest.param(e, id=e["file"].removesuffix(".pickle.gz").removeprefix("recorded__")) for e in recorded.manifest()]
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
    assert stats[SILENT] <= recording.stats[SILENT]
    for name, value in recording.stats.items():
        assert name == SILENT or stats[name] == value, name
    replay.model.close()
