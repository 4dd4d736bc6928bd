"""Measured times: runs each kind of op of a captured step once on the card that is there, and writes its seconds into the trace's records.

Without it the planner works with the roofline of the device's profile. An op is timed with tensors of its own shapes, strides and types: several
runs in a row behind a kernel that keeps the card busy meanwhile, so that the host's time for starting them does not show.
"""
from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from . import _lib, batches, devices
from . import tables as T
from .devices import Device
from .rebuild import PlanError, find_op

_META = re.compile(r"(\w+)\[([\d,]*)\](?:/([\d,]*)\+(\d+))?")
RUNS = 4
HOST_STEPS = 30  # of the small model; cores of a shared machine are slower at times, so a moment is not enough
OWN_PASSES, WARM_UP = 9, 2
BUSY_CYCLES = 1_500_000  # a good half millisecond
SKIPPED = re.compile(r"aten\.(_fused_\w*(adam|sgd)|_foreach_|lift_fresh|_local_scalar_dense|item)")


def with_host_times(device: Device, tables: T.Tables, training: Any, card: torch.device) -> Device:
    """The device with this machine's own host time of an op: the card's profile may come from a machine with faster or slower cores.

    tables: a captured and measured step of `training`, whose own passes are timed when it is there in this process; else a small model's.
    A rebuilt op takes half as long again: the hook that asks for it, and the windows it reads (measured over plans of BERT-large).
    """
    seconds = own_host_op_seconds(tables, training, card) if isinstance(training, tuple) else None
    if seconds is None:
        seconds = small_host_op_seconds(card)
    torch.cuda.empty_cache()  # what those passes have left is not the plan's
    return replace(device, profile={**device.profile, "host_op_s": seconds, "host_rebuild_s": 1.5 * seconds})


