"""fit() on a card: the same bits, the budget kept, the prediction close."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic algorithms ask for, before CUDA starts
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device", allow_module_level=True)

from tonnage import devices, planning  # noqa: E402
from tonnage.fitting import fit  # noqa: E402
from tonnage.recipe import load  # noqa: E402

ROOT = Path(__file__).parents[2]
CARD = torch.device("cuda", 0)


SIZES = {  # activations enough that a budget can be below them
    "bert": {"size": "small", "batch": "32", "seq": "256"},
    "gpt": {"size": "small", "batch": "16", "seq": "128"},
    "llama": {"size": "small", "batch": "16", "seq": "256"},
}


def recipe(name, **more):
    return load(str(ROOT / "examples" / f"{name}.py"), {**SIZES[name], **more})


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["bert", "gpt", "llama"])
def test_training_is_bit_identical(name, precision, deterministic):
    """Dropout on: random ops that are rebuilt find their numbers again, and leave the generator where it was."""
    training = recipe(name, precision=precision)
    device = devices.find(devices.present())
    roomy = planning.plan_for(training, device, 1 << 36)["predicted"]
    context = roomy["device_used_bytes"] - roomy["reserved_bytes"]
    torch.manual_seed(0)
    with CARD:
        model = training.model().to(CARD)
    twin = copy.deepcopy(model)
    optimizer, twin_optimizer = training.optimizer(model), training.optimizer(twin)
    batch = training.batch()
    budget = context + int(roomy["reserved_bytes"] * 0.85)
    step = fit(model, optimizer, training.loss, batch, budget, levers=["rebuild", "allocator"], quiet=True)
    torch.cuda.set_per_process_memory_fraction(1.0)  # both models are here
    for n in range(3):
        batch = training.batch()
        torch.manual_seed(n)
        value = step(batch)
        offset = torch.cuda.default_generators[0].get_offset()
        torch.manual_seed(n)
        want = training.loss(twin, tuple(t.to(CARD) for t in batch))
        want.backward()
        twin_optimizer.step()
        twin_optimizer.zero_grad()
        assert torch.equal(value, want.detach())
        assert torch.cuda.default_generators[0].get_offset() == offset
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters()))
    assert step.stats()["mismatches"] == 0


def command(*words: str, status: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])}
    environment.pop("CUBLAS_WORKSPACE_CONFIG", None)
    done = subprocess.run([sys.executable, "-m", "tonnage", "fit", *words], capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_prediction_and_measurement(precision):
    budget = "4GiB" if precision == "bf16" else "5GiB"
    words = [str(ROOT / "examples" / "bert.py"), "size=base", "batch=16", "seq=256", f"precision={precision}", "--budget", budget, "--steps", "5"]
    result = json.loads(command(*words, "--json"))
    predicted, measured = result["predicted"], result["measured"]
    assert result["verdict"] == "fits" and result["slots"]["mismatches"] == 0
    assert predicted["allocated_bytes"] == pytest.approx(measured["allocated_bytes"], rel=0.02)
    assert measured["reserved_bytes"] <= predicted["reserved_bytes"] * 1.03
    if "device_used_bytes" in measured:
        assert measured["device_used_bytes"] <= result["budget_bytes"]


def test_exceeding_the_budget_fails_here(tmp_path):
    """A plan made for much runs out of memory within little."""
    words = [str(ROOT / "examples" / "bert.py"), "size=base", "batch=16", "seq=256", "--steps", "2"]
    command(*words, "--budget", "40GiB", "-o", str(tmp_path / "plan.json"))
    out = command(*words, "--budget", "4GiB", "--plan", str(tmp_path / "plan.json"), status=1)
    assert "does not fit" in out
