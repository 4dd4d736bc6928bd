"""The snapshot reader against pickle.load: every field of every snapshot at hand, and of made-up ones of every schema."""

from __future__ import annotations

import gzip
import json
import pickle
import pickletools
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recorded
import snapshots
from snapshot_maker import SCHEMAS, Maker, pickle_as_cpp
from snapshot_samples import FOLDER, either, refused
from snapshot_samples import read as read_samples
from tonnage import tables as T
from tonnage._lib import Trace
from tonnage.errors import LibraryError

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
import synthetic  # noqa: E402


def manifest() -> list[dict[str, Any]]:
    path = recorded.SNAPSHOTS / "MANIFEST.json"
    return json.loads(path.read_text()) if path.exists() else []


def files() -> list[str]:
    return [entry["file"] for entry in manifest()]


def each(names: list[str]) -> Any:
    """Parametrizes with files; one skip when there are none."""
    skip = pytest.mark.skip(reason="the reference snapshots are not there")
    files = [recorded.SNAPSHOTS / name for name in names] or [pytest.param(None, marks=skip)]
    return pytest.mark.parametrize("file", files, ids=lambda path: path and path.name)


def read(path: Path) -> tuple[bytes, Any]:
    raw = gzip.decompress(path.read_bytes())
    return raw, recorded.SafeUnpickler(gzip.open(path)).load()


@each(files())
def test_reference_snapshots(file):
    raw, snapshot = read(file)
    snapshots.compare(Trace.load_snapshot(file), snapshot)
    snapshots.compare(Trace.parse_snapshot(raw), snapshot)


@pytest.mark.parametrize("protocol", range(6))
def test_protocols(protocol):
    for name in files()[3:6]:
        _, snapshot = read(recorded.SNAPSHOTS / name)
        snapshots.compare(Trace.parse_snapshot(pickle.dumps(snapshot, protocol)), snapshot)


@each(files())
def test_reference_snapshot_as_json_and_from_cpp(file):
    _, snapshot = read(file)
    snapshots.compare(Trace.parse_snapshot(json.dumps(snapshot).encode()), snapshot)
    snapshots.compare(Trace.parse_snapshot(pickle_as_cpp(snapshot)), snapshot)


@each([entry["file"] for entry in manifest() if "facts" in entry])
def test_facts_of_the_manifest(file):
    """Sums that were computed independently when the manifest was made."""
    facts = next(entry for entry in manifest() if entry["file"] == file.name)["facts"]
    trace = Trace.load_snapshot(file)
    segments, blocks = trace.table("segment"), trace.table("segment_block")
    assert len(segments) == facts["nseg"]
    assert sum(s[1] for s in segments) == facts["reserved"]
    assert sum(s[2] for s in segments) == facts["allocated"]
    assert sum(s[3] for s in segments) == facts["active"]
    assert sum(s[4] for s in segments) == facts["requested"]
    by_state = {}
    for name in snapshots.STATES:
        sizes = [b[1] for b in blocks if snapshots.STATES[b[4]] == name]
        if sizes:
            by_state[name] = {"count": len(sizes), "bytes": sum(sizes), "largest": max(sizes)}
    assert by_state == facts["blocks_by_state"]
    assert len(trace.table("entry")) == sum(facts["traces"])
    assert len(trace.table("annotation")) == facts["external_annotations"]
    assert len(trace.table("stream")) == facts["streams"]


@each([entry["file"] for entry in recorded.manifest()])
def test_measured_statistics_of_recordings(file):
    entry = next(entry for entry in recorded.manifest() if entry["file"] == file.name)
    segments = Trace.load_snapshot(file).table("segment")
    measured = entry["measured_stats"]
    assert sum(s[1] for s in segments) == measured["reserved_bytes.all.current"]
    assert sum(s[2] for s in segments) == measured["allocated_bytes.all.current"]
    assert sum(s[3] for s in segments) == measured["active_bytes.all.current"]


# ---- made-up ones --------------------------------------------------------------------------------------------------------

many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def normal(snapshot: Any) -> Any:
    """As JSON can carry it: keys are texts, and there are no tuples."""
    if isinstance(snapshot, dict):
        return {str(key): normal(value) for key, value in snapshot.items()}
    if isinstance(snapshot, (list, tuple)):
        return [normal(value) for value in snapshot]
    return snapshot


