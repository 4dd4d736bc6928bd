"""Text to train on that every machine has: the sources of Python's standard library, as bytes."""

from __future__ import annotations

import random
import sysconfig
from functools import lru_cache
from pathlib import Path

BYTES = 256  # token ids of the text; a model may use ids from here on for its own marks


@lru_cache(maxsize=1)
def text() -> bytes:
    """About 8 MB: the modules at the top of the standard library, in order of name."""
    return b"".join(path.read_bytes() for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))


def windows(count: int, length: int, rng: random.Random) -> list[list[int]]:
    """`count` pieces of `length` bytes from random places."""
    source = text()
    starts = [rng.randrange(len(source) - length) for _ in range(count)]
    return [list(source[start : start + length]) for start in starts]
