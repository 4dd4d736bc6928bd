"""Draws docs/memory.svg: device memory over one training step, as it is and under a plan.

    python docs/picture.py > docs/memory.svg        with the package on the path; needs no GPU

Both curves are captured traces: what lives at each op, rounded as the allocator does, over the time that the device profile predicts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tonnage import devices, recipe, virtual_card

EXAMPLES = Path(__file__).parent.parent / "examples"
OVERRIDES = {"size": "large", "batch": "32", "seq": "512"}
DEVICE, BUDGET = "h200", 12 << 30
WIDTH, HEIGHT = 920, 430
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 66, 58
TOP_GIB, TICK_GIB = 40, 8


def curve(tables: Any, device: devices.Device) -> list[tuple[float, int]]:
    """(seconds, bytes) at each change of the last step, the context included."""
    from tonnage import tables as T

    names, profile = tables.strings.texts(), device.profile
    size = [0 if b[5] & T.BLOCK_HOST else -(-b[0] // 512) * 512 for b in tables.block]
    referenced, held = set[int](), [0] * len(size)
    live, now, points = int(profile["context_bytes"]), 0.0, []
    stepping = False
    last = f"step:{sum(names[i].startswith('step:') for k, i in tables.event if k == T.MARK) - 1}"

    def change(block: int, act: Any) -> None:
        nonlocal live
        before = block in referenced or held[block] > 0
        act()
        after = block in referenced or held[block] > 0
        live += size[block] * (after - before)
        if stepping and before != after:
            points.append((now, live))

    def hold(block: int, by: int) -> None:
        held[block] += by

    for kind, record in tables.event:
        if kind == T.ALLOC:
            change(record, lambda b=record: referenced.add(b))
        elif kind == T.DROP:
            change(record, lambda b=record: referenced.discard(b))
        elif kind in (T.PACK, T.RELEASE):
            block = tables.slot[record][1]
            change(block, lambda b=block, by=1 if kind == T.PACK else -1: hold(b, by))
        elif kind == T.UNPACK:
            block = tables.slot[record][1]
            change(block, lambda b=block: referenced.add(b))
        elif kind == T.OP_EVENT and stepping:
            op = tables.op[record]
            if not op[7] & T.OP_VIEW:
                rate = profile["flops_per_s"].get(T.RATES[op[6]], 0)
                now += max(op[13] / rate if rate else 0.0, op[14] / profile["bytes_per_s"]) + profile["launch_s"]
        elif kind == T.MARK and names[record] == last:
            stepping = True
            points.append((now, live))
    return [*points, (now, live)]


def traced() -> tuple[list[tuple[float, int]], list[tuple[float, int]], dict[str, Any]]:
    device = devices.find(DEVICE)
    virtual_card.load(device)
    sys.path.insert(0, str(EXAMPLES))
    from tonnage import planning

    training = recipe.load(str(EXAMPLES / "bert.py"), OVERRIDES)
    plan = planning.plan_for(training, device, BUDGET)
    request = planning.Request(training, device, BUDGET, set(planning.LEVERS), lambda line: None)
    first = plan["passes"][0]
    return curve(request.tables(0, False, 1), device), curve(request.tables(first["micro_batch"], False, first["count"], [first]), device), plan


def thinned(points: list[tuple[float, int]], seconds: float) -> list[tuple[float, int]]:
    """The highest point of every pixel's width."""
    best: dict[int, tuple[float, int]] = {}
    for at, size in points:
        column = int(at / seconds * (WIDTH - LEFT - RIGHT))
        if column not in best or size > best[column][1]:
            best[column] = (at, size)
    return [best[column] for column in sorted(best)]


def svg() -> str:
    plain, fitted, plan = traced()
    seconds = max(plain[-1][0], fitted[-1][0])
    high, low = max(size for _, size in plain), max(size for _, size in fitted)
    floor = HEIGHT - BOTTOM

    def x(at: float) -> float:
        return LEFT + at / seconds * (WIDTH - LEFT - RIGHT)

    def y(size: float) -> float:
        return floor - size / (TOP_GIB << 30) * (floor - TOP)

    def line(points: list[tuple[float, int]]) -> str:
        return " ".join(f"{x(at):.1f},{y(size):.1f}" for at, size in thinned(points, seconds))

    def area(points: list[tuple[float, int]]) -> str:
        return f"{LEFT},{floor} {line(points)} {x(points[-1][0]):.1f},{floor}"

    def peak_at(points: list[tuple[float, int]]) -> float:
        return max(points, key=lambda p: p[1])[0]

    cut = " + ".join(f"{p['count']} × {p['micro_batch']}" for p in plan["passes"])
    slots = plan["passes"][0]["slots"]
    rebuilt = sum(not keep for _, keep in slots)
    slower = plan["predicted"]["step_ms"] / plan["predicted"]["unconstrained_step_ms"] - 1
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="13" fill="#1f2933">',
        "<title>Device memory over one training step of BERT-large, as it is and within 12 GiB</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="27" font-size="16" font-weight="bold">One training step of BERT-large, batch 32 × 512, fp32</text>',
        f'<text x="{LEFT}" y="47" fill="#61707f">device memory, CUDA context included, over predicted time on an H200</text>',
    ]
    for gib in range(0, TOP_GIB + 1, TICK_GIB):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(gib << 30):.1f}" y2="{y(gib << 30):.1f}" stroke="#e4e9ee"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(gib << 30) + 4:.1f}" text-anchor="end" fill="#61707f">{gib}{" GiB" if gib == TOP_GIB else ""}</text>')
    for ms in range(0, int(seconds * 1e3) + 1, 200):
        out.append(f'<text x="{x(ms / 1e3):.1f}" y="{floor + 20}" text-anchor="middle" fill="#61707f">{ms}{" ms" if ms == 0 else ""}</text>')
    out += [
        f'<polygon points="{area(plain)}" fill="#c9d2db" fill-opacity="0.55"/>',
        f'<polyline points="{line(plain)}" fill="none" stroke="#8795a3" stroke-width="1.5" stroke-linejoin="round"/>',
        f'<polygon points="{area(fitted)}" fill="#0b7285" fill-opacity="0.30"/>',
        f'<polyline points="{line(fitted)}" fill="none" stroke="#0b7285" stroke-width="1.8" stroke-linejoin="round"/>',
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(BUDGET):.1f}" y2="{y(BUDGET):.1f}" stroke="#d9480f" stroke-width="1.8" stroke-dasharray="7 4"/>',
        f'<text x="{WIDTH - RIGHT}" y="{y(BUDGET) - 7:.1f}" text-anchor="end" fill="#d9480f" font-weight="bold">budget {BUDGET >> 30} GiB</text>',
        f'<text x="{x(peak_at(plain)) + 14:.1f}" y="{y(high) + 6:.1f}" fill="#52606d" font-weight="bold">as it is: {high / 2**30:.1f} GiB</text>',
        f'<rect x="{LEFT}" y="{HEIGHT - 24}" width="12" height="12" fill="#0b7285" fill-opacity="0.45" stroke="#0b7285"/>',
        f'<text x="{LEFT + 19}" y="{HEIGHT - 13}"><tspan font-weight="bold" fill="#0b7285">under the plan: {low / 2**30:.1f} GiB</tspan>, '
        f"micro-batches {cut}, {rebuilt} of {len(slots)} saved tensors rebuilt, {100 * slower:+.1f} % time</text>",
        "</svg>",
    ]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.write(svg())
