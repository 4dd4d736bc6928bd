"""fit() end to end on the CPU: the same training within less memory."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tonnage import planning  # noqa: E402
from tonnage.devices import find  # noqa: E402
from tonnage.errors import Error  # noqa: E402
from tonnage.fitting import fit  # noqa: E402
from tonnage.measure import CpuMeter  # noqa: E402
from tonnage.recipe import load  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"mlp": {"batch": "256"}, "resnet": {"batch": "8", "size": "small"}}
TEXT = {"batch": "4", "seq": "128"}


def recipe(name, **more):
    return load(str(EXAMPLES / f"{name}.py"), {**SMALL.get(name, TEXT), **more})


def built(training):
    torch.manual_seed(0)
    model = training.model()
    return model, training.optimizer(model), training.batch()


def unconstrained(training) -> int:
    return planning.plan_for(training, find("cpu"), 1 << 40)["predicted"]["unconstrained_allocated_bytes"]


# ---- rebuilt slots: not one bit


@pytest.mark.parametrize("name,share", [("mlp", 0.99), ("bert", 0.75), ("gpt", 0.7), ("llama", 0.85), ("resnet", 0.97)])
def test_training_is_bit_identical(name, share):
    training = recipe(name)
    budget = int(unconstrained(training) * share)
    model, optimizer, batch = built(training)
    twin = copy.deepcopy(model)
    twin_optimizer = training.optimizer(twin)
    try:
        step = fit(model, optimizer, training.loss, batch, budget, levers=["rebuild"], quiet=True)
    except planning.InfeasibleError:
        assert name == "mlp"  # its memory is parameters and optimizer state
        return
    meter = CpuMeter(model, optimizer)
    for n in range(3):
        batch = training.batch()
        torch.manual_seed(n)
        value = meter.run(n, lambda batch=batch: step(batch), batch)
        torch.manual_seed(n)
        want = training.loss(twin, batch)
        want.backward()
        twin_optimizer.step()
        twin_optimizer.zero_grad()
        assert torch.equal(value, want.detach())
    for (name, p), q in zip(model.named_parameters(), twin.parameters()):
        assert torch.equal(p, q), name
    for (name, p), q in zip(model.named_buffers(), twin.named_buffers()):
        assert torch.equal(p, q[1]), name
    stats = step.stats()
    assert stats["mismatches"] == stats["remade"] == 0 and stats["rebuilt"] > 0
    assert all(p.grad is None for p in model.parameters())
    assert meter.peaks()["steady"]["allocated_bytes"] <= 1.05 * budget


# ---- micro-batches: the whole batch's gradient


def gradient_of(optimizer, model, run):
    taken = []
    hook = optimizer.register_step_pre_hook(lambda *_: taken.append(torch.cat([p.grad.flatten() for p in model.parameters()])))
    value = run()
    hook.remove()
    return taken[0], value


@pytest.mark.parametrize("rows,share", [(8, 0.7), (11, 0.55)])
def test_micro_batches_give_the_whole_batchs_gradient(rows, share):
    """BERT's targets are ignored at 85 % of the positions, a different number in each micro-batch."""
    training = recipe("bert", batch=str(rows), dropout="0")
    budget = int(unconstrained(training) * share)
    model, optimizer, batch = built(training)
    want_value = training.loss(model, batch)
    want_value.backward()
    want = torch.cat([p.grad.flatten() for p in model.parameters()])
    optimizer.zero_grad()
    step = fit(model, optimizer, training.loss, batch, budget, quiet=True)
    sizes = [p["micro_batch"] for p in step.plan["passes"] for _ in range(p["count"])]
    assert sum(sizes) == rows and len(sizes) > 1 and (rows == 8 or len(set(sizes)) == 2)
    got, value = gradient_of(optimizer, model, lambda: step(batch))
    assert (got - want).norm() <= 1e-5 * want.norm()
    assert float(value) == pytest.approx(float(want_value.detach()), rel=1e-5)
    assert step.stats()["mismatches"] == 0


def test_a_smaller_last_batch_is_cut_too():
    training = recipe("bert", batch="8", dropout="0")
    model, optimizer, batch = built(training)
    step = fit(model, optimizer, training.loss, batch, int(unconstrained(training) * 0.6), quiet=True)
    last = tuple(t[:5] for t in batch)
    want = training.loss(model, last)
    assert float(step(last)) == pytest.approx(float(want.detach()), rel=1e-5)


@pytest.mark.parametrize("name,share", [("gpt", 0.75), ("resnet", 0.97)])
def test_a_smaller_last_batch_without_micro_batches(name, share):
    """It runs in pieces that need no plan, except where BatchNorm would see the cut."""
    training = recipe(name, **({"dropout": "0"} if name == "gpt" else {}))
    model, optimizer, batch = built(training)
    step = fit(model, optimizer, training.loss, batch, int(unconstrained(training) * share), levers=["rebuild"], quiet=True)
    step.plan["loss_weight"] = {"kind": "rows"}
    step._weights = step._weigh(None)
    last = tuple(t[:3] for t in batch)
    want = copy.deepcopy(model)
    assert float(step(last)) == pytest.approx(float(training.loss(want, last).detach()), rel=1e-5)
    assert step.stats()["mismatches"] == 0
    assert all(torch.equal(b, c) for b, c in zip(model.buffers(), want.buffers()))


