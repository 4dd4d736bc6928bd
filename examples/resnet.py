"""ResNet trained to tell digits apart: convolutions, BatchNorm, in-place ReLU.

size=50 is ResNet-50 with 1000 classes: 25,557,032 parameters.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute

from digits import CLASSES, pictures
from tonnage import Training


@dataclass
class Size:
    width: int  # channels after the stem
    blocks: tuple[int, ...]
    classes: int


SIZES = {
    "tiny": Size(8, (1, 1), CLASSES),
    "small": Size(32, (1, 1, 1, 1), CLASSES),
    "50": Size(64, (3, 4, 6, 3), 1000),
}


class Block(nn.Module):
    """Bottleneck: 1x1 down, 3x3, 1x1 up to four times the channels, added to the input."""

    def __init__(self, before: int, width: int, stride: int):
        super().__init__()
        after = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        y += self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, size: Size, checkpoint: str):
        super().__init__()
        self.checkpoint = checkpoint
        self.stem = nn.Sequential(nn.Conv2d(3, size.width, 7, 2, 3, bias=False), nn.BatchNorm2d(size.width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks, before = [], size.width
        for stage, count in enumerate(size.blocks):
            width = size.width << stage
            for i in range(count):
                blocks.append(Block(before, width, stride=2 if stage > 0 and i == 0 else 1))
                before = 4 * width
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(before, size.classes)
        self.apply(init)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pictures (batch, 3, height, width) to logits (batch, classes)."""
        x = self.stem(x)
        for i, block in enumerate(self.blocks):
            if self.checkpoint == "all" or self.checkpoint == "alternate" and i % 2 == 0:
                x = recompute(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def init(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def training(
    size: str = "tiny",
    batch: int = 32,
    image: int = 0,
    precision: str = "fp32",
    checkpoint: str = "none",
    lr: float = 0.05,
    seed: int = 0,
) -> Training:
    """size: tiny, small, 50; image: pixels a side, 0 = 32, or 224 for size 50; precision: fp32, bf16 (autocast); checkpoint: none, all, alternate."""
    shape = SIZES[str(size)]
    side = image or (224 if str(size) == "50" else 32)
    if str(size) != "tiny":
        lr = min(lr, 0.02)
    rng = random.Random(seed)

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def loss(model: nn.Module, batch) -> torch.Tensor:
        x, target = batch
        with torch.autocast(x.device.type, torch.bfloat16) if precision == "bf16" else nullcontext():
            return F.cross_entropy(model(x), target)

    def make_batch():
        chosen = [rng.choice(pictures()) for _ in range(batch)]
        x = torch.tensor([pixels for pixels, _ in chosen]).view(batch, 1, 8, 8)
        x = F.interpolate(x, size=(side, side), mode="bilinear", align_corners=False).repeat(1, 3, 1, 1)
        return x, torch.tensor([digit for _, digit in chosen])

    return Training(model=lambda: ResNet(shape, checkpoint), optimizer=optimizer, loss=loss, batch=make_batch)
