"""Capture: the trace of a training step, without data and without the device.

PyTorch's FakeTensorMode runs the user's own step with shapes only, on tensors that claim to be on the device; a dispatch mode records it.
Two steps: the optimizer's state is born in the first, the second is the steady state.
"""
from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from . import batches, live
from . import tables as T
from .build import built
from .devices import Device
from .errors import CaptureError
from .fake import CaptureMode
from .recipe import Training
from .recorder import Recorder
from .saved import SavedTensors
from .scopes import Scopes

Hooks = tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]
# Called when a pass begins, with the model and the pass's batch as they are under capture; gives that pass's saved-tensor hooks.
MakeHooks = Callable[[torch.nn.Module, Any], Hooks]


def capture_tables(
    training: Training | tuple,
    device: Device,
    *,
    micro_batch: int | None = None,
    passes: int = 1,
    precision: str = "as is",
    hooks: MakeHooks | None = None,
    steps: int = 2,
) -> T.Tables:
    """The trace of `steps` training steps as records.

    training: a recipe's Training, or (model, optimizer, loss, batch) as they are in this process, which stay as they are.
    micro_batch, passes: cut the batch into pieces of that many rows and capture that many of them in each step (gradients are born in
    the first pass and accumulated in the second, so two say all); default: the whole batch in one pass.
    precision: "as is", or "bf16" for autocast around the loss function.
    hooks: saved-tensor hooks to use in place of capture's own notes, such as those of a plan; see MakeHooks.
    Raises CaptureError for what cannot be captured, RecipeError for an exception of the recipe's own.
    """
    if precision not in ("as is", "bf16"):
        raise CaptureError(f"unknown precision {precision!r}; known: as is, bf16")
    where = place(training, device)
    fake = CaptureMode()
    with undisturbed():
        if isinstance(training, Training):
            model, optimizer, batch, loss = built(fake, training, where)
        else:
            live_model, live_optimizer, loss, live_batch = training
            refuse_compiled(live_model)  # a copy forgets that it was
            model, optimizer = live.fake_copy(fake, live_model, live_optimizer)
            batch = live.fake_batch(fake, live_batch, where)
        run = Run(fake, where, device, model, optimizer, loss, batch)
        run.steps(steps, micro_batch, passes, precision, hooks)
        return run.finish(micro_batch, passes, precision)


def place(training: Training | tuple, device: Device) -> torch.device:
    """The torch device that the step's tensors are said to be on: for live objects, where they are."""
    if isinstance(training, Training):
        index = torch.cuda.current_device() if device.type == "cuda" and torch.cuda.is_available() else 0
        return torch.device(device.type, index) if device.type == "cuda" else torch.device(device.type)
    found = {t.device for t in [*training[0].parameters(), *training[0].buffers()]}
    where = min(found, key=lambda d: d.type != device.type, default=torch.device(device.type))
    if where.type != device.type:
        raise CaptureError(f"the model is on {where.type}: a capture for {device.name} needs a recipe file, or the model on that device")
    return where


@contextmanager
def undisturbed() -> Iterator[None]:
    """Random state as it was; no garbage collection in between, which would end lives at random moments; no warnings about fakes."""
    python, torch_state = random.getstate(), torch.get_rng_state()
    enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python)
        torch.set_rng_state(torch_state)
        if enabled:
            gc.enable()


