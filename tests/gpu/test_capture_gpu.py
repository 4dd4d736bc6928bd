"""Captures against the card itself: the saved tensors one by one, and the allocator's peak."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device", allow_module_level=True)

from tonnage import _lib, batches, devices  # noqa: E402
from tonnage.capture import capture_tables  # noqa: E402
from tonnage.recipe import load  # noqa: E402
from tonnage.signature import signature  # noqa: E402

ROOT = Path(__file__).parents[2]
CARD = torch.device("cuda", 0)
RECIPES = {
    "mlp": {},
    "bert": {"size": "small", "batch": "8"},
    "gpt": {"size": "small", "batch": "4", "seq": "256"},
    "llama": {"size": "small", "batch": "4", "seq": "256"},
    "resnet": {"size": "small", "batch": "16", "image": "64"},
}
CASES = [(name, precision) for name in RECIPES for precision in ("fp32", "bf16") if (name, precision) != ("mlp", "bf16")]


def recipe(name, precision):
    return load(str(ROOT / "examples" / f"{name}.py"), {**RECIPES[name], **({"precision": precision} if name != "mlp" else {})})


def on_card(training):
    torch.manual_seed(0)
    with CARD:
        model = training.model().to(CARD)
    batch = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(CARD), training.batch())
    return model, training.optimizer(model), training.loss, batch


def signatures(tables):
    texts = tables.strings.texts()
    return [texts[s[2]] for s in tables.slot if s[4] == 1]


@pytest.mark.parametrize("name,precision", CASES)
def test_slots_are_what_the_card_saves(name, precision):
    training = recipe(name, precision)
    model, optimizer, loss, batch = on_card(training)
    captured = signatures(capture_tables((model, optimizer, loss, batch), devices.find(devices.present())))
    real: list[str] = []

    def pack(t):
        real.append(signature(t))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss(model, batch)
    assert captured == real


@pytest.mark.parametrize("name,precision", CASES)
def test_peak_is_the_allocators(name, precision):
    gc.collect()  # what earlier tests left in cycles
    before = torch.cuda.memory_allocated()
    training = recipe(name, precision)
    device = devices.find(devices.present())
    parts = on_card(training)
    peak = _lib.estimate(_lib.Trace.from_tables(capture_tables(parts, device)), _lib.profile_parse(device.text), step=1)
    model, optimizer, loss, batch = parts
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        value = loss(model, batch)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del value
    measured = torch.cuda.max_memory_allocated() - before
    bound = 0.02 if name == "resnet" else 0.003
    workspaces = 64 << 20  # another test's cuBLAS handles may have brought some, or have them already
    if name == "resnet":
        workspaces += 16 << 20  # of convolutions, which cuDNN picks by their size; these are tiny
    assert abs(peak.allocated_bytes - measured) <= bound * measured + workspaces
    assert batches.size(batch) == int(RECIPES[name].get("batch", batches.size(batch)))


def test_virtual_card_agrees_with_the_card():
    """The same trace from a process that has no card as from the card: slots and allocations, in order."""
    code = """if True:
        import json, os, sys
        from tonnage import devices, virtual_card
        device = devices.find(sys.argv[1])
        virtual_card.load(device)
        from tonnage.capture import capture_tables
        from tonnage.recipe import load
        tables = capture_tables(load(sys.argv[2], dict(w.split("=") for w in sys.argv[3:])), device)
        texts = tables.strings.texts()
        print(json.dumps([[texts[s[2]] for s in tables.slot if s[4] == 1], [texts[o[0]] for o in tables.op]]))"""
    name = devices.present()
    for recipe_name, precision in CASES:
        words = [f"{k}={v}" for k, v in {**RECIPES[recipe_name], **({"precision": precision} if recipe_name != "mlp" else {})}.items()]
        path = str(ROOT / "examples" / f"{recipe_name}.py")
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run([sys.executable, "-c", code, name, path, *words], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        slots, ops = json.loads(done.stdout)
        tables = capture_tables(recipe(recipe_name, precision), devices.find(name))
        texts = tables.strings.texts()
        assert slots == signatures(tables), recipe_name
        assert ops == [texts[o[0]] for o in tables.op], recipe_name
