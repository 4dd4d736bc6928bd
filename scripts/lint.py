"""Checks that need no run: include arrows, headers alone, exported symbols, texts, and the checkers that are installed.

    scripts/lint.py [--build DIR]

Prints one line for each finding, "FILE:LINE: what", and ends with status 1 when there is any.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYMBOLS = ROOT / "tests" / "data" / "symbols.txt"

# Which layers a layer may include besides itself: the table of ARCHITECTURE.md.
ARROWS = {
    "base": set(),
    "trace": {"base"},
    "snapshot": {"base", "trace"},
    "caching": {"base", "trace"},
    "place": {"base", "trace"},
    "plan": {"base", "trace", "caching", "place"},
    "explain": {"base", "trace", "caching"},
    "report": {"base", "trace", "snapshot", "caching", "place", "plan", "explain"},
}
# Libraries beyond libc, and who may know them.
LIBRARIES = {"sqlite3.h": {"trace"}, "jansson.h": {"plan", "report"}, "zlib.h": {"snapshot"}}
COMMAND_MAY = {"base", "report"}
LONGEST_FILE = 600
PUBLIC = "tonnage.h"  # one header by design, however long
# Traces of the machine something was written on.  The brackets keep this list from finding itself.
FORBIDDEN = [
    (re.compile(r"(?<![\w.$}~])/(?:wor[k]|roo[t]|hom[e]/\w+|opt/t[n])/"), "an absolute path of somebody's machine"),
    (re.compile(r"py[p]i\.org|pythonhoste[d]\.org|pytorc[h]\.org/whl|debia[n]\.org/debian"), "the host of a package registry"),
]
TEXT_SUFFIXES = {".c", ".h", ".cc", ".py", ".pyi", ".md", ".txt", ".toml", ".json", ".sh", ".1", ".csv", ".cmake", ".yml", ""}

Finding = str


def tracked(*suffixes: str) -> list[Path]:
    """Files of the repository, those not yet added included."""
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    paths = (ROOT / name for name in sorted(set(names)))
    return [path for path in paths if path.is_file() and (not suffixes or path.suffix in suffixes)]


def show(path: Path, line: int, what: str) -> Finding:
    return f"{path.relative_to(ROOT)}:{line}: {what}"


def may_include(layer: str, target: str) -> bool:
    """layer is a folder of src, or "tools"; target an include as written."""
    if "/" not in target:
        return target == "tonnage.h" or layer == "tools"
    head = target.split("/")[0]
    return head == layer or head in (COMMAND_MAY if layer == "tools" else ARROWS[layer])


def check_arrows() -> Iterator[Finding]:
    for path in tracked(".c", ".h", ".cc"):
        parts = path.relative_to(ROOT).parts
        layer = parts[1] if parts[0] == "src" and parts[1] in ARROWS else parts[0]
        if layer not in ARROWS and layer != "tools":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            quoted = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            angled = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
            if quoted and not may_include(layer, quoted[1]):
                yield show(path, number, f"{layer} may not include {quoted[1]}")
            if angled and angled[1] in LIBRARIES and layer not in LIBRARIES[angled[1]]:
                yield show(path, number, f"{layer} may not include <{angled[1]}>")


def check_headers() -> Iterator[Finding]:
    """Every header compiles alone, as C11 and as C++17."""
    headers = [path for path in tracked(".h") if path.relative_to(ROOT).parts[0] in ("include", "src", "tools")]
    flags = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", f"-I{ROOT / 'src'}", f"-I{ROOT / 'tools/tonnage'}"]
    languages = [("gcc", "c", "-std=c11"), ("g++", "c++", "-std=c++17")]

    def compile_one(job: tuple[Path, tuple[str, str, str]]) -> Finding | None:
        path, (compiler, language, standard) = job
        source = f'#include "{path}"\n'
        command = [compiler, standard, "-x", language, *flags, "-"]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return None
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
        return show(path, 1, f"does not compile alone with {standard}: {first.strip()}")

    with ThreadPoolExecutor(2) as pool:
        jobs = [(path, language) for path in headers for language in languages]
        yield from (finding for finding in pool.map(compile_one, jobs) if finding)


def exported_symbols(build: Path) -> list[str]:
    command = ["nm", "-D", "--defined-only", str(build / "libtonnage.so")]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return sorted(line.split()[-1].split("@")[0] for line in lines)


def check_symbols(build: Path) -> Iterator[Finding]:
    got, want = set(exported_symbols(build)), set(SYMBOLS.read_text().split()) if SYMBOLS.exists() else set()
    header = (ROOT / "include" / "tonnage.h").read_text()
    declared = set(re.findall(r"\b(tn_[a-z0-9_]+)\(", "".join(re.findall(r"TN_API [^;]*;", header))))
    for symbol in sorted(got - want):
        yield f"{symbol}: exported, but not in tests/data/symbols.txt (make golden records it)"
    for symbol in sorted(want - got):
        yield f"{symbol}: in tests/data/symbols.txt, but not exported"
    for symbol in sorted(got):
        if not symbol.startswith("tn_") or symbol.startswith("tn__"):
            yield f"{symbol}: exported, but not a public name tn_noun_verb"
    for symbol in sorted(declared - got):
        yield f"{symbol}: declared in tonnage.h, but not exported"


def check_texts() -> Iterator[Finding]:
    for path in tracked():
        if path.suffix not in TEXT_SUFFIXES or "corpus" in path.parts:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        lines = text.splitlines()
        if text and not text.endswith("\n"):
            yield show(path, len(lines), "no newline at the end")
        if path.suffix in (".c", ".h", ".cc", ".py") and path.name != PUBLIC and len(lines) > LONGEST_FILE:
            yield show(path, len(lines), f"{len(lines)} lines: split at {LONGEST_FILE}")
        for number, line in enumerate(lines, 1):
            for pattern, what in FORBIDDEN:
                if pattern.search(line):
                    yield show(path, number, what)
            if path.suffix in (".c", ".h", ".py") and line != line.rstrip():
                yield show(path, number, "space at the end of the line")


def tool(name: str) -> str | None:
    own = ROOT / ".venv" / "bin" / name
    return str(own) if own.exists() else shutil.which(name)


def run_tool(command: list[str]) -> Iterator[Finding]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        yield from (line for line in (done.stdout + done.stderr).splitlines() if line.strip())


def check_python() -> Iterator[Finding]:
    folders = [name for name in ("python", "tests", "scripts", "bench", "examples") if (ROOT / name).is_dir()]
    if ruff := tool("ruff"):
        yield from run_tool([ruff, "check", "-q", "--output-format=concise", *folders])
    if mypy := tool("mypy"):
        yield from run_tool([mypy, "--no-error-summary"])


def check_c(build: Path) -> Iterator[Finding]:
    sources = [str(path) for path in tracked(".c") if path.relative_to(ROOT).parts[0] in ("src", "tools")]
    if (clang_format := shutil.which("clang-format")) and sources:
        yield from run_tool([clang_format, "--dry-run", "-Werror", *sources])
    if (clang_tidy := shutil.which("clang-tidy")) and sources:
        yield from run_tool([clang_tidy, "-quiet", "-p", str(build), *sources])


def self_check() -> Iterator[Finding]:
    """A check that cannot fail is a defect: each is shown one thing that it must find."""
    if may_include("base", "trace/lives.h") or may_include("trace", "plan/graph.h") or not may_include("plan", "base/vec.h"):
        yield "lint.py: the include arrows do not hold"
    if not all(pattern.search(text) for (pattern, _), text in zip(FORBIDDEN, ["see /wor" + "k/x", "at py" + "pi.org"], strict=True)):
        yield "lint.py: forbidden words are not found"
    with tempfile.NamedTemporaryFile("w", suffix=".h") as file:
        file.write("size_t needs_stddef;\n")
        file.flush()
        if subprocess.run(["gcc", "-fsyntax-only", "-x", "c", file.name], capture_output=True, check=False).returncode == 0:
            yield "lint.py: a header that needs another one compiles alone"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    options = parser.parse_args()
    build = (ROOT / options.build).resolve()
    checks = {
        "self-check": self_check(),
        "include arrows": check_arrows(),
        "headers alone": check_headers(),
        "exported symbols": check_symbols(build),
        "texts": check_texts(),
        "Python": check_python(),
        "C": check_c(build),
    }
    count = 0
    for name, findings in checks.items():
        found = list(findings)
        count += len(found)
        for finding in found:
            print(finding)
        print(f"lint: {name}: {'ok' if not found else f'{len(found)} findings'}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
