"""Measures real training runs on a CUDA device: what the allocator, the driver and the clock say.

    python bench/groundtruth.py [--only NAME ...] [--out groundtruth.json] [--history DIR] [--stacks]

One process per input, so that each starts from an empty allocator. --history also writes DIR/NAME.json.gz, every action of the caching
allocator from the first byte on, to be compared with a captured trace allocation by allocation (see `history` for its form).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import inputs
import measure


def stats_of(torch: Any) -> dict[str, int]:
    """The allocator's own peaks since they were last reset."""
    stats = torch.cuda.memory_stats()
    return {
        "allocated": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
        "requested": stats["requested_bytes.all.peak"],
        "active": stats["active_bytes.all.peak"],
        "persistent": stats["allocated_bytes.all.current"],
        "retries": stats["num_alloc_retries"],
    }


OP = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")


def label(frames: list[dict[str, Any]]) -> str:
    """The ops that led to it, "linear>addmm" (when C++ frames were recorded), and the innermost line of Python outside torch."""
    ops = [found.group(1) for frame in reversed(frames) if (found := OP.search(frame["name"]))]
    ops = [op for op, before in zip(ops, ["", *ops]) if op != before]
    python = [f for f in frames if f["filename"].endswith(".py") and "/torch/" not in f["filename"]]
    line = f"{Path(python[0]['filename']).name}:{python[0]['line']} {python[0]['name']}" if python else ""
    return " ".join(filter(None, [">".join(ops), line]))


def history(torch: Any, marks: list[tuple[int, str]]) -> dict[str, Any]:
    """The recorded actions, compactly: {"labels": [text], "marks": [[event index, text]], "events": [[action, block, bytes, label]]}.

    action: a alloc, f free requested, c free completed, A F M U segment alloc, free, map, unmap, o out of memory; block: serial
    number of the allocation (segments: of the segment's address); bytes: requested for blocks; label: index, -1 none.
    """
    actions = {
        "alloc": "a", "free_requested": "f", "free_completed": "c", "segment_alloc": "A", "segment_free": "F",
        "segment_map": "M", "segment_unmap": "U", "oom": "o", "snapshot": "s",
    }  # fmt: skip
    labels: dict[str, int] = {}
    serial: dict[int, int] = {}
    events: list[list[Any]] = []
    places: list[list[Any]] = []
    pending = list(marks)
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        while pending and entry.get("time_us", 0) >= pending[0][0]:
            places.append([len(events), pending.pop(0)[1]])
        action = actions.get(entry["action"], "?")
        address = entry.get("addr", 0)
        if action in "aA":
            serial[address if action == "a" else -address] = len(events)
        block = serial.get(-address if action in "AFMU" else address, -1)
        text = label(entry.get("frames", [])) if action == "a" else ""
        events.append([action, block, entry["size"], labels.setdefault(text, len(labels)) if text else -1])
    places += [[len(events), text] for _, text in pending]
    return {"labels": list(labels), "marks": places, "events": events}


def measure_one(entry: inputs.Input, steps: int, timed: int, record: Path | None, stacks: bool) -> dict[str, Any]:
    """Runs one input in this process. Peaks are of the last of `steps` steps; the first step's are given by themselves."""
    if stacks:
        os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")  # seconds instead of minutes
    from tonnage._nvml import Card

    card = Card()
    before = card.memory()
    import torch

    marks: list[tuple[int, str]] = []

    def mark(text: str) -> None:
        torch.cuda.synchronize()
        marks.append((time.time_ns() // 1000, text))

    torch.cuda.init()
    if record:
        options = {"context": "all", "stacks": "all"} if stacks else {"context": "alloc", "stacks": "python"}
        torch.cuda.memory._record_memory_history("all", max_entries=2_000_000, **options)
    run = measure.Run(measure.recipe(entry.recipe, entry.overrides), "cuda")
    first: dict[str, int] = {}
    peaks: dict[str, int] = {}
    for step in range(steps):
        torch.cuda.reset_peak_memory_stats()
        if record:
            mark(f"step:{step}")
        value = run.step()
        torch.cuda.synchronize()
        peaks = stats_of(torch)
        first = first or peaks
    if record:
        mark("end")
        text = json.dumps({"input": entry.name, "torch": torch.__version__, **history(torch, marks)}, separators=(",", ":"))
        torch.cuda.memory._record_memory_history(None)  # this clears the history
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_bytes(gzip.compress(text.encode()))
    after = card.memory()
    free, total = torch.cuda.mem_get_info()
    median, spread = measure.step_ms(run.step, "cuda", timed)
    return {
        "input": entry.name,
        "recipe": entry.recipe,
        "overrides": entry.overrides,
        "parameters": sum(p.numel() for p in run.model.parameters()),
        **peaks,
        "first_step": first,
        "device_used": after.used - before.used if after and before else None,
        "device_used_by_process": card.process_bytes(),
        "device_used_by_runtime": total - free,
        "step_ms": round(median, 3),
        "step_ms_spread": round(spread, 3),
        "loss": float(value),
        "machine": measure.machine(),
    }


def run_apart(entry: inputs.Input, args: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own; {"input", "error"} when it fails, so that the others still run."""
    command = [sys.executable, __file__, "--child", entry.name, "--steps", str(args.steps), "--timed", str(args.timed)]
    command += ["--history", args.history] if args.history else []
    command += ["--stacks"] if args.stacks else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    last = done.stderr.strip().splitlines()
    return {"input": entry.name, "error": last[-1] if last else f"exit status {done.returncode}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="inputs by name; smoke = the small ones")
    parser.add_argument("--out", type=Path, default=measure.OUT / "groundtruth.json")
    parser.add_argument("--history", metavar="DIR", help="write each input's allocator history there")
    parser.add_argument("--stacks", action="store_true", help="with --history: the op of each allocation too (slower)")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--timed", type=int, default=10, help="steps to time afterwards")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        entry = inputs.find([args.child])[0]
        record = Path(args.history) / f"{measure.slug(entry.name)}.json.gz" if args.history else None
        print(json.dumps(measure_one(entry, args.steps, args.timed, record, args.stacks)))
        return 0
    rows: list[dict[str, Any]] = []
    machine: dict[str, Any] = {}
    for entry in inputs.find(args.only):
        row = run_apart(entry, args)
        machine = row.pop("machine", machine)
        rows.append(row)
        text = row.get("error") or f"{row['allocated']:,} allocated, {row['reserved']:,} reserved, {row['step_ms']:.1f} ms/step"
        print(f"{entry.name:28} {text}", flush=True)
        measure.write_json(args.out, {"machine": machine, "rows": rows})
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
