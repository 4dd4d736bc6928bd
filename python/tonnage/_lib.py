"""The C library, by ctypes.  The only file that knows C; tests/python/test_lib.py checks it against include/tonnage.h.

Bulk data crosses as arrays: a capture's records are packed into the C structs (tables.py) and added table by table.
"""
from __future__ import annotations

import ctypes as C
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import tables as T
from .errors import LibraryError

NONE = T.NONE
TABLES = tuple(T.FORMATS)  # enum tn_table


class tn_error(C.Structure):
    _fields_ = [("code", C.c_int32), ("record", C.c_uint32), ("offset", C.c_uint64), ("msg", C.c_char * 240)]


class tn_profile(C.Structure):
    _fields_ = [
        ("name", C.c_char * 64),
        ("total_bytes", C.c_uint64),
        ("context_bytes", C.c_uint64),
        ("flops_per_s", C.c_double * len(T.RATES)),
        ("bytes_per_s", C.c_double),
        ("host_copy_bytes_per_s", C.c_double),
        ("launch_s", C.c_double),
        ("host_op_s", C.c_double),
        ("host_rebuild_s", C.c_double),
    ]


class tn_peak(C.Structure):
    _fields_ = [
        ("allocated_bytes", C.c_uint64),
        ("reserved_bytes", C.c_uint64),
        ("requested_bytes", C.c_uint64),
        ("device_used_bytes", C.c_uint64),
        ("by_category", C.c_uint64 * len(T.CATEGORIES)),
        ("persistent_bytes", C.c_uint64),
        ("op", C.c_uint32),
        ("event", C.c_uint32),
        ("step", C.c_uint32),
        ("oom", C.c_uint32),
        ("limit_needed_bytes", C.c_uint64),
        ("retries", C.c_uint64),
    ]


class tn_estimate_options(C.Structure):
    _fields_ = [
        ("step", C.c_uint32),
        ("expandable_segments", C.c_uint32),
        ("limit_bytes", C.c_uint64),
        ("state_placed", C.c_uint32),
        ("reserved", C.c_uint32),
    ]


class tn_plan_options(C.Structure):
    _fields_ = [("limit_bytes", C.c_uint64), ("expandable_segments", C.c_uint32), ("keep_all", C.c_uint32)]


class tn_span(C.Structure):
    _fields_ = [("host_s", C.c_double), ("device_s", C.c_double), ("length_s", C.c_double)]


class tn_plan_result(C.Structure):
    _fields_ = [
        ("fits", C.c_int32),
        ("passes", C.c_uint32),
        ("allocated_bytes", C.c_uint64),
        ("reserved_bytes", C.c_uint64),
        ("limit_needed_bytes", C.c_uint64),
        ("kept_bytes", C.c_uint64),
        ("smallest_bytes", C.c_uint64),
        ("extra_s", C.c_double),
        ("lower_bound_s", C.c_double),
        ("kept_first_pass", tn_span),
        ("kept_last_pass", tn_span),
        ("first_pass", tn_span),
        ("last_pass", tn_span),
        ("optimizer", tn_span),
        ("slots", C.c_uint32),
        ("slots_rebuilt", C.c_uint32),
        ("ops_run", C.c_uint32),
        ("peak_op", C.c_uint32),
        ("peak_phase", C.c_uint32),
        ("reserved", C.c_uint32),
    ]


class tn_search_options(C.Structure):
    _fields_ = [("budget_bytes", C.c_uint64), ("batch", C.c_uint32), ("levers", C.c_uint32)]


class tn_candidate(C.Structure):
    _fields_ = [("micro_batch", C.c_uint32), ("count", C.c_uint32), ("rest", C.c_uint32), ("bf16", C.c_uint32)]


class tn_search_best(C.Structure):
    _fields_ = [
        ("candidate", tn_candidate),
        ("result", tn_plan_result),
        ("step_s", C.c_double),
        ("unconstrained_step_s", C.c_double),
        ("unconstrained_allocated_bytes", C.c_uint64),
        ("whole_step_s", C.c_double),
        ("whole_allocated_bytes", C.c_uint64),
        ("limit_bytes", C.c_uint64),
        ("expandable_segments", C.c_uint32),
        ("fits", C.c_int32),
    ]


class tn_html_options(C.Structure):
    _fields_ = [("name", C.c_char_p), ("total_bytes", C.c_uint64), ("history_bytes_max", C.c_uint64)]


_Trace = C.c_void_p
_Error = C.POINTER(tn_error)
_Text = C.c_char_p

