"""A decoder shaped like Llama: RMSNorm, rotary positions, SwiGLU, grouped key and value heads if asked, no dropout.

size=0.9b: 16 layers, 2048 wide, 16 heads, 5632 hidden, vocabulary 32000, head not tied: 953,223,168 parameters.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass, replace

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
    hidden: int
    vocab: int
    kv_heads: int = 0  # 0: as many as heads


SIZES = {
    "tiny": Size(2, 128, 4, 352, 320),
    "small": Size(8, 512, 8, 1408, 2048),
    "0.9b": Size(16, 2048, 16, 5632, 32000),
}


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns each pair (i, i + half) of x (batch, heads, seq, size) by its position's angles (seq, half)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(x)


class Layer(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        head = size.width // size.heads
        self.head, self.heads, self.kv_heads = head, size.heads, size.kv_heads or size.heads
        self.attention_norm = nn.RMSNorm(size.width, eps=1e-5)
        self.query = nn.Linear(size.width, self.heads * head, bias=False)
        self.key = nn.Linear(size.width, self.kv_heads * head, bias=False)
        self.value = nn.Linear(size.width, self.kv_heads * head, bias=False)
        self.out = nn.Linear(self.heads * head, size.width, bias=False)
        self.norm = nn.RMSNorm(size.width, eps=1e-5)
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def attention(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (-1, self.head)).transpose(1, 2) for y in (self.query(x), self.key(x), self.value(x)))
        grouped = self.heads != self.kv_heads
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=grouped)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, size: Size, positions: int, checkpoint: str):
        super().__init__()
        self.checkpoint = checkpoint
        self.words = nn.Embedding(size.vocab, size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width, eps=1e-5)
        self.head = nn.Linear(size.width, size.vocab, bias=False)
        half = size.width // size.heads // 2
        angles = torch.outer(torch.arange(positions), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.apply(init)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Token ids (batch, seq) to logits (batch, seq, vocab)."""
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x = self.words(ids)
        for i, layer in enumerate(self.layers):
            if self.checkpoint == "all" or self.checkpoint == "alternate" and i % 2 == 0:
                x = recompute(layer, x, cos, sin, use_reentrant=False)
            else:
                x = layer(x, cos, sin)
        return self.head(self.norm(x))


def init(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)


def training(
    size: str = "tiny",
    batch: int = 8,
    seq: int = 128,
    precision: str = "fp32",
    checkpoint: str = "none",
    kv_heads: int = 0,
    vocab: int = 0,
    lr: float = 1e-3,
    seed: int = 0,
) -> Training:
    """size: tiny, small, 0.9b; precision: fp32, bf16 (autocast); checkpoint: none, all, alternate (layers); kv_heads, vocab: 0 = the size's own."""
    shape = SIZES[str(size)]
    shape = replace(shape, vocab=vocab or shape.vocab, kv_heads=kv_heads or shape.kv_heads)
    if size != "tiny":
        lr = min(lr, 3e-4)
    rng = random.Random(seed)

    def model() -> nn.Module:
        return Llama(shape, seq, checkpoint)

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
