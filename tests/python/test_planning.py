"""Plans for tiny recipes on the CPU: they take what they say, change no bit, and say clearly what cannot be done."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from tonnage import Training, _lib, planning  # noqa: E402
from tonnage.apply import Run, Stats  # noqa: E402
from tonnage.devices import find  # noqa: E402
from tonnage.errors import Error  # noqa: E402
from tonnage.measure import CpuMeter  # noqa: E402
from tonnage.program import Program  # noqa: E402
from tonnage.recipe import load  # noqa: E402
from tonnage.step import Step  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
CPU = torch.device("cpu")
RECIPES = {
    "bert": {"batch": 4, "seq": 64},
    "gpt": {"batch": 4, "seq": 64},
    "llama": {"batch": 4, "seq": 64},
    "resnet": {"batch": 8, "size": "small"},
}


def recipe(name, **more):
    return load(str(EXAMPLES / f"{name}.py"), {key: str(value) for key, value in {**RECIPES[name], **more}.items()})


class Planned:
    """A recipe and the captures of its plans; these are cached, so that another budget costs milliseconds."""

    def __init__(self, training, **options):
        self.training, self.options, self.captures = training, options, {}
        self.roomy = self(1 << 40)["predicted"]["device_used_bytes"]

    def __call__(self, budget, **more):
        return planning.plan_for(self.training, find("cpu"), budget, captures=self.captures, **{**self.options, **more})

    def smallest(self):
        """The smallest budget found, from the message that says it; and the message."""
        with pytest.raises(planning.InfeasibleError) as refused:
            self(1)
        return smallest_in(str(refused.value)), str(refused.value)


def smallest_in(text):
    return _lib.size_parse(re.search(r": ([\d.]+ \w+) is the smallest budget", text)[1])


@pytest.fixture(scope="module")
def plans():
    """Planned by (recipe, precision), levers=rebuild only."""
    made = {}

    def get(name, precision="fp32"):
        if (name, precision) not in made:
            made[name, precision] = Planned(recipe(name, precision=precision), levers=["rebuild"])
        return made[name, precision]

    return get


# ---- what a plan says is what it takes


def profiled(training, plan, steps=2):
    """The steady step's peak by PyTorch's profiler."""
    torch.manual_seed(0)
    model = training.model()
    optimizer = training.optimizer(model)
    step = Step(model, optimizer, training.loss, plan, CPU, say=pytest.fail)
    meter = CpuMeter(model, optimizer)
    for n in range(steps):
        batch = training.batch()
        meter.run(n, lambda batch=batch: step(batch), batch)
    assert step.stats()["remade"] == 0
    return meter.peaks()["steady"]["allocated_bytes"]


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_prediction_is_the_profilers(plans, name):
    planned = plans(name)
    smallest, _ = planned.smallest()
    for share in (0.6, 0.02):
        budget = int(smallest + share * (planned.roomy - smallest)) + 1
        plan = planned(budget)
        peak = profiled(planned.training, plan)
        within = 0.02 if name == "resnet" else 0.01  # CPU convolutions take memory of their own
        assert abs(plan["predicted"]["allocated_bytes"] - peak) <= within * peak
        assert plan["predicted"]["allocated_bytes"] <= budget


def test_the_prediction_holds_for_micro_batches():
    planned = Planned(recipe("gpt", batch=5), levers=["micro-batch"])
    plan = planned(int(planned.roomy * 0.8))
    assert [(p["count"], p["micro_batch"]) for p in plan["passes"]] in ([(1, 3), (1, 2)], [(2, 2), (1, 1)])  # an uneven rest
    assert sum(p["count"] * p["micro_batch"] for p in plan["passes"]) == 5
    peak = profiled(planned.training, plan)
    assert abs(plan["predicted"]["allocated_bytes"] - peak) <= 0.01 * peak


# ---- a plan changes no bit


def gradients(training, model, batch, program=None):
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    stats = Stats()
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    if program is None:
        training.loss(model, batch).backward()
    else:
        run = Run(program, tree_leaves(batch), stats, pytest.fail)
        with run:
            value = training.loss(model, batch)
        value.backward()
        run.finish()
    after = {name: b.clone() for name, b in model.named_buffers()}
    for name, b in model.named_buffers():
        b.copy_(buffers[name])
    return {name: p.grad.clone() for name, p in model.named_parameters()}, after, stats


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_random_budgets_change_no_bit(plans, name, precision):
    planned = plans(name, precision)
    smallest, _ = planned.smallest()
    draw = random.Random(f"{name} {precision}")
    model, batch = planned.training.model(), planned.training.batch()
    want, want_buffers, _ = gradients(planned.training, model, batch)
    for share in (0.01, draw.random()):
        plan = planned(int(smallest + share * (planned.roomy - smallest)) + 1)
        (entry,) = plan["passes"]
        got, got_buffers, stats = gradients(planned.training, model, batch, Program(entry, model, CPU))
        assert stats.remade == 0 and stats.mismatches == 0
        assert stats.rebuilt == sum(not keep for _, keep in entry["slots"])
        assert all(torch.equal(g, got[n]) for n, g in want.items()), f"share {share}"
        assert all(torch.equal(b, got_buffers[n]) for n, b in want_buffers.items())


class Odd(nn.Module):
    """What is rare: two outputs of which one is read later, views of both, writes into parts, dropout between them."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(128, 64)

    def forward(self, x):
        y = self.up(x)
        values, where = y.topk(128, dim=-1)
        values = nn.functional.dropout(values, 0.2).tanh()
        z = torch.zeros_like(values)
        z[:, :64] = values[:, 64:].sigmoid()
        z[:, 64:].add_(values[:, :64].exp())
        mixed = (values * z + where / 256).relu_() * 1.5
        a, b = mixed.chunk(2, -1)
        return self.down(torch.cat([b.sin(), a.cos()], -1) * mixed.softmax(-1))


