"""Runs the test suites and counts single tests, not programs.

    scripts/check.py --build DIR SUITE ... [-- PYTEST ARGUMENTS]

SUITE is unit (ctest: cmocka programs and corpus replays), cli (tests/cli), python (tests/python) or gpu (tests/gpu).
The last line is "N passed, N failed", with ", N skipped" when there are any. --counts FILE leaves the three numbers there as well.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES_SHOWN = 60  # of a test program that failed


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __iadd__(self, other: Counts) -> Counts:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        return self

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def cmocka_counts(output: str, ok: bool) -> Counts:
    """The counts of one test program. One without cmocka's summary, or that died before it, is a single test."""

    def number(word: str) -> int:
        found = re.findall(rf"^\[  {word}\s+\] (\d+) test\(s\)", output, re.MULTILINE)
        return sum(int(n) for n in found)

    counts = Counts(number("PASSED"), number("FAILED"), number("SKIPPED"))
    if ok and counts.passed + counts.skipped == 0:
        counts.passed = 1
    if not ok and counts.failed == 0:
        counts.failed = 1
    return counts


def run_unit(build: Path) -> Counts:
    junit = build / "ctest.xml"
    junit.unlink(missing_ok=True)
    jobs = str(os.cpu_count() or 2)
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--output-junit", str(junit), "-j", jobs]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not junit.exists():
        print(done.stdout)
        return Counts(failed=1)
    counts = Counts()
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        ok = case.get("status") == "run"
        counts += cmocka_counts(output, ok)
        if not ok:
            print(f"---- {case.get('name')}", *output.splitlines()[-LINES_SHOWN:], sep="\n")
    return counts


def run_cli(build: Path) -> Counts:
    command = [sys.executable, str(ROOT / "tests/cli/run.py"), "--build", str(build)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    *report, last = done.stdout.strip().split("\n") if done.stdout.strip() else [""]
    print("\n".join(report), end="\n" if report else "")
    found = re.fullmatch(r"(\d+) passed, (\d+) failed", last)
    return Counts(int(found[1]), int(found[2])) if found else Counts(failed=1)


def run_pytest(build: Path, folder: str, extra: list[str]) -> Counts:
    tests = ROOT / "tests" / folder
    if not any(tests.glob("test_*.py")):
        return Counts()
    junit = build / f"pytest-{folder}.xml"
    junit.unlink(missing_ok=True)
    env = {**os.environ, "TONNAGE_LIB": str(build / "libtonnage.so"), "TONNAGE_COMMAND": str(build / "tonnage")}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", f"--junitxml={junit}", str(tests), *extra]
    done = subprocess.run(command, env=env, cwd=ROOT, check=False)
    if not junit.exists():
        return Counts(failed=1)
    counts = Counts()
    for suite in ElementTree.parse(junit).getroot().iter("testsuite"):
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        counts += Counts(int(suite.get("tests", 0)) - bad - skipped, bad, skipped)
    if done.returncode and counts.failed == 0:  # stopped early, or nothing was collected
        counts.failed = 1
    return counts


def main() -> int:
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--counts", type=Path, default=os.environ.get("TONNAGE_COUNTS"))
    parser.add_argument("suites", nargs="+", choices=["unit", "cli", "python", "gpu"])
    options = parser.parse_args(arguments[:at])
    build, extra = (ROOT / options.build).resolve(), arguments[at + 1 :]
    total, lines = Counts(), []
    for suite in options.suites:
        start = time.monotonic()
        if suite == "unit":
            counts = run_unit(build)
        elif suite == "cli":
            counts = run_cli(build)
        else:
            counts = run_pytest(build, suite, extra)
        lines.append(f"{suite + ':':8}{counts}  ({time.monotonic() - start:.0f} s)")
        sys.stdout.flush()
        total += counts
    print("\n".join(lines))
    print(total)
    if options.counts:
        with open(options.counts, "a") as file:
            file.write(f"{total.passed} {total.failed} {total.skipped}\n")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
