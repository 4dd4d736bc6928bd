"""`tonnage fit`: plans a recipe, trains it within the budget, and holds what was predicted against what was measured."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from . import _lib, devices, files, fitting, options, planning, recipe, verbs
from .errors import Error
from .measure import CpuMeter, CudaMeter
from .progress import Progress
from .step import Step
from .tables import Tables

INTERRUPTED = 130
NO_DEVICE = 3


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status. Error: one line for the user, with its own status."""
    args = options.parser_for("fit").parse_intermixed_args(argv)
    overrides = options.overrides(args.overrides)
    device, where = chosen_device(args.device)
    budget_bytes = fitting.bytes_of(args.budget) if args.budget else int(device.profile.get("total_bytes", 0))
    if not budget_bytes:
        raise Error("--budget is needed: the device's profile does not say how much memory it has")
    meter_of_card = CudaMeter(where) if where.type == "cuda" else None
    plan = the_plan(args, recipe.load(args.recipe, overrides), device, budget_bytes)
    if args.output:
        files.write(Path(args.output), json.dumps(plan, indent=1) + "\n")
    if not args.json:
        sys.stdout.write(planning.text_of(plan) + "\n")
        sys.stdout.flush()
    training = recipe.load(args.recipe, overrides)  # anew: planning has used up batches of the first
    run = TrainingRun(training, plan, budget_bytes, where, meter_of_card, from_file=args.plan)
    status = run.train(args.steps, Progress(args.steps, quiet=args.quiet or args.json))
    result = run.result()
    sys.stdout.write(json.dumps(result) + "\n" if args.json else text_of(result))
    return status


def chosen_device(name: str | None) -> tuple[devices.Device, torch.device]:
    """The profile, and the torch device that this process can train on."""
    present = torch.cuda.is_available()
    device = devices.find(name or devices.present())
    if device.type == "cuda" and not present:
        raise Error(f"fit trains on the device itself, and there is no CUDA device here for {device.name}; --device cpu, or tonnage plan", NO_DEVICE)
    return device, torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" else torch.device("cpu")


def the_plan(args: argparse.Namespace, training: recipe.Training, device: devices.Device, budget_bytes: int) -> dict[str, Any]:
    if args.plan:
        return fitting.read_plan(args.plan)
    traced: list[Tables] = []
    with verbs.Progress(args) as say:
        plan = planning.plan_for(
            training,
            device,
            budget_bytes,
            allow=options.listed(args.allow) or (),
            levers=options.listed(args.levers),
            say=say,
            note_tables=traced.append,
        )
    if args.trace and traced:
        _lib.Trace.from_tables(traced[0]).save(args.trace)
    return plan


class TrainingRun:
    """A recipe built for real and trained under a plan."""

    def __init__(
        self,
        training: recipe.Training,
        plan: dict[str, Any],
        budget_bytes: int,
        where: torch.device,
        card: CudaMeter | None,
        from_file: str | None = None,
        seed: int = 0,
    ) -> None:
        self.plan, self.budget_bytes, self.where, self.from_file = plan, budget_bytes, where, from_file
        random.seed(seed)
        torch.manual_seed(seed)
        fitting.enforce(plan, budget_bytes, where)
        self.batch = training.batch
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.rebuilding: list[float] = []  # host seconds of the same steps
        self.verdict = ""
        self.step: Step | None = None
        self.meter: CudaMeter | CpuMeter | None = card
        self.training = training

    def build(self) -> Step:
        with recipe.foreign("the recipe"):
            with self.where:
                model = self.training.model()
            model = model.to(self.where)
            optimizer = self.training.optimizer(model)
        if self.meter is None:
            self.meter = CpuMeter(model, optimizer)

        def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
            return self.training.loss(model, batch)

        return Step(model, optimizer, loss, self.plan, self.where, getattr(self.training, "weight", None))

    def train(self, steps: int, progress: Progress) -> int:
        """The exit status: 0, 1 when it did not fit, 130 when interrupted."""
        try:
            self.step = self.build()
            for n in range(steps):
                self.one(n)
                progress.update(self.losses[-1])
        except torch.OutOfMemoryError as error:
            self.not_this_plan()
            self.verdict = f"does not fit: {str(error).splitlines()[0]}"
            return 1
        except KeyboardInterrupt:
            self.verdict = f"interrupted after {len(self.losses)} of {steps} steps"
            return INTERRUPTED
        finally:
            progress.close()
        measured = self.meter.peaks()["steady"] if self.meter is not None else {}
        taken = measured.get("device_used_bytes") or measured.get("allocated_bytes", 0)
        if taken > self.budget_bytes:
            self.verdict = f"over the budget by {_lib.size_format(taken - self.budget_bytes)}"
            return 1
        return 0

    def one(self, n: int) -> None:
        assert self.step is not None and self.meter is not None
        step = self.step
        with recipe.foreign("the recipe's batch()"):
            batch = self.batch()
        if n == 0:
            fitting.check_batch(self.plan, batch)
        started, rebuilt = time.perf_counter(), step.stats()["rebuild_s"]
        value = self.meter.run(n, lambda: step(batch), batch)
        self.losses.append(float(value))
        if n > 0 and not (isinstance(self.meter, CpuMeter) and n == CpuMeter.STEP):
            self.seconds.append(time.perf_counter() - started)
            self.rebuilding.append(step.stats()["rebuild_s"] - rebuilt)
        if n == 0:
            self.not_this_plan()

    def not_this_plan(self) -> None:
        """A plan from a file must be this model's: Error when the first step has left it."""
        if self.from_file and self.step is not None and self.step.stats()["mismatches"]:
            raise Error(f"{self.from_file}: the plan was made for another model or batch: {self.step.stats()['first_mismatch'].partition(': keeping')[0]}")

    def result(self) -> dict[str, Any]:
        peaks = self.meter.peaks() if self.meter is not None else {"first": {}, "steady": {}}
        predicted = self.plan["predicted"]
        step_ms = statistics.median(self.seconds) * 1e3 if self.seconds else None
        stats = self.step.stats() if self.step is not None else {}
        return {
            "device": self.plan["device"],
            "budget_bytes": self.budget_bytes,
            "predicted": predicted,
            "levers": self.plan.get("levers", []),
            "measured": {**peaks["steady"], "step_ms": step_ms},
            "measured_first_step": peaks["first"],
            "steps": len(self.losses),
            "rebuild_host_ms": statistics.median(self.rebuilding) * 1e3 if self.rebuilding else 0.0,
            "loss": {"first": self.losses[0], "last": self.losses[-1]} if self.losses else None,
            "slots": stats,
            "verdict": self.verdict or "fits",
        }


