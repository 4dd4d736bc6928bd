"""Plans for the inputs of tradeoff.py, made for a card that need not be here: `tonnage plan` at budgets between the two ends.

    python bench/plans.py [--only NAME ...] [--device h200] [--release 211] [--freed 0.25 0.5 0.75 1.0 1.1] --out DIR

The ends are the predicted device-used memory of the input as it is and with every layer checkpointed.
--release: the PyTorch that will carry the plans out, when it is another than the one here; it chooses its attention kernels by its own rules.
Writes DIR/INPUT-fit-NNN.json (default levers) and DIR/INPUT-rebuild-NNN.json (no micro-batches), NNN being the percentage freed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import inputs
import measure


def device_used(entry: inputs.Input, device: Any, **overrides: object) -> int:
    from tonnage import _lib
    from tonnage.capture import capture_tables

    tables = capture_tables(measure.recipe(entry.recipe, {**entry.overrides, **overrides}), device)
    return _lib.estimate(_lib.Trace.from_tables(tables), _lib.profile_parse(device.text)).device_used_bytes


def plan_input(entry: inputs.Input, device: Any, args: argparse.Namespace) -> None:
    from tonnage import planning
    from tonnage.errors import Error

    none, every = device_used(entry, device), device_used(entry, device, checkpoint="all")
    captures: dict[Any, Any] = {}
    for name, levers in (("fit", None), ("rebuild", ["rebuild", "allocator"])):
        for freed in args.freed:
            budget, start = int(none - freed * (none - every)), time.perf_counter()
            try:
                plan = planning.plan_for(measure.recipe(entry.recipe, entry.overrides), device, budget, levers=levers, captures=captures)
            except Error as error:
                print(f"{entry.name:20} {name:8} {freed:5.0%} {error}", flush=True)
                continue
            measure.write_json(args.out / f"{measure.slug(entry.name)}-{name}-{round(freed * 100):03d}.json", plan)
            predicted = plan["predicted"]
            extra = predicted["step_ms"] - predicted["unconstrained_step_ms"]
            print(
                f"{entry.name:20} {name:8} {freed:5.0%} {budget / 1e9:6.2f} GB: {predicted['allocated_bytes'] / 1e9:6.2f} GB allocated, "
                f"{extra:+.1f} ms (bound {predicted['lower_bound_ms']:+.1f}), planned in {time.perf_counter() - start:.1f} s",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", default=inputs.TRADEOFF)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--release", type=int, default=0, help="211 for PyTorch 2.11; 0 = the installed one")
    parser.add_argument("--freed", nargs="+", type=float, default=[0.25, 0.5, 0.75, 1.0, 1.1])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    sys.path.insert(0, str(measure.ROOT / "python"))
    from tonnage import devices, virtual_card

    device = devices.find(args.device)
    virtual_card.load(device, args.release)
    for entry in inputs.find(args.only):
        plan_input(entry, device, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
