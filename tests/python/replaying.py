"""Snapshots replayed by libtonnage, for tests: tn_snapshot_load(), tn_replay() and tn_tune."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

from caching_model import Conf, Stats, library_path, stats_dict

NONE = 2**32 - 1
NOT_EXACT, EXACT, NOT_COMPARED = range(3)  # tn_exactness


class Error(Structure):
    _fields_ = [("code", c_int32), ("record", c_uint32), ("offset", c_uint64), ("msg", c_char * 240)]


class Options(Structure):
    _fields_ = [("conf", POINTER(Conf)), ("limit_bytes", c_uint64), ("device", c_uint32), ("reserved", c_uint32)]


class Result(Structure):
    _fields_ = [
        ("conf", Conf),
        ("limit_bytes", c_uint64),
        ("device", c_uint32),
        ("exactness", c_uint32),
        ("is_complete", c_uint32),
        ("limit_inferred", c_uint32),
        ("entries", c_uint32),
        ("allocs", c_uint32),
        ("ooms_recorded", c_uint32),
        ("ooms_served", c_uint32),
        ("oom_entry", c_uint32),
        ("oom_bytes", c_uint64),
        ("stalls", c_uint64),
        ("recorded_bytes", c_uint64),
        ("ideal_bytes", c_uint64),
        ("raw_stats", Stats),
        ("difference_entry", c_uint32),
        ("reserved", c_uint32),
        ("difference_text", c_char * 240),
    ]

    @property
    def difference(self) -> str:
        return str(self.difference_text.decode())

    @property
    def stats(self) -> dict[str, int]:
        return stats_dict(self.raw_stats)


class TuneOptions(Structure):
    _fields_ = [("limit_bytes", c_uint64), ("device", c_uint32), ("threads", c_uint32), ("progress", c_void_p), ("user", c_void_p)]


class RawRow(Structure):
    _fields_ = [("result", Result), ("setting", c_char_p), ("changes", c_uint32), ("is_recorded", c_uint32)]


@dataclass(frozen=True)
class Row:
    """One setting of tune, and what it comes to."""

    result: Result
    setting: str
    is_recorded: bool


class Failed(Exception):
    """What the library said."""


class Snapshot:
    """A snapshot file, read."""

    def __init__(self, path: Path) -> None:
        self._lib = ctypes.CDLL(str(library_path()))
        self._lib.tn_snapshot_load.argtypes = [c_char_p, POINTER(c_void_p), POINTER(Error)]
        self._lib.tn_trace_free.argtypes = [c_void_p]
        self._lib.tn_trace_free.restype = None
        self._lib.tn_conf_parse.argtypes = [c_char_p, c_void_p, POINTER(Conf), POINTER(Error)]
        self._lib.tn_replay.argtypes = [c_void_p, POINTER(Options), POINTER(Result), POINTER(Error)]
        self._lib.tn_tune_new.argtypes = [c_void_p, POINTER(TuneOptions), POINTER(c_void_p), POINTER(Error)]
        self._lib.tn_tune_rows.argtypes = [c_void_p, POINTER(c_size_t)]
        self._lib.tn_tune_rows.restype = POINTER(RawRow)
        self._lib.tn_tune_free.argtypes = [c_void_p]
        self._lib.tn_tune_free.restype = None
        self._trace = c_void_p()
        self._check(self._lib.tn_snapshot_load(str(path).encode(), byref(self._trace), byref(self._error())))

    def _error(self) -> Error:
        self._last = Error()
        return self._last

    def _check(self, code: int) -> None:
        if code:
            raise Failed(self._last.msg.decode())

    def close(self) -> None:
        self._lib.tn_trace_free(self._trace)
        self._trace = c_void_p()

    def replay(self, conf: str | None = None, limit_bytes: int = 0, device: int = NONE) -> Result:
        """Under the recorded settings when conf is None."""
        settings = Conf()
        if conf is not None:
            self._check(self._lib.tn_conf_parse(conf.encode(), self._trace, byref(settings), byref(self._error())))
        options = Options(ctypes.pointer(settings) if conf is not None else None, limit_bytes, device, 0)
        result = Result()
        self._check(self._lib.tn_replay(self._trace, byref(options), byref(result), byref(self._error())))
        return result

    def tune(self, limit_bytes: int = 0, device: int = NONE) -> list[Row]:
        """All settings that were tried, the one to use first."""
        options, tune, count = TuneOptions(limit_bytes, device, 0, None, None), c_void_p(), c_size_t()
        self._check(self._lib.tn_tune_new(self._trace, byref(options), byref(tune), byref(self._error())))
        raw = self._lib.tn_tune_rows(tune, byref(count))
        rows = [Row(Result.from_buffer_copy(raw[i].result), raw[i].setting.decode(), bool(raw[i].is_recorded)) for i in range(count.value)]
        self._lib.tn_tune_free(tune)
        return rows


def accepts_conf(text: str) -> str | None:
    """None when tn_conf_parse() takes the string, else what it says."""
    lib = ctypes.CDLL(str(library_path()))
    lib.tn_conf_parse.argtypes = [c_char_p, c_void_p, POINTER(Conf), POINTER(Error)]
    conf, error = Conf(), Error()
    return None if lib.tn_conf_parse(text.encode(), None, byref(conf), byref(error)) == 0 else str(error.msg.decode())
