"""BERT trained as a masked language model: post-norm encoder, learned positions, decoder tied to the word embeddings.

size=large has the 335,174,458 parameters of the published BERT-large with its masked language model head.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute

from corpus import BYTES, windows
from tonnage import Training

MASK = BYTES  # the token that stands for a hidden one
IGNORED = -100  # target at positions that are not asked for


@dataclass
class Size:
    layers: int
    width: int
    heads: int
    vocab: int


SIZES = {
    "tiny": Size(2, 128, 2, 320),
    "small": Size(4, 256, 4, 2048),
    "base": Size(12, 768, 12, 30522),
    "large": Size(24, 1024, 16, 30522),
}


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def split(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(split(self.query(x)), split(self.key(x)), split(self.value(x)), dropout_p=dropout)
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x)))
        return self.norm(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    def __init__(self, size: Size, positions: int, dropout: float, checkpoint: str):
        super().__init__()
        self.checkpoint = checkpoint
        self.words = nn.Embedding(size.vocab, size.width)
        self.positions = nn.Embedding(positions, size.width)
        self.types = nn.Embedding(2, size.width)
        self.norm = nn.LayerNorm(size.width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(size.width, size.heads, dropout) for _ in range(size.layers))
        self.head = nn.Linear(size.width, size.width)
        self.head_norm = nn.LayerNorm(size.width, eps=1e-12)
        self.decoder = nn.Linear(size.width, size.vocab)
        self.apply(init)
        self.decoder.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Token ids (batch, seq) to logits (batch, seq, vocab)."""
        at = torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.types(torch.zeros_like(ids)) + self.positions(at)
        x = self.dropout(self.norm(x))
        for i, layer in enumerate(self.layers):
            if self.checkpoint == "all" or self.checkpoint == "alternate" and i % 2 == 0:
                x = recompute(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return self.decoder(self.head_norm(F.gelu(self.head(x))))


def init(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def mask(ids: list[int], rng: random.Random) -> tuple[list[int], list[int]]:
    """BERT's task: 15 % of the tokens are asked for; of these 80 % are hidden, 10 % replaced and 10 % left as they are."""
    shown, target = list(ids), [IGNORED] * len(ids)
    for i, token in enumerate(ids):
        if rng.random() < 0.15:
            target[i] = token
            chance = rng.random()
            shown[i] = MASK if chance < 0.8 else rng.randrange(BYTES) if chance < 0.9 else token
    return shown, target


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
    """size: tiny, small, base, large; precision: fp32, bf16 (autocast); checkpoint: none, all, alternate (layers); vocab: 0 = the size's own."""
    shape = SIZES[size]
    if vocab:
        shape = Size(shape.layers, shape.width, shape.heads, vocab)
    if size in ("base", "large"):
        lr = min(lr, 1e-4)
    rng = random.Random(seed)

    def model() -> nn.Module:
        return Bert(shape, max(seq, 512), dropout, checkpoint)

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=lr, fused=next(model.parameters()).is_cuda)

    def loss(model: nn.Module, batch) -> torch.Tensor:
        ids, target = batch
        with torch.autocast(ids.device.type, torch.bfloat16) if precision == "bf16" else nullcontext():
            logits = model(ids)
            return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED)

    def make_batch():
        pairs = [mask(ids, rng) for ids in windows(batch, seq, rng)]
        return torch.tensor([shown for shown, _ in pairs]), torch.tensor([target for _, target in pairs])

    return Training(model=model, optimizer=optimizer, loss=loss, batch=make_batch)
