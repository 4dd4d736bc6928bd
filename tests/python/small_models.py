"""Small models that between them use what capture must get right."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tonnage import Training


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Block(nn.Module):
    """Attention written out, dropout, layer norms, residuals."""

    def __init__(self, width=32, heads=4, p=0.1):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        p = self.dropout((q @ k.transpose(-1, -2)).softmax(-1))
        x = x + self.dropout(self.out((p @ v).transpose(1, 2).reshape(b, s, w)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class Transformer(nn.Module):
    """Embeddings tied to the head; optionally checkpointed, by either kind."""

    def __init__(self, layers=2, width=32, vocab=50, p=0.1, recompute=None):
        super().__init__()
        self.recompute = recompute
        self.words = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Block(width, 4, p) for _ in range(layers))
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x) if self.recompute is None else checkpoint(layer, x, use_reentrant=self.recompute, preserve_rng_state=False)
        return self.head(x)


class Convolutions(nn.Module):
    """Convolution, BatchNorm, in-place ReLU, pooling."""

    def __init__(self, channels=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.MaxPool2d(2))  # fmt: skip
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Writer(nn.Module):
    """Writes into parts of a tensor, and reads the whole and other parts afterwards."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(16, 16)

    def forward(self, x):
        y = self.line(x)
        z = torch.zeros_like(y)
        z[:, 4:8] = y[:, :4]
        z[:, :4].copy_(y[:, 4:8].exp())
        whole = z * y
        left = z.t()[:4] * 2
        return whole.sigmoid_() + left.sum(0, keepdim=True).t().tanh()


def classes(model, batch):
    x, target = batch
    y = model(x)
    return F.cross_entropy(y.flatten(0, -2), target.flatten())


def square(model, batch):
    return model(batch[0]).pow(2).mean()


def ids():
    return torch.randint(0, 50, (4, 16)), torch.randint(0, 50, (4, 16))


def images():
    return torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))


def rows(n=8, width=32):
    return lambda: (torch.randn(n, width),)


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, **options)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


ALL: dict[str, Training] = {
    "mlp": Training(Mlp, sgd, square, rows()),
    "transformer": Training(Transformer, adamw, classes, ids),
    "transformer foreach": Training(Transformer, lambda m: adamw(m, foreach=True), classes, ids),
    "transformer fused": Training(Transformer, lambda m: adamw(m, fused=True), classes, ids),
    "checkpoint": Training(lambda: Transformer(recompute=False), adamw, classes, ids),
    "checkpoint reentrant": Training(lambda: Transformer(recompute=True), adamw, classes, ids),
    "convolutions": Training(Convolutions, sgd, classes, images),
    "writer": Training(Writer, sgd, square, rows(8, 16)),
}


def autocast(training: Training) -> Training:
    def loss(model: Any, batch: Any) -> torch.Tensor:
        with torch.autocast(batch[0].device.type, torch.bfloat16):
            return training.loss(model, batch)

    return Training(training.model, training.optimizer, loss, training.batch)


ALL["transformer bf16"] = autocast(ALL["transformer"])
