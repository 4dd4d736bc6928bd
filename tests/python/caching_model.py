"""The caching model of libtonnage, for tests: one Python call per event."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_double, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import pytest

from recorded import REPOSITORY

SEGMENT_KINDS = {1: "segment_alloc", 2: "segment_free", 3: "segment_map", 4: "segment_unmap"}
OUT_OF_MEMORY = -6  # TN_ELIMIT

STATES = ("inactive", "active_allocated", "active_pending_free")  # tn_block_state

SEGMENT_ADDR = CFUNCTYPE(c_uint64, c_void_p, c_int, c_uint64, c_uint32)
SEGMENT_MAP = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64, c_uint32)
SEGMENT_EVENT = CFUNCTYPE(None, c_void_p, c_int, c_uint64, c_uint64, c_uint32)
VISIT = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_uint64, c_uint64, c_int)


class Conf(Structure):
    _fields_ = [
        ("max_split_bytes", c_uint64),
        ("max_non_split_rounding_bytes", c_uint64),
        ("large_segment_bytes", c_uint64),
        ("garbage_collection_threshold", c_double),
        ("memory_fraction", c_double),
        ("roundup_divisions", c_uint32 * 16),
        ("expandable_segments", c_uint8),
        ("private_expandable", c_uint8),
        ("throw_on_cudamalloc_oom", c_uint8),
        ("malloc_async", c_uint8),
        ("reserved", c_uint8 * 4),
    ]


class Config(Structure):
    _fields_ = [
        ("total_bytes", c_uint64),
        ("limit_bytes", c_uint64),
        ("conf", Conf),
        ("event_delay", c_uint32),
        ("reserved", c_uint32),
        ("segment_addr", SEGMENT_ADDR),
        ("segment_map", SEGMENT_MAP),
        ("segment_event", SEGMENT_EVENT),
        ("user", c_void_p),
    ]


class Stat(Structure):
    _fields_ = [(name, c_uint64) for name in ("current", "peak", "allocated", "freed")]


STATS = ["allocation", "segment", "active", "inactive_split"]
STATS += ["allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"]
STATS += ["oversize_allocations", "oversize_segments"]
COUNTERS = ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"]


class Stats(Structure):
    _fields_ = [(name, Stat) for name in STATS] + [(name, c_uint64) for name in COUNTERS]


def stats_dict(raw: Stats) -> dict[str, int]:
    """With the keys of ``torch.cuda.memory_stats()``."""
    out = {name: getattr(raw, name) for name in COUNTERS}
    for name in STATS:
        for field, _ in Stat._fields_:
            out[f"{name}.all.{field}"] = getattr(getattr(raw, name), field)
    return out


def library_path() -> Path:
    """Where libtonnage.so is: TONNAGE_LIB, or the newest build below the repository."""
    if named := os.environ.get("TONNAGE_LIB"):
        return Path(named)
    built = sorted(REPOSITORY.glob("build*/libtonnage.so"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.skip("libtonnage.so is not built")
    return built[-1]


def conf_of(settings: dict[str, Any]) -> Conf:
    """The settings that a snapshot has in ``allocator_settings``."""
    out = Conf()
    out.max_split_bytes = max(settings["max_split_size"], 0)
    out.garbage_collection_threshold = settings["garbage_collection_threshold"]
    out.expandable_segments = settings["expandable_segments"]
    for i, divisions in enumerate(settings["roundup_power2_divisions"].values()):
        out.roundup_divisions[i] = divisions
    return out


class CachingModel:
    """``segment_addr(kind, bytes, stream)`` places segments; ``segment_event(kind, address, bytes, stream)`` hears of them.

    Blocks that another stream uses wait for :meth:`complete`.
    """

    def __init__(
        self,
        total_bytes: int,
        limit_bytes: int,
        conf: Conf,
        segment_addr: Callable[[str, int, int], int],
        segment_event: Callable[[str, int, int, int], None],
    ) -> None:
        self._lib = ctypes.CDLL(str(library_path()))
        self._lib.tn_caching_new.argtypes = [POINTER(Config), POINTER(c_void_p)]
        self._lib.tn_caching_free.argtypes = [c_void_p]
        self._lib.tn_caching_free.restype = None
        self._lib.tn_caching_alloc_from.argtypes = [c_void_p, c_uint32, c_uint64, c_uint32, POINTER(c_uint64)]
        self._lib.tn_caching_dealloc.argtypes = [c_void_p, c_uint64]
        self._lib.tn_caching_record_stream.argtypes = [c_void_p, c_uint64, c_uint32]
        self._lib.tn_caching_complete.argtypes = [c_void_p, c_uint64]
        self._lib.tn_caching_empty_cache.argtypes = [c_void_p]
        self._lib.tn_caching_get_stats.argtypes = [c_void_p, POINTER(Stats)]
        self._lib.tn_caching_get_stats.restype = None
        self._lib.tn_caching_walk.argtypes = [c_void_p, VISIT, c_void_p]
        self._lib.tn_caching_walk.restype = None
        self._config = Config(
            total_bytes,
            limit_bytes,
            conf,
            2**32 - 1,
            0,
            SEGMENT_ADDR(lambda _, kind, size, stream: segment_addr(SEGMENT_KINDS[kind], size, stream)),
            SEGMENT_MAP(),
            SEGMENT_EVENT(lambda _, kind, addr, size, stream: segment_event(SEGMENT_KINDS[kind], addr, size, stream)),
            None,
        )
        self._model = c_void_p()
        assert self._lib.tn_caching_new(byref(self._config), byref(self._model)) == 0

    def close(self) -> None:
        self._lib.tn_caching_free(self._model)
        self._model = c_void_p()

    def alloc(self, size: int, stream: int, pool: int = 0) -> int | None:
        """The address, None when out of memory."""
        address = c_uint64()
        code = self._lib.tn_caching_alloc_from(self._model, pool, size, stream, byref(address))
        assert code in (0, OUT_OF_MEMORY), code
        return address.value if code == 0 else None

    def dealloc(self, address: int) -> None:
        assert self._lib.tn_caching_dealloc(self._model, address) == 0

    def record_stream(self, address: int, stream: int) -> None:
        assert self._lib.tn_caching_record_stream(self._model, address, stream) == 0

    def complete(self, address: int) -> bool:
        """False: the block at that address had been waited for already."""
        return bool(self._lib.tn_caching_complete(self._model, address) == 0)

    def empty_cache(self) -> None:
        assert self._lib.tn_caching_empty_cache(self._model) == 0

    def stats(self) -> dict[str, int]:
        """With the keys of ``torch.cuda.memory_stats()``."""
        raw = Stats()
        self._lib.tn_caching_get_stats(self._model, byref(raw))
        return stats_dict(raw)

    def blocks(self) -> list[tuple[int, int, int, int, str]]:
        """(segment, address, size, requested, state) by address."""
        out: list[tuple[int, int, int, int, str]] = []
        visit = VISIT(lambda _, segment, addr, size, requested, state: out.append((segment, addr, size, requested, STATES[state])))
        self._lib.tn_caching_walk(self._model, visit, None)
        return out
