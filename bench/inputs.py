"""The reference inputs: which recipes at which size. Every script of this folder takes its inputs from here."""

from __future__ import annotations

from typing import NamedTuple


class Input(NamedTuple):
    name: str
    recipe: str
    overrides: dict[str, object]

    def command(self) -> list[str]:
        """Recipe and overrides, as the command line takes them."""
        return [self.recipe, *(f"{key}={value}" for key, value in self.overrides.items())]


def _bert(name: str, **overrides: object) -> Input:
    return Input(name, "examples/bert.py", {"size": "large", "batch": 32, "seq": 512, **overrides})


INPUTS = [
    _bert("bert-large fp32"),
    _bert("bert-large fp32 checkpoint", checkpoint="all"),
    _bert("bert-large bf16", precision="bf16"),
    _bert("bert-large bf16 checkpoint", precision="bf16", checkpoint="all"),
    Input("gpt2-small bf16", "examples/gpt.py", {"size": "small", "batch": 16, "seq": 1024, "precision": "bf16"}),
    Input("gpt2-medium bf16", "examples/gpt.py", {"size": "medium", "batch": 16, "seq": 1024, "precision": "bf16"}),
    Input("llama-0.9b bf16", "examples/llama.py", {"size": "0.9b", "batch": 8, "seq": 1024, "precision": "bf16"}),
    Input("resnet-50 fp32", "examples/resnet.py", {"size": "50", "batch": 64}),
    Input("mlp fp32", "examples/mlp.py", {}),
]

# Small enough for any machine: what the scripts' own tests run.
SMOKE = [
    Input("mlp fp32", "examples/mlp.py", {}),
    Input("bert-tiny fp32", "examples/bert.py", {"batch": 4, "seq": 64}),
    Input("bert-tiny bf16 checkpoint", "examples/bert.py", {"batch": 4, "seq": 64, "precision": "bf16", "checkpoint": "all"}),
]

# Time against memory: unconstrained inputs that the levers are compared on.
TRADEOFF = ["bert-large fp32", "bert-large bf16", "gpt2-medium bf16", "llama-0.9b bf16"]


def find(names: list[str] | None) -> list[Input]:
    """Inputs by name ("smoke" = the small ones); all when no names are given. Raises SystemExit for an unknown name."""
    if not names:
        return INPUTS
    if names == ["smoke"]:
        return SMOKE
    known = {entry.name: entry for entry in INPUTS + SMOKE}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"unknown input {unknown[0]!r}; known: smoke, {', '.join(known)}")
    return [known[name] for name in names]
