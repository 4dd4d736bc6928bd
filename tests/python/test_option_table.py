"""The command's option table and the Python side's argparse must offer the same options, letters and choices."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(os.environ.get("TONNAGE_COMMAND", Path(__file__).resolve().parents[2] / "build" / "tonnage"))

if not COMMAND.is_file():
    pytest.skip("the command is not built (make build)", allow_module_level=True)
if importlib.util.find_spec("tonnage.__main__") is None:
    pytest.skip("python -m tonnage is not there", allow_module_level=True)

TABLE = json.loads(subprocess.run([COMMAND, "help", "--table"], stdout=subprocess.PIPE, text=True, check=True).stdout)
OPTIONS = {option["name"]: option for option in TABLE["options"]}
VERBS = {verb["name"]: verb for verb in TABLE["verbs"] if verb["home"] == "python"}


def python_help(verb: str) -> str:
    env = {**os.environ, "COLUMNS": "1000", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tonnage", verb, "--help"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env).stdout


def offered(text: str) -> dict[str, str | None]:
    """{long name: letter} of the lines of argparse's help that describe an option."""
    found = {}
    for line in text.splitlines():
        if re.match(r"\s+-", line):
            head = re.split(r"\s{2,}", line.strip())[0]
            names = re.findall(r"--([a-z][a-z-]*)", head)
            letters = re.findall(r"(?<![-\w])-([a-z])\b", head)
            found.update(dict.fromkeys(names, letters[0] if letters else None))
    return found


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_both_sides_offer_the_same_options(verb):
    want = {name: OPTIONS[name]["letter"] for name in VERBS[verb]["options"]}
    assert offered(python_help(verb)) == want


def test_a_difference_would_be_seen():
    text = "options:\n  -h, --help            show\n  --budget SIZE, -b SIZE  bytes, not --steps\n"
    assert offered(text) == {"help": "h", "budget": "b"}
