"""Plans for tests: observes one real pass and drops every slot that it may, by the rules of docs/formats.md.

Not clever and not the planner's code: a second reading of the format. Everything stays alive while it watches, so it is for tiny models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tonnage.arguments import Unwritable, encode
from tonnage.ops import Op
from tonnage.signature import signature

NEVER = {"_local_scalar_dense", "lift_fresh"}


class Value:
    def __init__(self, op: int | None, storage: int, version: int, source: str = ""):
        self.op, self.storage, self.version, self.source = op, storage, version, source


class Record:
    def __init__(self, op: Op, text: str, inputs: list[int], outputs: list[int | None], spent: list[int], slots: int):
        self.op, self.text, self.inputs, self.outputs, self.spent, self.slots = op, text, inputs, outputs, spent, slots
        self.rng: int | None = None
        self.exact_rng = True


class Observer(TorchDispatchMode):
    """Records a pass: ops, values, and which value each slot is."""

    def __init__(self, model: torch.nn.Module, batch: Any):
        super().__init__()
        self.alive: list[Any] = []
        self.version: dict[int, int] = {}
        self.values: list[Value] = []
        self.at: dict[tuple, int] = {}
        self.ops: list[Record] = []
        self.slots: list[int] = []
        self.signatures: list[str] = []
        self.bytes: list[int] = []
        self.asked: list[int] = []
        self.random = 0
        self.random_slot = -2  # slots at the last random op
        for name, p in model.named_parameters():
            self.new(p, None, f"parameter:{name}")
        for name, b in model.named_buffers():
            self.new(b, None, f"buffer:{name}")
        for k, t in enumerate(tree_leaves(batch)):
            self.new(t, None, f"input:{k}")

    def key(self, t: torch.Tensor) -> tuple:
        storage = t.untyped_storage()._cdata
        return storage, self.version.setdefault(storage, 0), t.storage_offset(), tuple(t.shape), t.stride(), t.dtype

    def new(self, t: torch.Tensor, op: int | None, source: str = "") -> int:
        self.alive.append(t.untyped_storage())
        key = self.key(t)
        self.at[key] = len(self.values)
        self.values.append(Value(op, key[0], key[1], source))
        return self.at[key]

    def value(self, t: torch.Tensor) -> int:
        key = self.key(t)
        return self.at[key] if key in self.at else self.new(t, None)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        op = Op(func, False)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        inputs = [self.value(t) for t in tensors]
        scratch = op.statistics(args)
        try:
            text = encode(args, kwargs, iter(inputs), scratch, "cpu")
        except Unwritable:
            text = ""
        written = op.written(args, kwargs)
        spent = [self.value(t) for t in written]
        out = func(*args, **kwargs)
        for t in {t.untyped_storage()._cdata for t in [*written, *(args[i] for i in scratch)]}:
            self.version[t] += 1
        index = len(self.ops)
        outs: list[int | None] = []
        for t in out if isinstance(out, (list, tuple)) else (out,):
            if not isinstance(t, torch.Tensor):
                outs.append(None)
            elif self.key(t) in self.at:  # a view that was seen before stays the value it is
                outs.append(None)
            else:
                outs.append(self.new(t, index))
        record = Record(op, text, inputs, outs, spent, len(self.slots))
        if op.draws(args, kwargs):
            record.rng = self.random
            self.random += 1
            record.exact_rng = self.random_slot != len(self.slots)
            self.random_slot = len(self.slots)
        self.ops.append(record)
        return out

    def pack(self, t: torch.Tensor) -> tuple[int, torch.Tensor]:
        k = len(self.slots)
        self.slots.append(self.value(t))
        self.signatures.append(signature(t))
        self.bytes.append(t.numel() * t.element_size())
        return k, t.detach()

    def unpack(self, packed: tuple[int, torch.Tensor]) -> torch.Tensor:
        self.asked.append(packed[0])
        return packed[1]


def observe(model: torch.nn.Module, loss: Callable, batch: Any) -> Observer:
    """One forward and backward pass, random numbers and buffers put back."""
    state = torch.get_rng_state()
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    observer = Observer(model, batch)
    with observer, torch.autograd.graph.saved_tensors_hooks(observer.pack, observer.unpack):
        value = loss(model, batch)
    value.backward()
    model.zero_grad(set_to_none=True)
    torch.set_rng_state(state)
    for name, b in model.named_buffers():
        b.copy_(buffers[name])
    return observer


class Planner:
    def __init__(self, seen: Observer, drop: Callable[[int], bool] = lambda k: True):
        self.seen = seen
        self.home: dict[int, int] = {}
        self.dropped: dict[int, int] = {}
        self.turn = {k: i for i, k in reversed(list(enumerate(seen.asked)))}  # slot -> when backward first asks for it
        computed: set[int] = set()  # a value that an op of the plan makes is never read from a slot
        for k, v in enumerate(seen.slots):
            made = self.closure(v) if v not in self.home and k in self.turn and not seen.values[v].source and drop(k) else None
            if made is not None:
                self.dropped[k] = v
                computed.update(made)
            elif v not in computed and not seen.values[v].source:
                self.home.setdefault(v, k)

    def closure(self, v: int) -> list[int] | None:
        """Values to make, in the order of their ops, so that v can be made from kept slots and sources; None when that cannot be done."""
        seen, values = self.seen, self.seen.values
        needed: set[int] = set()
        stack = [v]
        while stack:
            x = stack.pop()
            if x in needed or x in self.home or self.is_source(x):
                continue
            op = seen.ops[values[x].op] if values[x].op is not None else None
            if op is None or not op.op.rerun or not op.text or not op.exact_rng or op.op.base in NEVER:
                return None
            if values[x].version != seen.version[values[x].storage] and x == v:
                return None  # written over later: only its ops may see it
            if any(i in self.home or self.is_source(i) for i in op.spent):
                return None
            needed.add(x)
            stack.extend(i for i in op.inputs if not self.scratch(op, i))
        order = sorted(needed, key=lambda x: values[x].op)
        return order if self.sound(order) else None

    def sound(self, order: list[int]) -> bool:
        """No kept slot or source that is read here was written over later."""
        for x in order:
            op = self.seen.ops[self.seen.values[x].op]
            for i in op.inputs:
                value = self.seen.values[i]
                if (i in self.home or value.source) and value.version != self.seen.version[value.storage] and not self.scratch(op, i):
                    return False
        return True

    def is_source(self, v: int) -> bool:
        return bool(self.seen.values[v].source)

    @staticmethod
    def scratch(op: Record, v: int) -> bool:
        return f'{{"scratch":{v}}}' in op.text

    def fixed(self, v: int) -> bool:
        """May be held for later recipes: nothing writes it again."""
        value = self.seen.values[v]
        return value.version == self.seen.version[value.storage]

    def plan(self, rows: int, count: int = 1) -> dict[str, Any]:
        import json

        seen = self.seen
        last: dict[int, int] = {}
        in_turn = sorted(self.dropped, key=self.turn.__getitem__)
        for k in in_turn:
            for x in self.closure(self.dropped[k]) or ():
                last[x] = k
        made: set[int] = set()
        rebuild: dict[str, Any] = {}
        ops: dict[str, Any] = {}
        sources: dict[str, str] = {}
        random: set[tuple[int, int]] = set()

        def use(i: int) -> None:
            if i in self.home:
                sources[str(i)] = f"slot:{self.home[i]}"
            elif seen.values[i].source:
                sources[str(i)] = seen.values[i].source

        for k in in_turn:
            v = self.dropped[k]
            todo, stack = set(), [v]
            while stack:
                x = stack.pop()
                if x in todo or x in made or x in self.home or self.is_source(x):
                    continue
                todo.add(x)
                stack.extend(i for i in seen.ops[seen.values[x].op].inputs if not self.scratch(seen.ops[seen.values[x].op], i))
            order = sorted({seen.values[x].op for x in todo})
            run = []
            here: set[int] = set()
            for n, index in enumerate(order):
                op = seen.ops[index]
                call = json.loads(op.text)
                ops[str(index)] = {"op": op.op.name, "call": call, "out": op.outputs}
                if op.rng is not None:
                    ops[str(index)]["rng"] = op.rng
                    random.add((op.slots - 1, op.rng))
                for i in op.inputs:
                    use(i)
                here.update(o for o in op.outputs if o is not None)
                later = {i for j in order[n + 1 :] for i in seen.ops[j].inputs}
                forget = [x for x in sorted(here | made) if x != v and x not in later and (last.get(x, k) == k or not self.fixed(x))]
                here.difference_update(forget)
                made.difference_update(forget)
                run.append([index, forget])
            made |= here
            forget = [x for x in sorted(made) if last.get(x, k) == k or not self.fixed(x)]
            made.difference_update(forget)
            rebuild[str(k)] = {"run": run, "value": v, "forget": forget}
        slots = [[text, 0 if k in self.dropped else 1] for k, text in enumerate(seen.signatures)]
        return {"micro_batch": rows, "count": count, "slots": slots, "ops": ops, "sources": sources, "rebuild": rebuild, "hold": {}, "random": sorted(random)}


def plan_pass(model, loss, batch, rows: int, count: int = 1, drop: Callable[[int], bool] = lambda k: True) -> dict[str, Any]:
    """A PASS that drops all that can be dropped of the slots that `drop` names."""
    return Planner(observe(model, loss, batch), drop).plan(rows, count)


def full_plan(passes: list[dict[str, Any]], **other: Any) -> dict[str, Any]:
    predicted = dict.fromkeys(("allocated_bytes", "reserved_bytes", "device_used_bytes", "unconstrained_allocated_bytes"), 1 << 20)
    predicted |= dict.fromkeys(("step_ms", "unconstrained_step_ms", "lower_bound_ms"), 1.0)
    plan = {"tonnage_plan": 1, "device": "cpu", "torch": torch.__version__, "budget_bytes": 1 << 34, "precision": "as is", "allocator": ""}
    return plan | {"predicted": predicted, "levers": [], "rebuilt": [], "passes": passes} | other
