"""Slots dropped and rebuilt must not change one bit of a gradient."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils._pytree import tree_leaves  # noqa: E402

from tonnage.apply import Run, Stats  # noqa: E402
from tonnage.program import Program  # noqa: E402
from tonnage.recipe import load  # noqa: E402
from toy_planner import plan_pass  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
CPU = torch.device("cpu")
RECIPES = {
    "mlp": {"batch": 4},
    "bert": {"batch": 2, "seq": 32},
    "gpt": {"batch": 2, "seq": 32},
    "llama": {"batch": 2, "seq": 32},
    "resnet": {"batch": 4},
}


def recipe(name: str, **more):
    return load(str(EXAMPLES / f"{name}.py"), {key: str(value) for key, value in {**RECIPES[name], **more}.items()})


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def plain(training, model, batch, seed=1):
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    value = training.loss(model, batch)
    value.backward()
    result = gradients(model), {name: b.clone() for name, b in model.named_buffers()}, value.detach()
    model.zero_grad(set_to_none=True)
    for name, b in model.named_buffers():
        b.copy_(buffers[name])
    return result


def planned(training, model, batch, program, seed=1):
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    stats = Stats()
    lines: list[str] = []
    run = Run(program, tree_leaves(batch), stats, lines.append)
    with run:
        value = training.loss(model, batch)
    value.backward()
    run.finish()
    return gradients(model), {name: b.clone() for name, b in model.named_buffers()}, value.detach(), stats, lines


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_bit_is_the_same(name, precision):
    more = {} if name == "mlp" else {"precision": precision}
    training = recipe(name, **more)
    model, batch = training.model(), training.batch()
    entry = json.loads(json.dumps(plan_pass(model, training.loss, batch, rows=4)))
    dropped = sum(1 - keep for _, keep in entry["slots"])
    program = Program(entry, model, CPU)
    grads, buffers, value = plain(training, model, batch)
    torch.rand(7)  # the generator stands elsewhere
    got, got_buffers, got_value, stats, lines = planned(training, model, batch, program)
    assert lines == [] and stats.mismatches == 0 and stats.remade == 0
    assert stats.rebuilt >= dropped > 0.15 * len(entry["slots"])
    assert torch.equal(value, got_value)
    assert all(torch.equal(g, got[n]) for n, g in grads.items())
    assert all(torch.equal(b, got_buffers[n]) for n, b in buffers.items())


def test_random_ops_are_rebuilt():
    training = recipe("bert")
    model, batch = training.model(), training.batch()
    entry = plan_pass(model, training.loss, batch, rows=2)
    rng = [op["op"] for op in entry["ops"].values() if "rng" in op]
    assert "aten.bernoulli_.float" in rng and entry["random"]


def test_batch_norm_is_rebuilt_on_copies_of_its_statistics():
    training = recipe("resnet")
    model, batch = training.model(), training.batch()
    entry = plan_pass(model, training.loss, batch, rows=4)
    names = [op["op"] for op in entry["ops"].values()]
    assert any("batch_norm" in n for n in names) and "aten.relu_.default" in names
    assert "scratch" in json.dumps(entry["ops"])


def setup(name="gpt", **more):
    training = recipe(name, **more)
    model, batch = training.model(), training.batch()
    return training, model, batch, Program(plan_pass(model, training.loss, batch, rows=2), model, CPU)


def test_other_shape_keeps_everything_and_says_so_once():
    training, model, batch, program = setup()
    half = tuple(x[:, :16].contiguous() for x in batch)
    want, _, _ = plain(training, model, half)
    got, _, _, stats, lines = planned(training, model, half, program)
    assert all(torch.equal(want[n], got[n]) for n in want)
    assert stats.rebuilt == 0 and stats.mismatches == 1
    assert len(lines) == 1 and "slot 0 is int64[2,16] - in words, where the plan expects int64[2,32] -" in lines[0]


def test_a_difference_half_way_leaves_earlier_slots_dropped():
    training, model, batch, program = setup()

    def other(model, batch):
        ids, target = batch
        return torch.nn.functional.cross_entropy(model(ids).flatten(0, 1).tanh(), target.flatten())

    training.loss = other
    want, _, _ = plain(training, model, batch)
    got, _, _, stats, lines = planned(training, model, batch, program)
    assert all(torch.equal(want[n], got[n]) for n in want)
    assert stats.rebuilt > 0 and stats.mismatches == 1 and "TanhBackward0" in lines[0]


def test_more_and_fewer_slots():
    training, model, batch, program = setup()
    loss = training.loss
    training.loss = lambda model, batch: loss(model, batch).exp()
    want, _, _ = plain(training, model, batch)
    got, _, _, stats, lines = planned(training, model, batch, program)
    assert all(torch.equal(want[n], got[n]) for n in want)
    assert stats.rebuilt > 0 and "where the plan expects no more slots" in lines[0]
    training.loss = lambda model, batch: model(batch[0]).sum()
    want, _, _ = plain(training, model, batch)
    got, _, _, stats, lines = planned(training, model, batch, program)
    assert all(torch.equal(want[n], got[n]) for n in want)
    assert stats.rebuilt > 0 and "ended before slot" in lines[0]


def test_backward_twice_rebuilds_from_what_is_alive():
    training, model, batch, program = setup()
    want, _, _ = plain(training, model, batch)
    torch.manual_seed(1)
    run = Run(program, list(batch), Stats())
    with run:
        value = training.loss(model, batch)
    value.backward(retain_graph=True)
    model.zero_grad(set_to_none=True)
    value.backward()
    got = gradients(model)
    assert all(torch.equal(want[n], got[n]) for n in want)


def test_part_of_backward_first():
    """Only the second layer's parameters, then all: slots are asked for again, from recipes whose values are forgotten."""
    training, model, batch, program = setup()
    want, _, _ = plain(training, model, batch)
    torch.manual_seed(1)
    stats = Stats()
    run = Run(program, list(batch), stats)
    with run:
        value = training.loss(model, batch)
    torch.autograd.grad(value, list(model.layers[1].parameters()), retain_graph=True)
    value.backward()
    got = gradients(model)
    assert all(torch.equal(want[n], got[n]) for n in want)


