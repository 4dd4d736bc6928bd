"""The same steps for real on the CPU: what the profiler saw of the memory, and what autograd saved."""

from __future__ import annotations

import gc
from itertools import groupby
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from tonnage import Training
from tonnage.signature import signature

_ALLOCATION = torch._C._profiler._EventType.Allocation


def one_step(training: Training, model, optimizer, batch, hooks=None) -> None:
    """As capture runs it."""
    pack, unpack = hooks or (lambda t: t, lambda t: t)
    if hooks:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            value = training.loss(model, batch)
    else:
        value = training.loss(model, batch)
    value.backward()
    value = value.detach()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


class Seen(NamedTuple):
    """One allocation (+) or free (-) that the profiler saw, and the ops that were running: (which call, name)."""

    address: int
    bytes: int
    inside: frozenset[tuple[int, str]]


def memory_events(training: Training, steps: int = 2) -> list[list[Seen]]:
    """The events of each step, in order."""
    torch.manual_seed(0)
    model = training.model()
    optimizer, batch = training.optimizer(model), training.batch()
    out = []
    for _ in range(steps):
        gc.collect()
        gc.disable()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            one_step(training, model, optimizer, batch)
        gc.enable()
        out.append(_in_order(seen.profiler.kineto_results.experimental_event_tree()))
    return out


def _in_order(roots) -> list[Seen]:
    found: list[tuple[int, Seen]] = []
    todo = [(node, frozenset()) for node in roots]
    while todo:
        node, inside = todo.pop()
        if node.tag == _ALLOCATION:
            found.append((node.start_time_ns, Seen(node.extra_fields.ptr, node.extra_fields.alloc_size, inside)))
        deeper = inside | {(id(node), node.name)}
        todo.extend((child, deeper) for child in node.children)
    return [event for _, event in sorted(found, key=lambda e: e[0])]


def outside_kernels(events: list[Seen], ops: set[str]) -> list[int]:
    """Sizes of the events without the memory that a kernel takes for itself and gives back before it returns: no capture sees that.

    ops: the names ("aten::mm") of the ops that are kernels and not made of others.
    """
    own: set[int] = set()
    opened: dict[int, int] = {}
    for k, event in enumerate(events):
        if event.bytes > 0:
            opened[event.address] = k
        elif event.address in opened:
            start = opened.pop(event.address)
            number = event.bytes == -8 and not any(name.startswith("aten::") for _, name in events[start].inside)  # a Python number as a tensor
            if number or any(name in ops for _, name in events[start].inside & event.inside):
                own |= {start, k}
    return [event.bytes for k, event in enumerate(events) if k not in own and event.bytes]


def in_runs(sizes: list[int]) -> list[list[int]]:
    """Runs of allocations and of frees, each sorted: a kernel allocates its results in an order of its own."""
    return [sorted(run) for _, run in groupby(sizes, key=lambda size: size > 0)]


def saved_tensors(training: Training, model, batch) -> list[tuple[str, torch.Tensor]]:
    """Signature and contents of every tensor that autograd saves in one forward pass, in order."""
    out = []

    def pack(t: torch.Tensor) -> torch.Tensor:
        out.append((signature(t), t.detach().clone()))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        training.loss(model, batch)
    return out
