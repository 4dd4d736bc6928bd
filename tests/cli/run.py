"""Runs the transcripts tests/cli/*.txt against the command.

A line "$ COMMAND" is run by sh; the lines after it are what it prints, stdout and stderr together, and "[N]" ends them when the
exit status is N and not 0. Lines before the first command, and after an empty line beginning with #, are remarks. A line "..." in
the output stands for any lines. A transcript's commands share a fresh folder; $ROOT is the source tree.

    run.py [--build DIR] [--record] [NAME ...]
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SECONDS = 300


def parse(text: str) -> list[tuple[str, list[str]]]:
    """[(command, expected lines)]; the remarks before the first command come first, with command ""."""
    steps: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif line.startswith("#"):
            steps.append(("", [line]))
        else:
            steps[-1][1].append(line)
    return steps


def environment(build: Path, folder: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH") if name in os.environ}
    path = f"{build}:{ROOT / '.venv/bin'}:/usr/local/bin:/usr/bin:/bin"
    return {
        **kept,
        "PATH": path,
        "HOME": folder,
        "ROOT": str(ROOT),
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "COLUMNS": "80",
        "TONNAGE_PYTHON": str(ROOT / ".venv/bin/python3"),
        # A sanitizer's library cannot be loaded by a Python that is built without it.
        "TONNAGE_LIB": os.environ.get("TONNAGE_LIB", str(build / "libtonnage.so")),
        "TONNAGE_PROFILES": str(ROOT / "python/tonnage/profiles"),
    }


def run(command: str, env: dict[str, str], folder: str) -> list[str]:
    done = subprocess.run(
        ["sh", "-c", command],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    lines = done.stdout.decode("utf-8", "replace").replace(str(ROOT), "$ROOT").splitlines()
    return lines + ([f"[{done.returncode}]"] if done.returncode else [])


def strip_blank(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def matches(want: list[str], got: list[str]) -> bool:
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + "\n" for line in strip_blank(want))
    return re.fullmatch(pattern, "".join(line + "\n" for line in strip_blank(got))) is not None


def replay(path: Path, build: Path, record: bool) -> tuple[int, int]:
    """(passed, failed) commands of one transcript."""
    passed = failed = 0
    written: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        env = environment(build, folder)
        for command, want in parse(path.read_text()):
            if not command:
                written += want
                continue
            try:
                got = run(command, env, folder)
            except subprocess.TimeoutExpired:
                got = [f"[still running after {SECONDS} s]"]
            blank = want[len(strip_blank(want)) :]
            written.append(f"$ {command}")
            if matches(want, got):
                passed += 1
                written += want
                continue
            written += strip_blank(got) + blank
            if not record:
                failed += 1
                print(f"{path.name}: $ {command}")
                print("\n".join(difflib.unified_diff(want, got, "expected", "got", lineterm="")))
            else:
                print(f"{path.name}: recorded $ {command}")
    if record:
        path.write_text("\n".join(written) + "\n")
    return passed, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    passed = failed = 0
    for path in sorted(HERE.glob("*.txt")):
        if options.names and path.stem not in options.names:
            continue
        good, bad = replay(path, (ROOT / options.build).resolve(), options.record)
        passed += good
        failed += bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
