"""Runs the forward pass of a trace with real numbers, from nothing but its records: every value must come out as in the real run."""

from __future__ import annotations

import json

import torch

from reading import Reader
from tonnage import tables as T


class Interpreter:
    def __init__(self, reader: Reader, model: torch.nn.Module, leaves: list[torch.Tensor]):
        self.reader = reader
        self.sources = {f"parameter:{n}": p.detach() for n, p in model.named_parameters()}
        self.sources |= {f"buffer:{n}": b for n, b in model.named_buffers()}
        self.sources |= {f"input:{k}": t for k, t in enumerate(leaves)}
        self.values: dict[int, torch.Tensor] = {}

    def value(self, v: int) -> torch.Tensor:
        if v not in self.values:
            source = self.reader.source(v)
            assert source, f"value {v} is read before any op has made it"
            self.values[v] = self.sources[source]
        return self.values[v]

    def argument(self, x):
        if isinstance(x, list):
            return [self.argument(y) for y in x]
        if not isinstance(x, dict):
            return x
        ((kind, value),) = x.items()
        if kind == "v":
            return self.value(value)
        if kind == "scratch":
            return self.value(value).clone()
        if kind in ("dtype", "layout", "memory_format"):
            return getattr(torch, value)
        if kind == "device":
            return torch.device(value)
        if kind == "float":
            return float(value)
        assert kind == "complex", kind
        return complex(*value)

    def run(self) -> dict[int, torch.Tensor]:
        """Contents of every slot of step 1, at the time it was saved."""
        saved: dict[int, torch.Tensor] = {}
        started = False
        for kind, i in self.reader.tables.event:
            if kind == T.MARK:
                started |= self.reader.texts[i] == "step:1"
                if started and self.reader.texts[i] == "phase:backward":
                    return saved
            elif started and kind == T.OP_EVENT:
                self.op(i)
            elif started and kind == T.PACK:
                slot = self.reader.tables.slot[i]
                saved[slot[6 + 1]] = self.value(slot[0]).clone()
        raise AssertionError("no backward phase in step 1")

    def op(self, i: int) -> None:
        o = self.reader.tables.op[i]
        namespace, name, overload = self.reader.texts[o[0]].split(".")
        call = json.loads(self.reader.texts[o[1]])
        func = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        with torch.no_grad():
            out = func(*map(self.argument, call["args"]), **{k: self.argument(v) for k, v in call["kwargs"].items()})
        out = out if isinstance(out, (list, tuple)) else [out]
        for v, t in zip(self.reader.tables.ref[o[10] : o[10] + o[11]], out):
            if v != T.NONE and isinstance(t, torch.Tensor):
                self.values[v] = t
