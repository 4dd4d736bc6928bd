"""Time against memory: what each lever costs for the bytes it frees, measured side by side in one process.

    python bench/tradeoff.py [--only NAME ...] [--freed 0.25 0.5 0.75 1.0 1.1] [--plans DIR] [--compile] [--steps 10] [--device cuda]

For each input: unconstrained, every layer checkpointed, every second layer, torch's selective checkpointing, torch.compile at activation
budgets 1.0 and 0.5 (--compile), and `tonnage.fit` at budgets that free the given shares of the way from unconstrained to every layer
checkpointed. `share` is the overhead over unconstrained as a share of the straight line from unconstrained to every layer
checkpointed, at the same measured allocated peak: below 1 beats mixing the two.

--plans DIR: plans made elsewhere (bench/plans.py, which needs no GPU) instead of planning here; their budgets are those of the plans.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inputs
import measure

COLUMNS = (
    "input", "lever", "budget", "allocated", "reserved", "device_used", "ms", "ms_spread", "share", "predicted_allocated", "predicted_reserved",
    "predicted_extra_ms", "measured_extra_ms", "first_step_s", "loss", "note",
)  # fmt: skip
Step = Callable[[], Any]


# ---- levers: each builds a step from an input ------------------------------------------------------------------------------------


def plain(entry: inputs.Input, device: str, **overrides: object) -> tuple[Step, dict[str, Any]]:
    run = measure.Run(measure.recipe(entry.recipe, {**entry.overrides, **overrides}), device)
    return run.step, {}


def selective(entry: inputs.Input, device: str) -> tuple[Step, dict[str, Any]]:
    """Checkpoint every layer, but keep what matmuls, attention and dropout make."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    kept = ("aten::mm", "aten::addmm", "aten::bmm", "aten::native_dropout", "aten::_scaled_dot_product")

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return CheckpointPolicy.MUST_SAVE if op.name().startswith(kept) else CheckpointPolicy.PREFER_RECOMPUTE

    training = measure.recipe(entry.recipe, {**entry.overrides, "checkpoint": "all"})
    module = sys.modules[training.model.__module__]
    context = functools.partial(create_selective_checkpoint_contexts, policy)
    module.recompute = functools.partial(torch.utils.checkpoint.checkpoint, context_fn=context)
    return measure.Run(training, device).step, {}


def compiled(entry: inputs.Input, device: str, budget: float) -> tuple[Step, dict[str, Any]]:
    import torch
    import torch._functorch.config

    torch._dynamo.reset()
    torch._functorch.config.activation_memory_budget = budget
    run = measure.Run(measure.recipe(entry.recipe, entry.overrides), device)
    run.model.compile()
    return run.step, {}


class Fitted:
    """tonnage.fit at several budgets of one input; what a plan predicts comes with it. Captures are shared between the budgets."""

    def __init__(self, entry: inputs.Input, device: str, levers: list[str] | None, captures: dict[Any, Any]) -> None:
        self.entry, self.device, self.levers, self.captures = entry, device, levers, captures

    def __call__(self, budget: int, made: dict[str, Any] | None = None) -> tuple[Step, dict[str, Any]]:
        import tonnage
        from tonnage import fitting, planning

        run = measure.Run(measure.recipe(self.entry.recipe, self.entry.overrides), self.device)
        profile = fitting.profile_for(fitting.device_of(run.model), None)
        live = (run.model, run.optimizer, run.loss, run.batch)
        start = time.perf_counter()
        plan = made or planning.plan_for(live, profile, budget, levers=self.levers, captures=self.captures)
        planned_s = time.perf_counter() - start
        step = tonnage.fit(*live, budget=budget, plan=plan, quiet=True)
        predicted = plan["predicted"]
        levers = ", ".join(f"{lever['name']} {planning.detail_of(plan, lever['name'])}" for lever in plan["levers"])
        return lambda: step(run.batch), {
            "predicted_allocated": predicted["allocated_bytes"],
            "predicted_reserved": predicted["reserved_bytes"],
            "predicted_extra_ms": round(predicted["step_ms"] - predicted["unconstrained_step_ms"], 2),
            "note": f"{levers}; planned in {planned_s:.1f} s",
        }


# ---- measuring -------------------------------------------------------------------------------------------------------------------


def peaks(device: str) -> dict[str, Any]:
    if device != "cuda":
        return {"allocated": 0, "reserved": 0, "device_used": 0}
    import torch

    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "device_used": total - free,
    }


def reset_limit(device: str) -> None:
    """fit enforces its budget on the whole process; the next lever must not meet it."""
    if device == "cuda":
        import torch

        torch.cuda.set_per_process_memory_fraction(1.0)


