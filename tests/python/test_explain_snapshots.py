"""tonnage explain on recorded and published snapshots: every byte has a cause, and the numbers are those that PyTorch measured."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "snapshots"
COMMAND = Path(os.environ.get("TONNAGE_LIB", ROOT / "build" / "libtonnage.so")).parent / "tonnage"


@cache
def manifest() -> dict[str, dict[str, Any]]:
    path = DATA / "MANIFEST.json"
    return {row["file"]: row for row in json.loads(path.read_text())} if path.exists() else {}


def files(front: str) -> list[str]:
    return sorted(name for name in manifest() if name.startswith(front)) or [pytest.param("", marks=pytest.mark.skip("no shared data"))]


@cache
def explained(name: str) -> dict[str, Any]:
    done = subprocess.run([COMMAND, "explain", DATA / name, "--json"], stdout=subprocess.PIPE, check=True, timeout=60)
    return json.loads(done.stdout)


def devices(name: str) -> list[dict[str, Any]]:
    return explained(name)["devices"]


def finding(name: str, code: str) -> dict[str, Any]:
    return next(f for f in devices(name)[0]["findings"] if f["code"] == code)


@pytest.mark.parametrize("name", files(""))
def test_everything_adds_up(name: str) -> None:
    assert devices(name)
    for device in devices(name):
        assert device["contradictions"] == 0
        for key in ("reserved_peak", "snapshot"):
            account = device[key]
            assert sum(account["parts"].values()) == account["reserved_bytes"]
            assert account["parts"]["unknown"] == 0
            assert account["parts"]["requested"] + account["parts"]["rounding"] == account["allocated_bytes"]
        for key in ("allocated_peak", "allocated_end"):
            at = device[key]
            assert sum(at["by_category"].values()) == at["allocated_bytes"]
            assert sum(row["bytes"] for row in at["by_stack"]) == at["allocated_bytes"]
            assert sum(row["blocks"] for row in at["by_stack"]) == at["blocks"]
        assert all(device["verdict"].values())
        assert all(f["what"] and f["evidence"] or f["code"] in ("NEAR_OOM",) for f in device["findings"])


@pytest.mark.parametrize("name", files("recorded__"))
def test_levels_are_those_that_pytorch_measured(name: str) -> None:
    stats = manifest()[name]["measured_stats"]
    (device,) = devices(name)
    end, peak = device["snapshot"], device["allocated_peak"]
    assert end["requested_bytes"] == stats["requested_bytes.all.current"]
    assert end["allocated_bytes"] == stats["allocated_bytes.all.current"]
    assert end["active_bytes"] == stats["active_bytes.all.current"]
    assert end["reserved_bytes"] == stats["reserved_bytes.all.current"]
    assert peak["allocated_bytes"] == stats["allocated_bytes.all.peak"]
    assert device["reserved_peak"]["reserved_bytes"] == stats["reserved_bytes.all.peak"]
    assert end["segments"] == stats["segment.all.current"] or device["snapshot"]["segments"] == 2  # expandable ones are not counted


@pytest.mark.parametrize("name", files("public__"))
def test_facts_of_published_snapshots(name: str) -> None:
    facts = manifest()[name]["facts"]
    found = devices(name)
    assert [d["device"] for d in found] == facts["devices"]
    for key in ("reserved", "allocated", "active", "requested"):
        assert sum(d["snapshot"][f"{key}_bytes"] for d in found) == facts[key]
    assert sum(d["snapshot"]["segments"] for d in found) == facts["nseg"]
    live = facts["blocks_by_state"]["active_allocated"]
    assert sum(d["allocated_end"]["blocks"] for d in found) == live["count"]
    idle = facts["fully_free_segments"]
    assert sum(d["snapshot"]["idle_segments"] for d in found) == idle["count"]
    assert sum(d["snapshot"]["parts"]["idle_cache"] for d in found) == idle["bytes"]
    assert sum(d["snapshot"]["parts"]["holes"] for d in found) == facts["inactive_bytes_in_partly_used_segments"]


@pytest.mark.parametrize("name", files("public__"))
def test_replayed_peak_of_published_snapshots(name: str) -> None:
    """The manifest counts requested bytes above those at the start; the peak of allocated bytes is at the same place."""
    facts = manifest()[name]["facts"]
    for device in devices(name):
        replay = facts["trace_replay"][device["device"]]
        assert device["entries"] == replay["events"]
        if not replay["events"]:
            continue
        start = device["snapshot"]["requested_bytes"] - replay["net_bytes"]
        peak = device["allocated_peak"]["requested_bytes"]
        assert abs(peak - start - replay["peak_above_start"]) <= 0.001 * peak


def test_a_known_leak() -> None:
    """The script kept 4 MiB and a number each step, at its line 34."""
    name = "recorded__leak__default.pickle.gz"
    if name not in manifest():
        pytest.skip("no shared data")
    leak = finding(name, "LEAK")
    assert leak["bytes_per_step"] == 4 * 2**20 + 512
    assert leak["place"] == "train.py:34 train"
    assert devices(name)[0]["findings"][0] is leak


@pytest.mark.parametrize("name", files("recorded__train") + files("recorded__accum") + files("recorded__cnn"))
def test_training_without_a_leak(name: str) -> None:
    codes = {f["code"] for f in devices(name)[0]["findings"]}
    assert not codes & {"LEAK", "GRAPH_KEPT", "EVAL_GRAPH", "OOM"}


def test_an_oom_under_a_limit() -> None:
    """PyTorch's own message: tried to allocate 324.00 MiB, 6.00 GiB allowed, 506.64 MiB reserved but unallocated."""
    name = "recorded__oom_final__default.pickle.gz"
    if name not in manifest():
        pytest.skip("no shared data")
    device = devices(name)[0]
    oom, cap = finding(name, "OOM"), finding(name, "CAP")
    assert "324.00 MiB" in oom["evidence"] and "506.64 MiB" in oom["what"]
    limit = manifest()[name]["per_process_limit_bytes"]
    assert device["snapshot"]["reserved_bytes"] <= limit < device["snapshot"]["reserved_bytes"] + 324 * 2**20
    assert "between 5.71 GiB and 6.02 GiB" in cap["evidence"]
    assert "memory does not run out" in finding(name, "FRAGMENTATION")["fix"]


