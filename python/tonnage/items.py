"""Answers to .item() under capture, where there are no numbers but those that were there before."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


def number(t: torch.Tensor) -> Any:
    """.item() of a real tensor, one that was there before the capture."""
    with _disable_current_modes():
        return t.item()


def step_count(t: torch.Tensor) -> Any:
    """An optimizer asks how many steps there were: any number but zero keeps the same ops running."""
    constant = getattr(t, "constant", None)
    if constant is not None:
        return number(constant)
    return 1.0 if t.is_floating_point() else 1
