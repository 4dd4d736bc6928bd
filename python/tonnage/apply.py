"""Carries out one pass of a plan: a pair of saved-tensor hooks that keep or rebuild what autograd saves.

    run = program.begin(leaves)         # leaves of this micro-batch, for recipes that start from them
    with run:                           # slots are counted from here
        value = loss(model, batch)
    value.backward()
    run.finish()

Every slot is checked against the plan (dtype, shape, producer). From the first that differs on, the rest of the pass keeps everything:
slots dropped before stay valid, as their recipes read only slots saved before them. One line says so.

The hooks run some 800 times a pass, so `pack` and `unpack` are written for few steps, not for looks. Threads: backward of a card runs
in a thread of its own, one at a time.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import length_hint
from time import perf_counter
from typing import Any
from weakref import ref

import torch

from .program import Duty, Entry, Program, Recipe
from .signature import signature

log = logging.getLogger("tonnage")

_UNPLANNED: Entry = (None, None, None, True, None, None)  # differs from every tensor


class Stats:
    """What the hooks have seen, over all passes."""

    def __init__(self) -> None:
        self.passes = self.mismatches = self.rebuilt = self.remade = 0
        self.rebuild_s = 0.0  # host time of rebuilding; on a card the work itself goes on behind it
        self.first_mismatch = ""

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class Source:
    """A kept slot that recipes read. Autograd holds it; the run only has a weak reference, so it dies when autograd lets go."""

    __slots__ = ("tensor", "version", "duty", "__weakref__")

    def __init__(self, tensor: torch.Tensor, version: int, duty: Duty) -> None:
        self.tensor, self.version, self.duty = tensor, version, duty


class Run:
    """One forward and backward pass under a program."""

    __slots__ = ("program", "stats", "say", "advance", "regs", "states", "sources", "off", "count", "__weakref__")

    def __init__(self, program: Program, leaves: Sequence[torch.Tensor], stats: Stats, say: Callable[[str], None] = log.warning) -> None:
        self.program, self.stats, self.say = program, stats, say
        self.advance: Iterator[Entry] = iter(program.table + [_UNPLANNED])
        self.regs: list[Any] = [None] * program.size
        for at, owner, name in program.fixed:
            self.regs[at] = owner[name]
        for at, k in program.inputs:
            self.regs[at] = leaves[k]
        self.states: dict[int, Any] = {}  # random op -> where it found the generator
        self.sources: dict[int, ref[Source]] = {}
        self.off = False  # a slot has differed
        self.count = -1  # slots seen when the forward pass ended, as far as it did

    def __enter__(self) -> Run:
        if self.program.first_states is not None:
            self.note_states(self.program.first_states)
        torch._C._autograd._push_saved_tensors_default_hooks(self.pack, self.unpack)
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        torch._C._autograd._pop_saved_tensors_default_hooks()
        if kind is None and not self.off:
            self.count = len(self.program.table) + 1 - length_hint(self.advance)

    def pack(self, t: torch.Tensor) -> Any:
        entry = next(self.advance)
        dtype, shape, producer, detach, verdict, states = entry
        node = t.grad_fn
        if (t.requires_grad if node is None else type(node)) is not producer or t.dtype is not dtype or t.shape != shape:
            detach, verdict, states = self._differs(t, node, entry)
        if states is not None:
            self.note_states(states)
        if type(verdict) is Recipe:
            return verdict
        if detach:
            t = t.detach()
        if verdict is None:
            return t, t._version
        source = Source(t, t._version, verdict)  # type: ignore[arg-type]  # a Duty: isinstance() would cost as much as the rest
        self.sources[verdict.slot] = ref(source)
        return source

    def unpack(self, packed: Any) -> torch.Tensor:
        if type(packed) is tuple:
            t, version = packed
            if t._version != version:
                raise _modified(t, version)
            return t
        if type(packed) is Source:
            return self._read(packed)
        return self._rebuild(packed)

    def finish(self) -> None:
        """The pass is over: lets go of whatever recipes have left behind."""
        stats = self.stats
        stats.passes += 1
        if not self.off and 0 <= self.count < len(self.program.table):
            missing = self.program.signatures[self.count]
            self._report(f"the pass ended before slot {self.count} ({missing}): nothing to keep or rebuild there")
        self.regs = [None] * self.program.size
        self.sources.clear()
        self.states.clear()

    # ---- the way off the plan

    def _differs(self, t: torch.Tensor, node: Any, entry: Entry) -> tuple[bool, Recipe | Duty | None, list[int] | None]:
        """Compares the whole signature, as the first run must; when it really differs the plan ends here for this pass."""
        if self.off:
            return node is not None, None, None
        table = self.program.table
        k = len(table) - length_hint(self.advance)
        actual = signature(t)
        if entry is not _UNPLANNED and actual == self.program.signatures[k]:
            # Only the newest node can be saving its own output: held, it would hold itself, and be freed by nothing but backward.
            detach = node is not None and node._sequence_nr() >= torch.autograd._get_sequence_nr() - 1
            if node is None or type(node).__name__ == node.name():  # else a class that many ops share: look again next time
                table[k] = (*entry[:2], t.requires_grad if node is None else type(node), detach, *entry[4:])
            return detach, entry[4], entry[5]
        self.off = True
        self.advance = repeat(_UNPLANNED)
        expected = self.program.signatures[k] if k < len(table) else "no more slots"
        self._report(f"slot {k} is {actual}{self._where()}, where the plan expects {expected}: keeping everything from there on")
        return node is not None, None, None

    def _where(self) -> str:
        """The module being run, from the call stack."""
        names = self.program.modules
        frame = sys._getframe(2)
        while frame is not None:
            name = names.get(id(frame.f_locals.get("self")))
            if name is not None:
                return f" in {name}" if name else ""
            frame = frame.f_back  # type: ignore[assignment]
        return ""

    def _report(self, what: str) -> None:
        self.stats.mismatches += 1
        if not self.stats.first_mismatch:
            self.stats.first_mismatch = what
            self.say(f"tonnage: the plan does not match this pass: {what}")

    # ---- giving slots back

    def note_states(self, states: list[int]) -> None:
        state = self.program.generator.save()
        for n in states:
            self.states[n] = state

    def _read(self, source: Source) -> torch.Tensor:
        t = source.tensor
        if t._version != source.version:
            raise _modified(t, source.version)
        regs, duty = self.regs, source.duty
        for at in duty.hold:
            regs[at] = t
        for at in duty.forget:
            regs[at] = None
        return t

    def _rebuild(self, recipe: Recipe) -> torch.Tensor:
        started = perf_counter()
        grad = torch.is_grad_enabled()
        if grad:
            torch._C._set_grad_enabled(False)
        try:
            if torch._C._is_any_autocast_enabled():
                with torch._C._DisableAutocast():
                    t = self._evaluate(recipe)
            else:
                t = self._evaluate(recipe)
        finally:
            if grad:
                torch._C._set_grad_enabled(True)
        if t.shape != recipe.shape:
            raise RuntimeError(f"tonnage: slot {recipe.slot} was rebuilt as {tuple(t.shape)}, not {recipe.shape}: the plan is not this model's")
        stats = self.stats
        stats.rebuilt += 1
        stats.rebuild_s += perf_counter() - started
        return t

    def _evaluate(self, recipe: Recipe) -> torch.Tensor:
        regs, states = self.regs, self.states
        for at in recipe.needs:
            if regs[at] is None:
                return self._remake(recipe)
        for at, slot in recipe.loads:
            if regs[at] is None:
                regs[at] = self._source(slot)
                if regs[at] is None:
                    return self._remake(recipe)
        for op, forget in recipe.steps:
            op.run(regs, states)
            for at in forget:
                regs[at] = None
        t = regs[recipe.value]
        for at in recipe.forget:
            regs[at] = None
        return t

    def _source(self, slot: int) -> torch.Tensor | None:
        weak = self.sources.get(slot)
        source = weak() if weak is not None else None
        if source is None:
            return None
        if source.tensor._version != source.version:
            raise _modified(source.tensor, source.version)
        return source.tensor

    def _remake(self, recipe: Recipe) -> torch.Tensor:
        """Backward asks out of the planned order, or a second time: make what is missing from whatever is still alive, and keep none of it."""
        self.stats.remade += 1
        program, regs = self.program, list(self.regs)
        stack = [recipe.value]
        while stack:
            at = stack[-1]
            if regs[at] is not None:
                stack.pop()
                continue
            if at in program.slot_of:
                regs[at] = self._source(program.slot_of[at])
            if regs[at] is None:
                op = program.maker.get(at)
                if op is None:
                    raise RuntimeError(
                        f"tonnage: backward asks for slot {recipe.slot} ({program.signatures[recipe.slot]}) again or out of turn, and slot "
                        f"{program.slot_of.get(at, '?')} that it is rebuilt from has been given back"
                    )
                missing = [i for i in op.inputs if regs[i] is None]
                if missing:
                    stack.extend(missing)
                    continue
                originals = [(i, regs[i]) for i in op.spent]
                for i, t in originals:
                    regs[i] = t.clone()  # others may need it, or a view of it, after this op
                op.run(regs, self.states)
                for i, t in originals:
                    regs[i] = t
        for at in recipe.forget:
            self.regs[at] = None
        return regs[recipe.value]


def _modified(t: torch.Tensor, version: int) -> RuntimeError:
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{t.type()} {list(t.shape)}] is at version {t._version}; expected version {version} instead"
    )
