"""The FakeTensorMode that captures run under."""
from __future__ import annotations

from torch._subclasses.fake_tensor import FakeTensorMode


class CaptureMode(FakeTensorMode):
    """No real kernel runs in place of a missing meta kernel: without a device it could not, and its memory would be real."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    # What PyTorch wraps against torch.compile, unwrapped: 20 us for each of tens of thousands of ops.
    __torch_dispatch__ = getattr(FakeTensorMode.__torch_dispatch__, "__wrapped__", FakeTensorMode.__torch_dispatch__)

    def __init__(self) -> None:
        super().__init__(allow_fallback_kernels=False, allow_non_fake_inputs=True)
