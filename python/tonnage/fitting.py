"""`tonnage.fit`: makes a training step fit a budget of device memory.

step = tonnage.fit(model, optimizer, loss, example_batch, budget="12GiB")
for batch in loader:
    value = step(batch)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from . import _lib, batches, devices
from .errors import Error
from .rebuild import PlanError
from .step import Step, check
from .weights import WeightFunction


def fit(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[torch.nn.Module, Any], torch.Tensor],
    example_batch: Any,
    budget: str | int,
    *,
    allow: Collection[str] = (),
    levers: Collection[str] | None = None,
    plan: dict[str, Any] | str | Path | None = None,
    device: str | None = None,
    quiet: bool = False,
    weight: WeightFunction | None = None,
) -> Step:
    """A training step that stays within `budget`: `step(batch)` returns the loss, detached.

    budget: device memory in bytes, or as text ("12GiB"); all that the process uses on the card counts, context included.
    loss(model, batch) -> scalar; example_batch: a pytree of tensors that share dimension 0, of the size that training will use.
    allow: levers that change numerics, "precision", or statistics, "batchnorm". levers: use only these of rebuild, micro-batch, allocator.
    plan: a plan made before, as a dict or a file, instead of making one. device: a profile's name; default: the model's own device.
    quiet: do not print the plan. weight(batch): how many terms the loss of a (micro-)batch averages over, where that cannot be seen.
    On a CUDA device the budget becomes the process's limit: exceeding it raises torch.OutOfMemoryError.
    Raises tonnage.Error: bad arguments, a step that cannot be captured, or a budget that no plan fits.
    """
    where = device_of(model)
    profile = profile_for(where, device)
    budget_bytes = bytes_of(budget)
    if plan is None:
        from . import planning

        made = planning.plan_for((model, optimizer, loss, example_batch), profile, budget_bytes, allow=allow, levers=levers, weighted=weight is not None)
    else:
        made = read_plan(plan)
        check_batch(made, example_batch)
    step = Step(model, optimizer, loss, made, where, weight)
    enforce(made, budget_bytes, where)
    if not quiet:
        from . import planning

        sys.stdout.write(planning.text_of(made))
    return step


def bytes_of(budget: str | int) -> int:
    if isinstance(budget, int):
        if budget <= 0:
            raise Error(f"budget: a size above 0 is wanted, not {budget}")
        return budget
    return _lib.size_parse(budget)


def device_of(model: torch.nn.Module) -> torch.device:
    """Where the model is. Error when it is in several places or nowhere."""
    places = {p.device for p in model.parameters()}
    if len(places) != 1:
        raise Error(f"the model is on {len(places)} devices; fit plans for one" if places else "the model has no parameters")
    return places.pop()


def profile_for(where: torch.device, name: str | None) -> devices.Device:
    """The profile of the card that the model is on, or the one asked for."""
    if name is None:
        if where.type == "cpu":
            name = "cpu"
        else:
            from . import profile

            properties = torch.cuda.get_device_properties(where)
            name = profile.name_of(properties.name, properties.total_memory)
    found = devices.find(name)
    if found.type != where.type:
        raise Error(f"the model is on {where}, and {name!r} is the profile of a {found.type} device")
    return found


def read_plan(plan: dict[str, Any] | str | Path) -> dict[str, Any]:
    """A plan from a file, or as it is; PlanError when it is none."""
    if not isinstance(plan, dict):
        try:
            plan = json.loads(Path(plan).read_text())
        except OSError as error:
            raise PlanError(f"{plan}: {error.strerror}") from None
        except ValueError as error:
            raise PlanError(f"{plan}: not a plan: {error}") from None
    check(plan)  # type: ignore[arg-type]
    return plan  # type: ignore[return-value]


def check_batch(plan: dict[str, Any], batch: Any) -> None:
    """PlanError when the plan was made for another number of rows."""
    planned = sum(p["micro_batch"] * p.get("count", 1) for p in plan["passes"])
    rows = batches.size(batch)
    if rows and rows != planned:
        raise PlanError(f"plan: was made for batches of {planned} rows; this one has {rows}")


def enforce(plan: dict[str, Any], budget_bytes: int, where: torch.device) -> None:
    """On a card: the plan's allocator setting, and the budget less the context as this process's limit."""
    if where.type != "cuda" or not torch.cuda.is_available():
        return
    if plan.get("allocator"):
        set_allocator(plan["allocator"])
    predicted = plan["predicted"]
    context = max(0, predicted["device_used_bytes"] - predicted["reserved_bytes"])
    total = torch.cuda.get_device_properties(where).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, max(0, budget_bytes - context) / total), where)


def set_allocator(setting: str) -> None:
    """As PYTORCH_CUDA_ALLOC_CONF would, for memory taken from now on."""
    change = getattr(torch._C, "_accelerator_setAllocatorSettings", None) or torch.cuda.memory._set_allocator_settings
    change(setting)
