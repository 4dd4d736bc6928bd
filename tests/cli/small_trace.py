"""Writes a small trace: 4 MiB of parameters, one saved activation of 8 MiB, two steps.  small_trace.py FILE [KEY=VALUE of meta ...]"""

from __future__ import annotations

import sys

from tonnage import _lib
from tonnage import tables as T

MIB = 1 << 20


def small() -> T.Tables:
    t = T.Tables()
    name = t.strings
    t.module += [(name(""), name("Net"), T.NONE, 0), (name("up"), name("Linear"), 0, 0)]

    def op(text: str, phase: int, step: int) -> None:
        t.op.append((name(text), 0, 1, phase, step, 0, 1, 0, 0, 0, 0, 0, 0, 1e9, 1e7, -1.0))
        t.event.append((T.OP_EVENT, len(t.op) - 1))

    def block(size: int, category: int, label: str = "") -> int:
        t.block.append((size, T.NONE if label else len(t.op), name(label), 1, category, 0, 0))
        t.event.append((T.ALLOC, len(t.block) - 1))
        return len(t.block) - 1

    def mark(text: str) -> None:
        t.event.append((T.MARK, name(text)))

    block(4 * MIB, T.PARAMETER, "up.weight")
    for step in (0, 1):
        mark(f"step:{step}")
        saved = block(8 * MIB, T.ACTIVATION)
        op("aten.addmm.default", T.PHASES.index("forward"), step)
        t.slot.append((T.NONE, saved, name("float32[2048,1024] AddmmBackward0"), 1, step, 0, 0, 0))
        slot = len(t.slot) - 1
        t.event += [(T.PACK, slot), (T.DROP, saved), (T.UNPACK, slot)]
        gradient = block(4 * MIB, T.GRADIENT)
        op("aten.mm.default", T.PHASES.index("backward"), step)
        t.event += [(T.DROP, saved), (T.RELEASE, slot), (T.DROP, gradient)]
    mark("end")
    t.meta.update(tonnage="0.1.0", torch="2.13.0", device="h200", recipe="net.py", passes="1")
    return t


def main() -> None:
    tables = small()
    for pair in sys.argv[2:]:
        key, _, value = pair.partition("=")
        tables.meta[key] = value
    _lib.Trace.from_tables(tables).save(sys.argv[1])


if __name__ == "__main__":
    main()
