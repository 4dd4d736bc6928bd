"""Device profiles: finding them by name, and `tonnage profile`, which measures the device of this machine into one.

A profile is a small JSON file (docs/formats.md). Names are looked for in the user's cache folder, where measured profiles go, and then
among those that ship. `cpu` is the machine itself: where it has not been measured, the shipped rates and this machine's memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import errors, files

SHIPPED = Path(__file__).parent / "profiles"
RATES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}


class ProfileError(errors.Error):
    """A device profile that cannot be found, read or measured."""


# ---- finding profiles ------------------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where measured profiles are kept: $XDG_CACHE_HOME/tonnage/profiles, else ~/.cache/tonnage/profiles."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tonnage" / "profiles"


def names() -> list[str]:
    """Every device name that `find` knows."""
    return sorted({path.stem for folder in (cache_folder(), SHIPPED) for path in folder.glob("*.json")})


def find(name: str) -> Path:
    """The file of a device's profile. A name with a slash, or ending in .json, is that file. Raises ProfileError."""
    if "/" in name or name.endswith(".json"):
        if not Path(name).is_file():
            raise ProfileError(f"{name}: no such profile file")
        return Path(name)
    folders = [cache_folder(), SHIPPED]
    if os.environ.get("TONNAGE_PROFILES"):
        folders.insert(0, Path(os.environ["TONNAGE_PROFILES"]))
    for folder in folders:
        if (folder / f"{name}.json").is_file():
            return folder / f"{name}.json"
    raise ProfileError(f"there is no profile for device {name!r}; known: {', '.join(names())}; or measure it there: tonnage profile")


def load(name: str) -> dict[str, Any]:
    """A device's profile as a dictionary. `cpu` has this machine's memory, whatever the file says. Raises ProfileError."""
    path = find(name)
    try:
        profile = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path}: {error}") from None
    if not isinstance(profile, dict):
        raise ProfileError(f"{path}: not a device profile")
    if name == "cpu":
        profile["total_bytes"] = host_bytes()
    return profile


def text(name: str) -> str:
    """A device's profile as JSON, for tn_profile_parse()."""
    return json.dumps(load(name))


def host_bytes() -> int:
    """Memory that this process may have: the machine's, or its control group's limit when that is lower."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = Path(file).read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            return min(physical, int(limit))
    return physical


def name_of(card: str, total_bytes: int) -> str:
    """Our name for a card by the driver's: "NVIDIA A100-SXM4-80GB" is "a100-80"."""
    lower = card.lower().replace("nvidia", "").replace("geforce", "").replace("tesla", "")
    if "a100" in lower:
        return "a100-40" if total_bytes < 60 << 30 else "a100-80"
    found = re.search(r"rtx\s*(\d{4})(\s*(ti|super))?", lower)
    if found:
        return "rtx" + found.group(1) + (found.group(3) or "")
    found = re.search(r"\b(gh200|h200|h100|h20|b200|b100|v100|l40s|l40|l4|t4|a10g|a10|a30|a40)\b", lower)
    return found.group(1) if found else re.sub(r"[^a-z0-9]+", "-", lower).strip("-")


def present() -> str:
    """The name of the device that this machine would train on: its first card's, else "cpu"."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    properties = torch.cuda.get_device_properties(0)
    return name_of(properties.name, properties.total_memory)


# ---- clocks ----------------------------------------------------------------------------------------------------------------------

Timer = Callable[[Callable[[], Any], int], float]
"""Seconds of one call, the best of a few rounds of `count` calls."""


def _host_timer(function: Callable[[], Any], count: int) -> float:
    from time import perf_counter

    best = float("inf")
    function()
    for _ in range(3):
        start = perf_counter()
        for _ in range(count):
            function()
        best = min(best, (perf_counter() - start) / count)
    return best


def _cuda_timer(function: Callable[[], Any], count: int) -> float:
    """Device time: the host is kept ahead by a pause on the device, so that its own slowness does not show."""
    import torch

    best = float("inf")
    function()
    for _ in range(3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        torch.cuda._sleep(20_000_000)
        start.record()
        for _ in range(count):
            function()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) * 1e-3 / count)
    return best


# ---- rates -----------------------------------------------------------------------------------------------------------------------


def _matmul_rates(device: str, timer: Timer) -> dict[str, float]:
    """FLOP/s per rate: the mean over a square matmul and the two of a transformer's feed-forward."""
    import torch

    def rate(dtype: Any, rows: int, inner: int, columns: int, count: int) -> float:
        a = torch.randn(rows, inner, device=device).to(dtype)
        b = torch.randn(inner, columns, device=device).to(dtype)
        out = torch.empty(rows, columns, device=device, dtype=dtype)
        return 2.0 * rows * inner * columns / timer(lambda: torch.mm(a, b, out=out), count)

    out: dict[str, float] = {}
    before = torch.backends.cuda.matmul.allow_tf32
    for name, dtype_name in RATES.items():
        dtype = getattr(torch, dtype_name)
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        try:
            if device == "cuda":
                shapes = [(8192, 8192, 8192, 3), (16384, 1024, 4096, 10), (16384, 4096, 1024, 10)]
            else:
                shapes = [(512, 512, 512, 1)] if name in ("bf16", "fp16") else [(1024, 1024, 1024, 2)]
            found = [rate(dtype, *shape) for shape in shapes]
            out[name] = sum(found) / len(found)
        except RuntimeError:  # a type that this device has no matmul for runs no faster than fp32
            out[name] = out.get("fp32", 1e9)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
    return out


