"""Tonnage: GPU memory for PyTorch training: known, predicted, planned.

    step = tonnage.fit(model, optimizer, loss, example_batch, budget="12GiB")

Importing the package does not import torch.
"""
from __future__ import annotations

from typing import Any

from .errors import CaptureError, Error, LibraryError, RecipeError
from .recipe import Training

__version__ = "0.1.0"
__all__ = ["CaptureError", "Error", "LibraryError", "RecipeError", "Training", "fit"]


def __getattr__(name: str) -> Any:
    if name == "fit":
        from .fitting import fit

        return fit
    raise AttributeError(f"module 'tonnage' has no attribute {name!r}")
