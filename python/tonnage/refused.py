"""Turns what FakeTensorMode refuses into one line that names the op and the module."""
from __future__ import annotations

from torch._subclasses import fake_tensor as F

from .errors import CaptureError

_WHY = {
    "DataDependentOutputException": "its result depends on the data (as .item() does), which a capture does not have",
    "DynamicOutputShapeException": "the shape of its result depends on the data (as boolean masks and nonzero() do), which a capture does not have",
    "UnsupportedOperatorException": "it has no meta kernel: register one with torch.library.register_fake()",
    "UnsupportedFakeTensorException": "fake tensors cannot stand for its arguments",
    "UnsupportedMutationAliasingException": "it writes to memory that two of its arguments share",
}


def is_missing_kernel(error: Exception) -> bool:
    return isinstance(error, (NotImplementedError, F.UnsupportedOperatorException))


def refusal(error: Exception, op: str, where: str) -> CaptureError | None:
    """The CaptureError for an exception, or None for one that is the user's own."""
    if isinstance(error, CaptureError):
        return None
    for name, why in _WHY.items():
        kind = getattr(F, name, None)
        if kind is not None and isinstance(error, kind):
            return CaptureError(f"cannot capture {op} in {where}: {why}")
    if isinstance(error, NotImplementedError) and not op.startswith(("aten.", "prims.")):
        return CaptureError(f"cannot capture {op} in {where}: {_WHY['UnsupportedOperatorException']}")
    return None
