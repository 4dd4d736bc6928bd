"""The HTML report of long histories: how large, how soon painted, how long a frame takes while zooming.

    python bench/html.py [--entries 1000000] [--varied] [--keep PAGE]

Prints JSON. Needs Chromium (CHROMIUM, or on the path), drawing in software: a person's browser is quicker.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python"))

import synthetic_history  # noqa: E402
from browser import Browser, find  # noqa: E402
from tonnage import _lib  # noqa: E402

FRAMES = 150
ZOOM = f"""(async () => {{
  const draw = [], frame = [], next = () => new Promise(requestAnimationFrame);
  let last = 0;
  tonnage.view.all();
  for (let i = 0; i < {FRAMES}; i++) {{
    const now = await next();
    if (last) frame.push(now - last);
    last = now;
    tonnage.view.zoom(i < {FRAMES // 2} ? 0.9 : 1 / 0.9, tonnage.view.place(tonnage.device.entries * 0.37));
    const before = performance.now();
    tonnage.chart.draw();
    tonnage.overview.draw();
    draw.push(performance.now() - before);
  }}
  return [draw, frame];
}})()"""
MOMENTS = """(() => Array.from({length: 30}, (_, i) => {
  tonnage.moment = Math.floor(tonnage.device.entries * ((i * 7919) % 1000) / 1000);
  const before = performance.now();
  tonnage.momentShow();
  tonnage.map.draw();
  return performance.now() - before;
}))()"""


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median_ms": round(statistics.median(ordered), 1), "p95_ms": round(ordered[int(len(ordered) * 0.95)], 1), "most_ms": round(ordered[-1], 1)}


def write(entries: int, varied: bool, page: Path) -> dict[str, Any]:
    pickled = page.with_suffix(".pickle")
    with open(pickled, "wb") as file:
        pickle.dump(synthetic_history.training(entries, varied=varied), file, protocol=4)
    begin = time.perf_counter()
    trace = _lib.Trace.load_snapshot(pickled)
    read = time.perf_counter()
    _lib.report_html_save(trace, page, name=f"{entries} entries")
    wrote = time.perf_counter()
    return {"snapshot_bytes": pickled.stat().st_size, "page_bytes": page.stat().st_size, "load_s": round(read - begin, 2), "write_s": round(wrote - read, 2)}


def show(page: Path) -> dict[str, Any]:
    with Browser() as browser:
        browser.open(page)
        browser.settle()
        paint = browser.run("Object.fromEntries(performance.getEntriesByType('paint').map(one => [one.name, one.startTime]))")
        marks = browser.run("Object.fromEntries(performance.getEntriesByType('mark').map(one => [one.name, one.startTime]))")
        draw, frame = browser.run(ZOOM)
        moments = browser.run(MOMENTS)
        assert browser.console == [], browser.console
        return {
            "first_paint_ms": round(paint["first-contentful-paint"]),
            "areas_ms": round(marks["areas drawn"]),
            "whole_ms": round(marks["history read"]),
            "zoom_draw": spread(draw),
            "zoom_frame": spread(frame),
            "moment": spread(moments),
            "heap_bytes": browser.run("performance.memory.usedJSHeapSize"),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--varied", action="store_true", help="every step of another size: nothing repeats")
    parser.add_argument("--keep", metavar="PAGE", help="leave the page there")
    args = parser.parse_args()
    if not find():
        print("html: no Chromium here (set CHROMIUM)", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        page = Path(args.keep or os.path.join(folder, "page.html"))
        result = {"entries": args.entries, "varied": args.varied, **write(args.entries, args.varied, page), **show(page)}
        page.with_suffix(".pickle").unlink()
    print(json.dumps({**result, "machine": {"system": platform.platform(), "cores": os.cpu_count()}}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
