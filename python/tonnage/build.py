"""Builds a recipe's model, optimizer and batch under fake tensors, on the device that is asked for."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .errors import RecipeError
from .live import fake_batch
from .recipe import Training, foreign


def built(fake: FakeTensorMode, training: Training, where: torch.device) -> tuple[torch.nn.Module, Any, Any, Callable]:
    """(model, optimizer, batch, loss), all tensors fake and on `where`."""
    with foreign("the recipe's batch()"):
        batch = _batch(fake, training, where)
    with fake, RealNumbers(), plain_apply():
        with foreign("the recipe's model()"), where:
            model = training.model()
        if not isinstance(model, torch.nn.Module):
            raise RecipeError(f"the recipe's model() returned {type(model).__name__}, not a torch.nn.Module")
        if any(t.device.type != where.type for t in [*model.parameters(), *model.buffers()]):
            model = model.to(where)
        with foreign("the recipe's optimizer()"):
            optimizer = training.optimizer(model)
    loss = training.loss

    def their_loss(model: torch.nn.Module, piece: Any) -> Any:
        with foreign("the recipe's loss()"):
            return loss(model, piece)

    return model, optimizer, batch, their_loss


class RealNumbers(TorchDispatchMode):
    """Arithmetic on real numbers stays real, as when an optimizer checks a learning rate that the recipe's file holds as a tensor."""

    NEVER = (torch.ops.aten.lift_fresh.default, torch.ops.aten._to_copy.default)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if tensors and func not in self.NEVER and all(not isinstance(t, FakeTensor) and t.dim() == 0 for t in tensors):
            with _disable_current_modes():
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _batch(fake: FakeTensorMode, training: Training, where: torch.device) -> Any:
    """One batch's shapes.  Real data first, since reading it needs real numbers; a batch that only a card can hold is made up of fakes."""
    try:
        batch = training.batch()
    except Exception:
        if where.type == "cpu":
            raise
        with fake, where:
            batch = training.batch()
    return fake_batch(fake, batch, where)


@contextmanager
def plain_apply() -> Iterator[None]:
    """Module.to() and its kin for fake parameters: PyTorch swaps those in place, and refuses as long as anything has a weak reference to them."""
    original = torch.nn.Module._apply
    torch.nn.Module._apply = _replace
    try:
        yield
    finally:
        torch.nn.Module._apply = original


def _replace(self: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> torch.nn.Module:
    done: dict[int, torch.nn.Parameter] = {}
    modules = self.modules() if recurse else [self]
    for module in modules:
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in done:  # tied weights stay tied
                with torch.no_grad():
                    converted = fn(parameter)
                same = converted is parameter
                done[id(parameter)] = parameter if same else torch.nn.Parameter(converted, parameter.requires_grad)
            module._parameters[name] = done[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = fn(buffer)
    return self

