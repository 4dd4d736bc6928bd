"""Everything that needs a GPU, within a time limit: `make bench-gpu`.

    python bench/gpu.py [--stages truth accuracy tradeoff] [--minutes 9] [--device h200] [--compile] [--only NAME ...]

Stages run in order and are skipped when the time left is too short; what is written stays. Results go to $OUT, else to bench/.
Exit status 3 where there is no GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import measure

HERE = Path(__file__).parent
STAGES = ("profile", "truth", "accuracy", "tradeoff")


def has_gpu() -> bool:
    """Asked in a process of its own: this one must not hold a context on the card while others are measured."""
    code = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def command_of(stage: str, args: argparse.Namespace) -> list[str]:
    only = ["--only", *args.only] if args.only else []
    if stage == "profile":
        return [sys.executable, "-m", "tonnage.profile", "--output", str(measure.OUT / "profile.json")]
    if stage == "truth":
        return [sys.executable, str(HERE / "groundtruth.py"), *only]
    if stage == "accuracy":
        return [sys.executable, str(HERE / "accuracy.py"), "--device", args.device, *only]
    return [sys.executable, str(HERE / "tradeoff.py"), *only, *(["--compile"] if args.compile else [])]


def run_stage(stage: str, args: argparse.Namespace, seconds_left: float) -> int:
    if seconds_left < 20:
        print(f"== {stage}: skipped, no time left", flush=True)
        return 1
    print(f"== {stage}", flush=True)
    start = time.monotonic()
    try:
        status = subprocess.run(command_of(stage, args), timeout=seconds_left, cwd=measure.ROOT, env=measure.environment()).returncode
    except subprocess.TimeoutExpired:
        status = 124
    print(f"== {stage}: exit status {status}, {time.monotonic() - start:.0f} s", flush=True)
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES[1:]))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--device", default="h200", help="the profile that predictions are made for")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    args = parser.parse_args()
    if not has_gpu():
        print("bench-gpu: skipped, no GPU that PyTorch can use", file=sys.stderr)
        return 3
    end = time.monotonic() + args.minutes * 60
    statuses = [run_stage(stage, args, end - time.monotonic()) for stage in args.stages]
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
