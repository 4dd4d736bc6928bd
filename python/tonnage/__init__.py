"""Tonnage: GPU memory for PyTorch training: known, predicted, planned."""
from __future__ import annotations

from .recipe import Training

__all__ = ["Training"]