def test_odd_ops_change_no_bit():
    training = Training(Odd, lambda m: torch.optim.SGD(m.parameters(), 0.1), lambda m, b: m(b[0]).square().mean(), lambda: (torch.randn(512, 64),))
    planned = Planned(training, levers=["rebuild"])
    smallest, _ = planned.smallest()
    model, batch = training.model(), training.batch()
    want, _, _ = gradients(training, model, batch)
    rebuilt = set()
    for share in (0.01, 0.1, 0.2, 0.35, 0.6):
        (entry,) = planned(int(smallest + share * (planned.roomy - smallest)) + 1)["passes"]
        got, _, stats = gradients(training, model, batch, Program(entry, model, CPU))
        assert stats.remade == 0
        assert all(torch.equal(g, got[n]) for n, g in want.items()), f"share {share}"
        rebuilt.add(stats.rebuilt)
    assert max(rebuilt) >= 5


# ---- what cannot be done


@pytest.mark.parametrize("levers", [["rebuild"], ["rebuild", "micro-batch"], ["micro-batch"]])
@pytest.mark.parametrize("name", ["bert", "resnet"])
def test_the_smallest_budget_named_can_be_planned(name, levers):
    allow = ["batchnorm"] if name == "resnet" else []
    planned = Planned(recipe(name), levers=levers, allow=allow)
    smallest, text = planned.smallest()
    assert f"({', '.join([lever for lever in planning.LEVERS if lever in levers] + allow)})" in text
    assert "parameters, optimizer state take" in text and "the rest is at its peak in" in text
    assert "; may lower it: " in text and "--allow precision" in text and "\n" not in text
    for lever in set(planning.LEVERS) - set(levers):
        assert lever in text.partition("may lower it")[2]
    assert smallest < planned.roomy
    plan = planned(int(smallest * 1.01))
    assert plan["predicted"]["device_used_bytes"] <= smallest * 1.01


def test_unknown_names_are_refused():
    training = recipe("gpt")
    with pytest.raises(Error, match="--allow speed: unknown; known: precision batchnorm"):
        planning.plan_for(training, find("cpu"), 1 << 30, allow=["speed"])
    with pytest.raises(Error, match="--levers precision: unknown; known: rebuild micro-batch allocator"):
        planning.plan_for(training, find("cpu"), 1 << 30, levers=["precision"])


def test_batchnorm_is_not_cut_unless_allowed():
    planned = Planned(recipe("resnet", batch=48))
    smallest, text = planned.smallest()
    assert "micro-batches are not used: body" in text or re.search(r"micro-batches are not used: \S+ is a BatchNorm", text)
    assert "--allow batchnorm takes that" in text
    plan = planned(int(smallest * 1.01))
    assert len(plan["passes"]) == 1 and any("BatchNorm" in note for note in plan["notes"])
    allowed = Planned(recipe("resnet", batch=48), allow=["batchnorm"])
    _, text = allowed.smallest()
    assert "cannot be run: ValueError: Expected more than 1 value per channel when training" in text  # a BatchNorm with one sample
    plan = allowed(int(smallest * 0.9))
    assert plan["passes"][0]["micro_batch"] < 48 and plan["notes"] == []


def test_a_batch_without_a_common_dimension_is_not_cut():
    training = recipe("gpt")

    def odd(model, batch):
        return training.loss(model, batch[:-1])

    planned = Planned(Training(training.model, training.optimizer, odd, lambda: (*training.batch(), torch.zeros(3))))
    smallest, text = planned.smallest()
    assert "micro-batches are not used: the tensors of the batch do not share dimension 0" in text
    plan = planned(int(smallest * 1.01))  # what can be rebuilt is, all the same
    assert plan["rebuilt"]
    assert abs(plan["predicted"]["allocated_bytes"] - profiled(planned.training, plan)) <= 0.01 * plan["predicted"]["allocated_bytes"]


def test_a_roomy_budget_changes_nothing():
    planned = Planned(recipe("gpt"))
    plan = planned(1 << 40)
    assert plan["levers"] == [] and plan["rebuilt"] == []
    assert plan["predicted"]["step_ms"] == plan["predicted"]["unconstrained_step_ms"]
    assert "nothing to change: the step fits as it is" in planning.text_of(plan)