def text_of(result: dict[str, Any]) -> str:
    """The table at the end."""
    size, predicted, measured = _lib.size_format, result["predicted"], result["measured"]
    cpu = "reserved_bytes" not in measured
    lines = [f"{'':<13}{'predicted':>12}{'measured':>12}{'budget':>12}"]
    for name in ("allocated", "reserved", "device-used"):
        key = name.replace("-", "_") + "_bytes"
        if key not in measured:
            continue
        budget = size(result["budget_bytes"]) if name == ("allocated" if cpu else "device-used") else ""
        error = 100 * (predicted[key] / measured[key] - 1) if measured[key] else 0.0
        lines.append(f"{name:<13}{size(predicted[key]):>12}{size(measured[key]):>12}{budget:>12}  predicted {error:+.2f} %".rstrip())
    if measured["step_ms"] is not None:
        lines.append(f"{'step':<13}{predicted['step_ms']:>9.1f} ms{measured['step_ms']:>9.1f} ms")
        lines += slowdown(result, cpu)
    if result["loss"]:
        lines.append(f"{'loss':<13}{result['loss']['first']:>12.4f} -> {result['loss']['last']:.4f} after {result['steps']} steps")
    slots = result["slots"]
    if slots.get("mismatches"):
        lines.append(f"{slots['mismatches']} of {slots['passes']} passes left the plan: {slots['first_mismatch']}")
    lines.append(result["verdict"])
    return "\n".join(lines) + "\n"


def slowdown(result: dict[str, Any], cpu: bool) -> list[str]:
    """What the plan costs. On a card the measured step is held against the unconstrained one that was predicted. On the CPU, whose profile may be
    far from the machine's pace at the moment, only the share of rebuilding can be measured in the run itself."""
    predicted, measured = result["predicted"], result["measured"]
    base, step_ms = predicted["unconstrained_step_ms"], predicted["step_ms"]
    if not base or cpu and not result["levers"]:
        return []
    took = "" if cpu else f"{100 * (measured['step_ms'] / base - 1):>+10.1f} %"
    lines = [f"{'slowdown':<13}{100 * (step_ms / base - 1):>+10.1f} %{took:>12}{'':>12}  of the unconstrained step, predicted {base:.1f} ms"]
    extra_ms = sum(entry["extra_ms"] for entry in result["levers"] if entry["name"] == "rebuild")
    if cpu and result["rebuild_host_ms"] and extra_ms < step_ms and result["rebuild_host_ms"] < measured["step_ms"]:
        shares = [100 * a / (b - a) for a, b in ((extra_ms, step_ms), (result["rebuild_host_ms"], measured["step_ms"]))]
        lines.append(f"{'rebuilding':<13}{shares[0]:>+10.1f} %{shares[1]:>+10.1f} %{'':>12}  of the rest of the step")
    return lines
