"""Timing ops by themselves: with numbers that no kernel refuses."""

import pytest
import torch

from tonnage import optimes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_floats_are_probabilities(dtype):
    """binary_cross_entropy and bernoulli assert on the card that they are; that ends the process, and cannot be caught."""
    x = optimes._tensor(f"{str(dtype).removeprefix('torch.')}[64,64]/1,64+0", torch.device("cpu"))
    assert x.stride() == (1, 64) and x.dtype is dtype
    assert 0 <= x.min() < x.max() <= 1


def test_integers_are_valid_indices():
    assert optimes._tensor("int64[5]", torch.device("cpu")).eq(0).all()
