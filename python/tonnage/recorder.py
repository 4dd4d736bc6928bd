"""Records a training step: every op that PyTorch dispatches, the memory it makes, and when that memory dies.

A *block* is the memory of one storage.  It is found by the storage's address while that is alive, and a weak reference says when it
dies; so nothing here may hold a tensor or a storage, however briefly after the op has returned: the trace would say that it lived on.
"""
from __future__ import annotations

import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import tables as T
from .accumulate import SoleOwner
from .arguments import Unwritable, encode
from .errors import CaptureError
from .items import number, step_count
from .kernels import KERNELS
from .kernels import steps as kernel_steps
from .ops import Op, bytes_of, efficiency_of, flops_of, rate_of
from .refused import is_missing_kernel, refusal
from .scopes import Scopes
from .signature import dtype_name

NONE = T.NONE
FORWARD, LOSS, BACKWARD, OPTIMIZER = (T.PHASES.index(p) for p in ("forward", "loss", "backward", "optimizer"))
_prim_device = torch.ops.prim.device.default
_item = torch.ops.aten._local_scalar_dense.default
_lift = torch.ops.aten.lift_fresh.default
_as_strided = torch.ops.aten.as_strided.default


class Block:
    """The memory of one storage, and of every later storage that stands for the same bytes (see saved.py)."""

    __slots__ = ("id", "bytes", "host", "ref", "version", "values", "op", "module", "category", "name", "born", "quiet", "__weakref__")

    def __init__(self, id: int, bytes: int, host: bool):
        self.id, self.bytes, self.host = id, bytes, host
        self.ref: StorageRef | None = None
        self.version = 0
        self.values: dict[tuple, int] = {}  # window (offset, shape, stride, dtype) -> value, at the current version
        self.op = self.module = NONE
        self.category, self.name = T.TEMPORARY, 0
        self.born = -1  # pass it was allocated in; -1: before the first
        self.quiet = bytes == 0  # nothing to allocate, so no events


class StorageRef(weakref.ref):
    """Weak reference to a storage that knows which block it is."""

    __slots__ = ("block", "address")
    block: Block
    address: int


