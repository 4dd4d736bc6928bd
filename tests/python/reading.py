"""Reads captured tables: names in place of ids, and both timelines of the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tonnage import tables as T


class OpRow(NamedTuple):
    index: int
    name: str
    args: str
    module: str
    phase: str
    step: int
    in_pass: int
    rate: str
    flags: int
    inputs: list[int]
    outputs: list[int]
    flops: float
    bytes_moved: float


class Reader:
    def __init__(self, tables: T.Tables):
        self.tables = tables
        self.texts = tables.strings.texts()

    def ops(self, step: int = 1, phases: tuple[str, ...] = T.PHASES) -> Iterator[OpRow]:
        ref = self.tables.ref
        for i, o in enumerate(self.tables.op):
            if o[4] == step and T.PHASES[o[3]] in phases:
                module = "" if o[2] == T.NONE else self.texts[self.tables.module[o[2]][0]]
                yield OpRow(i, self.texts[o[0]], self.texts[o[1]], module, T.PHASES[o[3]], o[4], o[5], T.RATES[o[6]], o[7], ref[o[8] : o[8] + o[9]],
                            ref[o[10] : o[10] + o[11]], o[13], o[14])  # fmt: skip

    def source(self, value: int) -> str:
        return self.texts[self.tables.value[value][5]]

    def slots(self, step: int = 1) -> list[tuple]:
        return [s for s in self.tables.slot if s[4] == step]

    def signatures(self, step: int = 1) -> list[str]:
        return [self.texts[s[2]] for s in self.slots(step)]

    def kernels(self) -> set[str]:
        """Names of all ops that ran, as the profiler has them."""
        return {"aten::" + self.texts[o[0]].split(".")[1] for o in self.tables.op if self.texts[o[0]].startswith("aten.")}

    def lives(self, hold: bool = True) -> list[list[int]]:
        """For set-up and each step, the bytes taken (+) and given back (-) in order; hold: slots keep their blocks alive."""
        out: list[list[int]] = [[]]
        referenced: dict[int, bool] = {}
        held: dict[int, int] = {}
        live: dict[int, bool] = {}
        for kind, i in self.tables.event:
            if kind == T.MARK and (self.texts[i].startswith("step:") or self.texts[i] == "end"):
                out.append([])
            if kind in (T.MARK, T.OP_EVENT):
                continue
            block = i if kind in (T.ALLOC, T.DROP) else self.tables.slot[i][1]
            if kind in (T.ALLOC, T.UNPACK):
                referenced[block] = True
            elif kind == T.DROP:
                assert referenced[block], f"block {block} dropped twice"
                referenced[block] = False
            elif kind == T.PACK:
                held[block] = held.get(block, 0) + 1
            elif kind == T.RELEASE:
                held[block] -= 1
            now = referenced.get(block, False) or (hold and held.get(block, 0) > 0)
            if now != live.get(block, False):
                live[block] = now
                size = self.tables.block[block][0]
                if size:
                    out[-1].append(size if now else -size)
        return out[:-1]


def peak(sizes: list[int]) -> int:
    now = top = 0
    for size in sizes:
        now += size
        top = max(top, now)
    return top
