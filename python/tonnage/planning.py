"""Planning: captures what the search in the C library asks for, checks the plan it chooses by capturing that, and writes it down.

The decisions (which micro-batch, which slots to keep) are the library's; see src/plan. What is shown to the user is what the last capture,
made with the plan's own hooks, needs according to the caching model: the number of the plan that will run.
"""
from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from . import _lib, batches, lossterms, optimes, virtual_card
from .apply import Run, Stats
from .capture import Hooks, capture_tables
from .devices import Device
from .errors import Error, RecipeError
from .program import Program
from .recipe import Training
from .tables import BLOCK_HOST, NONE, OPTIMIZER, PHASES, Tables

LEVERS = ("rebuild", "micro-batch", "allocator")  # on by default
ALLOWED = ("precision", "batchnorm")  # what --allow takes
EXACTNESS = {"rebuild": "identical", "allocator": "identical", "micro-batch": "same maths", "precision": "changes numerics"}
TIGHTENINGS = 6
EXPANDABLE = "expandable_segments:True"


class InfeasibleError(Error):
    """No plan fits the budget; the message says the smallest that can and what would lower it."""

    status = 1


@dataclass
class Request:
    """What is to be planned, and what has been found out about it so far."""

    training: Training | tuple
    device: Device
    budget_bytes: int
    levers: set[str]
    say: Callable[[str], None]
    note_tables: Callable[[Tables], None] = lambda tables: None
    weighted: bool = False  # the user says what micro-batches count
    captures: dict[tuple[int, bool, int], Tables] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.card = present_card(self.device)
        self.profile = _lib.profile_parse(self.device.text)
        self.rows = 0
        self.loss_weight: dict[str, Any] = {}

    def capture(self, micro_batch: int, bf16: bool, passes: int, plan: list[dict[str, Any]] | None = None) -> _lib.Trace:
        """The trace of a step cut into micro-batches, as the user wrote it or under a plan's hooks."""
        key = self.key(micro_batch, bf16, passes)
        cut = 0 if passes == 1 and not key[0] else micro_batch
        if plan is not None:
            return _lib.Trace.from_tables(self.tables(cut, bf16, passes, plan))
        if key not in self.captures:
            self.captures[key] = self.tables(cut, bf16, passes)
            self.note_tables(self.captures[key])
            if self.card is not None:
                optimes.measure(self.captures[key], self.card)
        if not self.rows:
            self.examine(self.captures[key])
            if self.card is not None:
                self.device = optimes.with_host_times(self.device, self.captures[key], self.training, self.card)
                self.profile = _lib.profile_parse(self.device.text)
        return _lib.Trace.from_tables(self.captures[key])

    def key(self, micro_batch: int, bf16: bool, passes: int) -> tuple[int, bool, int]:
        return 0 if micro_batch == self.rows else micro_batch, bf16, passes

    def has(self, candidate: _lib.tn_candidate) -> bool:
        return self.key(candidate.micro_batch, bool(candidate.bf16), min(candidate.count, 2)) in self.captures

    def tables(self, micro_batch: int, bf16: bool, passes: int, plan: list[dict[str, Any]] | None = None) -> Tables:
        """micro_batch 0: the whole batch, as it is."""
        return capture_tables(
            self.training,
            self.device,
            micro_batch=micro_batch or None,
            passes=passes,
            precision="bf16" if bf16 else "as is",
            hooks=hooks_of(plan, self.device) if plan else None,
        )

    def examine(self, tables: Tables) -> None:
        """What the first capture says about cutting the batch."""
        self.rows = int(tables.meta["batch_size"]) or 1
        self.loss_weight = lossterms.describe(lossterms.Graph.of_tables(tables))
        if "micro-batch" not in self.levers:
            return
        if tables.meta["batch_size"] == "0":
            self.refuse("the tensors of the batch do not share dimension 0")
            return
        if self.loss_weight["kind"] == "unknown" and not self.weighted:
            self.refuse(f"{self.loss_weight['why']}; Training(weight=...) can say what each micro-batch counts")
            return
        normed = batchnorm_module(tables)
        if normed is not None and "batchnorm" not in self.levers:
            self.refuse(f"{normed} is a BatchNorm, whose statistics depend on the micro-batch; --allow batchnorm takes that")

    def state_sizes(self) -> list[list[int]]:
        """What the optimizer's first step makes that lasts, in order: [bytes, how many in a row]."""
        tables = next(iter(self.captures.values()))  # of any micro-batch: the parameters are the same
        born = [b[0] for b in tables.block if b[4] == OPTIMIZER and b[0] and not b[5] & BLOCK_HOST and b[1] != NONE]
        return [[size, len(list(run))] for size, run in itertools.groupby(born)]

    def refuse(self, reason: str) -> None:
        self.levers.discard("micro-batch")
        self.note(f"micro-batches are not used: {reason}")

    def note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)