def _bandwidths(device: str, timer: Timer) -> dict[str, float]:
    """Bytes/s, reads and writes together, of a copy, a sum and an activation function over tensors that no cache holds."""
    import torch

    count = (1 << 28) if device == "cuda" else (1 << 24)
    x, y, z = (torch.ones(count, device=device) for _ in range(3))
    size = x.numel() * x.element_size()
    repeat = 10 if device == "cuda" else 2
    out = {
        "copy": 2 * size / timer(lambda: y.copy_(x), repeat),
        "add": 3 * size / timer(lambda: torch.add(x, y, out=z), repeat),
    }
    if device == "cuda":
        out["gelu"] = 2 * size / timer(lambda: torch.ops.aten.gelu.out(x, out=z), repeat)
    return out


def _host_copies() -> dict[str, float]:
    """Bytes/s each way between pinned host memory and the card."""
    import torch

    host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    return {
        "to_device": host.numel() / _cuda_timer(lambda: card.copy_(host, non_blocking=True), 4),
        "to_host": host.numel() / _cuda_timer(lambda: host.copy_(card, non_blocking=True), 4),
    }


# ---- host times ------------------------------------------------------------------------------------------------------------------


def _host_times(device: str) -> dict[str, float]:
    """Host seconds of one op of a small eager forward pass, and of one op that a saved-tensor hook runs again in backward."""
    import torch

    slots = 200
    x = torch.randn(64, 64, device=device, requires_grad=True)
    gelu = torch.ops.aten.gelu.default
    kept = x.detach()

    def forward() -> Any:
        y = x
        for _ in range(slots):
            y = torch.nn.functional.gelu(y)
        return y

    def settle() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def step(hooks: Any) -> None:
        with hooks:
            y = forward()
        y.backward(kept)
        x.grad = None
        settle()

    def unpack(slot: Any) -> Any:
        with torch.no_grad():
            return gelu(kept)

    from contextlib import nullcontext

    rebuilt = torch.autograd.graph.saved_tensors_hooks(lambda t: 0, unpack)
    plain_s, rebuilt_s = _host_timer(lambda: step(nullcontext()), 3), _host_timer(lambda: step(rebuilt), 3)
    forward_s = _host_timer(forward, 3)
    settle()
    return {"host_op_s": forward_s / slots, "host_rebuild_s": max(rebuilt_s - plain_s, 0.0) / slots}


# ---- what PyTorch and CUDA take by themselves ------------------------------------------------------------------------------------


def _warm_up() -> None:
    """Runs a bit of everything that training runs, since kernels' code is loaded when it is first needed."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, device="cuda")
    head = nn.Linear(256, 1000, device="cuda")
    picture = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.Conv2d(64, 64, 3, 1, 1)).cuda()
    parameters = [*layer.parameters(), *head.parameters(), *picture.parameters()]
    optimizer = torch.optim.AdamW(parameters, fused=True)
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cuda", dtype, enabled=dtype is not torch.float32):
            logits = head(layer(torch.randn(4, 128, 256, device="cuda")))
            seen = picture(torch.randn(4, 3, 64, 64, device="cuda"))
            target = torch.zeros(4 * 128, dtype=torch.long, device="cuda")
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target) + seen.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


def _context_bytes(before: Any, card: Any) -> int:
    """Device-used beyond reserved, of this process, after a warm-up. Without NVML other processes' memory counts too."""
    import torch

    _warm_up()
    after = card.memory()
    if before is not None and after is not None:
        return int(after.used - before.used - torch.cuda.memory_reserved())
    free, total = torch.cuda.mem_get_info()
    return int(total - free - torch.cuda.memory_reserved())


