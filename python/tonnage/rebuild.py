"""Recipes: the ops that make a dropped slot again, compiled from a plan so that running them looks nothing up.

A plan's values become registers: positions in one list. An op is a callable that reads and writes that list. apply.py owns the lists and
runs the recipes; docs/formats.md says what the plan's fields mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from .errors import Error

Registers = list[Any]  # a tensor, or None where there is no value now


class PlanError(Error):
    """A plan that cannot be carried out: malformed, or made for another model."""


class Generator:
    """Puts a device's random numbers back to where an earlier op found them. CUDA has an offset; the CPU its whole state (5 KB)."""

    def __init__(self, device: torch.device) -> None:
        if device.type == "cuda":
            cards = torch.cuda.default_generators
            index = device.index if device.index is not None else (torch.cuda.current_device() if cards else 0)
            if index < len(cards):
                self.save, self.put = cards[index].get_offset, cards[index].set_offset
                return
        elif device.type == "cpu":
            self.save, self.put = torch.default_generator.get_state, torch.default_generator.set_state
            return
        self.save, self.put = (lambda: None), (lambda state: None)  # a virtual card: shapes only, no numbers


class Op:
    """One op of a recipe: `run(registers, states)` makes its outputs from its inputs, of which it uses up `spent` by writing them in place."""

    __slots__ = ("name", "inputs", "spent", "outputs", "run")

    def __init__(self, name: str, inputs: list[int], spent: list[int], outputs: list[int], run: Callable[[Registers, dict[int, Any]], None]) -> None:
        self.name, self.inputs, self.spent, self.outputs, self.run = name, inputs, spent, outputs, run


_NAME = re.compile(r"\w+\.\w+\.\w+")


def find_op(name: str) -> torch._ops.OpOverload:
    """ "aten.gelu.default" -> the overload."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PlanError(f"plan: {name!r} is no op's name")
    namespace, base, overload = name.split(".")
    try:
        func = getattr(getattr(getattr(torch.ops, namespace), base), overload)
    except AttributeError:
        raise PlanError(f"plan: this PyTorch ({torch.__version__}) has no op {name}") from None
    if not isinstance(func, torch._ops.OpOverload):
        raise PlanError(f"plan: {name!r} is no op's name")
    return func


class Reader:
    """Turns an argument's JSON into a constant, or into a function of the registers when there is a tensor in it."""

    def __init__(self, register: Callable[[int], int], device: torch.device) -> None:
        self.register, self.device = register, device
        self.inputs: list[int] = []

    def read(self, x: Any) -> tuple[Any, Callable[[Registers], Any] | None]:
        """(constant, None), or (anything, function)."""
        if isinstance(x, list):
            parts = [self.read(y) for y in x]
            if all(get is None for _, get in parts):
                return [value for value, _ in parts], None
            return None, lambda regs: [value if get is None else get(regs) for value, get in parts]
        if not isinstance(x, dict):
            return x, None
        ((kind, value),) = x.items()
        if kind in ("v", "scratch"):
            at = self.register(value)
            self.inputs.append(at)
            return None, (lambda regs: regs[at]) if kind == "v" else (lambda regs: regs[at].clone())
        return self.constant(kind, value), None

    def constant(self, kind: str, value: Any) -> Any:
        if kind == "float":
            return float(value)
        if kind == "complex":
            return complex(*value)
        if kind == "device":
            return self.device if torch.device(value).type == self.device.type else torch.device(value)
        if kind in ("dtype", "layout", "memory_format"):
            return getattr(torch, value)
        raise PlanError(f"plan: argument of unknown kind {kind!r}")


def bind(record: dict[str, Any], register: Callable[[int], int], wanted: Callable[[int], bool], device: torch.device, generator: Generator) -> Op:
    """Compiles one entry of a plan's "ops". Outputs that nothing in the plan wants are let go at once."""
    func = find_op(record["op"])
    reader = Reader(register, device)
    plain: list[tuple[int, int]] = []  # (argument, register): the common case, kept free of calls
    computed: list[tuple[int, Callable[[Registers], Any]]] = []
    template: list[Any] = []
    for i, x in enumerate(record["call"]["args"]):
        value, get = reader.read(x)
        template.append(value)
        if isinstance(x, dict) and "v" in x:
            plain.append((i, reader.inputs[-1]))
        elif get is not None:
            computed.append((i, get))
    keywords = {name: reader.read(x) for name, x in record["call"].get("kwargs", {}).items()}
    constants = {name: value for name, (value, get) in keywords.items() if get is None}
    by_name = [(name, get) for name, (_, get) in keywords.items() if get is not None]
    call = getattr(func, "_op", func)  # the overload's own __call__ only passes on to it

    def compute(regs: Registers) -> Any:
        args = template.copy()
        for i, at in plain:
            args[i] = regs[at]
        if computed:
            for i, get in computed:
                args[i] = get(regs)
        if by_name:
            return call(*args, **constants, **{name: get(regs) for name, get in by_name})
        return call(*args, **constants)

    returns = func._schema.returns
    single = len(returns) == 1 and not isinstance(returns[0].type, torch._C.ListType)
    outputs = [register(v) if v is not None and wanted(v) else -1 for v in record["out"]]
    if any(at >= 0 for at in outputs[1 if single else len(outputs) :]):
        raise PlanError(f"plan: wants a value that {record['op']} writes without returning it")
    store = compute_into(compute, outputs, single)
    spent = [at for i, at in plain if written(func, i)]
    if spent:
        store = spending(store, spent)
    if record.get("rng") is not None:
        store = at_random_op(store, int(record["rng"]), generator)
    return Op(record["op"], reader.inputs, spent, [at for at in outputs if at >= 0], store)


def written(func: torch._ops.OpOverload, argument: int) -> bool:
    alias = func._schema.arguments[argument].alias_info
    return alias is not None and alias.is_write


def compute_into(compute: Callable[[Registers], Any], outputs: list[int], single: bool) -> Callable[[Registers, dict[int, Any]], None]:
    if single:
        at = outputs[0]

        def one(regs: Registers, states: dict[int, Any]) -> None:
            regs[at] = compute(regs)

        return one

    def several(regs: Registers, states: dict[int, Any]) -> None:
        made = compute(regs)
        for at, value in zip(outputs, made):
            if at >= 0:
                regs[at] = value

    return several


def spending(store: Callable[[Registers, dict[int, Any]], None], spent: list[int]) -> Callable[[Registers, dict[int, Any]], None]:
    """An op that writes a value in place uses it up: nobody may find the old value there."""

    def run(regs: Registers, states: dict[int, Any]) -> None:
        store(regs, states)
        for at in spent:
            regs[at] = None

    return run


def at_random_op(store: Callable[[Registers, dict[int, Any]], None], n: int, generator: Generator) -> Callable[[Registers, dict[int, Any]], None]:
    """Runs `store` with the generator where random op number n of the pass found it."""

    def replay(regs: Registers, states: dict[int, Any]) -> None:
        now = generator.save()
        generator.put(states[n])
        try:
            store(regs, states)
        finally:
            generator.put(now)

    return replay
