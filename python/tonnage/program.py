"""A pass of a plan, compiled: what to do with each slot, and the registers and recipes to do it with.

Built once from the plan's JSON and a model; every run of the pass (apply.py) reads it.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from .rebuild import Generator, Op, PlanError, bind

_SIGNATURE = re.compile(r"(\w+)\[([\d,]*)\] (\S+)")


class Recipe:
    """How to make a dropped slot again. It also is what autograd holds in the slot's place, so dropping a slot allocates nothing."""

    __slots__ = ("slot", "shape", "steps", "loads", "needs", "value", "forget")

    def __init__(self, slot: int, shape: tuple[int, ...]) -> None:
        self.slot, self.shape = slot, shape
        self.steps: list[tuple[Op, list[int]]] = []  # (op, registers to forget after it)
        self.loads: list[tuple[int, int]] = []  # (register, kept slot to read it from)
        self.needs: list[int] = []  # registers that recipes of other slots have filled
        self.value = 0
        self.forget: list[int] = []  # registers to forget when it has been made


class Duty:
    """A kept slot that recipes read, or whose turn in backward ends the life of a value."""

    __slots__ = ("slot", "hold", "forget")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.hold: list[int] = []  # registers that take the slot's tensor when autograd gives it back
        self.forget: list[int] = []


# What a slot must look like, and what becomes of it: (dtype, shape, producer, detach, verdict, states).
# producer: the class of the tensor's autograd node, which is quicker to compare than the name in the signature, or for a leaf whether it
# takes a gradient; UNSEEN until a run has met a tensor with the slot's signature.
# detach: the tensor is an output of the node that saves it (or nobody knows yet): held as it is, it would hold itself.
# verdict: None = keep, Duty = keep for recipes too, Recipe = drop. states: random ops whose generator state is to be noted here.
Entry = tuple[torch.dtype | None, tuple[int, ...] | None, Any, bool, Recipe | Duty | None, list[int] | None]
UNSEEN = None


def read_signature(text: str) -> tuple[torch.dtype, tuple[int, ...]]:
    """ "float32[8,512] AddmmBackward0" -> dtype and shape."""
    match = _SIGNATURE.fullmatch(text)
    dtype = getattr(torch, match[1], None) if match else None
    if match is None or not isinstance(dtype, torch.dtype):
        raise PlanError(f"plan: {text!r} is no slot's signature")
    shape = tuple(int(n) for n in match[2].split(",") if n)
    return dtype, shape


def find_source(source: str, at: int, model: torch.nn.Module, fixed: list[tuple[int, dict[str, Any], str]], inputs: list[tuple[int, int]]) -> None:
    """Notes where register `at` comes from: in `fixed` the module's dict and the name in it, so that a replaced parameter is found; or in `inputs`."""
    kind, _, name = source.partition(":")
    if kind == "input":
        inputs.append((at, int(name)))
    elif kind in ("parameter", "buffer"):
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        owner: dict[str, Any] = module._parameters if kind == "parameter" else module._buffers
        if owner.get(leaf) is None:
            raise PlanError(f"plan: the model has no {kind} {name}")
        fixed.append((at, owner, leaf))
    else:
        raise PlanError(f"plan: {source!r} is no source of a value")