def _cublas_bytes() -> dict[str, int]:
    """What the first matmul of a thread leaves allocated (its workspace), and the first with a bias (cublasLt's)."""
    import torch

    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
    a, b, out = (torch.zeros(256, 256, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    bias = torch.zeros(256, device="cuda", dtype=torch.bfloat16)
    start = torch.cuda.memory_allocated()
    torch.mm(a, b, out=out)
    main = torch.cuda.memory_allocated() - start
    a.requires_grad_()
    y = a @ b
    a.grad = torch.zeros_like(a)
    held = torch.cuda.memory_allocated()
    y.backward(torch.ones_like(y))  # runs in autograd's own thread, with its own handle
    torch.cuda.synchronize()
    autograd = torch.cuda.memory_allocated() - held
    with torch.no_grad():
        held = torch.cuda.memory_allocated()
        result = torch.addmm(bias, a, b)
        lt = torch.cuda.memory_allocated() - held - result.untyped_storage().nbytes()
    return {"cublas_main_thread": main, "cublas_autograd_thread": autograd, "cublaslt": lt}


# ---- a whole profile -------------------------------------------------------------------------------------------------------------


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _profile(name: str, rates: dict[str, float], bandwidths: dict[str, float], host_copy: float, launch_s: float,
             times: dict[str, float]) -> dict[str, Any]:  # fmt: skip
    return {
        "name": name,
        "flops_per_s": {key: _rounded(value) for key, value in rates.items()},
        "bytes_per_s": _rounded(min(bandwidths.values())),
        "host_copy_bytes_per_s": _rounded(host_copy),
        "launch_s": _rounded(launch_s),
        **{key: _rounded(value) for key, value in times.items()},
    }


def measure_cpu(progress: Callable[[str], None]) -> dict[str, Any]:
    """The profile `cpu` of this machine, in less than ten seconds."""
    import torch

    progress("matmuls")
    rates = _matmul_rates("cpu", _host_timer)
    progress("memory")
    bandwidths = _bandwidths("cpu", _host_timer)
    progress("small ops")
    one = torch.ones(16)
    with torch.no_grad():
        launch_s = _host_timer(lambda: one.add_(1.0), 2000)
    profile = _profile("cpu", rates, bandwidths, bandwidths["copy"], launch_s, _host_times("cpu"))
    return profile | {
        "total_bytes": host_bytes(),
        "context_bytes": 0,
        "cublas_workspace_bytes": 0,
        "cublaslt_workspace_bytes": 0,
        "source": f"measured with torch {torch.__version__}, {torch.get_num_threads()} threads",
        "measured": {"bandwidths": {key: _rounded(value) for key, value in bandwidths.items()}},
    }


def measure_cuda(name: str | None, progress: Callable[[str], None]) -> dict[str, Any]:
    """The profile of this machine's first card. name None: by the driver's name. Must run before anything uses the card."""
    from ._nvml import Card

    card = Card()
    before = card.memory()
    import torch

    progress("context")
    torch.cuda.init()
    context = _context_bytes(before, card)
    workspaces = _cublas_bytes()
    properties = torch.cuda.get_device_properties(0)
    progress("matmuls")
    rates = _matmul_rates("cuda", _cuda_timer)
    progress("memory")
    bandwidths = _bandwidths("cuda", _cuda_timer)
    torch.cuda.empty_cache()
    progress("host copies")
    copies = _host_copies()
    progress("small ops")
    tiny = torch.ones(16, device="cuda")
    launch_s = _cuda_timer(lambda: tiny.add_(1.0), 500)
    profile = _profile(
        name or name_of(properties.name, properties.total_memory), rates, bandwidths, min(copies.values()), launch_s, _host_times("cuda")
    )
    granule = 32 << 20  # the driver's own bookkeeping varies by a few MiB from run to run
    return profile | {
        "card": properties.name,
        "total_bytes": properties.total_memory,
        "context_bytes": -(-context // granule) * granule,
        "cublas_workspace_bytes": workspaces["cublas_main_thread"],
        "cublaslt_workspace_bytes": workspaces["cublaslt"],
        "capability": [properties.major, properties.minor],
        "multiprocessors": properties.multi_processor_count,
        "source": f"measured: {properties.name}, driver {card.driver()}, CUDA {torch.version.cuda}, torch {torch.__version__}",
        "measured": {
            "context_bytes": context,
            "context_bytes_at_end": _late_context(before, card),
            **workspaces,
            **{f"host_copy_{key}": _rounded(value) for key, value in copies.items()},
            **{f"bandwidth_{key}": _rounded(value) for key, value in bandwidths.items()},
        },
    }


def _late_context(before: Any, card: Any) -> int | None:
    """The same after all measurements, when more kernels have been loaded."""
    import torch

    after = card.memory()
    return None if before is None or after is None else int(after.used - before.used - torch.cuda.memory_reserved())


ORDER = (
    "name", "card", "total_bytes", "context_bytes", "cublas_workspace_bytes", "cublaslt_workspace_bytes", "flops_per_s", "bytes_per_s", "host_copy_bytes_per_s",
    "launch_s", "host_op_s", "host_rebuild_s", "capability", "multiprocessors", "source", "measured",
)  # fmt: skip


def dumps(profile: dict[str, Any]) -> str:
    """One key a line, in the order of the documentation."""
    lines = [f"  {json.dumps(key)}: {json.dumps(profile[key])}" for key in ORDER if key in profile]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write(profile: dict[str, Any], path: Path) -> None:
    """Writes the whole file or none of it. Raises Error."""
    files.write(path, dumps(profile), make_folders=True)


# ---- the verb --------------------------------------------------------------------------------------------------------------------


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.2f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.2f} GiB"


def table(profile: dict[str, Any]) -> str:
    """The profile for people."""
    rows = [
        ("memory", _size(profile["total_bytes"])),
        ("context", _size(profile["context_bytes"])),
        ("cuBLAS workspace", _size(profile.get("cublas_workspace_bytes", 0))),
        *((f"matmul {rate}", f"{profile['flops_per_s'][rate] * 1e-12:.3g} TFLOP/s") for rate in RATES),
        ("memory bandwidth", f"{profile['bytes_per_s'] * 1e-9:.4g} GB/s, read + write"),
        ("host copies", f"{profile['host_copy_bytes_per_s'] * 1e-9:.3g} GB/s each way"),
        ("any kernel", f"{profile['launch_s'] * 1e6:.2f} us"),
        ("host time of an op", f"{profile['host_op_s'] * 1e6:.1f} us"),
        ("host time of a rebuilt op", f"{profile['host_rebuild_s'] * 1e6:.1f} us"),
    ]
    title = profile["name"] + (f" ({profile['card']})" if "card" in profile else "")
    return "\n".join([title, *(f"  {label:26} {value:>28}" for label, value in rows), ""])


def main(args: Sequence[str] | None = None) -> int:
    """`tonnage profile [--device NAME] [-o FILE] [--json] [-q]`; the exit status. Without -o the file goes to the cache folder."""
    parser = argparse.ArgumentParser(prog="tonnage profile", description="Measure this machine's device into a small file.")
    parser.add_argument("--device", "-d", metavar="NAME", help="cpu, or the name to give the card; without it, the card that is present")
    parser.add_argument("--output", "-o", metavar="FILE", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quiet", "-q", action="store_true")
    parser.add_argument("--color", help=argparse.SUPPRESS)
    options = parser.parse_args(args)
    try:
        import torch
    except ImportError:
        raise errors.MissingDependency("tonnage profile needs PyTorch: pip install torch") from None

    def progress(what: str) -> None:
        if not options.quiet and sys.stderr.isatty():
            print(f"\r\033[Kmeasuring: {what}", end="", file=sys.stderr, flush=True)

    has_card = torch.cuda.is_available()
    if options.device not in (None, "cpu") and not has_card:
        raise ProfileError(f"cannot measure {options.device}: this machine has no GPU that PyTorch can use", 3)
    if has_card and options.device != "cpu":
        profile = measure_cuda(options.device, progress)
    else:
        profile = measure_cpu(progress)
    if not options.quiet and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    path = options.output or cache_folder() / f"{profile['name']}.json"
    write(profile, path)
    print(dumps(profile) if options.json else table(profile) + f"\nwritten to {path}", end="" if options.json else "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