def test_second_backward_after_release_is_torchs_own_error():
    training, model, batch, program = setup()
    run = Run(program, list(batch), Stats())
    with run:
        value = training.loss(model, batch)
    value.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        value.backward()


def test_changed_in_place_is_an_error_as_without_us():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 1))
    batch = torch.ones(2, 4)

    def loss(model, x):
        return model(x).sum()

    program = Program(plan_pass(model, loss, batch, rows=2, drop=lambda k: False), model, CPU)
    run = Run(program, [batch], Stats())
    with run:
        y = model[1](model[0](batch))
        value = model[2](y).sum()
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


# ---- leaks


class Watch:
    """Counts the tensors' storages that a pass leaves alive, with the cycle collector off."""

    def __enter__(self):
        gc.collect()
        gc.disable()
        self.refs: list[weakref.ref] = []
        return self

    def hook(self, module, args, output):
        self.refs.append(weakref.ref(output.untyped_storage() if isinstance(output, torch.Tensor) else output))

    def alive(self) -> int:
        return sum(r() is not None for r in self.refs)

    def __exit__(self, *exc):
        gc.enable()


def layers(model):
    return [m for m in model.modules() if not list(m.children())]


@pytest.mark.parametrize("how", ["backward", "no backward", "raises", "user's hooks", "evaluation inside", "mismatch"])
@pytest.mark.parametrize("name", ["gpt", "resnet"])
def test_nothing_is_left_alive(name, how):
    training = recipe(name)
    model, batch = training.model(), training.batch()
    program = Program(plan_pass(model, training.loss, batch, rows=2), model, CPU)
    with Watch() as watch:
        hooks = [m.register_forward_hook(watch.hook) for m in layers(model)]

        def loss():
            if how == "user's hooks":
                with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
                    return training.loss(model, batch)
            if how == "evaluation inside":
                training.loss(model, batch)  # with a graph that nobody runs
                with torch.no_grad():
                    training.loss(model, batch)
            if how == "mismatch":
                return training.loss(model, tuple(x[:1] for x in batch))
            value = training.loss(model, batch)
            if how == "raises":
                raise KeyError("in the user's code")
            return value

        for _ in range(2):  # the first run learns what the second relies on
            run = Run(program, list(batch), Stats(), lambda line: None)
            try:
                with run:
                    value = loss()
                if how != "no backward":
                    value.backward()
                run.finish()
                del value
            except KeyError:
                pass
            del run
        del hooks
        assert watch.refs and watch.alive() == 0
    assert torch._C._autograd._saved_tensors_hooks_is_enabled()
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_hooks_are_popped_when_the_loss_raises():
    training, model, batch, program = setup()
    stats = Stats()
    run = Run(program, list(batch), stats)
    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError
    run.finish()
    assert stats.mismatches == 0  # a pass that was cut short says nothing about the plan
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t.detach(), lambda t: t):
        training.loss(model, batch)
    assert seen


# ---- order


def branches(hold):
    """h is kept at slot 0 for cos; exp's output, slot 1, is rebuilt from it."""
    plan = {
        "micro_batch": 1, "count": 1,
        "slots": [["float32[4] NegBackward0", 1], ["float32[4] ExpBackward0", 0]],
        "ops": {"5": {"op": "aten.exp.default", "call": {"args": [{"v": 8}], "kwargs": {}}, "out": [9]}},
        "sources": {"8": "slot:0"},
        "rebuild": {"1": {"run": [[5, []]], "value": 9, "forget": [9]}},
        "hold": {"0": [[8, 1]]} if hold else {},
        "random": [],
    }  # fmt: skip
    x = torch.ones(4, requires_grad=True)
    run = Run(Program(plan, torch.nn.Identity(), CPU), [], Stats())
    with run:
        h = -x
        a, b = h.cos(), h.exp()
    return x, run, a, b


def test_a_slot_that_is_held_outlives_its_node():
    x, run, a, b = branches(hold=True)
    a.sum().backward()
    assert run.regs.count(None) < len(run.regs)
    x.grad = None
    b.sum().backward()
    assert torch.equal(x.grad, -torch.ones(4).neg().exp())
    assert run.regs.count(None) == len(run.regs) and run.stats.remade == 0


def test_a_slot_asked_for_too_late_is_one_clear_error():
    x, run, a, b = branches(hold=False)
    a.sum().backward()
    with pytest.raises(RuntimeError, match=r"asks for slot 1 \(float32\[4\] ExpBackward0\) again or out of turn, and slot 0 .* has been given back"):
        b.sum().backward()


def test_backward_inside_the_loss():
    """A gradient penalty: slots are given back while the forward pass is still running, and backward saves slots of its own."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Sigmoid(), torch.nn.Linear(16, 1))

    def loss(model, x):
        x = x.clone().requires_grad_()
        y = model(x).sum()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        return y + gradient.pow(2).sum()

    class Training:
        pass

    Training.loss = staticmethod(loss)
    batch = torch.randn(5, 6)
    program = Program(plan_pass(model, loss, batch, rows=5), model, CPU)
    want, _, _ = plain(Training, model, batch)
    got, _, _, stats, lines = planned(Training, model, batch, program)
    assert lines == [] and stats.rebuilt > 0
    assert all(torch.equal(want[n], got[n]) for n in want)
