"""The text that a plan knows a saved tensor by.

Capture writes it and the real run recomputes it for every tensor that autograd saves, so it must be cheap and come from the tensor alone.
Strides are left out: a plan made for one layout of a batch serves another.
"""
from __future__ import annotations

import torch

_DTYPES: dict[torch.dtype, str] = {}
# Below the dispatcher PyTorch takes another way to the same tensor when a dispatch mode watches: reshape() of a strided tensor is
# `_reshape_alias` in an ordinary run and `view` under capture.
_SAME = {"ReshapeAliasBackward0": "ViewBackward0"}


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.bfloat16` -> "bfloat16"."""
    name = _DTYPES.get(dtype)
    if name is None:
        name = _DTYPES[dtype] = str(dtype).removeprefix("torch.")
    return name


def signature(tensor: torch.Tensor) -> str:
    """ "float32[8,512,1024] AddmmBackward0": dtype, shape, and what made the tensor; "leaf" for a leaf that takes a gradient, "-" for neither."""
    node = tensor.grad_fn
    if node is not None:
        name = node.name()
        name = _SAME.get(name, name)
    else:
        name = "leaf" if tensor.requires_grad else "-"
    return f"{dtype_name(tensor.dtype)}[{','.join(map(str, tensor.shape))}] {name}"
