"""What a loss averages over, read off the trace.

The loss of a whole batch is the sum over its rows of something, divided by D. A micro-batch's own loss divides by its own D, so to add up to
the whole batch's gradient each micro-batch must be weighted by its share of D. This walks back from the loss to the reduction over the rows
and says what D is:

    {"kind": "rows"}                           a mean over rows, or over a fixed number of elements of each: D is the number of rows
    {"kind": "sum"}                            a sum: micro-batches add up as they are
    {"kind": "count", "value": 12, "ignore_index": -100, "class_weight": null or a value, "recipe": ...}
                                               cross entropy: D is the number of targets that are not ignored, or their classes' weight
    {"kind": "value", "value": 12, "recipe": ...}    D is a tensor made from the batch alone, such as a mask's sum
    {"kind": "unknown", "why": "..."}          micro-batches would change the gradient, or nothing is known

"recipe" makes the value from leaves of a (micro-)batch: {"ops": [{"op", "call", "out"}, ...], "sources": {"3": "input:1"}}.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from . import tables as T

_VIEWS = "view _unsafe_view reshape _reshape_alias alias detach squeeze unsqueeze expand permute transpose t slice select clone contiguous _to_copy".split()
# A scalar goes through these with its average, and a tensor with its rows.
_LINEAR = {*_VIEWS, "neg", "lift_fresh", "lift_fresh_copy"}
_ELEMENTWISE = {
    *_LINEAR,
    *"add sub mul div pow abs square exp log sqrt where masked_fill clamp clamp_min clamp_max minimum maximum log_sigmoid_forward".split(),
}
_ELEMENTWISE |= set(
    "softplus relu sigmoid tanh eq ne lt le gt ge logical_not logical_and logical_or bitwise_not bitwise_and bitwise_or constant_pad_nd".split()
)
# May make a target or a divisor from the batch again.
_REPEATABLE = _ELEMENTWISE - {"expand", "_reshape_alias"} | {"sum", "expand", "cat", "any", "argmax"}
_SIZED = {"view", "_unsafe_view", "reshape", "expand"}
# Losses with a reduction of their own: position of that argument.
_REDUCING = {"mse_loss": 2, "smooth_l1_loss": 2, "huber_loss": 2, "soft_margin_loss": 2, "binary_cross_entropy": 3, "binary_cross_entropy_with_logits": 4}
_REDUCING |= {"nll_loss_forward": 3, "nll_loss2d_forward": 3}
_MEAN, _SUM = 1, 2


class Unknown(Exception):
    """No weight can be given; the text says why, to a user."""


class Const(dict):
    """A term that does not depend on the batch: any weights that add up to 1 are right for it."""


class Graph:
    """The ops of a trace's last step, from capture's tables or from a file's."""

    def __init__(self, ops: Sequence[tuple], refs: Sequence[int], values: Sequence[tuple], texts: Sequence[str], rows: int):
        self.ops, self.refs, self.values, self.texts, self.rows = ops, refs, values, texts, rows
        self._depends: dict[int, bool] = {}
        # Views of the batch may have been taken in an earlier step, whose arguments are not recorded; the last step has taken them again.
        self._again = {self._window(v): v[1] for v in values if v[1] != T.NONE and ops[v[1]][1]}

    @staticmethod
    def _window(value: tuple) -> tuple:
        return value[0], value[3], value[4]  # block, version, meta

    @classmethod
    def of_tables(cls, tables: T.Tables) -> Graph:
        return cls(tables.op, tables.ref, tables.value, tables.strings.texts(), int(tables.meta.get("micro_batch") or tables.meta.get("batch_size") or 0))

    def base(self, op: int) -> str:
        return self.texts[self.ops[op][0]].split(".")[1]

    def inputs(self, op: int) -> Sequence[int]:
        row = self.ops[op]
        return self.refs[row[8] : row[8] + row[9]]

    def outputs(self, op: int) -> list[int | None]:
        row = self.ops[op]
        return [None if v == T.NONE else v for v in self.refs[row[10] : row[10] + row[11]]]

    def arguments(self, op: int) -> list[Any]:
        return self.call(op)["args"]

    def call(self, op: int) -> dict[str, Any]:
        text = self.texts[self.ops[op][1]]
        if not text:
            raise Unknown(f"the arguments of {self.texts[self.ops[op][0]]} are not known")
        return json.loads(text)

    def maker(self, value: int) -> int | None:
        op = self.values[value][1]
        if op == T.NONE:
            return None
        return op if self.ops[op][1] else self._again.get(self._window(self.values[value]), op)

    def source(self, value: int) -> str:
        return self.texts[self.values[value][5]]

    def shape(self, value: int) -> list[int]:
        inside = self.texts[self.values[value][4]].partition("[")[2].partition("]")[0]
        return [int(n) for n in inside.split(",") if n]

    def is_scalar(self, value: int) -> bool:
        return all(n == 1 for n in self.shape(value))

    def depends(self, value: int, on: str = "input:") -> bool:
        """Is the value made from the batch?"""
        stack = [value]
        while stack:
            v = stack[-1]
            op = self.maker(v)
            if v in self._depends:
                stack.pop()
            elif op is None:
                self._depends[v] = self.source(v).startswith(on)
            else:
                todo = [i for i in self.inputs(op) if i not in self._depends and i != v]
                if todo:
                    stack.extend(todo)
                else:
                    self._depends[v] = any(self._depends.get(i, False) for i in self.inputs(op))
        return self._depends[value]

    def loss(self) -> int:
        """The value that backward starts from, in the last pass of the last step: the first op there makes ones like it."""
        forward, backward = T.PHASES.index("forward"), T.PHASES.index("backward")
        for op in range(len(self.ops) - 1, 0, -1):
            if self.ops[op][3] == backward and forward <= self.ops[op - 1][3] < backward:
                if self.base(op) in ("ones_like", "ones", "full_like") and self.inputs(op):
                    return self.inputs(op)[0]
                break
        raise Unknown("the trace does not show where backward starts")