# result and arguments of each function in use; int results are TN_E... codes
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "tn_version": (_Text, []),
    "tn_error_name": (_Text, [C.c_int]),
    "tn_error_text": (_Text, [C.c_int]),
    "tn_error_status": (C.c_int, [C.c_int]),
    "tn_size_parse": (C.c_int, [_Text, C.POINTER(C.c_uint64), _Error]),
    "tn_size_format": (_Text, [C.c_uint64, C.c_char_p, C.c_size_t]),
    "tn_trace_new": (C.c_int, [C.POINTER(_Trace)]),
    "tn_trace_free": (None, [_Trace]),
    "tn_trace_add_strings": (C.c_int, [_Trace, C.c_char_p, C.c_size_t, C.c_size_t]),
    "tn_trace_string": (_Text, [_Trace, C.c_uint32]),
    "tn_trace_string_count": (C.c_size_t, [_Trace]),
    "tn_trace_add": (C.c_int, [_Trace, C.c_int, C.c_void_p, C.c_size_t]),
    "tn_trace_table": (C.c_void_p, [_Trace, C.c_int, C.POINTER(C.c_size_t)]),
    "tn_trace_set_meta": (C.c_int, [_Trace, _Text, _Text]),
    "tn_trace_meta": (_Text, [_Trace, _Text]),
    "tn_trace_check": (C.c_int, [_Trace, _Error]),
    "tn_trace_save": (C.c_int, [_Trace, _Text, _Error]),
    "tn_trace_load": (C.c_int, [_Text, C.POINTER(_Trace), _Error]),
    "tn_snapshot_load": (C.c_int, [_Text, C.POINTER(_Trace), _Error]),
    "tn_snapshot_parse": (C.c_int, [C.c_char_p, C.c_size_t, C.POINTER(_Trace), _Error]),
    "tn_profile_parse": (C.c_int, [_Text, C.POINTER(tn_profile), _Error]),
    "tn_estimate": (C.c_int, [_Trace, C.POINTER(tn_profile), C.POINTER(tn_estimate_options), C.POINTER(tn_peak)]),
    "tn_report_estimate": (C.c_int, [_Trace, C.POINTER(tn_profile), C.c_uint64, C.c_int, C.POINTER(C.c_void_p)]),
    "tn_report_html_save": (C.c_int, [_Trace, C.POINTER(tn_html_options), _Text, _Error]),
    "tn_text_free": (None, [C.c_void_p]),
    "tn_plan_new": (C.c_int, [_Trace, C.POINTER(tn_profile), C.POINTER(tn_plan_options), C.POINTER(C.c_void_p), _Error]),
    "tn_plan_free": (None, [C.c_void_p]),
    "tn_plan_get_result": (None, [C.c_void_p, C.POINTER(tn_plan_result)]),
    "tn_plan_pass_json": (C.c_int, [C.c_void_p, C.POINTER(C.c_void_p)]),
    "tn_plan_rebuilt_json": (C.c_int, [C.c_void_p, C.POINTER(C.c_void_p)]),
    "tn_search_new": (C.c_int, [C.POINTER(tn_profile), C.POINTER(tn_search_options), C.POINTER(C.c_void_p)]),
    "tn_search_free": (None, [C.c_void_p]),
    "tn_search_next": (C.c_int, [C.c_void_p, C.POINTER(tn_candidate)]),
    "tn_search_offer": (C.c_int, [C.c_void_p, _Trace, _Error]),
    "tn_search_get_best": (C.c_int, [C.c_void_p, C.POINTER(tn_search_best)]),
    "tn_search_best_json": (C.c_int, [C.c_void_p, C.POINTER(C.c_void_p), C.POINTER(C.c_void_p)]),
}


def library_path() -> Path:
    """libtonnage by TONNAGE_LIB, beside this file, or in the build folder of the source tree.  Raises LibraryError."""
    name = "libtonnage.dylib" if sys.platform == "darwin" else "libtonnage.so"
    asked = os.environ.get("TONNAGE_LIB")
    if asked:
        if not Path(asked).is_file():
            raise LibraryError(f"TONNAGE_LIB={asked}: no such file")
        return Path(asked)
    here = Path(__file__).resolve().parent
    for folder in (here, here.parent.parent / "build"):
        if (folder / name).is_file():
            return folder / name
    raise LibraryError(f"{name} is not installed beside the package; in a source tree: make, or set TONNAGE_LIB")


def _missing(path: Path, name: str) -> Any:
    def refuse(*arguments: Any) -> Any:
        raise LibraryError(f"{path}: is of another version of tonnage (it has no {name})")

    return refuse