def own_host_op_seconds(tables: T.Tables, live: tuple, card: torch.device) -> float | None:
    """Host seconds of one forward op, by passes of the model itself over the first row of its batch, on the card.

    Nothing of it stays: gradients are not accumulated, buffers and random numbers are put back.  None where this says nothing: the pass fails on
    one row, or the card is so busy with it that the host waits.
    """
    model, _, loss, batch = live
    weights = _weighed(tables)
    rows = batches.size(batch)
    piece = batches.cut(batch, 0, 1) if rows > 1 else batch
    kept = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    parameters = [p for p in model.parameters() if p.requires_grad]
    times = []
    try:
        with torch.random.fork_rng([card]):
            for _ in range(OWN_PASSES):
                torch.cuda.synchronize(card)
                start = time.perf_counter()
                torch.autograd.grad(loss(model, piece), parameters, allow_unused=True)
                times.append(time.perf_counter() - start)
    except Exception:  # the user's own code, on a batch that it may not be made for
        return None
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
    host_s = sorted(times[WARM_UP:])[(len(times) - WARM_UP) // 2]
    busy_s = weights.device_s / max(rows, 1)
    return host_s / weights.host_s if weights.host_s and busy_s < 0.7 * host_s else None


def small_host_op_seconds(card: torch.device) -> float:
    """Host seconds of one forward op: the time of a small model's pass, on tensors too small to keep the card busy."""
    from .capture import capture_tables

    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.1)) for _ in range(12)]
    model = nn.Sequential(*layers).to(card)
    batch = torch.zeros(8, 64, device=card)

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast(card.type, torch.bfloat16):
            return model(batch).sum()

    times = []
    with torch.random.fork_rng([card]):
        for _ in range(HOST_STEPS):
            torch.cuda.synchronize(card)
            start = time.perf_counter()
            loss(model, batch).backward()
            times.append(time.perf_counter() - start)
            model.zero_grad(set_to_none=True)
    tables = capture_tables((model, torch.optim.SGD(model.parameters(), 0.1), loss, batch), devices.find("h200"), steps=1)
    return sorted(times)[len(times) // 2] / _weighed(tables).host_s


def _weighed(tables: T.Tables) -> _lib.tn_span:
    """A pass as the planner counts it, with an op's host time as the unit."""
    unit = devices.find("h200")
    unit = replace(unit, profile={**unit.profile, "host_op_s": 1.0, "host_rebuild_s": 0.0})
    return _lib.Plan(_lib.Trace.from_tables(tables), _lib.profile_parse(unit.text), 1 << 62).result.kept_first_pass


class Unknown(Exception):
    """An op that cannot be run by itself."""


def measure(tables: T.Tables, device: torch.device) -> int:
    """Fills `seconds` of the ops of the trace's last step, whose arguments are known. Returns the number of different ops timed."""
    texts = tables.strings.texts()
    known: dict[tuple[Any, ...], float] = {}
    last = max((op[4] for op in tables.op), default=0)
    with torch.no_grad(), torch.random.fork_rng([device]):
        for i, op in enumerate(tables.op):
            if op[4] != last or op[7] & T.OP_VIEW or not op[1] or SKIPPED.match(texts[op[0]]):
                continue
            metas = tuple(tables.value[v][4] if v != T.NONE else 0 for v in tables.ref[op[8] : op[8] + op[9]])
            kind = (op[0], _without_values(texts[op[1]]), metas)
            if kind not in known:
                known[kind] = _seconds_or_unknown(tables, texts, op, device)
            if known[kind] >= 0:
                tables.op[i] = (*op[:-1], known[kind])
    torch.cuda.empty_cache()
    return sum(seconds >= 0 for seconds in known.values())


def _without_values(arguments: str) -> str:
    return re.sub(r'("(?:v|scratch)": ?)\d+', r"\1", arguments)


def _seconds_or_unknown(tables: T.Tables, texts: list[str], op: tuple, device: torch.device) -> float:
    try:
        return _seconds(tables, texts, op, device)
    except (Unknown, PlanError, RuntimeError, TypeError, ValueError):
        return -1.0  # the roofline stands in


def _seconds(tables: T.Tables, texts: list[str], op: tuple, device: torch.device) -> float:
    func = find_op(texts[op[0]])
    call = json.loads(texts[op[1]])
    tensors: dict[int, torch.Tensor] = {}

    def read(x: Any) -> Any:
        if isinstance(x, list):
            return [read(y) for y in x]
        if not isinstance(x, dict):
            return x
        ((kind, value),) = x.items()
        if kind in ("v", "scratch"):
            if value not in tensors:
                tensors[value] = _tensor(texts[tables.value[value][4]], device)
            return tensors[value]
        if kind == "device":
            return device if torch.device(value).type == device.type else torch.device(value)
        if kind == "float":
            return float(value)
        if kind in ("dtype", "layout", "memory_format"):
            return getattr(torch, value)
        raise Unknown(kind)

    args = [read(x) for x in call["args"]]
    kwargs = {name: read(x) for name, x in call.get("kwargs", {}).items()}
    func(*args, **kwargs)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(BUSY_CYCLES)
    start.record()
    for _ in range(RUNS):
        func(*args, **kwargs)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / RUNS


def _tensor(meta: str, device: torch.device) -> torch.Tensor:
    """A tensor of a value's shape, strides and type; random where that changes how fast kernels are."""
    match = _META.fullmatch(meta)
    dtype = getattr(torch, match[1], None) if match else None
    if match is None or not isinstance(dtype, torch.dtype):
        raise Unknown(meta)
    shape = [int(n) for n in match[2].split(",") if n]
    if match[3] is None:
        return _filled(shape, dtype, device)
    strides = [int(n) for n in match[3].split(",") if n]
    size = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
    return _filled([size], dtype, device).as_strided(shape, strides)


def _filled(shape: list[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if dtype.is_floating_point:  # between 0 and 1: a kernel that takes probabilities stops the whole process at others
        return torch.empty(shape, dtype=dtype, device=device).uniform_()
    return torch.zeros(shape, dtype=dtype, device=device)
