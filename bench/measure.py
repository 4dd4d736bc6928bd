"""What the benchmark scripts share: loading a recipe, running real steps, and reading memory and time from the device."""

from __future__ import annotations

import csv
import gc
import io
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GROUPS = 3  # of steps timed
OUT = Path(os.environ.get("OUT", ROOT / "bench"))  # where results go
sys.path.insert(0, str(ROOT / "python"))


def recipe(path: str, overrides: dict[str, object]) -> Any:
    """The Training of a recipe file (relative to the repository), with overrides as on the command line."""
    from tonnage.recipe import load

    return load(str(ROOT / path), {key: str(value) for key, value in overrides.items()})


class Run:
    """A real training run without any of tonnage's machinery: what a user's own script would do."""

    def __init__(self, training: Any, device: str) -> None:
        import torch
        from torch.utils._pytree import tree_map

        self.torch, self.device = torch, device
        torch.manual_seed(0)
        with torch.device(device):
            self.model = training.model()
        self.optimizer = training.optimizer(self.model)
        self.loss = training.loss
        self.batch = tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, training.batch())

    def step(self) -> Any:
        value = self.loss(self.model, self.batch)
        value.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return value.detach()


def environment() -> dict[str, str]:
    """For child processes: this repository's package first."""
    path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def slug(name: str) -> str:
    """An input's name as a file's."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)


def synchronize(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def seconds(function: Callable[[], Any], device: str) -> float:
    """Wall time of one call, device work included."""
    synchronize(device)
    start = time.perf_counter()
    function()
    synchronize(device)
    return time.perf_counter() - start


def step_ms(step: Callable[[], Any], device: str, count: int, limit_s: float = 60.0) -> tuple[float, float]:
    """Time in ms of a step, and its spread: `count` steps, fewer (at least 3) when they take longer than limit_s.

    The time is the lowest of the medians of three groups that follow one another: what other guests of a shared host take comes in
    stretches, and only ever adds.  The spread is the interquartile range of all.
    """
    times: list[float] = []
    while len(times) < count and (len(times) < 3 or sum(times) < limit_s * 1e3):
        times.append(seconds(step, device) * 1e3)
    group = -(-len(times) // GROUPS)
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (times[0],) * 3
    return min(statistics.median(times[i : i + group]) for i in range(0, len(times), group)), high - low


def clear(device: str) -> None:
    """Frees what the last configuration left, so that the next one starts from the same allocator."""
    import torch

    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def machine() -> dict[str, Any]:
    """What the numbers belong to."""
    import torch

    from tonnage._nvml import Card

    out: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count()}
    if torch.cuda.is_available():
        out |= {"card": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "driver": Card().driver()}
    return out


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """One line a row; the first row's keys are the columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    from tonnage import files

    files.write(path, text.getvalue(), make_folders=True)


def write_json(path: Path, data: Any) -> None:
    from tonnage import files

    files.write(path, json.dumps(data, indent=1) + "\n", make_folders=True)
