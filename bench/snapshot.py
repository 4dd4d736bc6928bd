"""How fast a memory snapshot is explained, and in how much memory: `tonnage explain --json` against pickle.load alone, as ratios inside one run.
The reader is measured by itself, too.

    python bench/snapshot.py [--entries N] [--gb X] [--seed N]      into bench/snapshot.csv (or $OUT)

The limit, worked out before measuring. A million entries are 90 MB and 28 million opcodes. Every byte must be read once (from the page cache
5 to 10 GB/s: 10 to 20 ms) and the texts hashed (1 to 2 GB/s, but only a tenth of the file is text: 5 ms); every opcode costs a dispatch and a
push of 16 bytes (at least 2 ns: 60 ms); and 56 MB of records are written into fresh pages (10 to 20 ms for the page faults). So about 0.1 s on
a 3 GHz core, 0.9 GB/s; the reader needs about twice that, pickle.load twenty times. Memory cannot be less than the records, 56 bytes for each
entry of about 90 in the file, plus the memo and the list of containers, 8 bytes for each thing that the file may come back to.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
import synthetic

BYTES_PER_ENTRY = 92.7  # of synthetic snapshots
TIME_RATIO, MEMORY_RATIO = 8.0, 2.0  # what is promised: at least so much faster than pickle.load, at most so much of the file's size

# Each in a process of its own, so that its peak memory is its own. What the process had before is taken off.
CHILD = """
import ctypes, json, os, pickle, re, sys, time
how, path = sys.argv[1:]
# Not ru_maxrss, which a child process inherits.
peak = lambda: int(re.search("VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
library = ctypes.CDLL(how) if how != "pickle" else None
handle, entries = ctypes.c_void_p(), ctypes.c_size_t()
before, start = peak(), time.perf_counter()
if library is None:
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    seconds = time.perf_counter() - start
    count = sum(map(len, snapshot["device_traces"]))
else:
    if library.tn_snapshot_load(os.fsencode(path), ctypes.byref(handle), None):
        sys.exit("the reader refused the file")
    seconds = time.perf_counter() - start
    library.tn_trace_table(handle, 15, ctypes.byref(entries))
    count = entries.value
print(json.dumps({"seconds": seconds, "peak_bytes": peak() - before, "entries": count}), flush=True)
os._exit(0)
"""


def library() -> str:
    from tonnage._lib import library_path

    return str(library_path())


def once(how: str, path: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", CHILD, how, str(path)], env=measure.environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"{how} failed")
    return json.loads(done.stdout)


# The whole command, from its start to its end, started by a small process: a program inherits the peak of the one that starts it.
COMMAND = """
import json, os, subprocess, sys, time
start = time.perf_counter()
with subprocess.Popen([sys.argv[1], "explain", sys.argv[2], "--json"], stdout=subprocess.DEVNULL) as process:
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
if process.returncode:
    sys.exit(f"explain ended with status {process.returncode}")
print(json.dumps({"seconds": time.perf_counter() - start, "peak_bytes": used.ru_maxrss * 1024}))
"""


def explained_once(path: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", COMMAND, str(Path(library()).with_name("tonnage")), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def compare(path: Path, repeats: int) -> dict[str, Any]:
    """Turn by turn, so that both meet the same machine; the ratio is of the medians."""
    ours, theirs, explained = [], [], []
    for _ in range(repeats):
        theirs.append(once("pickle", path))
        ours.append(once(library(), path))
        explained.append(explained_once(path))
    if {run["entries"] for run in ours + theirs} != {ours[0]["entries"]}:
        raise RuntimeError("the reader and pickle.load find another number of entries")
    size = path.stat().st_size
    ours_s, theirs_s = (statistics.median(run["seconds"] for run in runs) for runs in (ours, theirs))
    explain_s, explain_bytes = statistics.median(run["seconds"] for run in explained), max(run["peak_bytes"] for run in explained)
    ours_bytes, theirs_bytes = (max(run["peak_bytes"] for run in runs) for runs in (ours, theirs))
    return {
        "entries": ours[0]["entries"],
        "file_mb": f"{size / 1e6:.1f}",
        "explain_s": f"{explain_s:.3f}",
        "explain_times_faster": f"{theirs_s / explain_s:.1f}",
        "explain_peak_of_file": f"{explain_bytes / size:.2f}",
        "reader_s": f"{ours_s:.3f}",
        "pickle_s": f"{theirs_s:.3f}",
        "times_faster": f"{theirs_s / ours_s:.1f}",
        "reader_mb_per_s": f"{size / 1e6 / ours_s:.0f}",
        "reader_peak_mb": f"{ours_bytes / 1e6:.1f}",
        "pickle_peak_mb": f"{theirs_bytes / 1e6:.1f}",
        "reader_peak_of_file": f"{ours_bytes / size:.2f}",
    }


def measured(entries: int, seed: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        print(f"snapshot: writing {entries:,} entries", file=sys.stderr, flush=True)
        synthetic.write(str(path), entries, seed)
        return compare(path, repeats)  # what has just been written is in the page cache


def run(counts: list[int], seed: int = 1, repeats: int = 5) -> int:
    """Writes a row for each size; the number of those that break a promise."""
    rows, broken = [], 0
    for count in counts:
        row = measured(count, seed, repeats)
        rows.append(row)
        kept = float(row["explain_times_faster"]) >= TIME_RATIO and float(row["explain_peak_of_file"]) <= MEMORY_RATIO
        broken += not kept
        print(
            f"snapshot of {row['file_mb']} MB: explained in {row['explain_s']} s, {row['explain_times_faster']} times faster than pickle.load alone"
            f" ({row['pickle_s']} s), peak {row['explain_peak_of_file']} of the file; read in {row['reader_s']} s, {row['times_faster']} times faster,"
            f" peak {row['reader_peak_of_file']}{'' if kept else ' -- BELOW WHAT IS PROMISED'}",
            flush=True,
        )
    measure.write_csv(measure.OUT / "snapshot.csv", rows)
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--gb", type=float, help="size of the file instead, in GB; pickle.load needs about six times as much memory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    count = int(args.gb * 1e9 / BYTES_PER_ENTRY) if args.gb else args.entries
    return 1 if run([count], args.seed, args.repeats) else 0


if __name__ == "__main__":
    sys.exit(main())
