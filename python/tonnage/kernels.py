"""What CUDA kernels allocate that their schema does not show: the order of their outputs, and memory of their own while they run.

Read off allocator histories of PyTorch 2.11 with cuDNN 9.19 on an H200; the formulas are in bytes, and each names what it was read from.
A kernel's allocations are a list of steps: an output by position, ("out", bytes) for the one output in memory larger than it needs, or
("temp", bytes) for memory that is given back when the kernel has been started.
cuBLAS's own workspaces, which stay, are in recorder.py.
"""
from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

Step = int | tuple[str, int]
SMALL = 512

# An extra for cuDNN's weight gradient beyond the copies of its operands: 2.1 to 8.7 MB were seen, largest for wide 3 x 3 kernels.
WEIGHT_GRADIENT_EXTRA = 8_651_503
# A 1 x 1 convolution's weight gradient is one product per image, added up, when those partial sums take no more than this.
PARTIAL_SUMS_MAX = 64 << 20


def _bytes(t: torch.Tensor) -> int:
    return t.numel() * t.element_size()


def _transposes(x: torch.Tensor, w: torch.Tensor, stride: Any) -> bool:
    """Does cuDNN copy a channels-first convolution's operands to channels-last?  A 1 x 1 one over whole vectors is a plain product."""
    if x.dim() != 4 or not x.is_contiguous() or (x.shape[1] > 1 and x.is_contiguous(memory_format=torch.channels_last)):
        return False
    if x.dtype == torch.float32 and not torch.backends.cudnn.allow_tf32:
        return False
    return prod(w.shape[2:]) > 1 or any(s > 1 for s in stride) or prod(x.shape[2:]) % 4 != 0


def _convolution(args: tuple, out: Any) -> list[Step]:
    x, w, stride = args[0], args[1], args[3]
    if not _transposes(x, w, stride):
        return [0, ("temp", SMALL)]
    kernel = prod(w.shape[2:]) > 1
    return [0, ("temp", _bytes(x) + _bytes(w) + (_bytes(out) if kernel else 0) + 147)]


def _convolution_backward(args: tuple, out: Any) -> list[Step]:
    grad, x, w, stride = args[0], args[1], args[2], args[4]
    kernel = prod(w.shape[2:]) > 1
    both = _bytes(grad) + _bytes(x)
    partial = x.shape[0] * _bytes(w)
    if _transposes(x, w, stride):
        data = both + 147 + (_bytes(w) if kernel else 0)
        weight = both + (_bytes(w) if kernel else 0) + WEIGHT_GRADIENT_EXTRA
    else:
        data = SMALL
        weight = partial if partial <= PARTIAL_SUMS_MAX else both + WEIGHT_GRADIENT_EXTRA
    steps: list[Step] = []
    if out[0] is not None:
        steps += [0, ("temp", data)]
    if out[1] is not None:
        steps += [1, ("temp", weight)]
    return steps


def _cudnn_attention(args: tuple, out: Any) -> list[Step]:
    """Outputs: result, log-sum-exp, ..., seed and offset; the last two come first."""
    tensors = [i for i, t in enumerate(out) if isinstance(t, torch.Tensor)]
    small = [i for i in tensors if out[i].dim() == 0]
    return [*small, *(i for i in tensors if i not in small), ("temp", 256)]


def _cudnn_attention_backward(args: tuple, out: Any) -> list[Step]:
    """The gradient of q in fp32, and a sum for each row."""
    q = args[1]
    rows = prod(q.shape[:-1])
    return [0, 1, 2, ("temp", rows * q.shape[-1] * 4 + rows * 4 + 256)]


def _dropout(args: tuple, out: Any) -> list[Step]:
    return [1, 0]  # the mask is made first


def _embedding_backward(args: tuple, out: Any) -> list[Step]:
    """Sorts the indices: two copies of them, their order, and what the sort needs."""
    indices = _bytes(args[1])
    return [("temp", indices), ("temp", indices), ("temp", indices), ("temp", indices), 0]


def _mse_loss(args: tuple, out: Any) -> list[Step]:
    """With a reduction, the result is made as large as without, then shrunk, which gives no memory back; and there is a copy to reduce."""
    return [("out", _bytes(args[0])), ("temp", _bytes(args[0]))] if len(args) < 3 or args[2] else [0]


KERNELS: dict[str, Callable[[tuple, Any], list[Step]]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_cudnn_attention": _cudnn_attention,
    "_scaled_dot_product_cudnn_attention_backward": _cudnn_attention_backward,
    "native_dropout": _dropout,
    "embedding_dense_backward": _embedding_backward,
    "mse_loss": _mse_loss,
}


def steps(base: str, args: tuple, out: Any) -> list[Step]:
    """The allocations of one run of the op `base` (as "convolution"), in order; empty when they are its outputs in order."""
    kernel = KERNELS.get(base)
    return kernel(args, out) if kernel else []