def present_card(device: Device) -> torch.device | None:
    """The card itself, when the device is one that this process can use: then times are measured."""
    if device.type != "cuda" or virtual_card.is_loaded() or not torch.cuda.is_available():
        return None
    return torch.device("cuda", torch.cuda.current_device())


def batchnorm_module(tables: Tables) -> str | None:
    """The path of the first BatchNorm that takes its statistics from the batch."""
    names = tables.strings.texts()
    for op in tables.op:
        if "batch_norm" in names[op[0]] and op[3] in (1, 2) and takes_statistics(names[op[0]], names[op[1]]):
            return names[tables.module[op[2]][0]] if op[2] < len(tables.module) else "the model"
    return None


def takes_statistics(op: str, arguments: str) -> bool:
    """Does this batch norm use the batch's own statistics?  It says so by its name, or by the one boolean among its arguments; without
    arguments, as in all steps but the last, it is left to the last step to tell."""
    return "_with_update" in op or bool(arguments) and True in [x for x in json.loads(arguments)["args"] if isinstance(x, bool)]


def hooks_of(passes: list[dict[str, Any]], device: Device) -> Callable[[torch.nn.Module, Any], Hooks]:
    """Capture's seam for a plan: each pass is run by the program of its size, on fake tensors."""
    stats = Stats()
    running: list[Run] = []

    def make(model: torch.nn.Module, piece: Any) -> Hooks:
        rows = batches.size(piece) or passes[0]["micro_batch"]  # without a common dimension it is never cut
        record = next(p for p in passes if p["micro_batch"] == rows)
        program = Program(record, model, torch.device(device.type, 0) if device.type != "cpu" else torch.device("cpu"))
        program.generator.save, program.generator.put = (lambda: None), (lambda state: None)  # shapes only, no numbers
        while running:
            running.pop().finish()
        run = Run(program, batches.leaves(piece), stats, say=_mismatch)
        running.append(run)
        if program.first_states is not None:
            run.note_states(program.first_states)
        return run.pack, run.unpack

    return make


def _mismatch(line: str) -> None:
    raise Error(line.removeprefix("tonnage: "))


# ---- the search ---------------------------------------------------------------------------------------------------------------


def chosen_levers(allow: Collection[str], levers: Collection[str] | None) -> set[str]:
    """The levers in use.  Error for a name that is none."""
    for name in allow:
        if name not in ALLOWED:
            raise Error(f"--allow {name}: unknown; known: {' '.join(ALLOWED)}")
    for name in levers or ():
        if name not in LEVERS:
            raise Error(f"--levers {name}: unknown; known: {' '.join(LEVERS)}")
    return set(LEVERS if levers is None else levers) | set(allow)


