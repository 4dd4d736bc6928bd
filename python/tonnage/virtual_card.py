"""Loads the virtual card, then torch: a capture for a card that is not there (src/torch/virtual_card.cc says what it answers).

    virtual_card.load(devices.find("h200"))     # in a process that has not imported torch
    import torch

The C++ file is compiled once for each installed torch and kept in the user's cache folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from .devices import Device
from .errors import MissingDependency, VirtualCardError

OLDEST = (2, 4)


def torch_folder() -> Path:
    """Where torch is installed, without importing it.  Raises MissingDependency."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependency("PyTorch is not installed for this Python: pip install torch")
    return Path(next(iter(spec.submodule_search_locations)))


def torch_version() -> tuple[int, int]:
    """(2, 13), without importing it.  Raises MissingDependency when there is none or it is too old."""
    text = ""
    try:
        text = (torch_folder() / "version.py").read_text()
    except OSError:
        pass
    found = re.search(r"__version__\s*=\s*['\"](\d+)\.(\d+)", text)
    if not found:
        raise MissingDependency(f"{torch_folder()} is not an installed PyTorch: pip install torch")
    version = (int(found[1]), int(found[2]))
    if version < OLDEST:
        raise MissingDependency(f"PyTorch {found[1]}.{found[2]} is too old: Tonnage needs {OLDEST[0]}.{OLDEST[1]} or newer")
    return version


def is_loaded() -> bool:
    return _loaded is not None


_loaded: ctypes.CDLL | None = None


def load(device: Device, release: int = 0) -> None:
    """Makes this process one that has the device's card, as far as PyTorch's decisions go.

    release: choose kernels as another PyTorch would (211 = 2.11); 0 = as the installed one.
    Raises VirtualCardError: torch is loaded already, or the card cannot be compiled.
    """
    global _loaded
    if _loaded is not None:
        _arm(_loaded, device, release)
        return
    if "torch" in sys.modules:
        raise VirtualCardError("torch is loaded in this process already; a capture for another card needs a process of its own")
    _loaded = _start(compiled(), device, release)


