"""The parser of allocator settings against PyTorch's own: what one takes the other takes, and what one refuses the other refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replaying import accepts_conf

# Keys that every build of PyTorch 2.11 or later has, with or without CUDA.
SIZES = ("max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb")
NUMBERS = st.sampled_from(["0", "1", "2", "3", "8", "11", "19", "20", "21", "64", "128MB", "-1", "+32", "x", "1 6", "0x40", "1e3", ""])
FRACTIONS = st.sampled_from(["0", "0.5", "1", "0.999", "1e-3", "-0.1", "nan", "inf", "half", ".5", "0.5.5", ""])
PAIRS = st.tuples(st.sampled_from(["1", "64", "256", "3", ">", "1048576", "0", "x"]), NUMBERS).map(":".join)
LISTS = st.lists(PAIRS, max_size=4).map(lambda pairs: "[" + ",".join(pairs) + "]")
ITEMS = st.one_of(
    st.tuples(st.sampled_from(SIZES), NUMBERS).map(":".join),
    st.tuples(st.just("garbage_collection_threshold"), FRACTIONS).map(":".join),
    st.tuples(st.just("roundup_power2_divisions"), st.one_of(NUMBERS, LISTS)).map(":".join),
    st.tuples(st.just("expandable_segments"), st.sampled_from(["True", "False", "true", "1", ""])).map(":".join),
    st.sampled_from(["max_split_size_mb", " expandable_segments : True ", "max_split_size_mb:\t64"]),
)
UNKNOWN = st.sampled_from(["foo:1", "expandable_segments=True", ","])
CONFS = st.tuples(st.lists(ITEMS, max_size=3).map(",".join), st.sampled_from(["", "", ","])).map("".join)

# Options that are sticky are put back before each string.
PROGRAM = """
import json, sys, torch
parse = torch._C._accelerator_setAllocatorSettings
answers = []
for text in json.load(sys.stdin):
    parse("large_segment_size_mb:20")
    parse("max_non_split_rounding_mb:20")
    try:
        parse(text)
        answers.append(None)
    except Exception as error:
        answers.append(str(error).splitlines()[0])
print(json.dumps(answers))
"""


def torch_answers(texts: list[str]) -> list[str | None]:
    """What PyTorch says to each, None when it takes it; in a process of its own, because the last one stays in force."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=json.dumps(texts), capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this PyTorch has no _accelerator_setAllocatorSettings()")
    answers = json.loads(done.stdout)
    assert len(answers) == len(texts)
    return list(answers)


def strings() -> list[str]:
    """A build without CUDA passes over keys that it does not know: then they are not asked for."""
    texts: list[str] = []
    knows_keys = torch_answers(["foo:1"])[0] is not None
    unknown = st.tuples(CONFS, UNKNOWN).map(",".join)

    @given(st.one_of(CONFS, unknown) if knows_keys else CONFS)
    @settings(max_examples=1500, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    return sorted(set(texts))


def test_same_strings_are_taken() -> None:
    texts = strings()
    assert len(texts) > 500
    wrong = []
    for text, answer in zip(texts, torch_answers(texts), strict=True):
        ours = accepts_conf(text)
        if (ours is None) != (answer is None):
            wrong.append(f"{text!r}: ours {ours!r}, torch {answer!r}")
    assert not wrong, "\n".join(wrong[:20])
