"""The arguments of an op as the JSON of docs/formats.md."""
from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import torch

from .signature import dtype_name


class Unwritable(Exception):
    """An argument that JSON cannot say (a generator, an object): the op is recorded without its arguments."""


def encode(args: tuple, kwargs: dict[str, Any], values: Iterator[int], scratch: tuple[int, ...], device: str) -> str:
    """`values` gives the value of each tensor in the order of the arguments; positions in `scratch` are copies that the op may overwrite.

    `device` is the text for whatever device the tensors are on.
    """

    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return {"v": next(values)}
        if x is None or isinstance(x, (bool, int, str)):
            return x
        if isinstance(x, float):
            return x if math.isfinite(x) else {"float": "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"}
        if isinstance(x, (list, tuple)):
            return [one(y) for y in x]
        if isinstance(x, torch.dtype):
            return {"dtype": dtype_name(x)}
        if isinstance(x, torch.device):
            return {"device": device if x.type == device.partition(":")[0] else str(x)}
        if isinstance(x, torch.layout):
            return {"layout": str(x).removeprefix("torch.")}
        if isinstance(x, torch.memory_format):
            return {"memory_format": str(x).removeprefix("torch.")}
        if isinstance(x, complex):
            return {"complex": [x.real, x.imag]}
        if isinstance(x, torch.SymInt):
            return int(x)
        raise Unwritable(type(x).__name__)

    positional = []
    for i, a in enumerate(args):
        x = one(a)
        positional.append({"scratch": x["v"]} if i in scratch else x)
    return json.dumps({"args": positional, "kwargs": {k: one(v) for k, v in kwargs.items()}}, separators=(",", ":"))