def test_what_was_given_back_to_go_on() -> None:
    """Under max_split_size the allocator gave back 28 segments, one or two at a time: the cost of a retry, which PyTorch does not count."""
    name = "recorded__oom_retry__split64.pickle.gz"
    if name not in manifest():
        pytest.skip("no shared data")
    retries = finding(name, "RETRIES")
    assert retries["evidence"].startswith(f"{manifest()[name]['measured_stats']['num_device_free']} segments")


@pytest.mark.parametrize("name", files("recorded__stress"))
def test_empty_cache_is_no_retry(name: str) -> None:
    assert manifest()[name]["measured_stats"]["num_device_free"] > 0
    assert "RETRIES" not in {f["code"] for f in devices(name)[0]["findings"]}


@pytest.mark.parametrize("name", files("recorded__stress__default") + files("recorded__train_varlen__default"))
def test_the_setting_that_was_replayed(name: str) -> None:
    """The same program was recorded with expandable segments, or is known to need less with them."""
    other = name.replace("__default", "__expandable")
    pieces = finding(name, "FRAGMENTATION")
    assert "expandable_segments:True" in pieces["evidence"]
    if other in manifest():
        recorded = manifest()[name]["measured_stats"]["reserved_bytes.all.peak"]
        assert recorded - pieces["frees_bytes"] == manifest()[other]["measured_stats"]["reserved_bytes.all.peak"]
    assert pieces["frees_bytes"] > 0


def test_diff_adds_up() -> None:
    names = ["recorded__train_ckpt__default.pickle.gz", "recorded__leak__default.pickle.gz"]
    if not set(names) <= set(manifest()):
        pytest.skip("no shared data")
    done = subprocess.run([COMMAND, "diff", *(DATA / n for n in names), "--json"], stdout=subprocess.PIPE, check=True, timeout=60)
    diff = json.loads(done.stdout)
    for side in "ab":
        peak = diff[side]["peak_allocated_bytes"]
        assert sum(row[f"{side}_bytes"] for row in diff["by_place"]) == peak
        assert sum(row[f"{side}_bytes"] for row in diff["by_category"].values()) == peak
    changes = [abs(row["change_bytes"]) for row in diff["by_place"]]
    assert changes == sorted(changes, reverse=True)