def test_all_targets_of_a_micro_batch_ignored():
    training = recipe("bert", batch="8", dropout="0")
    model, optimizer, (ids, target) = built(training)
    step = fit(model, optimizer, training.loss, (ids, target), int(unconstrained(training) * 0.6), quiet=True)
    target[:4] = -100
    want = training.loss(model, (ids, target))
    got, value = gradient_of(optimizer, model, lambda: step((ids, target)))
    assert float(value) == pytest.approx(float(want.detach()), rel=1e-5) and torch.isfinite(got).all()


# ---- plans that do not belong


def small_fit(**more):
    training = recipe("gpt")
    model, optimizer, batch = built(training)
    return training, model, optimizer, batch, fit(model, optimizer, training.loss, batch, "1GiB", quiet=True, **more)


def test_a_plan_from_a_file(tmp_path):
    training, model, optimizer, batch, step = small_fit()
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(step.plan))
    again = fit(model, optimizer, training.loss, batch, "1GiB", plan=file, quiet=True)
    again(batch)
    assert again.stats()["mismatches"] == 0


@pytest.mark.parametrize(
    "text,why",
    [
        ("", "not a plan"),
        ("[]", "not a plan"),
        ('{"tonnage_plan": 9}', "newer tonnage"),
        ('{"tonnage_plan": 1, "passes": []}', "no passes"),
        ('{"tonnage_plan": 1, "precision": "int4", "passes": [{"micro_batch": 4}]}', "unknown precision"),
        ('{"tonnage_plan": 1, "precision": "as is", "passes": [{"micro_batch": 4, "count": 1}]}', "malformed"),
    ],
)
def test_files_that_are_no_plans(tmp_path, text, why):
    training = recipe("gpt")
    model, optimizer, batch = built(training)
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(Error, match=why):
        fit(model, optimizer, training.loss, batch, "1GiB", plan=file, quiet=True)


def test_missing_plan(tmp_path):
    training = recipe("gpt")
    model, optimizer, batch = built(training)
    with pytest.raises(Error, match="No such file"):
        fit(model, optimizer, training.loss, batch, "1GiB", plan=tmp_path / "none.json", quiet=True)


def test_plan_for_other_rows():
    training, model, optimizer, batch, step = small_fit()
    with pytest.raises(Error, match="made for batches of 4 rows; this one has 2"):
        fit(model, optimizer, training.loss, tuple(t[:2] for t in batch), "1GiB", plan=step.plan, quiet=True)


@pytest.mark.parametrize("change,why", [
    (lambda p: p["slots"].__setitem__(0, ["no signature", 1]), "is no slot's signature"),
    (lambda p: p["sources"].update({"1": "parameter:nobody.weight"}), "nobody"),
    (lambda p: p["sources"].update({"1": "slot:99999"}), "no slot 99999"),
    (lambda p: p["ops"].update({"1": {"op": "aten.system.default", "call": {"args": [], "kwargs": {}}, "out": []}}), "no op aten.system"),
    (lambda p: p["ops"].update({"1": {"op": "__import__('os')", "call": {"args": [], "kwargs": {}}, "out": []}}), "is no op's name"),
    (lambda p: p["slots"].__setitem__(1, [p["slots"][1][0], 0]), "malformed"),
])  # fmt: skip
def test_edited_plans(change, why):
    training, model, optimizer, batch, step = small_fit()
    plan = copy.deepcopy(step.plan)
    change(plan["passes"][0])
    with pytest.raises(Error, match=why):
        fit(model, optimizer, training.loss, batch, "1GiB", plan=plan, quiet=True)


# ---- bad input


def test_malformed_budget():
    training = recipe("gpt")
    model, optimizer, batch = built(training)
    for budget in ("12 apples", "-1GiB", 0):
        with pytest.raises(Error):
            fit(model, optimizer, training.loss, batch, budget, quiet=True)


def test_a_loss_that_is_no_scalar():
    training = recipe("gpt")
    model, optimizer, batch = built(training)
    with pytest.raises(Error, match="expected a scalar tensor"):
        fit(model, optimizer, lambda m, b: m(b[0]), batch, "1GiB", quiet=True)
    _, model, optimizer, batch, step = small_fit()
    step._loss = lambda m, b: m(b[0])
    with pytest.raises(Error, match=r"a tensor of shape \[4, 128, 320\]; expected a scalar tensor"):
        step(batch)


def test_model_without_parameters():
    with pytest.raises(Error, match="no parameters"):
        fit(nn.ReLU(), None, None, None, "1GiB")


def test_larger_batch_than_planned():
    training, model, optimizer, batch, step = small_fit()
    with pytest.raises(Error, match="has 8 rows; the plan was made for 4"):
        step(tuple(torch.cat([t, t]) for t in batch))


def test_closed():
    training, model, optimizer, batch, step = small_fit()
    step(batch)
    step.close()
    with pytest.raises(Error, match="closed"):
        step(batch)


def test_prints_the_plan_once(capsys):
    training = recipe("gpt")
    model, optimizer, batch = built(training)
    step = fit(model, optimizer, training.loss, batch, "1GiB")
    step(batch)
    assert capsys.readouterr().out.count("Plan for 1.00 GiB") == 1