@pytest.mark.parametrize("schema", SCHEMAS)
@many
@given(seed=st.integers(0, 2**32), protocol=st.sampled_from((0, 1, 2, 3, 4, 5)))
def test_every_schema(schema, seed, protocol):
    snapshot = Maker(random.Random(seed), schema).snapshot()
    snapshots.compare(Trace.parse_snapshot(pickle.dumps(snapshot, protocol)), snapshot)
    snapshots.compare(Trace.parse_snapshot(gzip.compress(pickle.dumps(snapshot, protocol), 1)), snapshot)
    plain = normal(snapshot)
    snapshots.compare(Trace.parse_snapshot(json.dumps(plain, indent=seed % 3 or None).encode()), plain)


@many
@given(seed=st.integers(0, 2**32))
def test_cpp_writer(seed):
    snapshot = Maker(random.Random(seed), "2.9+").snapshot()
    snapshot.pop("a_key_of_tomorrow", None)
    snapshots.compare(Trace.parse_snapshot(pickle_as_cpp(snapshot)), snapshot)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schema_is_named(schema):
    """From one that has an entry and a block: an empty one cannot tell."""
    maker = Maker(random.Random(1), schema)
    snapshot = maker.snapshot() | {"segments": [maker.segment(4096, 0)], "device_traces": [[maker.entry()]]}
    snapshot.pop("a_key_of_tomorrow", None)
    if schema == "2.0":
        snapshot["segments"][0]["blocks"][0]["history"] = [{"real_size": 1, "frames": []}]
    assert Trace.parse_snapshot(pickle.dumps(snapshot)).meta("schema") == schema


@many
@given(seed=st.integers(0, 2**32))
def test_list_of_segments(seed):
    segments = Maker(random.Random(seed), "2.9+").segments(3)
    snapshots.compare(Trace.parse_snapshot(pickle.dumps(segments)), segments)


def test_equal_stacks_are_one():
    frame = {"filename": "a.py", "line": 1, "name": "f"}
    frames = [[dict(frame), dict(frame)], [dict(frame), dict(frame)], [dict(frame)]]
    trace = Trace.parse_snapshot(pickle.dumps({"device_traces": [[{"action": "alloc", "addr": 1, "size": 1, "frames": f} for f in frames]]}))
    assert len(trace.table("frame")) == 1
    assert [row[1] for row in trace.table("stack")] == [2, 1]
    assert [row[5] for row in trace.table("entry")] == [0, 0, 1]


def test_more_than_a_batch_of_everything():
    """pickle hands over lists and dictionaries in parts of a thousand."""
    frames = [{"filename": "deep.py", "line": k, "name": "f"} for k in range(2500)]
    entries = [{"action": "alloc", "addr": k, "size": k, "frames": frames, **{f"key{i}": i for i in range(1500)}} for k in range(3)]
    entries += [{"action": "alloc", "addr": k, "size": k} for k in range(3000)]
    blocks = [{"size": 512, "state": "inactive"} for _ in range(2100)]
    snapshot = {
        "segments": [{"address": 0, "total_size": 2100 * 512, "blocks": blocks}],
        "device_traces": [entries],
        "allocator_settings": {f"setting{k}": k for k in range(450)},
    }
    for data in (*(pickle.dumps(snapshot, protocol) for protocol in range(6)), json.dumps(snapshot).encode(), pickle_as_cpp(snapshot)):
        snapshots.compare(Trace.parse_snapshot(data), snapshot)


def test_data_that_no_snapshot_has():
    odd = [b"bytes", b"x" * 70000, {1, "two"}, frozenset({3}), 10**30, -(10**30), 10**700, float("nan"), (), (1,), (1, 2, 3, 4)]
    snapshot = {"device_traces": [[{"action": "alloc", "addr": 1, "size": 1, "odd": odd}]], "odd": odd, "segments": []}
    snapshots.compare(Trace.parse_snapshot(pickle.dumps(snapshot, 4)), snapshot)
    odd.append(bytearray(b"more"))
    snapshots.compare(Trace.parse_snapshot(pickle.dumps(snapshot, 5)), snapshot)


# ---- what people have ----------------------------------------------------------------------------------------------------


