"""_lib.py and tables.py against include/tonnage.h: every struct, enum and prototype that Python has copied."""

from __future__ import annotations

import ctypes as C
import re
import struct
from pathlib import Path

import pytest

from tonnage import _lib
from tonnage import tables as T
from tonnage.errors import LibraryError

HEADER = (Path(__file__).parents[2] / "include" / "tonnage.h").read_text()
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
SIZES = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "int32_t": 4, "uint64_t": 8, "double": 8, "char": 1, "int": 4,
         "tn_addr": 8, "size_t": 8, "tn_span": 24, "*": 8}  # fmt: skip
INTS = {"uint8_t": "B", "uint16_t": "H", "uint32_t": "I", "int32_t": "i", "uint64_t": "Q", "tn_addr": "Q", "double": "d"}


def fields_of(name: str) -> list[tuple[str, str, str]]:
    """(type, field, array length or "") of a struct of the header, in order."""
    body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", CODE, re.S)
    assert body, name
    out = []
    for line in body[1].split(";"):
        words = line.split(None, 1)
        if words and words[0] == "const":  # a pointer to text
            words = ["*", words[1].split("*")[1]]
        if words:
            for declared in words[1].split(","):
                field, _, length = declared.strip().partition("[")
                out.append((words[0], field, length.rstrip("]")))
    return out


def listed(name: str) -> list[list[str]]:
    """The X(...) entries of an X-macro list."""
    body = re.search(rf"#define {name}\(X\)(.*?)(?:\nenum|\n\n|\ntypedef)", CODE, re.S)
    assert body, name
    return [[word.strip().strip('"') for word in entry.split(",")] for entry in re.findall(r"X\(([^)]*)\)", body[1])]


@pytest.mark.parametrize("table", [t for t in T.FORMATS if t not in ("ref", "stack_frame")])
def test_record_layout(table):
    """The packed format of each record has the C struct's fields, without holes."""
    expected, offset, largest = "", 0, 1
    for kind, field, length in fields_of(f"tn_{table}"):
        assert not length, field
        assert offset % SIZES[kind] == 0, f"{field} would need padding"
        offset += SIZES[kind]
        largest = max(largest, SIZES[kind])
        expected += INTS[kind]
    assert offset % largest == 0
    written = "".join(c * int(n or 1) for n, c in re.findall(r"(\d*)([A-Za-z])", T.FORMATS[table].format))
    assert written == expected
    assert T.FORMATS[table].size == offset == struct.calcsize("=" + expected)


STRUCTS = [name for name, kind in vars(_lib).items() if isinstance(kind, type) and issubclass(kind, C.Structure) and kind is not C.Structure]


@pytest.mark.parametrize("name", STRUCTS)
def test_struct_layout(name):
    counts = {"TN_RATE_COUNT": len(T.RATES), "TN_CATEGORY_COUNT": len(T.CATEGORIES)}
    ours = getattr(_lib, name)._fields_
    theirs = fields_of(name)
    assert [field for field, _ in ours] == [field for _, field, _ in theirs]
    for (field, kind), (type_name, _, length) in zip(ours, theirs):
        count = int(counts.get(length, length)) if length else 1
        size = C.sizeof(getattr(_lib, type_name)) if hasattr(_lib, type_name) else SIZES[type_name]
        assert C.sizeof(kind) == size * count, field
        if type_name == "double":
            assert (kind._type_ if length else kind) is C.c_double, field


def test_tables_in_order():
    assert [entry[0].lower() for entry in listed("TN_TABLES")] == list(_lib.TABLES) == list(T.FORMATS)


def test_categories_phases_and_rates():
    assert [entry[1] for entry in listed("TN_CATEGORIES")] == list(T.CATEGORIES)
    assert [entry[1] for entry in listed("TN_PHASES")] == list(T.PHASES)
    assert [entry[1] for entry in listed("TN_RATES")] == list(T.RATES)
    for i, name in enumerate(T.CATEGORIES):
        assert getattr(T, name.upper()) == i


def test_event_kinds_and_flags():
    kinds = re.search(r"enum tn_event_kind \{(.*?)\}", CODE, re.S)[1]
    names = re.findall(r"TN_EVENT_(\w+)", kinds)
    ours = {"OP": "OP_EVENT"}
    assert [getattr(T, ours.get(n, n)) for n in names if n != "KIND_END"] == list(range(1, len(names)))
    for name in ("OP_VIEW", "OP_RANDOM", "OP_REBUILDABLE", "BLOCK_HOST", "VALUE_VIEW"):
        shift = re.search(rf"TN_{name} = 1 << (\d)", CODE)[1]
        assert getattr(T, name) == 1 << int(shift)


def prototypes() -> dict[str, tuple[str, list[str]]]:
    found = {}
    for result, name, arguments in re.findall(r"TN_API ([\w \*]+?)\s*(\*?tn_\w+)\(((?:[^()]|\([^()]*\))*)\);", CODE):
        kind = result + ("*" if name.startswith("*") else "")
        found[name.lstrip("*")] = (kind.replace(" ", ""), [a.strip() for a in arguments.split(",") if a.strip() not in ("", "void")])
    return found