def plan_for(
    training: Training | tuple,
    device: Device,
    budget_bytes: int,
    *,
    allow: Collection[str] = (),
    levers: Collection[str] | None = None,
    say: Callable[[str], None] = lambda line: None,
    note_tables: Callable[[Tables], None] = lambda tables: None,
    weighted: bool = False,
    captures: dict[tuple[int, bool, int], Tables] | None = None,
) -> dict[str, Any]:
    """A plan as docs/formats.md has it, for a step of the training on the device within budget_bytes of device-used memory.

    training: a recipe's Training, or (model, optimizer, loss, batch) as they are in this process.  say: told what is going on, a line at a time.
    note_tables: given the records of each capture.  weighted: the user's own function says what micro-batches count.  On the card itself the
    seconds of each op are measured; elsewhere they are the profile's roofline.  captures: filled, and used again when several budgets are planned
    for one training on one device.  InfeasibleError: no plan fits.
    """
    weighted = weighted or (isinstance(training, Training) and training.weight is not None)
    request = Request(training, device, budget_bytes, chosen_levers(allow, levers), say, note_tables, weighted, {} if captures is None else captures)
    say("capturing the step as it is")
    baseline = request.capture(0, False, 1)
    target, limit = budget_bytes, 0
    for attempt in range(TIGHTENINGS):
        search = searched(request, baseline, target)
        best = search.best
        limit = limit or best.limit_bytes
        if not best.fits:
            break
        main, summary = search.best_json()
        passes = passes_of(request, best, main)
        say("checking the plan")
        peak, over = measured_by_capture(request, best, passes, limit)
        if over <= 0:
            return written(request, best, passes, json.loads(summary), peak)
        target -= over + over // 8 + attempt * (budget_bytes >> 8)  # the library's own replay of the plan was too hopeful by this
    passes, rebuilt, peak, over = smallest(request, best, limit)
    if limit and over <= 0:
        return written(request, best, passes, rebuilt, peak)
    spare = max(budget_bytes - request.profile.context_bytes - limit, 0)  # what the search leaves free below a budget
    raise InfeasibleError(infeasible(request, best, baseline, request.profile.context_bytes + limit + over + spare))


def searched(request: Request, baseline: _lib.Trace, budget_bytes: int) -> _lib.Search:
    """The search of the C library, given the captures it asks for."""
    usable = sum(_lib.LEVERS[name] for name in request.levers & _lib.LEVERS.keys())
    search = _lib.Search(request.profile, max(budget_bytes, 1), request.rows, usable)
    while (candidate := search.next()) is not None:
        is_baseline = candidate.micro_batch == request.rows and not candidate.bf16
        if not is_baseline and not request.has(candidate):
            request.say(f"capturing {describe(candidate)}")
        try:
            search.offer(baseline if is_baseline else captured(request, candidate))
        except RecipeError as error:
            if candidate.micro_batch == request.rows:
                raise
            # As a BatchNorm does that is given a single value per channel.
            request.note(f"{describe(candidate)} cannot be run: {str(error).splitlines()[-1].strip()}")
            break
    return search


def captured(request: Request, candidate: _lib.tn_candidate) -> _lib.Trace:
    return request.capture(candidate.micro_batch, bool(candidate.bf16), min(candidate.count, 2))


def describe(candidate: _lib.tn_candidate) -> str:
    rest = f" + {candidate.rest}" if candidate.rest else ""
    cut = f"micro-batches of {candidate.count} × {candidate.micro_batch}{rest}" if candidate.count > 1 or candidate.rest else "the whole batch"
    return cut + (" in bf16" if candidate.bf16 else "")


def infeasible(request: Request, best: _lib.tn_search_best, baseline: _lib.Trace, smallest: int) -> str:
    """Why nothing fits: the smallest budget that can, what holds most of it, and what was not tried."""
    size = _lib.size_format
    held = _lib.estimate(baseline, request.profile).persistent_bytes + request.profile.context_bytes
    used = ", ".join(name for name in (*LEVERS, *ALLOWED) if name in request.levers) or "none"
    text = f"no plan fits {size(request.budget_bytes)}: {size(smallest)} is the smallest budget found with the levers allowed ({used})"
    what = "parameters, optimizer state" + (" and the CUDA context" if request.profile.context_bytes else "")
    text += f"; {what} take {size(held)} of it" + (f", the rest is at its peak in {best_phase(best)}" if held < smallest else "")
    missing = [name for name in LEVERS if name not in request.levers]
    if "precision" not in request.levers:
        missing.append("--allow precision")
    return text + (f"; may lower it: {', '.join(missing)}" if missing else "") + "".join(f" ({note})" for note in request.notes)


def best_phase(best: _lib.tn_search_best) -> str:
    return PHASES[best.result.peak_phase] if best.result.peak_phase < len(PHASES) else "other"


