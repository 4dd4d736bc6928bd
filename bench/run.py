"""Front door of the benchmarks: `make bench` and `make bench-gpu`.

    python bench/run.py [--device h200] [--only NAME ...]     without a GPU: predictions and what they take, into estimates.csv;
                                                              and "snapshot", reading one of a million entries, into snapshot.csv
    python bench/run.py --gpu [...]                           on a GPU: see gpu.py
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import accuracy
import gpu
import inputs
import measure
import snapshot


def row_of(entry: inputs.Input, device: str) -> dict[str, Any]:
    found, seconds = accuracy.estimate(entry, device)
    peak = found["peak"]
    return {
        "input": entry.name,
        "device": device,
        "torch": found.get("torch", ""),
        "allocated": peak["allocated_bytes"],
        "reserved": peak["reserved_bytes"],
        "device_used": peak["device_used_bytes"],
        "persistent": found["persistent_bytes"],
        "estimate_s": f"{seconds:.2f}",
    }


def main() -> int:
    if "--gpu" in sys.argv[1:]:
        sys.argv.remove("--gpu")
        return gpu.main()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="h200")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    args = parser.parse_args()
    with_snapshot = args.only is None or "snapshot" in args.only
    names = args.only and [name for name in args.only if name != "snapshot"]
    rows, failed = [], 0
    for entry in inputs.find(names) if names is None or names else []:
        try:
            row = row_of(entry, args.device)
        except RuntimeError as error:
            print(f"{entry.name:28} FAILED {error}", flush=True)
            failed += 1
            continue
        rows.append(row)
        print(f"{entry.name:28} {row['allocated']:>16,} allocated {row['reserved']:>16,} reserved  {row['estimate_s']:>6} s", flush=True)
    if rows:
        measure.write_csv(measure.OUT / "estimates.csv", rows)
    if with_snapshot:
        failed += snapshot.run([1_000_000])
    return 1 if failed or not (rows or with_snapshot) else 0


if __name__ == "__main__":
    sys.exit(main())
