"""Writes the small snapshots that the C tests and the fuzzer begin with.

    python tests/python/snapshot_samples.py      into tests/data/snapshots

y_ must be read, n_ must be refused, i_ may be either. The same every time.
"""

from __future__ import annotations

import gzip
import json
import pickle
import random
from pathlib import Path
from typing import Any

from snapshot_maker import SCHEMAS, Maker, pickle_as_cpp

FOLDER = Path(__file__).resolve().parents[1] / "data" / "snapshots"
EMPTY = {"segments": [], "device_traces": []}


class _Code:
    """What an attacker would send: unpickling it calls print()."""

    def __reduce__(self) -> Any:
        return (print, ("this ran",))


class _State:
    def __init__(self) -> None:
        self.segments: list[Any] = []


def small(schema: str, seed: int) -> Any:
    """The smallest of some snapshots that have both a segment and entries."""
    found = [Maker(random.Random(seed * 100 + k), schema).snapshot() for k in range(40)]
    return min((s for s in found if s["segments"] and any(s["device_traces"])), key=lambda s: len(pickle.dumps(s, 4)))


def entry(**keys: Any) -> dict[str, Any]:
    return {"action": "alloc", "addr": 4096, "size": 512, "stream": 0} | keys


def traces(*entries: dict[str, Any]) -> bytes:
    return pickle.dumps({"device_traces": [list(entries)]}, 4)


def read() -> dict[str, bytes]:
    out = {}
    for k, schema in enumerate(SCHEMAS):
        out[f"torch_{schema.strip('+')}.pickle"] = pickle.dumps(small(schema, k), (4, 5, 2, 3, 4, 1, 0, 4)[k])
    plain = small("2.9+", 50)
    plain.pop("a_key_of_tomorrow", None)
    out["cpp_writer.pickle"] = pickle_as_cpp(plain)
    out["plain.json"] = json.dumps(plain).encode()
    out["bom_and_spaces.json"] = b'\xef\xbb\xbf\n {"segments": [ ] ,"device_traces":[[],[{"action":"oom","device_free":18446744073709551615}]]}'
    out["packed.pickle.gz"] = gzip.compress(pickle.dumps(EMPTY, 4), mtime=0)
    out["two_members.json.gz"] = gzip.compress(b'{"segments":', mtime=0) + gzip.compress(b"[]}", mtime=0)
    out["empty_history.pickle"] = pickle.dumps(EMPTY, 4)
    out["no_segments.pickle"] = pickle.dumps([], 4)
    out["list_of_segments.pickle"] = pickle.dumps([{"address": 4096, "total_size": 512, "blocks": [{"size": 512, "state": "inactive"}]}], 2)
    out["addresses_above_2_63.pickle"] = traces(entry(addr=2**64 - 512), entry(addr=-512), entry(stream=-1))
    out["blocks_do_not_tile.pickle"] = pickle.dumps({"segments": [{"address": 0, "total_size": 9, "blocks": [{"size": 8, "state": "inactive"}]}]}, 4)
    shared = [{"filename": "a.py", "line": 1, "name": "f"}]
    block = {"size": 512, "state": "active_allocated", "frames": shared}
    out["frames_shared_while_open.pickle"] = pickle.dumps([{"address": 0, "frames": shared, "blocks": [block], "total_size": 512}], 4)
    out["bytes_and_sets.pickle"] = pickle.dumps({**EMPTY, "odd": [b"x", {1}, frozenset({2}), bytearray(b"y"), 10**40, (1, 2, 3, 4)]}, 5)
    return out


def refused() -> dict[str, bytes]:
    whole = pickle.dumps(EMPTY, 4)
    return {
        "runs_code.pickle": pickle.dumps({**EMPTY, "x": _Code()}, 4),
        "runs_code_protocol_0.pickle": pickle.dumps({**EMPTY, "x": _Code()}, 0),
        "builds_an_object.pickle": pickle.dumps(_State(), 2),
        "cut_short.pickle": whole[:-20],
        "cut_short.pickle.gz": gzip.compress(whole, mtime=0)[:-9],
        "bad_checksum.pickle.gz": gzip.compress(whole, mtime=0)[:-8] + b"\0" * 8,
        "protocol_6.pickle": b"\x80\x06" + whole[2:],
        "not_a_snapshot.pickle": pickle.dumps({"model": {"weight": [1.0, 2.0]}}, 4),
        "a_number.pickle": pickle.dumps(7, 4),
        "empty.pickle": b"",
        "text_for_size.pickle": traces(entry(size="512")),
        "negative_size.pickle": traces(entry(size=-1)),
        "size_of_65_bits.pickle": traces(entry(size=2**64)),
        "sizes_add_up_to_too_much.pickle": pickle.dumps([{"address": k, "total_size": 2**61, "blocks": []} for k in range(3)], 4),
        "beyond_the_address_space.pickle": pickle.dumps([{"address": 2**64 - 512, "total_size": 1024, "blocks": []}], 4),
        "unknown_state.pickle": pickle.dumps([{"address": 0, "total_size": 8, "blocks": [{"size": 8, "state": "asleep"}]}], 4),
        "list_in_itself.pickle": b"\x80\x04}\x94\x8c\x08segments\x94]\x94h\x02as.",
        "two_lists_in_each_other.pickle": b"\x80\x04]\x94]\x94h\x00ah\x00h\x01a0.",
        "dictionary_in_itself.pickle": b"\x80\x04}\x94\x8c\x08segments\x94h\x00s.",
        "memo_from_nowhere.pickle": b"\x80\x04j\xff\xff\xff\x7f.",
        "memo_too_far.pickle": b"\x80\x04]r\xff\xff\xff\x7f.",
        "nothing_on_the_stack.pickle": b"\x80\x04as.",
        "no_mark.pickle": b"\x80\x04]e.",
        "values_left.pickle": b"\x80\x04]].",
        "odd_number_of_items.pickle": b"\x80\x04}(Nu.",
        "text_not_utf8.pickle": b"\x80\x04\x8c\x02\xff\xfe.",
        "endless_text.pickle": b"\x80\x04\x8d" + b"\xff" * 8 + b"abc",
        "nested_too_deep.pickle": b"\x80\x04" + b"(" * 2000 + b".",
        "zip_archive.pt": b"PK\x03\x04" + b"\0" * 30,
        "page.html": b"<html><script>const x = 1</script></html>",
        "open.json": b'{"segments": [',
        "comma.json": b'{"segments": [],}',
        "two_values.json": b'{"segments": []} []',
        "words.json": b'{"segments": nothing}',
        "escape.json": b'{"segments": "\\q"}',
        "control_character.json": b'{"segm\nents": []}',
    }


def either() -> dict[str, bytes]:
    return {
        "nan.json": b'{"segments": [], "device_traces": [], "allocator_settings": {"a": NaN, "b": -Infinity, "c": 1e999}}',
        "after_stop.pickle": pickle.dumps(EMPTY, 4) + b"rest",
        "popped.pickle": b"\x80\x04]\x94K\x01a0}\x8c\x08segments]s.",
        "duplicate_keys.pickle": b"\x80\x04}(\x8c\x08segmentsK\x01\x8c\x08segments]u.",
    }


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for prefix, samples in (("y", read()), ("n", refused()), ("i", either())):
        for name, data in samples.items():
            end = b"\n" if name.endswith((".json", ".html")) else b""  # text files end in a newline
            (FOLDER / f"{prefix}_{name}").write_bytes(data + end)


if __name__ == "__main__":
    main()