def smallest(request: Request, best: _lib.tn_search_best, limit: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], _lib.tn_peak, int]:
    """The plan that needs least for the candidate that needed least, what its capture says, and by how much that is over the limit; `best` becomes it."""
    best.limit_bytes = 1
    plan = planned(request, captured(request, best.candidate), 1, best)
    best.step_s += (plan.result.last_pass.length_s - best.result.last_pass.length_s) * passes_in_step(best.candidate)
    best.result = plan.result
    passes = passes_of(request, best, plan.pass_json())
    return passes, json.loads(plan.rebuilt_json()), *measured_by_capture(request, best, passes, limit)


def passes_in_step(candidate: _lib.tn_candidate) -> float:
    return candidate.count + candidate.rest / candidate.micro_batch


# ---- the check, and the plan as written ------------------------------------------------------------------------------------------


def passes_of(request: Request, best: _lib.tn_search_best, main: str) -> list[dict[str, Any]]:
    """PASS entries: the micro-batch, and the smaller last one if there is one, planned for the same limit."""
    candidate = best.candidate
    passes = [{"micro_batch": candidate.micro_batch, "count": candidate.count, **json.loads(main)}]
    if candidate.rest:
        trace = request.capture(candidate.rest, bool(candidate.bf16), 2 if 2 * candidate.rest <= request.rows else 1)
        rest = planned(request, trace, best.limit_bytes, best)
        passes.append({"micro_batch": candidate.rest, "count": 1, **json.loads(rest.pass_json())})
    return passes


def planned(request: Request, trace: _lib.Trace, limit_bytes: int, best: _lib.tn_search_best) -> _lib.Plan:
    keep_all = "rebuild" not in request.levers
    return _lib.Plan(trace, request.profile, limit_bytes, expandable_segments=bool(best.expandable_segments), keep_all=keep_all)


def measured_by_capture(request: Request, best: _lib.tn_search_best, passes: list[dict[str, Any]], limit: int) -> tuple[_lib.tn_peak, int]:
    """What the plan needs: of each size of micro-batch two passes, and the larger need counts; and by how much that is over the limit."""
    candidate, found = best.candidate, []
    for entry in passes:
        rows = entry["micro_batch"]
        pair = 2 if (candidate.count > 1 or candidate.rest) and 2 * rows <= request.rows else 1
        found.append(need(request, request.capture(rows, bool(candidate.bf16), pair, [entry]), best, limit))
    largest, over = max(found, key=lambda pair: pair[1])
    largest.allocated_bytes = max(peak.allocated_bytes for peak, _ in found)
    return largest, over


def need(request: Request, trace: _lib.Trace, best: _lib.tn_search_best, limit: int) -> tuple[_lib.tn_peak, int]:
    """The peaks of a step under the limit if it runs in it without retries, and 0; else without a limit, and what it needs more."""
    expandable = bool(best.expandable_segments)
    peak = _lib.estimate(trace, request.profile, expandable_segments=expandable, state_placed=expandable)
    over = int(peak.limit_needed_bytes) - limit
    if over > 0 or limit >= request.profile.total_bytes or request.device.type == "cpu":
        return peak, over
    under = _lib.estimate(trace, request.profile, expandable_segments=expandable, state_placed=expandable, limit_bytes=limit)
    return (peak, limit >> 8) if under.oom or under.retries else (under, 0)


