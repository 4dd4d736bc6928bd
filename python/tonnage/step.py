"""A training step as a plan wants it: micro-batches under their hooks, weighted and accumulated, then the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

from . import batches
from .apply import Run, Stats, log
from .errors import Error
from .program import Program
from .rebuild import PlanError
from .weights import WeightFunction, Weights

VERSION = 1
UNWEIGHTED = {"kind": "unknown", "why": "the plan does not say what the loss averages over"}


class Step:
    """`step(batch)` trains on one batch and returns its loss, detached; nothing is synchronised with the device.

    The optimizer is stepped and its gradients dropped at the end; what must happen in between (clipping, say) goes into
    optimizer.register_step_pre_hook(). A smaller batch than planned is cut the same way, with what is left over run on its own.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[torch.nn.Module, Any], torch.Tensor],
        plan: dict[str, Any],
        device: torch.device,
        weight: WeightFunction | None = None,
        say: Callable[[str], None] = log.warning,
    ) -> None:
        self.plan = plan
        self._model, self._optimizer, self._loss = model, optimizer, loss
        self._device, self._say, self._stats = device, say, Stats()
        check(plan)
        self._bf16 = plan["precision"] == "bf16"
        self._programs = {p["micro_batch"]: Program(p, model, device) for p in plan["passes"]}
        self._sizes = [p["micro_batch"] for p in plan["passes"] for _ in range(p.get("count", 1))]
        self.rows = sum(self._sizes)
        self._weights = self._weigh(weight)
        self._room = StateRoom(plan.get("optimizer_state") or [], device)
        self._closed = False

    def __call__(self, batch: Any) -> torch.Tensor:
        if self._closed:
            raise Error("this step was closed")
        batch = tree_map_only(torch.Tensor, lambda t: t.to(self._device, non_blocking=True), batch)
        if not self._optimizer.state:
            self._room.take()
        rows = batches.size(batch)
        if rows > self.rows > 1 and len(self._sizes) == 1:
            raise Error(f"the batch has {rows} rows; the plan was made for {self.rows}")
        if self._weights is None or (rows in (0, self.rows) and len(self._sizes) == 1):  # 0: no common dimension, so never cut
            total = self._forward(batch, self._programs.get(rows or self.rows))
        else:
            total = self._pieces(batch, self._weights)
        self._room.give_back()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return total

    def stats(self) -> dict[str, Any]:
        """passes run; mismatches (passes that left the plan) and the first one in words; slots rebuilt; of these, remade out of turn."""
        return self._stats.as_dict()

    def close(self) -> None:
        """Lets go of the plan's programs. The model and the optimizer stay as they are."""
        self._closed = True
        self._programs.clear()
        self._room.give_back()
        if self._device.type == "cuda" and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(1.0, self._device)

    def _weigh(self, weight: WeightFunction | None) -> Weights | None:
        """None: batches are never cut, not even a smaller one that the plan is not for."""
        spec = self.plan.get("loss_weight") or UNWEIGHTED
        if len(self._sizes) == 1 and (weight is None and spec["kind"] == "unknown" or any(isinstance(m, _BatchNorm) for m in self._model.modules())):
            return None
        return Weights(spec, self._model, self._device, weight)

    def _pieces(self, batch: Any, weights: Weights) -> torch.Tensor:
        pieces = [(batches.cut(batch, a, b), program) for a, b, program in self._cuts(batches.require_size(batch))]
        total: torch.Tensor | None = None
        for (piece, program), share in zip(pieces, weights.shares([piece for piece, _ in pieces])):
            value = self._forward(piece, program, share)
            total = value if total is None else total + value
        assert total is not None
        return total

    def _cuts(self, rows: int) -> list[tuple[int, int, Program | None]]:
        """(first row, end, program) of each micro-batch; a rest that no pass was planned for runs without one, in pieces that need no plan."""
        sizes = list(self._sizes)
        if rows != self.rows:
            largest = max(self._programs)
            sizes = [largest] * (rows // largest)
            rest = rows % largest
            if rest in self._programs:
                sizes.append(rest)
            else:
                alone = max(1, int(largest * share_kept(next(p for p in self.plan["passes"] if p["micro_batch"] == largest))))
                sizes += [alone] * (rest // alone) + ([rest % alone] if rest % alone else [])
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        return [(end - n, end, self._programs.get(n)) for n, end in zip(sizes, ends)]

    def _forward(self, piece: Any, program: Program | None, share: torch.Tensor | float = 1.0) -> torch.Tensor:
        """Loss and gradients of one micro-batch; returns its part of the batch's loss."""
        run = Run(program, batches.leaves(piece), self._stats, self._say) if program is not None and program.has_work else None
        cast = torch.autocast(self._device.type, torch.bfloat16) if self._bf16 else nullcontext()
        try:
            with cast, run or nullcontext():
                value = self._loss(self._model, piece)
            if not isinstance(value, torch.Tensor) or value.numel() != 1:
                kind = f"a tensor of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
                raise Error(f"the loss function returned {kind}; expected a scalar tensor")
            if isinstance(share, float) and share == 1.0:
                value.backward()
                return value.detach()
            factor = torch.as_tensor(share, device=value.device).to(value.dtype).reshape(value.shape)
            value.backward(factor)
            return torch.where(factor > 0, value.detach() * factor, 0.0)  # all targets ignored: 0 / 0 terms
        finally:
            if run is not None:
                run.finish()
                run.program.has_work = run.program.rebuilds


class StateRoom:
    """Room for the optimizer's state, held from the start of the first step until the optimizer makes it.

    Made when it is asked for, at the end of the first backward, the state would lie scattered in what activations have left free, and large
    activations would not fit between its parts for the rest of the run: 7 to 10 % of memory with a plan that rebuilds much.
    """

    def __init__(self, sizes: list[list[int]], device: torch.device) -> None:
        self.sizes = sizes if device.type == "cuda" and torch.cuda.is_available() else []
        self.device = device
        self.held: list[torch.Tensor] = []

    def take(self) -> None:
        if self.sizes and not self.held:
            self.held = [torch.empty(size, dtype=torch.uint8, device=self.device) for size, count in self.sizes for _ in range(count)]

    def give_back(self) -> None:
        if self.held:
            torch.cuda.empty_cache()  # so that the state finds this room, and nothing that fits better
            self.held, self.sizes = [], []


def check(plan: dict[str, Any]) -> None:
    """PlanError for what is no plan, or a newer one."""
    if not isinstance(plan, dict) or not isinstance(plan.get("tonnage_plan"), int):
        raise PlanError('plan: this is not a plan (no "tonnage_plan")')
    if plan["tonnage_plan"] > VERSION:
        raise PlanError(f"plan: version {plan['tonnage_plan']} was written by a newer tonnage; this one reads {VERSION}")
    passes = plan.get("passes")
    if not isinstance(passes, list) or not passes or not all(isinstance(p, dict) and isinstance(p.get("micro_batch"), int) for p in passes):
        raise PlanError("plan: has no passes")
    if plan.get("precision") not in ("as is", "bf16"):
        raise PlanError(f"plan: unknown precision {plan.get('precision')!r}")


def share_kept(record: dict[str, Any]) -> float:
    """The share of a pass's saved bytes that its plan keeps, by the slots' signatures."""
    kept = total = 0
    for text, keep in record["slots"]:
        size = slot_bytes(text)
        total += size
        kept += size if keep else 0
    return kept / total if total else 1.0


def slot_bytes(signature: str) -> int:
    """Bytes of a slot by its signature, "float32[8,512] AddmmBackward0"."""
    from .program import read_signature

    dtype, shape = read_signature(signature)
    size = dtype.itemsize
    for n in shape:
        size *= n
    return size
