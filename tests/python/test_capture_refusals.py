"""What capture refuses, in one line."""

import pytest
import torch

from tonnage import devices
from tonnage.capture import capture_tables
from tonnage.errors import CaptureError


def test_a_compiled_model():
    """torch.compile fuses ops before a dispatch mode sees them; its failure there was a page of traceback."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model[0].compile()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(CaptureError, match="cannot capture 0: it is compiled"):
        capture_tables((model, optimizer, lambda m, b: m(b).sum(), torch.zeros(2, 4)), devices.find("cpu"))
