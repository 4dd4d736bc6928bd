"""Pictures to train on: 1,797 handwritten digits of 8 x 8 pixels, from the data file that scikit-learn ships."""

from __future__ import annotations

import gzip
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

CLASSES = 10


@lru_cache(maxsize=1)
def pictures() -> list[tuple[list[float], int]]:
    """(64 pixels in -1 ... 1, digit) for each picture.  Reads the file only: importing scikit-learn would take seconds."""
    spec = find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the pictures come with scikit-learn: pip install scikit-learn")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as lines:
        rows = [[int(float(x)) for x in line.split(",")] for line in lines]
    return [([x / 8 - 1 for x in row[:-1]], row[-1]) for row in rows]
