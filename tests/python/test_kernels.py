"""What kernels allocate beside their outputs, against sizes read from the allocator's history on an H200 (torch 2.11, cuDNN 9.19)."""

import pytest
import torch

from tonnage import kernels


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def convolution(x, w, stride):
    side = x.shape[2] // stride
    out = meta(x.shape[0], w.shape[0], side, side)
    return kernels.steps("convolution", (x, w, None, [stride, stride]), out)


@pytest.mark.parametrize(
    ("channels", "out", "side", "kernel", "stride", "seen"),
    [
        (3, 64, 224, 7, 2, 244_093_712),
        (64, 64, 56, 3, 1, 102_908_051),
        (128, 128, 56, 3, 2, 129_040_531),
        (256, 512, 56, 1, 2, 206_045_200),
        (64, 256, 56, 1, 1, 400),
    ],
)
def test_convolution_workspace(channels, out, side, kernel, stride, seen):
    """cuDNN copies a channels-first convolution's operands; within 512 bytes of what was seen."""
    size = convolution(meta(64, channels, side, side), meta(out, channels, kernel, kernel), stride)[1][1]
    assert 0 <= size - seen <= 512


@pytest.mark.parametrize(
    ("channels", "out", "side", "kernel", "stride", "data", "weight"),
    [
        (512, 512, 7, 3, 1, 22_282_256, 30_933_743),
        (256, 1024, 14, 1, 1, 400, 67_108_864),
        (64, 64, 56, 1, 1, 400, 1_048_576),
        (256, 512, 56, 1, 2, 308_281_491, 316_670_607),
    ],
)
def test_convolution_backward_workspaces(channels, out, side, kernel, stride, data, weight):
    """Never less than seen, and at most 9 MB more: the extra of the weight gradient is cuDNN's own choice."""
    x, w = meta(64, channels, side, side), meta(out, channels, kernel, kernel)
    grad = meta(64, out, side // stride, side // stride)
    first, one, second, two = kernels.steps("convolution_backward", (grad, x, w, None, [stride, stride]), (x, w, None))
    assert (first, second) == (0, 1)
    assert 0 <= one[1] - data <= 512
    assert 0 <= two[1] - weight <= 9_000_000


def test_cudnn_attention_backward_workspace():
    """8 x 16 heads x 1024 x 128: 67,633,408 bytes were seen."""
    q = meta(8, 16, 1024, 128, dtype=torch.bfloat16)
    *_, last = kernels.steps("_scaled_dot_product_cudnn_attention_backward", (q, q), (q, q, q))
    assert last == ("temp", 67_633_408)


def test_dropout_makes_its_mask_first():
    assert kernels.steps("native_dropout", (meta(4), 0.1, True), (meta(4), meta(4))) == [1, 0]


def test_others_make_their_outputs_in_order():
    assert kernels.steps("addmm", (), meta(4)) == []
