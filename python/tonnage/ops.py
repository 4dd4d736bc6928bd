"""What capture must know about an op before it runs: what it writes, whether it may be run again, what it costs.

Everything that depends on the overload alone is worked out once per overload.
"""
from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

# In training mode these write running_mean and running_var, whatever their schema says: argument positions of the two.
_NORMS = {
    "native_batch_norm": (3, 4),
    "cudnn_batch_norm": (3, 4),
    "miopen_batch_norm": (3, 4),
    "_native_batch_norm_legit": (3, 4),
    "_batch_norm_with_update": (3, 4),
}
_NORM_TRAINING_ARG = 5  # of those that have a `training` argument

# Never run again: they move data to the host, bring constants in, change what a storage is, or keep state of their own.
_NEVER = {"_local_scalar_dense", "lift_fresh", "lift_fresh_copy", "set_", "resize_", "resize_as_", "_cudnn_rnn", "miopen_rnn", "batch_norm_update_stats",
          "_cudnn_init_dropout_state", "record_stream", "pin_memory", "_pin_memory", "is_pinned", "multinomial"}  # fmt: skip

# Not the same bits every time on a CUDA device, after torch.use_deterministic_algorithms(): sums by atomics, or ties broken by chance.
_ATOMIC = {"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_", "index_copy",
           "index_copy_", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put", "put", "put_", "histc", "bincount", "kthvalue", "median",
           "nanmedian", "mode", "nll_loss2d_forward", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"}  # fmt: skip
_ATOMIC_SCATTER = {"scatter.src", "scatter_.src"}  # with a value there is nothing to race for
_ATOMIC_IN_FLOAT = {"cumsum", "cumsum_", "cumprod", "cumprod_", "logcumsumexp"}

# Cannot be captured for a card, and why.
REFUSED = {"_cudnn_rnn": "cuDNN keeps a buffer for its backward pass whose size only the card knows"}

# Ops that read only the rows that are asked for.
_GATHERS = {"embedding", "index", "index_select", "gather", "_unsafe_index"}

_CUBLAS = {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "vdot", "addbmm", "_addmm_activation", "_scaled_mm", "_int_mm", "_grouped_mm"}
_CONVOLUTIONS = {"convolution", "_convolution", "cudnn_convolution", "convolution_backward", "convolution_overrideable", "slow_conv2d_forward"}
_RATES = {torch.float32: 1, torch.bfloat16: 3, torch.float16: 4, torch.float64: 5}  # tn_rate; 2 is tf32
_TF32 = 2


class Op:
    """What is known about one overload."""

    __slots__ = ("name", "base", "writes", "rerun", "random", "dropout_at", "norm", "in_float", "flops", "gathers", "cublas", "convolution", "is_detach",
                 "refused", "returns")  # fmt: skip

    def __init__(self, func: torch._ops.OpOverload, on_card: bool):
        schema = func._schema
        namespace, base = schema.name.split("::")
        overload = f"{base}.{schema.overload_name or 'default'}"
        self.name = f"{namespace}.{overload}"
        self.base = base
        # (position or None, keyword) of each written argument
        self.writes = [
            (None if a.kwarg_only else i, a.name)
            for i, a in enumerate(schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        ]
        tags = func.tags
        self.random = torch.Tag.nondeterministic_seeded in tags
        bitwise = getattr(torch.Tag, "nondeterministic_bitwise", None)
        self.rerun = namespace == "aten" and base not in _NEVER and torch.Tag.data_dependent_output not in tags and bitwise not in tags
        if on_card and (base in _ATOMIC or overload in _ATOMIC_SCATTER):
            self.rerun = False
        self.in_float = on_card and base in _ATOMIC_IN_FLOAT
        self.dropout_at = next((i for i, a in enumerate(schema.arguments) if a.name == "dropout_p"), None) if "attention" in base else None
        self.norm = _NORMS.get(base) if schema.overload_name in ("", "default") else None
        if self.norm:
            self.writes = []
        self.flops = flop_registry.get(func._overloadpacket)
        self.gathers = base in _GATHERS
        self.cublas = base in _CUBLAS
        self.convolution = base in _CONVOLUTIONS
        self.is_detach = base == "detach"
        self.refused = REFUSED.get(base, "") if on_card else ""
        self.returns = bool(schema.returns)

    def written(self, args: tuple, kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """The tensors that this call writes in place."""
        out: list[torch.Tensor] = []
        for at, name in self.writes:
            value = args[at] if at is not None and at < len(args) else kwargs.get(name)
            if isinstance(value, (list, tuple)):
                out.extend(t for t in value if t is not None)
            elif value is not None:
                out.append(value)
        return out

    def statistics(self, args: tuple) -> tuple[int, ...]:
        """Positions of the running statistics that this call writes; empty for everything but batch norm in training mode."""
        if not self.norm:
            return ()
        if self.base != "_batch_norm_with_update" and not args[_NORM_TRAINING_ARG]:
            return ()
        return tuple(i for i in self.norm if args[i] is not None)

    def draws(self, args: tuple, kwargs: dict[str, Any]) -> bool:
        """Does this call draw from the generator?  Attention does only while it drops out."""
        if not self.random:
            return False
        if self.dropout_at is None:
            return True
        p = args[self.dropout_at] if self.dropout_at < len(args) else kwargs.get("dropout_p", 0.0)
        return bool(p)


def flops_of(op: Op, args: tuple, kwargs: dict[str, Any], out: Any) -> float:
    """Multiply and add count as two; 0 for what PyTorch's own counter (torch.utils.flop_counter) has no formula for."""
    if op.flops is None:
        return 0.0
    try:
        return float(op.flops(*args, **kwargs, out_val=out))
    except Exception:  # a formula older than the op's arguments: cost falls back to the bytes
        return 0.0


def rate_of(op: Op, dtype: torch.dtype, on_card: bool) -> int:
    """tn_rate of an op with FLOPs whose first input has this dtype."""
    rate = _RATES.get(dtype, 0)
    if rate == 1 and on_card:
        backend = torch.backends.cudnn if op.convolution else torch.backends.cuda.matmul
        if backend.allow_tf32:
            return _TF32
    return rate


# Tiles that cuBLAS cuts a product into, and what a tensor core reaches on rows that are no multiple of 8 or 2 elements, read off an H200: 252 and
# 97 of 700 TFLOP/s for vocabularies of 30,522 and 50,257.
_TILE = (256, 128)
_EVEN, _ODD = 0.38, 0.14
_SPLIT_K = 2048  # a product of few tiles is cut along this dimension too, when it is long
_ATTENTION = {1: 0.5}  # by rate; the rest:
_ATTENTION_HALF = 0.32


def efficiency_of(op: Op, args: tuple, rate: int, processors: int) -> int:
    """Of the device's rate, what an op's shape lets it reach, in 1/1000; 0 = not known.

    A card's multiprocessors take a product's tiles in waves, and a last wave that is not full costs as much as a full one.
    """
    if "attention" in op.base:
        return round(1000 * _ATTENTION.get(rate, _ATTENTION_HALF))
    if not op.cublas or not processors:
        return 0
    matrices = [t for t in args if isinstance(t, torch.Tensor) and t.dim() >= 2][-2:]
    if len(matrices) < 2:
        return 0
    a, b = matrices
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    share = 1.0
    tiles = math.prod(a.shape[:-2]) * math.ceil(rows / _TILE[0]) * math.ceil(columns / _TILE[1])
    if tiles >= processors:
        share = tiles / processors / math.ceil(tiles / processors)
    elif inner < _SPLIT_K:
        share = max(tiles / processors, 0.05)
    if a.element_size() == 2:
        widths = [columns, *(t.shape[-1] if t.stride(-1) == 1 else t.shape[-2] for t in matrices)]
        share *= 1.0 if all(n % 8 == 0 for n in widths) else _EVEN if all(n % 2 == 0 for n in widths) else _ODD
    return max(round(1000 * share), 1)


def bytes_of(tensor: torch.Tensor) -> int:
    """Bytes that a kernel touches: elements that a stride of 0 repeats count once."""
    shape, stride = tensor.shape, tensor.stride()
    if 0 in stride:
        return math.prod(n for n, s in zip(shape, stride) if s) * tensor.element_size()
    return tensor.numel() * tensor.element_size()
