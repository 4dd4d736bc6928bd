"""What a snapshot says, in one plain form, read two ways: from the Python objects by the book, and from the trace that the C reader made."""

from __future__ import annotations

import json
import re
from typing import Any

from tonnage import tables as T
from tonnage._lib import Trace

ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot", "annotate")
STATES = ("inactive", "active_allocated", "active_pending_free")
CATEGORIES = {name: name for name in T.CATEGORIES} | {"optimizer_state": "optimizer", "autograd_detail": "temporary"}
SMALL, EXPANDABLE, UNTILED = 1, 2, 4
WORD = 2**64


# ---- from Python objects -------------------------------------------------------------------------------------------------


def _frames(frames: list[Any] | None) -> list[tuple[str, int, str]] | None:
    if frames is None:
        return None
    return [(_text(f["filename"]), f["line"] if 0 <= f["line"] < T.NONE else 0, _text(f["name"])) for f in frames]


def _text(text: str) -> str:
    """As it can be kept: no NUL, no lone surrogates."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text.replace("\0", "?"))


def _label(value: Any) -> str:
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _forward(texts: list[str] | None) -> list[tuple[str, int, str]] | None:
    if texts is None:
        return None
    out = []
    for text in reversed(texts):
        found = re.search(r'File "(.*?)", line (\d+)(?:, in ([^\n]*))?', text, re.S)
        out.append((found[1].strip(), int(found[2]), (found[3] or "").strip()) if found else ("", 0, text.strip(" \t\r\n")))
    return out


def _entry(e: dict[str, Any]) -> list[tuple]:
    actions = ("free_requested", "free_completed") if e["action"] == "free" else (e["action"],)
    context = e.get("compile_context", "")
    return [
        (
            action,
            (e["device_free"] if action == "oom" else e.get("addr", 0)) % WORD,
            e.get("size", 0),
            e.get("time_us", 0),
            e.get("stream", 0) % WORD,
            tuple(e.get("pool_id", (0, 0))),
            _frames(e.get("frames")),
            _forward(e.get("forward_frames")),
            _label(e.get("user_metadata", "")),
            "" if context == "N/A" else _text(context),
            CATEGORIES.get(e.get("category", "unknown"), "unknown"),
        )
        for action in actions
        if action in ACTIONS
    ]


def _block(b: dict[str, Any], at: int) -> tuple:
    requested, frames = b.get("requested_size", b["size"]), b.get("frames")
    if "history" in b:
        requested, frames = (b["history"][0]["real_size"], b["history"][0].get("frames")) if b["history"] else (0, None)
    state = "active_pending_free" if b["state"] == "active_awaiting_free" else b["state"]
    category = CATEGORIES.get(b.get("category", "unknown"), "unknown")
    return (b.get("address", at) % WORD, b["size"], 0 if state == "inactive" else requested, state, _frames(frames), category)


def _segment(s: dict[str, Any]) -> tuple:
    blocks, at = [], s["address"]
    for b in s["blocks"]:
        blocks.append(_block(b, at))
        at += b["size"]
    sums = [sum(b[k] for b in blocks if b[3] in states) for k, states in ((1, STATES[1:2]), (1, STATES[1:]), (2, STATES))]
    return (
        s["address"] % WORD,
        s["total_size"],
        s.get("allocated_size", sums[0]),
        s.get("active_size", sums[1]),
        s.get("requested_size", sums[2]),
        s.get("stream", 0) % WORD,
        tuple(s.get("segment_pool_id", (0, 0))),
        _frames(s.get("frames")),
        s.get("segment_type") == "small",
        bool(s.get("is_expandable", False)),
        blocks,
    )


def _devices(segments: list[dict[str, Any]], traces: list[list[dict[str, Any]]], is_host: bool) -> list[tuple]:
    """Those that have anything."""
    entries = {k: [row for e in trace for row in _entry(e)] for k, trace in enumerate(traces)}
    out = []
    for index in sorted({s.get("device", 0) for s in segments} | {k for k, rows in entries.items() if rows}):
        own = sorted((s for s in segments if s.get("device", 0) == index), key=lambda s: s["address"] % WORD)
        out.append((index, is_host, [_segment(s) for s in own], entries.get(index, [])))
    return out


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def expected(snapshot: Any) -> dict[str, Any]:
    top = {"segments": snapshot} if isinstance(snapshot, list) else snapshot
    devices = _devices(top.get("segments", []), top.get("device_traces", []), False)
    devices += _devices(top.get("host_segments", []), top.get("host_traces", []), True)
    return {
        "devices": devices,
        "annotations": [(a["name"], a["stage"] == "END", a["device"], a["time_us"]) for a in top.get("external_annotations", [])],
        "settings": {key: _setting(value) for key, value in top.get("allocator_settings", {}).items()},
    }


# ---- from a trace --------------------------------------------------------------------------------------------------------


class Reader:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.strings = trace.strings()
        names = ("frame", "stack_frame", "stack", "stream", "pool", "device", "segment", "segment_block", "entry", "annotation")
        for name in names:
            setattr(self, name, trace.table(name))
        frames = [(self.strings[file], line, self.strings[function]) for function, file, line, _ in self.frame]
        self.stacks = [[frames[self.stack_frame[k][0]] for k in range(at, at + count)] for at, count in self.stack]

    def frames(self, stack: int) -> list[tuple[str, int, str]] | None:
        return None if stack == T.NONE else self.stacks[stack]

    def entry_of(self, row: tuple) -> tuple:
        addr, size, time_us, stream, pool, stack, forward, label, context, action, category = row[:11]
        return (
            ACTIONS[action], addr, size, time_us, self.stream[stream][0], self.pool[pool], self.frames(stack), self.frames(forward),
            self.strings[label], self.strings[context], T.CATEGORIES[category],
        )  # fmt: skip

    def segment_of(self, row: tuple) -> tuple:
        addr, size, allocated, active, requested, at, count, stream, pool, stack, flags = row
        blocks = [(b[0], b[1], b[2], STATES[b[4]], self.frames(b[3]), T.CATEGORIES[b[5]]) for b in self.segment_block[at : at + count]]
        return (
            addr, size, allocated, active, requested, self.stream[stream][0], self.pool[pool], self.frames(stack), bool(flags & SMALL),
            bool(flags & EXPANDABLE), blocks,
        )  # fmt: skip

    def device_of(self, row: tuple) -> tuple:
        index, flags, segments_at, segments, entries_at, entries = row
        return (
            index,
            bool(flags & 1),
            [self.segment_of(s) for s in self.segment[segments_at : segments_at + segments]],
            [self.entry_of(e) for e in self.entry[entries_at : entries_at + entries]],
        )


def actual(trace: Trace, setting_names: list[str]) -> dict[str, Any]:
    reader = Reader(trace)
    return {
        "devices": [reader.device_of(row) for row in reader.device],
        "annotations": [(reader.strings[name], bool(flags & 1), device, time_us) for time_us, name, device, flags, _ in reader.annotation],
        "settings": {name: trace.meta(f"allocator.{name}") for name in setting_names},
    }


def compare(trace: Trace, snapshot: Any) -> None:
    """Every field; the settings' text is JSON, in which numbers may be written in several ways."""
    want = expected(snapshot)
    got = actual(trace, list(want["settings"]))
    for key, value in want["settings"].items():
        original = snapshot["allocator_settings"][key]
        if not isinstance(original, str):
            assert json.loads(got["settings"][key]) == original, key
        else:
            assert got["settings"][key] == value, key
    assert [d[:2] for d in got["devices"]] == [d[:2] for d in want["devices"]]
    for mine, theirs in zip(got["devices"], want["devices"], strict=True):
        assert mine[2] == theirs[2]
        assert mine[3] == theirs[3]
    assert got["annotations"] == want["annotations"]