def run_lever(make: Callable[[], tuple[Step, dict[str, Any]]], device: str, steps: int) -> dict[str, Any]:
    """Builds, runs two steps to settle and one to measure memory, then the timed ones. A failure becomes the row's note."""
    measure.clear(device)
    try:
        step, row = make()
        first_s = measure.seconds(step, device)
        value = step()
        if device == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats()
        step()
        found = peaks(device)
        for _ in range(2):
            step()
        ms, spread = measure.step_ms(step, device, steps)
        return {**row, **found, "ms": round(ms, 2), "ms_spread": round(spread, 2), "first_step_s": round(first_s, 2), "loss": float(value)}
    except Exception as error:  # the other levers still have to run
        return {"note": f"FAILED {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    finally:
        reset_limit(device)


def share(row: dict[str, Any], none: dict[str, Any], every: dict[str, Any]) -> float | None:
    """Overhead as a share of the straight line's at the same allocated peak."""
    freed, whole = none["allocated"] - row["allocated"], none["allocated"] - every["allocated"]
    line = (every["ms"] - none["ms"]) * freed / whole if whole else 0
    return (row["ms"] - none["ms"]) / line if line > 0 else None


def levers_of(entry: inputs.Input, device: str) -> list[tuple[str, Callable[[], tuple[Step, dict[str, Any]]]]]:
    return [
        ("none", lambda: plain(entry, device)),
        ("checkpoint all", lambda: plain(entry, device, checkpoint="all")),
        ("checkpoint alternate", lambda: plain(entry, device, checkpoint="alternate")),
        ("selective checkpoint", lambda: selective(entry, device)),
    ]


def show(row: dict[str, Any]) -> None:
    if "ms" not in row:
        print(f"{row['input']:20} {row['lever']:22} {row.get('note', '')}", flush=True)
        return
    number = f"{row['share']:.2f}" if isinstance(row.get("share"), float) else "-"
    predicted = row.get("predicted_allocated") or 0
    tail = f"  predicted {predicted / 1e9:.2f} GB {row['predicted_extra_ms']:+.1f} ms" if predicted else ""
    print(
        f"{row['input']:20} {row['lever']:22} {row['allocated'] / 1e9:7.2f} GB {row['reserved'] / 1e9:7.2f} GB {row['ms']:8.1f} ms"
        f"  {row.get('measured_extra_ms', 0):+7.1f} ms  share {number}{tail}  {row.get('note', '')}",
        flush=True,
    )


def bench_input(entry: inputs.Input, args: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> None:
    ends: dict[str, dict[str, Any]] = {}

    def run(lever: str, make: Callable[[], tuple[Step, dict[str, Any]]], budget: float | str = "") -> None:
        if args.levers and not lever.startswith(tuple(args.levers)):
            return
        row = {"input": entry.name, "lever": lever, "budget": budget, **run_lever(make, args.device, args.steps)}
        if "ms" in row:
            ends.setdefault(lever, row)
            none, every = ends.get("none"), ends.get("checkpoint all")
            row["measured_extra_ms"] = round(row["ms"] - none["ms"], 2) if none else ""
            found = share(row, none, every) if none and every and row is not none else None
            row["share"] = found if found is not None else ""
        keep(row)
        show(row)

    for lever, make in levers_of(entry, args.device):
        run(lever, make)
    none, every = ends.get("none"), ends.get("checkpoint all")
    if none and every:
        shared: dict[Any, Any] = {}
        for path in sorted(args.plans.glob(f"{measure.slug(entry.name)}-*.json")) if args.plans else ():
            made = json.loads(path.read_text())
            fitted = Fitted(entry, args.device, None, shared)
            run(path.stem.removeprefix(f"{measure.slug(entry.name)}-"), functools.partial(fitted, made["budget_bytes"], made), made["budget_bytes"])
        for name, levers in (("fit", None), ("rebuild only", ["rebuild", "allocator"])) if not args.plans else ():
            fitted = Fitted(entry, args.device, levers, shared)
            for freed in args.freed if levers is None or args.rebuild_only else ():
                budget = int(none["device_used"] - freed * (none["device_used"] - every["device_used"]))
                run(f"{name}, {freed:.0%} freed", functools.partial(fitted, budget), budget)
    for budget in (1.0, 0.5) if args.compile else ():
        run(f"compile {budget}", functools.partial(compiled, entry, args.device, budget))
    run("none again", lambda: plain(entry, args.device))  # its distance from "none" is the noise of this table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", default=inputs.TRADEOFF)
    parser.add_argument("--freed", nargs="+", type=float, default=[0.25, 0.5, 0.75, 1.0, 1.1])
    parser.add_argument("--levers", nargs="+", metavar="PREFIX", help='only rows that begin so; "none" and "checkpoint all" are what shares need')
    parser.add_argument("--compile", action="store_true", help="torch.compile too: a minute or more for each")
    parser.add_argument("--plans", type=Path, metavar="DIR", help="plans made by bench/plans.py")
    parser.add_argument("--rebuild-only", action="store_true", help="fit without micro-batches too")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=Path, default=measure.OUT / "tradeoff.csv")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        """Written at once: a time limit may end the run at any row."""
        rows.append(row)
        table = [{column: row.get(column, "") for column in COLUMNS} for row in rows]
        measure.write_csv(args.out, table)
        measure.write_json(args.out.with_suffix(".json"), {"machine": measure.machine(), "rows": table})

    for entry in inputs.find(args.only):
        bench_input(entry, args, keep)
        gc.collect()
    return 1 if any("ms" not in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