class Run:
    """One capture: the fake objects and what records them."""

    def __init__(self, fake: FakeTensorMode, where: torch.device, device: Device, model: torch.nn.Module, optimizer: Any, loss: Any, batch: Any):
        refuse_compiled(model)
        self.fake, self.where, self.device = fake, where, device
        self.model, self.optimizer, self.loss, self.batch = model, optimizer, loss, batch
        self.tables = T.Tables()
        self.scopes = Scopes(model, self.tables)
        self.scopes.on_root = self.on_root
        self.recorder = Recorder(fake, where, self.tables, self.scopes, device.workspace_bytes("cublas"), device.workspace_bytes("cublaslt"),
                                 int(device.profile.get("multiprocessors", 0)))  # fmt: skip
        self.saved = SavedTensors(self.recorder)
        self.names = {id(p): n for n, p in model.named_parameters()}
        self.set_up()

    # ---- what is there before the first step

    def set_up(self) -> None:
        for name, parameter in self.model.named_parameters():
            self.persistent(parameter, T.PARAMETER, name, self.scopes.owner.get(id(parameter), T.NONE))
        for path, module in self.model.named_modules():
            for name, buffer in module.named_buffers(recurse=False):
                self.persistent(buffer, T.PARAMETER, f"{path}.{name}" if path else name, self.scopes.index.get(id(module), T.NONE))
        self.name_state()
        for k, leaf in enumerate(batches.leaves(self.batch)):
            self.persistent(leaf, T.INPUT, f"input:{k}", T.NONE)

    def persistent(self, tensor: torch.Tensor, category: int, name: str, module: int) -> None:
        if not isinstance(tensor, FakeTensor):
            tensor = self.recorder.stand_in(tensor)
        block = self.recorder.block_of(tensor)
        if block.name == 0:
            block.category, block.name, block.module = category, self.tables.strings(name), module

    def sources(self, piece: Any) -> None:
        for name, parameter in self.model.named_parameters():
            self.recorder.source(parameter, f"parameter:{name}")
        for name, buffer in self.model.named_buffers():
            self.recorder.source(buffer, f"buffer:{name}")
        for k, leaf in enumerate(batches.leaves(piece)):
            self.recorder.source(leaf, f"input:{k}")

    # ---- the steps

    def steps(self, steps: int, micro_batch: int | None, passes: int, precision: str, hooks: MakeHooks | None) -> None:
        rows = batches.require_size(self.batch) if micro_batch else 0
        if micro_batch and micro_batch * passes > rows:
            raise CaptureError(f"{passes} micro-batches of {micro_batch} do not fit in a batch of {rows}")
        r = self.recorder
        with ExitStack() as stack:
            stack.enter_context(foreach_for_fakes())
            stack.enter_context(self.fake)
            pieces = [batches.cut(self.batch, k * micro_batch, (k + 1) * micro_batch) if micro_batch else self.batch for k in range(passes)]
            r.sole_owner.measure()
            stack.enter_context(self.scopes)
            stack.enter_context(r)
            for step in range(steps):
                r.step = step
                r.last_step = step == steps - 1
                r.mark(f"step:{step}")
                value = None
                for k, piece in enumerate(pieces):
                    value = None  # as in a loop that keeps the last loss, and no longer than that
                    value = self.one_pass(k, piece, precision, hooks)
                self.enter("optimizer")
                self.update()
                self.name_state()
                self.optimizer.zero_grad(set_to_none=True)
                del value
            r.mark("end")
            self.tables.event = [*r.setup, *r.events]
            r.events = []

    def one_pass(self, k: int, piece: Any, precision: str, hooks: MakeHooks | None) -> torch.Tensor:
        r = self.recorder
        r.begin_pass(k)
        self.sources(piece)
        self.saved.begin()
        pack, unpack = self.noted(hooks(self.model, piece)) if hooks else (self.saved.pack, self.saved.unpack)
        self.enter("forward")
        cast = torch.autocast(self.where.type, torch.bfloat16) if precision == "bf16" else nullcontext()
        with cast, torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            value = self.loss(self.model, piece)
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            what = f"a tensor of shape {list(value.shape)}" if isinstance(value, torch.Tensor) and value.numel() != 1 else "a value without gradient"
            raise CaptureError(f"the loss function returned {what if isinstance(value, torch.Tensor) else type(value).__name__}; expected a scalar tensor")
        self.enter("backward")
        self.scopes.in_backward = True
        value.backward()
        self.scopes.in_backward = False
        self.name_gradients()
        return value.detach()

    def update(self) -> None:
        try:
            self.optimizer.step()
        except TypeError as error:
            if "closure" not in str(error):
                raise
            raise CaptureError(f"cannot capture {type(self.optimizer).__name__}: its step() runs the loss function itself, through a closure") from None

    def noted(self, hooks: Hooks) -> Hooks:
        """A plan's hooks hold tensors themselves: what they are given is an activation."""
        pack, unpack = hooks
        recorder = self.recorder

        def noting(tensor: torch.Tensor) -> Any:
            block = recorder.storages.get(tensor.untyped_storage()._cdata)
            if block is not None and block.category == T.TEMPORARY:
                block.category = T.ACTIVATION
            return pack(tensor)

        return noting, unpack

    def enter(self, phase: str) -> None:
        if self.recorder.phase != T.PHASES.index(phase):
            self.recorder.phase = T.PHASES.index(phase)
            self.recorder.mark(f"phase:{phase}")

    def on_root(self, entered: bool) -> None:
        """What follows the model's own forward is the loss; calls of the model in backward are recomputation."""
        if not self.scopes.in_backward and self.recorder.phase in (1, 2):
            self.enter("forward" if entered else "loss")

    # ---- categories

    def name_gradients(self) -> None:
        for parameter in self.model.parameters():
            grad = parameter.grad
            if grad is not None and grad.layout is torch.strided:
                block = self.recorder.block_of(grad)
                if block.category in (T.TEMPORARY, T.ACTIVATION):
                    block.category = T.GRADIENT
                    block.name = self.tables.strings(self.names[id(parameter)])
                    block.module = self.scopes.owner.get(id(parameter), T.NONE)

    def name_state(self) -> None:
        """The optimizer's state, by "PARAMETER.KEY"."""
        for parameter, state in self.optimizer.state.items():
            name = self.names.get(id(parameter), "") if isinstance(parameter, torch.Tensor) else ""
            module = self.scopes.owner.get(id(parameter), T.NONE)
            for key, tensor in _tensors(state):
                if not isinstance(tensor, FakeTensor):
                    continue
                block = self.recorder.block_of(tensor)
                if block.category in (T.TEMPORARY, T.ACTIVATION, T.UNKNOWN):
                    block.category, block.module = T.OPTIMIZER, module
                    block.name = self.tables.strings(f"{name}.{key}")

    def finish(self, micro_batch: int | None, passes: int, precision: str) -> T.Tables:
        tables = self.tables
        tables.block = [(b.bytes, b.op, b.name, b.module, b.category, T.BLOCK_HOST if b.host else 0, 0) for b in self.recorder.blocks]
        rows = batches.size(self.batch)
        tables.meta = {
            "tonnage": "0.1.0",
            "torch": torch.__version__.partition("+")[0],
            "device": self.device.name,
            "batch_size": str(rows),
            "micro_batch": str(micro_batch or rows),
            "passes": str(passes),
            "precision": precision,
        }
        return tables


def refuse_compiled(model: torch.nn.Module) -> None:
    """CaptureError for a model under torch.compile, whose ops are fused before they could be seen."""
    for name, module in model.named_modules():
        if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
            raise CaptureError(f"cannot capture {name or 'the model'}: it is compiled (torch.compile), so its ops cannot be told apart; give the plain model")


def _tensors(state: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(state, torch.Tensor):
        yield path, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from _tensors(value, f"{path}.{key}" if path else str(key))
    elif isinstance(state, (list, tuple)):
        for i, value in enumerate(state):
            yield from _tensors(value, f"{path}.{i}" if path else str(i))


@contextmanager
def foreach_for_fakes() -> Iterator[None]:
    """Optimizers choose their foreach form by the exact type of the parameters; a fake one stands for a plain one."""
    from torch.optim import optimizer

    known = getattr(optimizer, "_foreach_supported_types", None)
    if known is None or FakeTensor in known:
        yield
        return
    known.append(FakeTensor)
    try:
        yield
    finally:
        known.remove(FakeTensor)
