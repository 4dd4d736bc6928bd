"""The examples are the models they say they are, and learn."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tonnage.recipe import load  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"

PARAMETERS = [
    ("mlp", {}, 16_789_504 // 4),
    ("bert", {"size": "base"}, 109_514_298),
    ("bert", {"size": "large"}, 335_174_458),
    ("gpt", {"size": "small"}, 124_439_808),
    ("gpt", {"size": "medium"}, 354_823_168),
    ("llama", {"size": "0.9b"}, 953_223_168),
    ("resnet", {"size": "50"}, 25_557_032),
]


def recipe(name, overrides):
    return load(str(EXAMPLES / f"{name}.py"), overrides)


@pytest.mark.parametrize("name,overrides,count", PARAMETERS)
def test_number_of_parameters(name, overrides, count):
    with torch.device("meta"):
        model = recipe(name, overrides).model()
    assert sum(p.numel() for p in model.parameters()) == count


def train(training, steps):
    torch.manual_seed(0)
    model = training.model()
    optimizer = training.optimizer(model)
    losses = []
    for _ in range(steps):
        value = training.loss(model, training.batch())
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(value.detach()))
    return losses


@pytest.mark.parametrize("name,falls_to", [("mlp", 0.9), ("bert", 0.7), ("gpt", 0.7), ("llama", 0.7), ("resnet", 0.8)])
def test_the_loss_falls(name, falls_to):
    losses = train(recipe(name, {}), 30)
    assert losses[-1] < falls_to * losses[0]


@pytest.mark.parametrize("name", ["bert", "gpt", "llama", "resnet"])
def test_checkpointing_is_the_same_training(name):
    small = {"batch": "2"} if name == "resnet" else {"batch": "2", "seq": "32"}
    plain = train(recipe(name, small), 2)
    assert train(recipe(name, {**small, "checkpoint": "all"}), 2) == plain
    assert train(recipe(name, {**small, "checkpoint": "alternate"}), 2) == plain


@pytest.mark.parametrize("name", ["bert", "gpt", "llama", "resnet"])
def test_bf16(name):
    small = {"batch": "2"} if name == "resnet" else {"batch": "2", "seq": "32"}
    (fp32,) = train(recipe(name, small), 1)
    (bf16,) = train(recipe(name, {**small, "precision": "bf16"}), 1)
    assert bf16 != fp32 and bf16 == pytest.approx(fp32, rel=0.05)


def test_grouped_heads():
    assert train(recipe("llama", {"kv_heads": "2", "batch": "2"}), 1)[0] > 0


def test_berts_task_asks_for_about_15_percent():
    ids, target = recipe("bert", {"batch": "32"}).batch()
    asked = target != -100
    assert 0.12 < asked.float().mean() < 0.18
    hidden = (ids == 256) & asked
    assert 0.7 < hidden.sum() / asked.sum() < 0.9
    assert torch.equal(ids[~asked], ids[~asked].clamp(0, 255))
