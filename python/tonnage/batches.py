"""Batches: pytrees of tensors that share dimension 0."""
from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from .errors import Error


def leaves(batch: Any) -> list[torch.Tensor]:
    """The tensors of a batch, in the order that "input:K" counts them."""
    return [x for x in tree_flatten(batch)[0] if isinstance(x, torch.Tensor)]


def size(batch: Any) -> int:
    """The size of the common dimension 0; 0 when there is none."""
    sizes = {t.shape[0] if t.dim() else 0 for t in leaves(batch)}
    return sizes.pop() if len(sizes) == 1 else 0


def require_size(batch: Any) -> int:
    """As size(); Error when the tensors do not share dimension 0."""
    n = size(batch)
    if not n:
        shapes = " ".join(str(list(t.shape)) for t in leaves(batch)) or "no tensors"
        raise Error(f"the batch cannot be cut into micro-batches: its tensors do not share dimension 0 ({shapes})")
    return n


def cut(batch: Any, start: int, stop: int) -> Any:
    """Views of rows start to stop of every tensor."""
    return tree_map_only(torch.Tensor, lambda t: t[start:stop], batch)
