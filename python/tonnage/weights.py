"""The share of each micro-batch in the whole batch's loss, so that accumulated gradients are the whole batch's.

lossterms.py says what the loss averages over; here it is worked out for the data at hand, before the first backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import batches
from .errors import Error
from .program import find_source
from .rebuild import Generator, PlanError, bind

# weight(batch) -> how many terms the loss of this (micro-)batch averages over: a number, or a tensor with one
WeightFunction = Callable[[Any], Any]


class Weights:
    """Compiled from a plan's "loss_weight"; `shares(pieces)` gives each micro-batch's share."""

    def __init__(self, spec: dict[str, Any], model: torch.nn.Module, device: torch.device, function: WeightFunction | None = None):
        self.kind = "function" if function is not None else spec.get("kind", "rows")
        self.function = function
        if self.kind == "unknown":
            why = spec.get("why", "its weight is unknown")
            raise Error(f"the batch cannot be cut into micro-batches: {why}; say what the loss averages over with weight=FUNCTION (batch -> number of terms)")
        if self.kind in ("count", "value"):
            self.spec = spec
            self.divisor = Divisor(spec, model, device)
        elif self.kind not in ("rows", "sum", "function"):
            raise PlanError(f"plan: loss weight of unknown kind {self.kind!r}")

    def shares(self, pieces: Sequence[Any]) -> list[torch.Tensor | float]:
        """One factor for the loss of each piece. On the device where the number comes from data, so nothing waits for it."""
        if self.kind == "sum":
            return [1.0] * len(pieces)
        if self.kind == "rows":
            rows = [batches.require_size(piece) for piece in pieces]
            return [n / sum(rows) for n in rows]
        with torch.no_grad():
            terms = [self.function(piece) if self.function is not None else self.divisor(piece) for piece in pieces]
            if not any(isinstance(n, torch.Tensor) for n in terms):
                total = sum(terms)
                return [n / total if total else 0.0 for n in terms]
            stacked = torch.stack([torch.as_tensor(n, dtype=torch.float64).reshape(()) for n in terms])
            total = stacked.sum()
            return list(torch.where(total > 0, stacked / total, 0.0))


class Divisor:
    """Makes the number that a loss divides by from the leaves of a micro-batch."""

    def __init__(self, spec: dict[str, Any], model: torch.nn.Module, device: torch.device):
        registers: dict[int, int] = {}

        def register(value: int) -> int:
            return registers.setdefault(value, len(registers))

        recipe = spec["recipe"]
        self.count = spec if spec["kind"] == "count" else None
        self.fixed: list[tuple[int, dict[str, Any], str]] = []
        self.inputs: list[tuple[int, int]] = []
        for value, source in recipe["sources"].items():
            find_source(source, register(int(value)), model, self.fixed, self.inputs)
        generator = Generator(device)
        self.ops = [bind(record, register, lambda value: True, device, generator) for record in recipe["ops"]]
        self.value = register(spec["value"])
        weight = spec.get("class_weight")
        self.class_weight = register(weight) if weight is not None else None
        self.size = len(registers)

    def __call__(self, piece: Any) -> torch.Tensor:
        regs: list[Any] = [None] * self.size
        leaves = batches.leaves(piece)
        for at, owner, name in self.fixed:
            regs[at] = owner[name]
        for at, k in self.inputs:
            regs[at] = leaves[k]
        try:
            for op in self.ops:
                op.run(regs, {})
        except RuntimeError as error:
            raise Error(f"the number of terms in a micro-batch's loss cannot be worked out ({str(error).splitlines()[0]}); give weight=FUNCTION") from None
        value = regs[self.value]
        if self.count is None:
            return value.sum()
        wanted = value != self.count["ignore_index"]
        if self.class_weight is None:
            return wanted.sum()
        return regs[self.class_weight][value.where(wanted, 0)].where(wanted, 0).sum()
