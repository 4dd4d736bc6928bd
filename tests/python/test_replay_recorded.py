"""tn_replay() and tn_tune on snapshots from real GPUs: exact under their own settings, and right about each other's."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from recorded import SNAPSHOTS
from replaying import EXACT, NONE, NOT_COMPARED, Failed, Result, Snapshot

MIB = 2**20
# An empty_cache() that finds nothing to give back leaves no entry; only this statistic knows of it.
SILENT = "num_sync_all_streams"


def entries(prefix: str) -> list[Any]:
    path = SNAPSHOTS / "MANIFEST.json"
    found = json.loads(path.read_text()) if path.exists() else []
    named = [entry for entry in found if entry["file"].startswith(prefix)]
    out = [pytest.param(entry, id=entry["file"].removesuffix(".pickle.gz").removeprefix(prefix)) for entry in named]
    return out or [pytest.param({}, marks=pytest.mark.skip(reason="no recorded histories here"))]


@cache
def snapshot(file: str) -> Snapshot:
    if not (SNAPSHOTS / file).exists():
        pytest.skip(f"{file} is not there")
    return Snapshot(SNAPSHOTS / file)


def is_exact(result: Result) -> bool:
    assert result.exactness == EXACT, f"entry {result.difference_entry}: {result.difference}"
    return True


@pytest.mark.parametrize("entry", entries("recorded__"))
def test_own_settings_are_exact(entry: dict[str, Any]) -> None:
    """Without the limit memory is refused where it was refused; with it the model must find out by itself."""
    for limit in {0, entry["per_process_limit_bytes"] or 0}:
        result = snapshot(entry["file"]).replay(limit_bytes=limit)
        assert is_exact(result)
        assert result.is_complete
        assert result.stats[SILENT] <= entry["measured_stats"][SILENT]
        for name, value in entry["measured_stats"].items():
            assert name == SILENT or result.stats[name] == value, name


@pytest.mark.parametrize("entry", entries("public__"))
def test_published_snapshots(entry: dict[str, Any]) -> None:
    """Most of these start late; the facts were computed from the pickles by other means."""
    facts = entry["facts"]
    (trace,) = [trace for trace in facts["trace_replay"] if trace["events"]] or [None]
    if trace is None:
        with pytest.raises(Failed, match="no allocator history"):
            snapshot(entry["file"]).replay()
        return
    result = snapshot(entry["file"]).replay()
    assert is_exact(result)
    stats = result.stats
    assert result.entries == trace["events"]
    for ours, theirs in (("reserved", "reserved"), ("allocated", "allocated"), ("active", "active"), ("requested", "requested")):
        assert stats[f"{ours}_bytes.all.current"] == facts[theirs]
    start = facts["requested"] - trace["net_bytes"]
    assert stats["requested_bytes.all.peak"] - start == trace["peak_above_start"]
    all_seen = trace["frees_of_blocks_allocated_before_trace"] == 0 and facts["actions"].get("segment_alloc", 0) == facts["nseg"]
    assert result.is_complete == (start == 0 and all_seen)


def families() -> list[Any]:
    """Pairs of recordings of one program under different settings."""
    out = []
    found = [param.values[0] for param in entries("recorded__") if param.values[0]]
    for a in found:
        for b in found:
            program = a["file"].split("__")[1]
            if a is not b and program == b["file"].split("__")[1]:
                out.append(pytest.param(a, b, id=f"{program}-{a['config']}-{b['config']}"))
    return out or [pytest.param({}, {}, marks=pytest.mark.skip(reason="no recorded histories here"))]


@pytest.mark.parametrize(("entry", "other"), families())
def test_predicts_other_settings(entry: dict[str, Any], other: dict[str, Any]) -> None:
    """One program, two settings: from the history of one, what was measured under the other."""
    result = snapshot(entry["file"]).replay(other["conf"], other["per_process_limit_bytes"] or 0)
    measured = other["measured_stats"]
    if result.exactness != EXACT:  # gc06 and default come to the same settings when no limit is told
        assert result.exactness == NOT_COMPARED
    for name in ("reserved_bytes.all.peak", "allocated_bytes.all.peak", "requested_bytes.all.peak"):
        assert result.stats[name] == pytest.approx(measured[name], rel=0.01), name
    assert result.stats["reserved_bytes.all.peak"] == measured["reserved_bytes.all.peak"]
    for name in ("num_alloc_retries", "num_ooms"):
        assert result.stats[name] == measured[name], name
    assert result.oom_entry == NONE


@pytest.mark.parametrize("entry", entries("recorded__"))
def test_tune(entry: dict[str, Any]) -> None:
    """Never worse than what was recorded; the row of the recorded settings is what was measured."""
    rows = snapshot(entry["file"]).tune(entry["per_process_limit_bytes"] or 0)
    (own,) = [row for row in rows if row.is_recorded]
    best = rows[0]
    assert len(rows) >= 60
    assert len({row.setting for row in rows}) == len(rows)
    assert best.result.oom_entry == NONE
    assert best.result.ooms_served >= own.result.ooms_served
    assert best.result.stalls <= own.result.stalls
    if best.result.stalls == own.result.stalls and best.result.ooms_served == own.result.ooms_served:
        peaks = [row.result.stats["reserved_bytes.all.peak"] for row in (best, own)]
        assert peaks[0] <= 1.02 * peaks[1]
    assert own.result.stats["reserved_bytes.all.peak"] == pytest.approx(entry["measured_stats"]["reserved_bytes.all.peak"], rel=0.01)
    for row in rows[:10]:  # the line says what was replayed
        again = snapshot(entry["file"]).replay(row.setting, entry["per_process_limit_bytes"] or 0)
        assert again.stats["reserved_bytes.all.peak"] == pytest.approx(row.result.stats["reserved_bytes.all.peak"], rel=0.01)


def test_an_out_of_memory_that_settings_avoid() -> None:
    """324 MiB failed with 447 MiB reserved but free, in pieces."""
    rows = snapshot("recorded__oom_final__default.pickle.gz").tune()
    best = rows[0]
    assert best.result.limit_inferred and 0 <= best.result.limit_bytes - 6442450944 < 324 * MIB
    assert best.result.ooms_served == 1 and best.result.stalls == 0
    assert "expandable_segments:True" in best.setting