def test_blocks_that_do_not_tile_are_left_out():
    """The profiler's export gives no addresses, and sorts blocks by device only."""
    good = {"address": 0, "total_size": 1024, "blocks": [{"size": 512, "state": "inactive"}, {"size": 512, "state": "active_allocated"}]}
    bad = [
        {"address": 4096, "total_size": 1024, "blocks": [{"size": 512, "state": "active_allocated"}]},
        {"address": 8192, "total_size": 1024, "blocks": [{"size": 1024, "state": "active_allocated", "address": 8193}]},
        {"address": 16384, "total_size": 512, "blocks": [{"size": 2**61, "state": "active_allocated"}] * 4},
    ]
    trace = Trace.parse_snapshot(pickle.dumps({"segments": [good, *bad]}))
    segments = trace.table("segment")
    assert [s[10] & snapshots.UNTILED for s in segments] == [0, 4, 4, 4]
    assert [s[6] for s in segments] == [2, 0, 0, 0]
    assert segments[1][2] == 512, "what is allocated is still known"


def test_profiler_export_has_categories():
    snapshot = {
        "device_traces": [
            [{"action": "alloc", "addr": 1, "size": 1, "stream": 0, "frames": [], "category": c} for c in ("parameter", "optimizer_state", 7, "?")]
        ],
        "segments": [],
    }
    trace = Trace.parse_snapshot(pickle.dumps(snapshot))
    assert [T.CATEGORIES[e[10]] for e in trace.table("entry")] == ["parameter", "optimizer", "unknown", "unknown"]


def test_host_memory_is_apart():
    block = {"address": 4096, "size": 512, "state": "active_allocated", "frames": []}
    snapshot = {"segments": [], "device_traces": [], "host_segments": [block], "host_traces": [{"action": "alloc", "addr": 4096, "size": 512}]}
    trace = Trace.parse_snapshot(pickle.dumps(snapshot))
    assert trace.table("device") == [(0, 1, 0, 1, 0, 1)]
    assert trace.table("segment")[0][:3] == (4096, 512, 512)


def test_unknown_actions_are_counted():
    trace = Trace.parse_snapshot(pickle.dumps({"device_traces": [[{"action": "alloc"}, {"action": "teleport"}, {"action": "oom"}]]}))
    assert [snapshots.ACTIONS[e[9]] for e in trace.table("entry")] == ["alloc", "oom"]
    assert trace.meta("entries_skipped") == "1"


def test_the_same_trace_twice():
    """Shared through the memo, a list may stand in two places."""
    entries = [{"action": "alloc", "addr": 1, "size": 1}, {"action": "oom", "device_free": 2, "size": 3}]
    snapshot = {"device_traces": [entries, entries, [entries[1], entries[0], entries[0]]]}
    snapshots.compare(Trace.parse_snapshot(pickle.dumps(snapshot)), snapshot)


def test_a_trace_file_with_a_snapshot(tmp_path):
    snapshot = Maker(random.Random(5), "2.10+").snapshot()
    Trace.parse_snapshot(pickle.dumps(snapshot)).save(tmp_path / "s.trace")
    snapshots.compare(Trace.load_snapshot(tmp_path / "s.trace"), snapshot)
    snapshots.compare(Trace.parse_snapshot(gzip.compress((tmp_path / "s.trace").read_bytes())), snapshot)
    Trace().save(tmp_path / "captured.trace")
    with pytest.raises(LibraryError, match=r"captured\.trace: is a trace of a captured step, expected a memory snapshot"):
        Trace.load_snapshot(tmp_path / "captured.trace")


def test_samples_are_those_of_the_script():
    """Made by another version of Python's pickle they may differ in bytes, never in what is expected of them."""
    samples = {f"{prefix}_{name}" for prefix, made in (("y", read_samples()), ("n", refused()), ("i", either())) for name in made}
    assert {path.name for path in FOLDER.iterdir()} == samples


def test_benchmark_writes_what_pickle_writes():
    """The same opcodes but for FRAME, whose size is free."""

    def opcodes(data: bytes) -> list[tuple[str, Any]]:
        return [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(data) if opcode.name != "FRAME"]

    snapshot = synthetic.objects(2500)
    with tempfile.NamedTemporaryFile() as file:
        synthetic.write(file.name, 2500)
        data = Path(file.name).read_bytes()
    assert pickle.loads(data) == snapshot
    assert opcodes(data) == opcodes(pickle.dumps(snapshot, 4))
    snapshots.compare(Trace.parse_snapshot(data), snapshot)


def test_gzip_in_several_members():
    raw = pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": k, "size": 1} for k in range(5000)]]})
    packed = b"".join(gzip.compress(raw[k : k + 7000]) for k in range(0, len(raw), 7000))
    assert len(Trace.parse_snapshot(packed).table("entry")) == 5000
    assert len(Trace.parse_snapshot(packed + b"padding").table("entry")) == 5000