def written(request: Request, best: _lib.tn_search_best, passes: list[dict[str, Any]], rebuilt: list[dict[str, Any]], peak: _lib.tn_peak) -> dict[str, Any]:
    candidate, result = best.candidate, best.result
    more = passes_in_step(candidate)
    extra_ms, step_ms = (result.last_pass.length_s - result.kept_last_pass.length_s) * more * 1e3, best.step_s * 1e3
    base_ms, whole_ms = best.unconstrained_step_s * 1e3, best.whole_step_s * 1e3
    levers = []
    if candidate.bf16:
        levers.append(lever("precision", best.unconstrained_allocated_bytes - best.whole_allocated_bytes, whole_ms - base_ms))
    if candidate.count > 1 or candidate.rest:
        levers.append(lever("micro-batch", best.whole_allocated_bytes - result.kept_bytes, step_ms - whole_ms - extra_ms))
    if result.slots_rebuilt:
        levers.append(lever("rebuild", result.kept_bytes - result.allocated_bytes, extra_ms))
    if best.expandable_segments:
        levers.append(lever("allocator", 0, 0.0))
    return {
        "tonnage_plan": 1,
        "device": request.device.name,
        "torch": torch.__version__.partition("+")[0],
        "budget_bytes": request.budget_bytes,
        "precision": "bf16" if candidate.bf16 else "as is",
        "allocator": EXPANDABLE if best.expandable_segments else "",
        "optimizer_state": request.state_sizes() if best.expandable_segments else [],
        "batch": request.rows,
        "loss_weight": request.loss_weight,
        "predicted": {
            "allocated_bytes": peak.allocated_bytes,
            "reserved_bytes": peak.reserved_bytes,
            "device_used_bytes": peak.device_used_bytes,
            "step_ms": round(step_ms, 3),
            "unconstrained_step_ms": round(base_ms, 3),
            "unconstrained_allocated_bytes": best.unconstrained_allocated_bytes,
            "lower_bound_ms": round(result.lower_bound_s * more * 1e3, 3),
        },
        "levers": levers,
        "rebuilt": rebuilt,
        "notes": request.notes,
        "passes": passes,
    }


def lever(name: str, freed: int, extra_ms: float) -> dict[str, Any]:
    return {"name": name, "exactness": EXACTNESS[name], "bytes_freed": max(freed, 0), "extra_ms": round(extra_ms, 3)}


# ---- as text ---------------------------------------------------------------------------------------------------------------------


def text_of(plan: dict[str, Any]) -> str:
    """The plan for a person: what it needs, what it costs, and what it does."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: dict[str, Any]) -> Iterator[str]:
    size, predicted = _lib.size_format, plan["predicted"]
    base, step = predicted["unconstrained_step_ms"], predicted["step_ms"]
    slower = f" ({100 * (step / base - 1):+.1f} %)" if base else ""
    yield f"Plan for {size(plan['budget_bytes'])} on {plan['device']}"
    used, reserved, allocated = (size(predicted[f"{name}_bytes"]) for name in ("device_used", "reserved", "allocated"))
    yield f"  predicted peak   {used} device-used, {reserved} reserved, {allocated} allocated" if used != allocated else f"  predicted peak   {used} allocated"
    yield f"  unconstrained    {size(predicted['unconstrained_allocated_bytes'])} allocated"
    yield f"  predicted step   {step:.1f} ms{slower}, unconstrained {base:.1f} ms"
    if not plan["levers"]:
        yield "  nothing to change: the step fits as it is"
    else:
        yield ""
        yield f"  {'lever':<14}{'exactness':<18}{'frees':>12}{'costs':>12}"
    for entry in plan["levers"]:
        freed = size(entry["bytes_freed"]) if entry["bytes_freed"] else "-"
        yield f"  {entry['name']:<14}{entry['exactness']:<18}{freed:>12}{entry['extra_ms']:>9.1f} ms  {detail_of(plan, entry['name'])}".rstrip()
    rows = sorted(plan["rebuilt"], key=lambda row: -row["bytes"])
    names = [f"{row['module'] or '(root)'} {row['op'].split('.')[1]}" for row in rows[:12]]
    width = max([40, *(len(name) for name in names)])
    if rows:
        yield ""
        yield f"  {'rebuilt':<{width}}{'blocks':>8}{'bytes':>12}{'costs':>12}"
    for name, row in zip(names, rows):
        yield f"  {name:<{width}}{row['count'] or '':>8}{size(row['bytes']) if row['bytes'] else '-':>12}{row['extra_ms']:>9.2f} ms"
    if len(rows) > 12:
        yield f"  and {len(rows) - 12} more, in the plan file"
    for note in plan["notes"]:
        yield f"  note: {note}"


def detail_of(plan: dict[str, Any], name: str) -> str:
    if name == "micro-batch":
        return " + ".join(f"{p['count']} × {p['micro_batch']}" for p in plan["passes"])
    if name == "rebuild":
        slots = plan["passes"][0]["slots"]
        return f"{sum(not keep for _, keep in slots)} of {len(slots)} saved tensors"
    return {"precision": "bf16 autocast", "allocator": plan["allocator"]}[name]