def describe(graph: Graph) -> dict[str, Any]:
    """The loss's weight, as above. Never raises for a loss that it does not understand: that is kind "unknown"."""
    try:
        found = Walk(graph).term(graph.loss())
        if isinstance(found, Const):
            raise Unknown("the loss does not depend on the batch")
        for name in ("value", "class_weight"):
            if found.get(name) is not None:
                found["recipe"] = merged(found.get("recipe"), recipe(graph, found[name]))
        return found
    except Unknown as why:
        return {"kind": "unknown", "why": str(why)}


class Walk:
    """From the loss back to the reductions over the rows."""

    def __init__(self, graph: Graph):
        self.graph = graph

    def term(self, value: int) -> dict[str, Any]:
        g = self.graph
        if not g.depends(value):
            return Const()
        op = g.maker(value)
        if op is None:
            raise Unknown("the loss is a part of the batch itself")
        base, inputs = g.base(op), g.inputs(op)
        moving = [v for v in inputs if g.depends(v)]
        if base in _REDUCING:
            return self.reducing(op, base)
        if base in ("mean", "sum") and not g.is_scalar(inputs[0]):
            return self.reduction(op, base)
        if base in ("stack", "cat", "add", "sub") and all(g.is_scalar(v) for v in inputs):
            return self.together([self.term(v) for v in inputs])
        if base in ("mul", "div") and len(moving) == 2:
            return self.divided(base, inputs)
        if (base in _LINEAR or base in ("mul", "div", "mean", "sum")) and len(moving) == 1 and moving[0] == inputs[0] or base == "mul" and len(moving) == 1:
            return self.scaled(op, base, self.term(moving[0]))
        raise Unknown(f"the loss comes from {g.texts[g.ops[op][0]]}, which is neither a sum nor a mean over the batch")

    def reducing(self, op: int, base: str) -> dict[str, Any]:
        g = self.graph
        args = g.arguments(op)
        at = _REDUCING[base]
        how = args[at] if len(args) > at else _MEAN
        if not base.startswith("nll_loss"):
            return {"kind": "rows"} if how == _MEAN else {"kind": "sum"}
        if how == _SUM:
            return {"kind": "sum"}
        weight = args[2]["v"] if args[2] is not None else None
        return {"kind": "count", "value": args[1]["v"], "ignore_index": args[4], "class_weight": weight}

    def reduction(self, op: int, base: str) -> dict[str, Any]:
        g = self.graph
        first = g.inputs(op)[0]
        maker = g.maker(first)
        if maker is not None and g.base(maker) in ("stack", "cat") and all(g.is_scalar(v) for v in g.inputs(maker)):
            return self.together([self.term(v) for v in g.inputs(maker)])
        earlier = self.earlier(first)
        if earlier is not None:
            return earlier
        if not reduces_rows(g, op):
            return self.term(first) if g.shape(first)[:1] == [1] else self.through(first)
        return {"kind": "rows"} if base == "mean" else {"kind": "sum"}

    def through(self, value: int) -> dict[str, Any]:
        raise Unknown(f"it is not clear where the loss is reduced over the rows (a tensor of shape {self.graph.shape(value)})")

    def earlier(self, value: int) -> dict[str, Any] | None:
        """A reduction over the rows further up the chain of elementwise ops, which is then the one that counts."""
        g = self.graph
        while True:
            op = g.maker(value)
            if op is None:
                return None
            base = g.base(op)
            moving = [v for v in g.inputs(op) if g.depends(v)]
            if base in ("mean", "sum") and reduces_rows(g, op):
                return self.earlier(moving[0]) or ({"kind": "rows"} if base == "mean" else {"kind": "sum"})
            if base in ("mean", "sum") or base in _ELEMENTWISE and moving:
                value = moving[0]
                continue
            return None

    def divided(self, base: str, inputs: Sequence[int]) -> dict[str, Any]:
        if base == "mul":
            raise Unknown("the loss is a product of two numbers that both depend on the batch")
        if self.term(inputs[0])["kind"] != "sum":
            raise Unknown("the loss divides a mean by a number that depends on the batch")
        divisor = self.unclamped(inputs[1])
        if self.term(divisor) != {"kind": "sum"}:
            raise Unknown("the loss is divided by a number that is not a sum over the batch")
        return self.as_count(divisor) or {"kind": "value", "value": divisor}

    def unclamped(self, value: int) -> int:
        """A divisor's limit from below (against division by zero) does not change its share."""
        g = self.graph
        op = g.maker(value)
        while op is not None and g.base(op) in ("clamp", "clamp_min", "_to_copy", "maximum", "view"):
            value = next(v for v in g.inputs(op) if g.depends(v))
            op = g.maker(value)
        return value

    def as_count(self, divisor: int) -> dict[str, Any] | None:
        """sum(target != c), which is what label smoothing divides by: the same as cross entropy's own count."""
        g = self.graph
        op = g.maker(divisor)
        if op is None or g.base(op) != "sum":
            return None
        op = g.maker(g.inputs(op)[0])
        negated = False
        while op is not None and g.base(op) in ("logical_not", "bitwise_not"):
            negated = not negated
            op = g.maker(g.inputs(op)[0])
        if op is None or g.base(op) != ("eq" if negated else "ne") or len(g.inputs(op)) != 1:
            return None
        args = g.arguments(op)
        return {"kind": "count", "value": args[0]["v"], "ignore_index": args[1], "class_weight": None}

    def scaled(self, op: int, base: str, found: dict[str, Any]) -> dict[str, Any]:
        """A constant factor changes nothing, except that a sum divided by a multiple of the rows is a mean."""
        args = self.graph.arguments(op)
        if base not in ("mul", "div") or found.get("kind") != "sum" or len(args) < 2 or not isinstance(args[1], (int, float)) or not args[1]:
            return found
        divisor = args[1] if base == "div" else 1 / args[1]
        rows = self.graph.rows
        if rows > 1 and abs(divisor - round(divisor)) < 1e-6 * abs(divisor) and round(divisor) % rows == 0:
            return {"kind": "rows"}
        return found

    def together(self, terms: list[dict[str, Any]]) -> dict[str, Any]:
        moving = [t for t in terms if not isinstance(t, Const)]
        if not moving:
            return Const()
        if any(t != moving[0] for t in moving[1:]):
            raise Unknown(f"its terms are averaged over different numbers ({' and '.join(dict.fromkeys(in_words(t) for t in moving))})")
        if len(moving) < len(terms) and moving[0]["kind"] == "sum":
            raise Unknown("it adds a term that does not depend on the batch to a sum over the batch")
        return moving[0]


