"""Predicted against measured memory: `tonnage estimate` of each input beside what groundtruth.py measured.

    python bench/accuracy.py [--truth groundtruth.json] [--device h200] [--only NAME ...] [--out results.csv]

Exit status 1 when a target is missed: allocated within 0.3 % for transformers and 2 % for ResNet, reserved within 3 %, and no
prediction more than 1 % below what was measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import inputs
import measure

LEVELS = ("allocated", "reserved", "device_used")
LOWEST = -1.0  # percent: a prediction below this would let a run die


def targets(entry: inputs.Input) -> dict[str, float]:
    """The largest error in percent, by level."""
    return {"allocated": 2.0 if "resnet" in entry.recipe else 0.3, "reserved": 3.0, "device_used": 3.0}


def estimate(entry: inputs.Input, device: str) -> tuple[dict[str, Any], float]:
    """What the command prints as JSON, and the seconds that it took. Raises RuntimeError with its last line."""
    command = [sys.executable, "-m", "tonnage", "estimate", *entry.command(), "--device", device, "--json"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=measure.ROOT, env=measure.environment())
    if not done.stdout.lstrip().startswith("{"):
        lines = done.stderr.strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"exit status {done.returncode}")
    return json.loads(done.stdout), time.perf_counter() - start


def measured_device_used(truth: dict[str, Any]) -> int | None:
    for key in ("device_used_by_process", "device_used", "device_used_by_runtime"):
        if truth.get(key):
            return int(truth[key])
    return None


def row_of(entry: inputs.Input, truth: dict[str, Any], torch_version: str, device: str) -> dict[str, Any]:
    found, seconds = estimate(entry, device)
    peak = found["peak"]
    measured = {"allocated": truth["allocated"], "reserved": truth["reserved"], "device_used": measured_device_used(truth)}
    row: dict[str, Any] = {
        "input": entry.name,
        "precision": entry.overrides.get("precision", "fp32"),
        "checkpoint": entry.overrides.get("checkpoint", "none"),
        "device": device,
        "torch_measured": torch_version,
        "torch_predicted": found.get("torch", ""),
    }
    for level in LEVELS:
        predicted = peak[f"{level}_bytes"]
        row[f"predicted_{level}"] = predicted
        row[f"measured_{level}"] = measured[level] if measured[level] is not None else ""
        row[f"{level}_error_percent"] = f"{100 * (predicted / measured[level] - 1):.3f}" if measured[level] else ""
    row["predicted_persistent"] = found["persistent_bytes"]
    row["measured_persistent"] = truth["persistent"]
    row["measured_ms"] = truth["step_ms"]
    row["estimate_s"] = f"{seconds:.2f}"
    return row


def misses(entry: inputs.Input, row: dict[str, Any]) -> list[str]:
    out = []
    for level, most in targets(entry).items():
        text = row[f"{level}_error_percent"]
        if text and not max(LOWEST, -most) <= float(text) <= most:
            out.append(f"{level} {float(text):+.2f} %")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--truth", type=Path, default=measure.OUT / "groundtruth.json")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--out", type=Path, default=measure.OUT / "results.csv")
    args = parser.parse_args()
    data = json.loads(args.truth.read_text())
    truths = {row["input"]: row for row in data["rows"] if "error" not in row}
    rows, missed = [], 0
    for entry in inputs.find(args.only):
        if entry.name not in truths:
            print(f"{entry.name:28} not measured")
            continue
        try:
            row = row_of(entry, truths[entry.name], data["machine"].get("torch", ""), args.device)
        except RuntimeError as error:
            print(f"{entry.name:28} FAILED {error}", flush=True)
            missed += 1
            continue
        rows.append(row)
        wrong = misses(entry, row)
        missed += bool(wrong)
        errors = "  ".join(f"{level} {row[f'{level}_error_percent'] or '?':>7} %" for level in LEVELS)
        print(f"{entry.name:28} {errors}  {'MISSED ' + ', '.join(wrong) if wrong else 'ok'}", flush=True)
    if rows:
        measure.write_csv(args.out, rows)
    return 1 if missed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
