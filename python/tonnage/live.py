"""Fake copies of objects that are in use: same shapes, same optimizer state, and nothing of the originals is touched."""
from __future__ import annotations

import copy
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from .errors import CaptureError


class FakeCopies(TorchFunctionMode):
    """copy.deepcopy() of a tensor gives a fake one.  PyTorch's FakeCopyMode does too, but clones parameters, which parts those that share a storage."""

    def __init__(self, fake: FakeTensorMode):
        super().__init__()
        self.fake = fake

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is torch._C.TensorBase.clone:  # a Parameter copies itself so
            return self.fake.from_tensor(args[0], static_shapes=True)
        if func is torch.Tensor.__deepcopy__:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = self.fake.from_tensor(tensor, static_shapes=True)
            return memo[id(tensor)]
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def fake_copy(fake: FakeTensorMode, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Copies whose tensors are fake.  One deepcopy of both, so that the optimizer's parameters are the model's."""
    # A plan's or a user's own hooks on parameters hold the originals; deepcopy of a tensor leaves them behind, which is what we want.
    try:
        with FakeCopies(fake), torch.no_grad():
            model, optimizer = copy.deepcopy((model, optimizer))
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(f"the model or the optimizer cannot be copied ({type(error).__name__}: {error}); use a recipe file") from None
    for parameter in model.parameters():
        parameter.grad = None
    return model, optimizer


def fake_batch(fake: FakeTensorMode, batch: Any, device: torch.device) -> Any:
    """The batch's shapes on a device, whatever device it is on."""

    def one(t: torch.Tensor) -> torch.Tensor:
        if isinstance(t, FakeTensor) and t.device.type == device.type:
            return t
        with fake:
            made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
        return made.requires_grad_(t.requires_grad)

    return tree_map_only(torch.Tensor, one, batch)
