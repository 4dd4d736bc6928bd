"""Records anew what the tests compare with: look at the difference before committing it.

    scripts/golden.py [--build DIR] [man] [symbols] [unit] [cli]        all without arguments
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lint import SYMBOLS, exported_symbols  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
MAN = ROOT / "docs" / "man"


def output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def record_man(build: Path) -> None:
    tonnage = str(build / "tonnage")
    verbs = [verb["name"] for verb in json.loads(output(tonnage, "help", "--table"))["verbs"]]
    pages = {"tonnage.1": output(tonnage, "help", "--man")}
    pages.update({f"tonnage-{verb}.1": output(tonnage, "help", "--man", verb) for verb in verbs})
    MAN.mkdir(parents=True, exist_ok=True)
    for old in MAN.glob("*.1"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (MAN / name).write_text(text)


def record_symbols(build: Path) -> None:
    SYMBOLS.parent.mkdir(parents=True, exist_ok=True)
    SYMBOLS.write_text("".join(f"{symbol}\n" for symbol in exported_symbols(build)))


def record_cli(build: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "tests/cli/run.py"), "--build", str(build), "--record"], check=True)


def record_unit(build: Path) -> None:
    """Unit tests that compare with a recorded text write it when TONNAGE_GOLDEN is set."""
    command = ["ctest", "--test-dir", str(build), "-Q"]
    subprocess.run(command, env={**os.environ, "TONNAGE_GOLDEN": "1"}, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("what", nargs="*")
    options = parser.parse_args()
    build = (ROOT / options.build).resolve()
    for what in options.what or ["man", "symbols", "unit", "cli"]:
        {"cli": record_cli, "man": record_man, "symbols": record_symbols, "unit": record_unit}[what](build)
    return 0


if __name__ == "__main__":
    sys.exit(main())