def _start(library: Path, device: Device, release: int = 0) -> ctypes.CDLL:
    """Imports torch with the card in it.

    A real card is hidden: PyTorch would start its allocator for as many cards as the driver counts, and the virtual one is none of them.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    entry = _Entry(library)
    sys.meta_path.insert(0, entry)
    try:
        import torch  # noqa: F401
    finally:
        if entry in sys.meta_path:
            sys.meta_path.remove(entry)
    if entry.card is None:
        raise VirtualCardError("this PyTorch was imported without its torch._C: there is no place for a virtual card")
    _arm(entry.card, device, release)
    _answer_in_python()
    _claim_kernels()
    return entry.card


class _Entry(MetaPathFinder):
    """Loads the card while torch is imported: after torch's C++ libraries and before torch._C is initialised.

    After: a library loaded first is searched first, and then torch's libraries, even the C++ runtime, would take functions from
    the card and from each other that they never do otherwise ("free(): invalid pointer" in a CUDA build).  Before: PyTorch asks
    for its CUDA hooks once.  torch/__init__.py has loaded the CUDA libraries by the time that it imports torch._C.
    """

    def __init__(self, library: Path):
        self.library = library
        self.card: ctypes.CDLL | None = None

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        if fullname != "torch._C":
            return
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            ctypes.PyDLL(spec.origin, mode=sys.getdlopenflags())  # as the import does in a moment
            try:
                self.card = ctypes.CDLL(str(self.library))
            except OSError as error:
                raise VirtualCardError(f"{self.library}: cannot be loaded ({error}); remove it, and it is made again") from None


def _arm(card: ctypes.CDLL, device: Device, release: int = 0) -> None:
    """`release`: answer as another PyTorch would (211 = 2.11); 0 = the installed one."""
    major, minor = device.profile.get("capability", (9, 0))
    card.tn_virtual_card(int(major), int(minor), release)


def _answer_in_python() -> None:
    """Questions about the device that PyTorch asks in Python.  is_available() stays False: FakeTensorMode would initialise CUDA."""
    import torch

    for module in ("torch.cuda.amp.common", "torch.amp.autocast_mode"):
        common = sys.modules.get(module)
        if common is not None and hasattr(common, "amp_definitely_not_available"):
            common.amp_definitely_not_available = lambda: False  # type: ignore[attr-defined]
    torch.cuda.is_bf16_supported = lambda *args, **kwargs: True
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: 1
    torch.cuda.synchronize = lambda *args: None


# Ops that a card runs as one kernel and that PyTorch otherwise takes apart, before autograd, where no such kernel is registered.
CARD_KERNELS = ("_fused_rms_norm", "_fused_rms_norm_backward", "silu_backward", "mish_backward")
_kernels: Any = None


def _claim_kernels() -> None:
    """Says that these kernels are there, as the CUDA build does; fake tensors never run them."""
    global _kernels
    import torch

    def never(*args: Any, **kwargs: Any) -> None:
        raise VirtualCardError("a kernel of the virtual card was called: there is no card to run it")

    def lacks(name: str) -> bool:
        return hasattr(torch.ops.aten, name) and not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CUDA")

    _kernels = torch.library.Library("aten", "IMPL")
    for name in filter(lacks, CARD_KERNELS):
        _kernels.impl(name, never, "CUDA")


# ---- compiling -----------------------------------------------------------------------------------------------------------------


def source_path() -> Path:
    here = Path(__file__).resolve().parent
    for path in (here / "virtual_card.cc", here.parent.parent / "src" / "torch" / "virtual_card.cc"):
        if path.is_file():
            return path
    raise VirtualCardError("virtual_card.cc is missing from the installation")


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tonnage"


def compiled() -> Path:
    """The shared library for the installed torch, compiled when there is none yet."""
    torch_version()
    folder, source = torch_folder(), source_path()
    version = (folder / "version.py").read_bytes()
    options = _options(folder)
    key = hashlib.sha256(b"\0".join([source.read_bytes(), version, *map(str.encode, options)])).hexdigest()[:20]
    target = cache_folder() / f"virtual_card-{key}.so"
    if target.is_file():
        return target
    compiler = os.environ.get("CXX") or shutil.which("g++")
    if not compiler:
        raise VirtualCardError("g++ is needed once, to capture for a card that is not there: apt install g++")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".virtual_card-", dir=target.parent))
    except OSError as error:
        raise VirtualCardError(f"{target.parent}: cannot be written ({error.strerror}); set XDG_CACHE_HOME") from None
    try:
        made = place / "virtual_card.so"
        _compile(compiler, [str(source), *options], made)
        _try(made)
        os.replace(made, target)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return target


def _options(torch: Path) -> list[str]:
    """Of the compiler, for a torch in this folder.  Wheels before 2.6 use the old C++ ABI of the GNU library."""
    new_abi = b"torchCheckFailEPKcS2_jRKNSt7__cxx11" in (torch / "lib" / "libc10.so").read_bytes()
    return [f"-D_GLIBCXX_USE_CXX11_ABI={int(new_abi)}", "-O1", "-shared", "-fPIC", "-w", f"-I{torch}/include",
            f"-I{torch}/include/torch/csrc/api/include", f"-L{torch}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch}/lib"]  # fmt: skip


def _compile(compiler: str, arguments: list[str], target: Path) -> None:
    with _saying("compiling the virtual card for this PyTorch, once (about 10 s)"):
        for standard in ("c++20", "c++17"):
            try:
                done = subprocess.run([compiler, f"-std={standard}", *arguments, "-o", str(target)], capture_output=True, text=True)
            except OSError as error:
                raise VirtualCardError(f"{compiler}: cannot be run ({error.strerror}); g++ is needed: apt install g++") from None
            if done.returncode == 0:
                return
    lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["no message"]
    raise VirtualCardError(f"the virtual card does not compile against this PyTorch: {lines[0]}")


TRIAL = """if True:
    import sys
    from pathlib import Path
    from tonnage import devices, virtual_card
    virtual_card._start(Path(sys.argv[1]), devices.find("h200"))
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        torch.ones(2, 2, device="cuda", requires_grad=True) @ torch.ones(2, 2, device="cuda")"""


def _try(library: Path) -> None:
    """Runs a new card once in a process of its own: C++ that does not fit this PyTorch ends the process that it is in."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", TRIAL, str(library)], capture_output=True, text=True, env=env)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        how = f"killed by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else "failed"
        said = f" ({lines[-1]})" if lines else ""
        raise VirtualCardError(f"the virtual card does not work with this PyTorch: a trial of it {how}{said}")


@contextmanager
def _saying(what: str) -> Iterator[None]:
    """One line on a terminal while something takes long."""
    show = sys.stderr.isatty()
    if show:
        print(f"tonnage: {what} ...", file=sys.stderr, flush=True)
    yield