def is_kind(ctype, declared: str) -> bool:
    if "*" in declared:
        return ctype in (C.c_char_p, C.c_void_p) or isinstance(ctype, type) and issubclass(ctype, C._Pointer)
    word = re.sub(r"\bconst\b", "", declared).split()[0]
    if word == "enum":
        word = "int"
    return C.sizeof(ctype) == SIZES[word] and (ctype is C.c_double) == (word == "double")


@pytest.mark.parametrize("name", list(_lib.PROTOTYPES))
def test_prototype(name):
    result, arguments = _lib.PROTOTYPES[name]
    declared_result, declared = prototypes()[name]
    assert len(arguments) == len(declared)
    for ours, theirs in zip(arguments, declared):
        assert is_kind(ours, theirs), theirs
    if declared_result == "void":
        assert result is None
    else:
        assert is_kind(result, declared_result)


# ---- with the library


@pytest.fixture
def lib():
    try:
        return _lib.library()
    except LibraryError as error:
        pytest.skip(str(error))


def small_tables() -> T.Tables:
    tables = T.Tables()
    s = tables.strings
    tables.module.append((s(""), s("Mlp"), T.NONE, 0))
    tables.block += [(4096, T.NONE, s("weight"), 0, T.PARAMETER, 0, 0), (1 << 33, 0, 0, 0, T.ACTIVATION, 0, 0)]
    tables.op.append((s("aten.mm.default"), 0, 0, 1, 0, 0, 1, T.OP_REBUILDABLE, 0, 1, 1, 1, 0, 2.5e9, 1e6, -1.0))
    tables.ref += [0, 1]
    tables.value += [(0, T.NONE, 0, 0, s("float32[32,32]"), s("parameter:weight"), 0, 0), (1, 0, 0, 0, s("float32[65536,32768]"), 0, 0, 0)]
    tables.slot.append((1, 1, s("float32[65536,32768] MmBackward0"), 0, 0, 0, 0, 0))
    tables.event += [(T.ALLOC, 0), (T.MARK, s("step:0")), (T.ALLOC, 1), (T.OP_EVENT, 0), (T.PACK, 0), (T.DROP, 1), (T.RELEASE, 0), (T.MARK, s("end"))]
    tables.meta["device"] = "h200"
    return tables


def test_tables_cross_and_come_back(lib, tmp_path):
    tables = small_tables()
    made = _lib.Trace.from_tables(tables)
    path = tmp_path / "small.trace"
    made.save(path)
    for trace in (made, _lib.Trace.load(path)):
        for name in T.CAPTURED:
            rows = getattr(tables, name)
            assert trace.table(name) == ([(r,) for r in rows] if name == "ref" else rows), name
        assert trace.strings() == tables.strings.texts()
        assert trace.meta("device") == "h200" and trace.meta("nothing") is None


def test_text_that_is_not_plain(lib):
    tables = small_tables()
    tables.meta["recipe"] = "größe=立"
    text = tables.strings("a\0b\ud800")
    trace = _lib.Trace.from_tables(tables)
    assert trace.meta("recipe") == "größe=立"
    assert "\0" not in trace.strings()[text]


def test_wrong_records_are_refused_with_the_place(lib):
    tables = small_tables()
    tables.event.append((T.DROP, 1))
    with pytest.raises(LibraryError, match=r"event 8") as caught:
        _lib.Trace.from_tables(tables)
    assert caught.value.status == 2 and caught.value.code == -4


def test_files_that_are_no_traces(lib, tmp_path):
    broken = tmp_path / "broken.trace"
    broken.write_bytes(b"SQLite format 3\0 but not really")
    for path in (broken, tmp_path / "missing.trace"):
        with pytest.raises(LibraryError) as caught:
            _lib.Trace.load(path)
        assert caught.value.status == 2 and "\n" not in str(caught.value) and path.name in str(caught.value)


def test_newer_trace_says_so(lib, tmp_path):
    import sqlite3

    path = tmp_path / "newer.trace"
    _lib.Trace.from_tables(small_tables()).save(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(LibraryError, match="newer") as caught:
        _lib.Trace.load(path)
    assert caught.value.status == 2


def test_sizes(lib):
    assert _lib.size_parse("12GiB") == 12 << 30
    assert _lib.size_format(12 << 30) == "12.00 GiB"
    with pytest.raises(LibraryError, match="12X"):
        _lib.size_parse("12X")


def test_version_is_the_headers(lib):
    assert _lib.version() == re.search(r'#define TN_VERSION "([^"]+)"', HEADER)[1]


def test_missing_library_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("TONNAGE_LIB", str(tmp_path / "nowhere.so"))
    with pytest.raises(LibraryError, match="no such file"):
        _lib.library_path()


def test_library_of_another_version(monkeypatch):
    """A library without our functions, such as Python's own extension module, is refused when one is called."""
    import _ctypes

    monkeypatch.setenv("TONNAGE_LIB", _ctypes.__file__)
    other = _lib.library.__wrapped__()
    with pytest.raises(LibraryError, match="another version of tonnage"):
        other.tn_version()
