"""GPT-2: pre-norm decoder, learned positions, head tied to the word embeddings.

size=small and size=medium have the published 124,439,808 and 354,823,168 parameters.
"""

from __future__ import annotations

import math
import random
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute

from corpus import windows
from tonnage import Training


@dataclass
class Size:
    layers: int
    width: int
    heads: int
    vocab: int


SIZES = {
    "tiny": Size(2, 128, 2, 320),
    "small": Size(12, 768, 12, 50257),
    "medium": Size(24, 1024, 16, 50257),
}


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GPT-2's own formula, step by step as published: autograd saves every step."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.p = heads, dropout
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.down(gelu(self.up(self.norm(x)))))


class Gpt(nn.Module):
    def __init__(self, size: Size, positions: int, dropout: float, checkpoint: str):
        super().__init__()
        self.checkpoint = checkpoint
        self.words = nn.Embedding(size.vocab, size.width)
        self.positions = nn.Embedding(positions, size.width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(size.width, size.heads, dropout) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocab, bias=False)
        self.apply(init)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Token ids (batch, seq) to logits (batch, seq, vocab)."""
        at = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.words(ids) + self.positions(at))
        for i, layer in enumerate(self.layers):
            if self.checkpoint == "all" or self.checkpoint == "alternate" and i % 2 == 0:
                x = recompute(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return self.head(self.norm(x))


def init(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def training(
    size: str = "tiny",
    batch: int = 8,
    seq: int = 128,
    precision: str = "fp32",
    checkpoint: str = "none",
    dropout: float = 0.1,
    vocab: int = 0,
    lr: float = 1e-3,
    seed: int = 0,
) -> Training:
    """size: tiny, small, medium; precision: fp32, bf16 (autocast); checkpoint: none, all, alternate (layers); vocab: 0 = the size's own."""
    shape = SIZES[size]
    if vocab:
        shape = Size(shape.layers, shape.width, shape.heads, vocab)
    if size != "tiny":
        lr = min(lr, 3e-4)
    rng = random.Random(seed)

    def model() -> nn.Module:
        return Gpt(shape, max(seq, 1024), dropout, checkpoint)

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=lr, fused=next(model.parameters()).is_cuda)

    def loss(model: nn.Module, batch) -> torch.Tensor:
        ids, target = batch
        with torch.autocast(ids.device.type, torch.bfloat16) if precision == "bf16" else nullcontext():
            logits = model(ids)
            return F.cross_entropy(logits.flatten(0, 1), target.flatten())

    def make_batch():
        text = windows(batch, seq + 1, rng)
        return torch.tensor([ids[:-1] for ids in text]), torch.tensor([ids[1:] for ids in text])

    return Training(model=model, optimizer=optimizer, loss=loss, batch=make_batch)
