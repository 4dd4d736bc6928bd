"""Progress of a training run: one line that is rewritten on a terminal, one line every tenth of the way elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO


class Progress:
    """`update(loss)` after every step; `close()` leaves the line behind. Writes to stderr, nothing when quiet."""

    def __init__(self, total: int, stream: TextIO | None = None, quiet: bool = False) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.total, self.done, self.quiet = total, 0, quiet
        self.terminal = self.stream.isatty()
        self.last, self.each = time.perf_counter(), 0.0
        self.shown = 0.0

    def update(self, loss: float) -> None:
        self.done += 1
        if self.quiet:
            return
        now = time.perf_counter()
        took, self.last = now - self.last, now
        self.each = took if self.done <= 3 else 0.8 * self.each + 0.2 * took  # the first ones warm up
        if self.terminal:
            if now - self.shown > 0.1 or self.done == self.total:
                self.shown = now
                width = shutil.get_terminal_size().columns
                self.stream.write("\r" + self.line(loss, width)[: width - 1] + "\x1b[K")
                self.stream.flush()
        elif self.done == self.total or self.done == 1 or self.done * 10 // self.total > (self.done - 1) * 10 // self.total:
            self.stream.write(self.line(loss) + "\n")
            self.stream.flush()

    def line(self, loss: float, width: int = 0) -> str:
        """ "step 7/20  loss 3.2114  812 ms/step  10 s left"; with room for it, a bar."""
        text = f"step {self.done}/{self.total}  loss {loss:.4f}  {self.each * 1e3:.0f} ms/step"
        if 1 < self.done < self.total:  # the first step is no measure: memory is fresh, the optimizer makes its state
            text += f"  {self.each * (self.total - self.done):.0f} s left"
        cells = min(30, width - len(text) - 4)
        if cells >= 10:
            filled = cells * self.done // self.total
            text += f"  [{'=' * filled}{' ' * (cells - filled)}]"
        return text

    def close(self) -> None:
        if self.terminal and not self.quiet and self.done:
            self.stream.write("\n")
            self.stream.flush()