class Program:
    """One entry of a plan's "passes" for one model on one device."""

    def __init__(self, plan: dict[str, Any], model: torch.nn.Module, device: torch.device) -> None:
        try:
            self._compile(plan, model, device)
        except PlanError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"plan: malformed ({type(error).__name__}: {error})") from None

    def _compile(self, plan: dict[str, Any], model: torch.nn.Module, device: torch.device) -> None:
        self.micro_batch = int(plan["micro_batch"])
        self.generator = Generator(device)
        self.modules = {id(module): name for name, module in model.named_modules()}
        self.signatures: list[str] = [text for text, _ in plan["slots"]]
        self._registers: dict[int, int] = {}
        self.fixed: list[tuple[int, dict[str, Any], str]] = []  # (register, a module's parameters or buffers, name)
        self.inputs: list[tuple[int, int]] = []  # (register, leaf of the batch)
        self.slot_of: dict[int, int] = {}  # register -> kept slot that holds its value
        self.maker: dict[int, Op] = {}  # register -> op that makes it
        for value, source in plan["sources"].items():
            at = self._register(int(value))
            if source.startswith("slot:"):
                self.slot_of[at] = int(source.removeprefix("slot:"))
            else:
                find_source(source, at, model, self.fixed, self.inputs)
        used = _values_used(plan).difference(int(v) for v in plan["sources"])  # what is there already is not made again
        ops = {int(i): bind(record, self._register, used.__contains__, device, self.generator) for i, record in plan["ops"].items()}
        for op in ops.values():
            self.maker.update(dict.fromkeys(op.outputs, op))
        sourced = {self._register(int(v)) for v in plan["sources"]}
        for op in ops.values():
            if sourced.intersection(op.spent):
                raise PlanError(f"plan: {op.name} would overwrite a value that is not its own")
        self.held = {self._register(int(value)) for holds in plan.get("hold", {}).values() for value, _ in holds}
        self._slots(plan, ops)
        self.size = len(self._registers)
        self.rebuilds = bool(plan["rebuild"])
        self.has_work = True  # the first pass is checked against the plan; where every slot is kept, later ones need no hooks

    def _register(self, value: int) -> int:
        return self._registers.setdefault(value, len(self._registers))

    def _slots(self, plan: dict[str, Any], ops: dict[int, Op]) -> None:
        read = [read_signature(text) for text in self.signatures]
        states: dict[int, list[int]] = {}
        for slot, n in plan.get("random", []):
            states.setdefault(int(slot), []).append(int(n))
        self.first_states = states.get(-1)
        verdicts: dict[int, Recipe | Duty] = {}
        for k, (_, keep) in enumerate(plan["slots"]):
            if not keep:
                verdicts[k] = self._recipe(k, read[k][1], plan["rebuild"][str(k)], ops)

        def duty(k: int) -> Recipe | Duty:
            if k >= len(read):
                raise PlanError(f"plan: there is no slot {k}")
            return verdicts.setdefault(k, Duty(k))

        for k in self.slot_of.values():
            if not isinstance(duty(k), Duty):
                raise PlanError(f"plan: slot {k} is read by a recipe but not kept")
        for slot, holds in plan.get("hold", {}).items():
            for value, until in holds:
                at = self._register(int(value))
                holder = duty(int(slot))
                if not isinstance(holder, Duty):
                    raise PlanError(f"plan: slot {slot} is held but not kept")
                holder.hold.append(at)
                duty(int(until)).forget.append(at)
        self.table: list[Entry] = [(*read[k], UNSEEN, True, verdicts.get(k), states.get(k)) for k in range(len(read))]

    def _recipe(self, k: int, shape: tuple[int, ...], record: dict[str, Any], ops: dict[int, Op]) -> Recipe:
        recipe = Recipe(k, shape)
        made: set[int] = set()
        given = {at for at, *_ in self.fixed} | {at for at, _ in self.inputs}

        def read(at: int) -> None:
            if at in made:
                return
            if at in self.slot_of:
                made.add(at)
                recipe.loads.append((at, self.slot_of[at]))
            elif at in self.maker:
                made.add(at)
                recipe.needs.append(at)
            elif at not in given:
                raise PlanError(f"plan: slot {k} needs a value that comes from nowhere")

        for i, forget in record["run"]:
            op = ops[int(i)]
            for at in op.inputs:
                read(at)
            made.update(op.outputs)
            recipe.steps.append((op, [self._register(v) for v in forget]))
        recipe.value = self._register(record["value"])
        read(recipe.value)
        recipe.forget = [self._register(v) for v in record["forget"]]
        # A slot read here lives as long as autograd, not the recipes, wants it to; unless the plan says so.
        recipe.forget += [at for at, _ in recipe.loads if at not in self.held]
        return recipe


def _values_used(plan: dict[str, Any]) -> set[int]:
    """Values that an op reads, or that a slot or a hold asks for."""
    used: set[int] = {record["value"] for record in plan["rebuild"].values()}
    used.update(value for holds in plan.get("hold", {}).values() for value, _ in holds)
    stack: list[Any] = [record["call"] for record in plan["ops"].values()]
    while stack:
        x = stack.pop()
        if isinstance(x, list):
            stack.extend(x)
        elif isinstance(x, dict):
            value = x.get("v", x.get("scratch"))
            if isinstance(value, int):
                used.add(value)
            else:
                stack.extend(x.values())
    return used