@lru_cache(maxsize=1)
def library() -> C.CDLL:
    path = library_path()
    try:
        lib = C.CDLL(str(path))
    except OSError as error:
        raise LibraryError(f"{path}: cannot be loaded: {error}") from None
    for name, (result, arguments) in PROTOTYPES.items():
        try:
            function = getattr(lib, name)
        except AttributeError:
            setattr(lib, name, _missing(path, name))
            continue
        function.restype, function.argtypes = result, arguments
    return lib


def check(code: int, error: tn_error | None = None, what: str = "") -> None:
    """Raises LibraryError for a negative code, with the library's own words."""
    if code >= 0:
        return
    lib = library()
    message = error.msg.decode(errors="replace") if error is not None and error.msg else lib.tn_error_text(code).decode()
    raise LibraryError(f"{what}: {message}" if what and not message.startswith(what) else message, code, lib.tn_error_status(code))


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace").replace(b"\0", b"?")


class Trace:
    """A trace in the C library."""

    def __init__(self, handle: int | None = None):
        self._lib = library()
        self._handle = C.c_void_p(handle)
        if handle is None:
            check(self._lib.tn_trace_new(C.byref(self._handle)))

    def __del__(self) -> None:
        handle, lib = getattr(self, "_handle", None), getattr(self, "_lib", None)
        if handle and lib is not None:
            lib.tn_trace_free(handle)
            self._handle = C.c_void_p(None)

    @property
    def handle(self) -> C.c_void_p:
        """For other calls of the library; lives as long as this object."""
        return self._handle

    @classmethod
    def from_tables(cls, tables: T.Tables) -> Trace:
        """Copies records into the library, and checks them."""
        trace = cls()
        lib, handle = trace._lib, trace._handle
        texts = tables.strings.texts()[1:]  # "" is there already
        blob = b"".join(_bytes(t) + b"\0" for t in texts)
        check(lib.tn_trace_add_strings(handle, blob, len(blob), len(texts)))
        packed = tables.packed()
        for at, name in enumerate(T.CAPTURED):
            records = packed[name]
            check(lib.tn_trace_add(handle, at, records, len(records) // T.FORMATS[name].size), what=name)
        for key, value in tables.meta.items():
            trace.set_meta(key, value)
        trace.check()
        return trace

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Reads a .trace file.  LibraryError: missing, malformed, or of a newer version."""
        handle, error = C.c_void_p(), tn_error()
        check(library().tn_trace_load(os.fsencode(path), C.byref(handle), C.byref(error)), error, os.fspath(path))
        return cls(handle.value)

    @classmethod
    def load_snapshot(cls, path: str | os.PathLike[str]) -> Trace:
        """Reads a memory snapshot of PyTorch. LibraryError: not one, malformed, or able to run code."""
        handle, error = C.c_void_p(), tn_error()
        check(library().tn_snapshot_load(os.fsencode(path), C.byref(handle), C.byref(error)), error, os.fspath(path))
        return cls(handle.value)

    @classmethod
    def parse_snapshot(cls, data: bytes) -> Trace:
        """The same from memory."""
        handle, error = C.c_void_p(), tn_error()
        check(library().tn_snapshot_parse(data, len(data), C.byref(handle), C.byref(error)), error)
        return cls(handle.value)

    def save(self, path: str | os.PathLike[str]) -> None:
        error = tn_error()
        check(self._lib.tn_trace_save(self._handle, os.fsencode(path), C.byref(error)), error, os.fspath(path))

    def check(self) -> None:
        error = tn_error()
        check(self._lib.tn_trace_check(self._handle, C.byref(error)), error)

    def set_meta(self, key: str, value: str) -> None:
        check(self._lib.tn_trace_set_meta(self._handle, _bytes(key), _bytes(value)))

    def meta(self, key: str) -> str | None:
        value = self._lib.tn_trace_meta(self._handle, _bytes(key))
        return None if value is None else value.decode(errors="replace")

    def table(self, name: str) -> list[tuple]:
        """The records of a table as tuples in the order of the struct's fields."""
        count = C.c_size_t()
        at = self._lib.tn_trace_table(self._handle, TABLES.index(name), C.byref(count))
        layout = T.FORMATS[name]
        return list(layout.iter_unpack(C.string_at(at, count.value * layout.size))) if at and count.value else []

    def strings(self) -> list[str]:
        count = self._lib.tn_trace_string_count(self._handle)
        return [self._lib.tn_trace_string(self._handle, i).decode(errors="replace") for i in range(count)]


def version() -> str:
    return library().tn_version().decode()


def size_parse(text: str) -> int:
    """ "12GiB" -> bytes.  LibraryError with the reason."""
    out, error = C.c_uint64(), tn_error()
    check(library().tn_size_parse(_bytes(text), C.byref(out), C.byref(error)), error)
    return out.value


def size_format(count: int) -> str:
    """Bytes -> "11.98 GiB"."""
    buffer = C.create_string_buffer(32)
    return library().tn_size_format(count, buffer, len(buffer)).decode()


def profile_parse(json: str) -> tn_profile:
    out, error = tn_profile(), tn_error()
    check(library().tn_profile_parse(_bytes(json), C.byref(out), C.byref(error)), error)
    return out


def estimate(
    trace: Trace,
    profile: tn_profile,
    *,
    step: int = NONE,
    expandable_segments: bool = False,
    limit_bytes: int = 0,
    state_placed: bool = False,
) -> tn_peak:
    """The trace replayed through the caching model; step NONE = the peak over all steps.

    state_placed: the optimizer's state gets its room before the first step, as step.StateRoom does.
    """
    options, out = tn_estimate_options(step, int(expandable_segments), limit_bytes, int(state_placed)), tn_peak()
    check(library().tn_estimate(trace.handle, C.byref(profile), C.byref(options), C.byref(out)))
    return out


def report_estimate(trace: Trace, profile: tn_profile, budget_bytes: int = 0, json: bool = False) -> str:
    """The report as text or JSON; budget 0 = the card's size."""
    text = C.c_void_p()
    check(library().tn_report_estimate(trace.handle, C.byref(profile), budget_bytes, int(json), C.byref(text)))
    return take_text(text)


def report_html_save(trace: Trace, path: str | os.PathLike[str], *, name: str = "", total_bytes: int = 0, history_bytes_max: int = 0) -> None:
    """What explain says of a snapshot, as one HTML file."""
    options, error = tn_html_options(_bytes(name), total_bytes, history_bytes_max), tn_error()
    check(library().tn_report_html_save(trace.handle, C.byref(options), os.fsencode(path), C.byref(error)), error)


class Plan:
    """A plan for one trace; see tn_plan_new()."""

    def __init__(self, trace: Trace, profile: tn_profile, limit_bytes: int, *, expandable_segments: bool = False, keep_all: bool = False):
        self._trace, self._handle, error = trace, C.c_void_p(), tn_error()
        options = tn_plan_options(limit_bytes, int(expandable_segments), int(keep_all))
        code = library().tn_plan_new(trace.handle, C.byref(profile), C.byref(options), C.byref(self._handle), C.byref(error))
        check(code, error)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library().tn_plan_free(self._handle)
            self._handle = C.c_void_p(None)

    @property
    def result(self) -> tn_plan_result:
        out = tn_plan_result()
        library().tn_plan_get_result(self._handle, C.byref(out))
        return out

    def pass_json(self) -> str:
        text = C.c_void_p()
        check(library().tn_plan_pass_json(self._handle, C.byref(text)))
        return take_text(text)

    def rebuilt_json(self) -> str:
        text = C.c_void_p()
        check(library().tn_plan_rebuilt_json(self._handle, C.byref(text)))
        return take_text(text)


LEVERS = {"rebuild": 1, "micro-batch": 2, "allocator": 4, "precision": 8}  # TN_LEVER_...


class Search:
    """The outer loop over micro-batches and precision; see tn_search_next()."""

    def __init__(self, profile: tn_profile, budget_bytes: int, batch: int, levers: int):
        self._handle = C.c_void_p()
        options = tn_search_options(budget_bytes, batch, levers)
        check(library().tn_search_new(C.byref(profile), C.byref(options), C.byref(self._handle)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library().tn_search_free(self._handle)
            self._handle = C.c_void_p(None)

    def next(self) -> tn_candidate | None:
        out = tn_candidate()
        return out if library().tn_search_next(self._handle, C.byref(out)) == 1 else None

    def offer(self, trace: Trace) -> None:
        error = tn_error()
        check(library().tn_search_offer(self._handle, trace.handle, C.byref(error)), error)

    @property
    def best(self) -> tn_search_best:
        out = tn_search_best()
        check(library().tn_search_get_best(self._handle, C.byref(out)))
        return out

    def best_json(self) -> tuple[str, str]:
        """PASS and "rebuilt" of docs/formats.md."""
        one, two = C.c_void_p(), C.c_void_p()
        check(library().tn_search_best_json(self._handle, C.byref(one), C.byref(two)))
        return take_text(one), take_text(two)


def take_text(text: C.c_void_p) -> str:
    """A text that the library gave us, which is given back."""
    try:
        return C.string_at(text.value).decode(errors="replace") if text.value else ""
    finally:
        library().tn_text_free(text)