class Recorder(TorchDispatchMode):
    """The dispatch mode.  Enter it inside the FakeTensorMode, around the steps."""

    def __init__(
        self,
        fake: FakeTensorMode,
        device: torch.device,
        tables: T.Tables,
        scopes: Scopes,
        workspace_bytes: int = 0,
        lt_workspace_bytes: int = 0,
        processors: int = 0,
    ):
        super().__init__()
        self.fake, self.device, self.tables, self.scopes = fake, device, tables, scopes
        self.on_card = device.type != "cpu"
        self.device_text = "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
        self.workspace_bytes = workspace_bytes
        self.lt_workspace_bytes = lt_workspace_bytes
        self.processors = processors
        self.workspace_for: set[tuple[str, str]] = set()  # (thread, library) that have one; threads: "forward", "backward"
        self.storages: dict[int, Block] = {}  # by address
        self.blocks: list[Block] = []
        self.value_bytes: list[int] = []
        self.known: dict[Any, Op] = {}
        self.outside: dict[int, tuple[torch.Tensor, FakeTensor]] = {}  # real tensors that the step reads, and what stands for them
        self.setup: list[tuple[int, int]] = []  # events before step 0
        self.events = tables.event
        self.step = self.pass_ = 0
        self.pass_id = 0  # over all steps
        self.last_step = False
        self.phase = 0
        self.sole_owner = SoleOwner()
        self.after_node = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch wraps dispatch modes so that torch.compile does not look into them, at 20 us a call; nothing is compiled here."""
        return False

    @property
    def with_arguments(self) -> bool:
        """Arguments are for rebuilding: forward and loss of the steady state."""
        return self.last_step and self.phase in (FORWARD, LOSS)

    # ---- blocks and values

    def block_of(self, tensor: torch.Tensor) -> Block:
        """The block of a tensor; one that was never seen existed before the first step."""
        storage = tensor.untyped_storage()
        block = self.storages.get(storage._cdata)
        if block is None:
            block = self.adopt(storage, tensor.device)
            block.category = T.UNKNOWN
            if not block.quiet:
                self.setup.append((T.ALLOC, block.id))
        return block

    def adopt(self, storage: torch.UntypedStorage, device: torch.device) -> Block:
        block = Block(len(self.blocks), storage.nbytes(), device.type != self.device.type)
        self.blocks.append(block)
        self.watch(storage, block)
        return block

    def watch(self, storage: torch.UntypedStorage, block: Block) -> None:
        ref = StorageRef(storage, self.died)
        ref.block, ref.address = block, storage._cdata
        block.ref = ref
        self.storages[ref.address] = block

    def died(self, ref: StorageRef) -> None:
        block = ref.block
        if block.ref is ref:
            block.ref = None
            if self.storages.get(ref.address) is block:
                del self.storages[ref.address]
            if not block.quiet:
                self.events.append((T.DROP, block.id))

    def value_of(self, tensor: torch.Tensor) -> int:
        """The value that a tensor holds now."""
        block = self.block_of(tensor)
        window = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        value = block.values.get(window)
        return self.window(block, window, tensor) if value is None else value

    def window(self, block: Block, window: tuple, tensor: torch.Tensor) -> int:
        """A window on a block that no op has made in this version: a view taken before a write to its base, or the other way round.

        The contents are the written value's, so it is recorded as if it had been taken from there.
        """
        base = next((value for known, value in block.values.items() if known[3] == window[3]), None)
        if base is None:
            return self.new_value(block, window, tensor, NONE, 0)
        offset, shape, stride, _ = window
        args = 0
        if self.with_arguments:
            text = encode((tensor, list(shape), list(stride), offset), {}, iter((base,)), (), self.device_text)
            args = self.tables.strings(text)
        value = self.new_value(block, window, tensor, len(self.tables.op), 0, view=True)
        self.add_op("aten.as_strided.default", args, T.OP_VIEW | T.OP_REBUILDABLE, [base], [value], 0, 0.0, 0.0)
        return value

    def new_value(
        self, block: Block, window: tuple, tensor: torch.Tensor, op: int, output: int, view: bool = False, source: int = 0, keep: bool = False
    ) -> int:
        """`keep`: a value that is known for this window already stays the one that later reads find."""
        value = len(self.tables.value)
        self.tables.value.append(
            (block.id, op, output, block.version, self.meta(window, tensor), source, T.VALUE_VIEW if view else 0, 0)
        )
        self.value_bytes.append(bytes_of(tensor))
        if not (keep and window in block.values):
            block.values[window] = value
        return value

    def meta(self, window: tuple, tensor: torch.Tensor) -> int:
        offset, shape, stride, dtype = window
        text = f"{dtype_name(dtype)}[{','.join(map(str, shape))}]"
        if offset or not tensor.is_contiguous():
            text += f"/{','.join(map(str, stride))}+{offset}"
        return self.tables.strings(text)

    def begin_pass(self, in_step: int) -> None:
        """What a pass reads and has not made comes from outside it: values of earlier passes are forgotten."""
        self.pass_, self.pass_id = in_step, self.pass_id + 1
        for block in self.storages.values():
            block.values.clear()
        self.mark(f"pass:{in_step}")

    def source(self, tensor: torch.Tensor, name: str) -> None:
        """Names what comes from outside the pass: "parameter:NAME", "buffer:NAME", "input:K".  The first name of a tensor counts."""
        block = self.block_of(tensor)
        window = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if window not in block.values:
            self.new_value(block, window, tensor, NONE, 0, source=self.tables.strings(name))

    def mark(self, text: str) -> None:
        self.events.append((T.MARK, self.tables.strings(text)))

    # ---- ops

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is _prim_device:
            self.after_node = True
            return args[0].device if isinstance(args[0], FakeTensor) else func(*args)
        after_node, self.after_node = self.after_node, False
        kwargs = kwargs or {}
        op = self.known.get(func)
        if op is None:
            op = self.known[func] = Op(func, self.on_card)
        if op.is_detach:  # same storage, same window: the same value
            return self.call(func, op, args, kwargs)
        if func is _item:
            if not isinstance(args[0], FakeTensor):
                return number(args[0])
            if self.phase == OPTIMIZER:
                return step_count(args[0])
        if after_node and op.name == "aten.add.Tensor" and self.sole_owner(args):
            # The engine sums gradients in place when nobody else holds the first; it will not while a dispatch mode watches.
            func = torch.ops.aten.add_.Tensor
            op = self.known.get(func) or self.known.setdefault(func, Op(func, self.on_card))
        tensors = [] if func is _lift else _tensors(args, kwargs)
        if any(type(t) is not FakeTensor for t in tensors):
            args, kwargs = self.bring_in(args, kwargs)
            tensors = _tensors(args, kwargs)
        inputs = [self.value_of(t) for t in tensors]
        scratch = op.statistics(args)
        text = 0
        if self.with_arguments and func is not _lift:
            try:
                text = self.tables.strings(encode(args, kwargs, iter(inputs), scratch, self.device_text))
            except Unwritable:
                pass
        out = self.call(func, op, args, kwargs)
        written = op.written(args, kwargs) if op.writes else [args[i] for i in scratch]
        self.record(op, args, kwargs, tensors, inputs, out, written, scratch, text)
        return out

    def call(self, func: Any, op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
        if op.refused:
            raise CaptureError(f"cannot capture {op.name} in {self.scopes.where()}: {op.refused}")
        try:
            out = func(*args, **kwargs)
            return float_statistics(args, out) if op.base in FLOAT_STATISTICS and not self.on_card else out
        except Exception as error:
            reason = refusal(error, op.name, self.scopes.where())
            if reason is None:
                raise
            if op.writes and not op.returns and is_missing_kernel(error):
                return None  # as some fused optimizers: it only writes, so its shapes are known
            raise reason from None

    def record(
        self,
        op: Op,
        args: tuple,
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
        inputs: list[int],
        out: Any,
        written: list[torch.Tensor],
        scratch: tuple[int, ...],
        text: int,
    ) -> None:
        """The op's events, values and record, once it has run."""
        index = len(self.tables.op)
        in_blocks = {self.storages[t.untyped_storage()._cdata] for t in tensors}
        written_blocks = self.write(written)
        outs: list[int] = []
        fresh = self.kernel_memory(op, args, out, index) if self.on_card and op.base in KERNELS else False
        aliased = False
        moved = 0
        on_device = True
        for position, t in enumerate(out if isinstance(out, (list, tuple)) else (out,)):
            if not isinstance(t, torch.Tensor):
                outs.append(NONE)
                continue
            storage = t.untyped_storage()
            block = self.storages.get(storage._cdata)
            if block is None:
                block = self.allocate(storage, t.device, index)
                fresh = True
            window = (t.storage_offset(), t.shape, t.stride(), t.dtype)
            view = False
            if block in written_blocks:
                value = block.values.get(window)
                if value is None or self.tables.value[value][1] != index:
                    value = self.new_value(block, window, t, index, position)
            else:
                view = block in in_blocks
                aliased |= view
                value = self.new_value(block, window, t, index, position, view=view, keep=view)
            on_device &= not block.host
            outs.append(value)
            if not view:
                moved += self.value_bytes[value]
        for t in written:  # written but not returned
            block = self.storages[t.untyped_storage()._cdata]
            window = (t.storage_offset(), t.shape, t.stride(), t.dtype)
            value = block.values.get(window)
            if value is None or self.tables.value[value][1] != index:
                outs.append(self.new_value(block, window, t, index, len(outs)))
                moved += self.value_bytes[outs[-1]]
        flags = 0
        if aliased and not fresh and not written:
            flags = T.OP_VIEW
            moved = 0
        else:
            sizes = [self.value_bytes[v] for v in dict.fromkeys(inputs)]
            if op.gathers and sizes:
                sizes[0] = min(sizes[0], moved)
            moved += sum(sizes)
        random = op.draws(args, kwargs)
        if random:
            flags |= T.OP_RANDOM
        if self.may_run_again(op, random, args, kwargs, written_blocks, scratch, on_device, text):
            flags |= T.OP_REBUILDABLE
        flops = flops_of(op, args, kwargs, out) if op.flops else 0.0
        rate = rate_of(op, tensors[0].dtype, self.on_card) if flops and tensors else 0
        if op.cublas and self.workspace_bytes:
            self.workspace(index, op.base == "addmm" and args[0].dim() == 1)
        efficiency = efficiency_of(op, args, rate, self.processors) if rate and self.on_card else 0
        self.add_op(op.name, text, flags, inputs, outs, rate, flops, float(moved), efficiency)

    def allocate(self, storage: torch.UntypedStorage, device: torch.device, op: int) -> Block:
        block = self.adopt(storage, device)
        block.op, block.module, block.born = op, self.scopes.module(), self.pass_id
        if not block.quiet:
            self.events.append((T.ALLOC, block.id))
        return block

    def write(self, written: list[torch.Tensor]) -> set[Block]:
        """Each written block is at a new version, in which no value is known yet."""
        blocks = set()
        for t in written:
            storage = t.untyped_storage()
            block = self.block_of(t)
            if storage.nbytes() != block.bytes:
                block = self.resized(storage, block)
            if block not in blocks:
                blocks.add(block)
                block.version += 1
                block.values.clear()
        return blocks

    def resized(self, storage: torch.UntypedStorage, block: Block) -> Block:
        """A storage that an op gave another size is another block."""
        assert block.ref is not None
        self.died(block.ref)
        new = Block(len(self.blocks), storage.nbytes(), block.host)
        new.op, new.module, new.born = len(self.tables.op), block.module, self.pass_id
        self.blocks.append(new)
        self.watch(storage, new)
        if not new.quiet:
            self.events.append((T.ALLOC, new.id))
        return new

    def may_run_again(
        self, op: Op, random: bool, args: tuple, kwargs: dict, written: set[Block], scratch: tuple, on_device: bool, text: int
    ) -> bool:
        if not op.rerun or not on_device or (self.with_arguments and not text):
            return False
        if random and kwargs.get("generator") is not None:
            return False
        if op.in_float and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
            return False
        return bool(scratch) or all(b.born == self.pass_id for b in written)

    def kernel_memory(self, op: Op, args: tuple, out: Any, index: int) -> bool:
        """A kernel's outputs in the order in which it makes them, and memory of its own.  1 when it has allocated an output."""
        outs = out if isinstance(out, (list, tuple)) else (out,)
        temporary: list[Block] = []
        fresh = False

        def give_back() -> None:
            self.events += [(T.DROP, block.id) for block in temporary]
            temporary.clear()

        for step in kernel_steps(op.base, args, out):
            if not isinstance(step, int) and step[0] == "temp":
                temporary.append(self.own_memory(step[1], index, op.base))
                continue
            give_back()
            tensor = outs[step if isinstance(step, int) else 0]
            storage = tensor.untyped_storage()
            if storage._cdata in self.storages:
                continue
            block = self.allocate(storage, tensor.device, index)
            fresh = True
            if not isinstance(step, int):
                block.bytes = step[1]
        give_back()
        return fresh

    def own_memory(self, size: int, op: int, name: str) -> Block:
        """Memory that a library takes for itself."""
        block = Block(len(self.blocks), size, False)
        block.op, block.category, block.name, block.module = op, T.WORKSPACE, self.tables.strings(name), self.scopes.module()
        self.blocks.append(block)
        self.events.append((T.ALLOC, block.id))
        return block

    def workspace(self, op: int, lt: bool) -> None:
        """cuBLAS takes one workspace for each thread that calls it, and keeps it; cublasLt, for products with a bias, another."""
        thread = "backward" if self.phase == BACKWARD else "forward"
        for name, size in (("cublas", self.workspace_bytes), ("cublaslt", self.lt_workspace_bytes if lt else 0)):
            if size and (thread, name) not in self.workspace_for:
                self.workspace_for.add((thread, name))
                self.own_memory(size, op, name)

    def add_op(
        self, name: str, args: int, flags: int, inputs: list[int], outputs: list[int], rate: int, flops: float, moved: float, efficiency: int = 0
    ) -> None:
        ref = self.tables.ref
        at = len(ref)
        ref += inputs
        ref += outputs
        index = len(self.tables.op)
        module = self.scopes.module()
        places = (at, len(inputs), at + len(inputs), len(outputs))
        row = (self.tables.strings(name), args, module, self.phase, self.step, self.pass_, rate, flags, *places, efficiency, flops, moved, -1.0)
        self.tables.op.append(row)
        self.scopes.made(module)
        self.events.append((T.OP_EVENT, index))

    def bring_in(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Puts a fake tensor in place of each real one: the step reads something that was there before, such as class weights in a closure."""
        from torch.utils._pytree import tree_map_only

        return tree_map_only(torch.Tensor, self.stand_in, (args, kwargs))

    def stand_in(self, t: torch.Tensor) -> torch.Tensor:
        if isinstance(t, FakeTensor):
            return t
        if id(t) not in self.outside:
            self.outside[id(t)] = (t, self.fake.from_tensor(t, static_shapes=True))
        return self.outside[id(t)][1]


FLOAT_STATISTICS = {"native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}


def float_statistics(args: tuple, out: tuple) -> tuple:
    """A norm's outputs: on the CPU its statistics have the type of its float32 weights, where a fake tensor has the type of its half-precision input."""
    if not any(isinstance(t, torch.Tensor) and t.dtype is torch.float32 for t in args[1:5]):
        return out
    return (out[0], *(t.to(torch.float32) if t.is_floating_point() else t for t in out[1:]))


def _tensors(args: tuple, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """All tensor arguments, in order."""
    out = []
    for a in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(a, torch.Tensor):
            out.append(a)
        elif isinstance(a, (list, tuple)):
            out += [x for x in a if isinstance(x, torch.Tensor)]
    return out
