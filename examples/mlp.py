"""Two linear layers with a ReLU between them: small enough to check every byte by hand (16,789,504 of parameters)."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import nn

from tonnage import Training


class Mlp(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def training(batch: int = 64, width: int = 1024, hidden: int = 2048, lr: float = 1e-3, seed: int = 0) -> Training:
    """Learns to turn a vector's elements round, from `batch` random vectors a step."""
    rng = random.Random(seed)

    def make_batch():
        x = torch.tensor([[rng.gauss(0, 1) for _ in range(width)] for _ in range(batch)])
        return x, x.flip(1)

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=lr, fused=next(model.parameters()).is_cuda)

    def loss(model: nn.Module, batch) -> torch.Tensor:
        x, target = batch
        return F.mse_loss(model(x), target)

    return Training(model=lambda: Mlp(width, hidden), optimizer=optimizer, loss=loss, batch=make_batch)
