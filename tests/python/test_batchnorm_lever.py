"""Micro-batches and BatchNorm: refused only where the statistics are the batch's own."""

import pytest
import torch
from torch import nn

from tonnage import devices, planning
from tonnage.capture import capture_tables


@pytest.mark.parametrize(("training", "track", "refused"), [(True, True, True), (True, False, True), (False, True, False)])
def test_only_batch_statistics_refuse(training, track, refused):
    """A frozen BatchNorm was refused as well."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=track)).train(training)
    live = (model, torch.optim.SGD(model.parameters(), 0.1), lambda m, b: m(b).sum(), torch.zeros(4, 3, 8, 8))
    found = planning.batchnorm_module(capture_tables(live, devices.find("cpu")))
    assert found == ("1" if refused else None)