def reduces_rows(g: Graph, op: int) -> bool:
    """Does a mean or sum go over dimension 0?"""
    first = g.inputs(op)[0]
    args = g.arguments(op)
    dims = args[1] if len(args) > 1 and isinstance(args[1], list) else None
    return not dims or any(d % max(1, len(g.shape(first))) == 0 for d in dims)


def in_words(term: dict[str, Any]) -> str:
    return {"rows": "rows", "sum": "a sum", "count": "targets that are not ignored", "value": "a divisor made from the batch"}[term["kind"]]


def recipe(graph: Graph, value: int) -> dict[str, Any]:
    """Ops that make a value from the batch's leaves."""
    ops: dict[int, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    stack = [value]
    while stack:
        v = stack.pop()
        op = graph.maker(v)
        if op in ops and v in ops[op]["out"]:
            continue
        if op is None:
            if not graph.source(v):
                raise Unknown("its targets are made from a tensor that is neither in the batch nor in the model")
            sources[str(v)] = graph.source(v)
            continue
        if graph.base(op) not in _REPEATABLE:
            raise Unknown(f"its targets are not made from the batch alone by simple ops ({graph.texts[graph.ops[op][0]]})")
        out = graph.outputs(op)
        if v not in out:
            out[0] = v
        call = graph.call(op)
        if graph.base(op) in _SIZED:
            call["args"][1] = [-1, *graph.shape(v)[1:]]  # for any number of rows: these are in the first size
        ops[op] = {"op": graph.texts[graph.ops[op][0]], "call": call, "out": out}
        stack.extend(graph.inputs(op))
    return {"ops": [ops[i] for i in sorted(ops)], "sources": sources}


def merged(a: dict[str, Any] | None, b: dict[str, Any]) -> dict[str, Any]:
    if a is None:
        return b
    return {"ops": [*a["ops"], *(op for op in b["ops"] if op not in a["ops"])], "sources": {**a["sources"], **b["sources"]}}
