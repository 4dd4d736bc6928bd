"""Capture of objects that are in use: same trace as from a recipe, and nothing of theirs is touched."""

from __future__ import annotations

import copy
import gc
import random

import pytest

torch = pytest.importorskip("torch")

import small_models  # noqa: E402
from reading import Reader, peak  # noqa: E402
from real_run import in_runs, one_step  # noqa: E402
from tonnage import devices  # noqa: E402
from tonnage import tables as T  # noqa: E402
from tonnage.capture import capture_tables  # noqa: E402
from tonnage.errors import CaptureError  # noqa: E402

CPU = devices.find("cpu")


def live(name: str, trained: bool = False):
    training = small_models.ALL[name]
    torch.manual_seed(0)
    model = training.model()
    optimizer, batch = training.optimizer(model), training.batch()
    if trained:
        one_step(training, model, optimizer, batch)
    return model, optimizer, training.loss, batch


def capture(parts, **options) -> Reader:
    return Reader(capture_tables(parts, CPU, **options))


@pytest.mark.parametrize("name", ["mlp", "transformer", "convolutions", "transformer bf16"])
def test_same_as_from_a_recipe(name):
    from_live, from_recipe = capture(live(name)), Reader(capture_tables(small_models.ALL[name], CPU))
    assert [in_runs(step) for step in from_live.lives()] == [in_runs(step) for step in from_recipe.lives()]
    assert from_live.signatures() == from_recipe.signatures()
    assert [op[0] for op in from_live.tables.op] == [op[0] for op in from_recipe.tables.op]


def test_state_that_is_there_is_kept():
    """An optimizer that has trained: its state exists before the first step, and both steps are alike."""
    reader = capture(live("transformer", trained=True))
    setup, first, second = reader.lives()
    assert first == second
    assert peak(setup) > peak(capture(live("transformer")).lives()[0])
    states = [b for b in reader.tables.block if b[4] == T.OPTIMIZER]
    assert {reader.texts[b[2]].rpartition(".")[2] for b in states} == {"step", "exp_avg", "exp_avg_sq"}
    assert all(b[1] == T.NONE for b in states)


def everything(model, optimizer, batch):
    tensors = [*model.parameters(), *model.buffers(), *batch]
    for state in optimizer.state.values():
        tensors += [v for v in state.values() if isinstance(v, torch.Tensor)]
    return tensors


@pytest.mark.parametrize("name", ["transformer", "convolutions"])
def test_nothing_is_touched(name):
    model, optimizer, loss, batch = live(name, trained=True)
    loss(model, batch).backward()
    tensors = everything(model, optimizer, batch)
    gradients = [p.grad for p in model.parameters()]
    before = [t.clone() for t in [*tensors, *gradients]]
    versions = [t._version for t in [*tensors, *gradients]]
    addresses = [t.data_ptr() for t in [*tensors, *gradients]]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    settings = copy.deepcopy(optimizer.state_dict()["param_groups"])
    numbers, python = torch.get_rng_state(), random.getstate()
    modes = [m.training for m in model.modules()]
    collecting = gc.isenabled()

    capture((model, optimizer, loss, batch), micro_batch=2, passes=2)

    after = everything(model, optimizer, batch)
    assert all(a is b for a, b in zip(after, tensors))
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients))
    now = [*tensors, *gradients]
    assert all(torch.equal(a, b) for a, b in zip(now, before))
    assert [t._version for t in now] == versions and [t.data_ptr() for t in now] == addresses
    assert [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()] == hooks
    assert not torch.nn.modules.module._global_forward_hooks and not torch.nn.modules.module._global_forward_pre_hooks
    assert optimizer.state_dict()["param_groups"] == settings
    assert torch.equal(torch.get_rng_state(), numbers) and random.getstate() == python
    assert [m.training for m in model.modules()] == modes
    assert gc.isenabled() == collecting


def test_module_hooks_run_on_the_copy():
    model, optimizer, loss, batch = live("mlp")
    seen = []
    model.up.register_forward_hook(lambda module, args, out: seen.append(module))
    capture((model, optimizer, loss, batch))
    assert len(seen) == 2 and all(m is not model.up for m in seen)


def test_parameters_in_one_storage():
    """Parameters that are windows on one flat tensor are one block, and each has its name."""
    model = small_models.Mlp()
    flat = torch.zeros(sum(p.numel() for p in model.parameters()))
    at = 0
    for p in model.parameters():
        p.data = flat[at : at + p.numel()].view(p.shape)
        at += p.numel()
    training = small_models.ALL["mlp"]
    reader = capture((model, training.optimizer(model), training.loss, training.batch()))
    assert [b[0] for b in reader.tables.block if b[4] == T.PARAMETER] == [flat.numel() * 4]
    sources = {reader.source(v) for op in reader.ops(phases=("forward",)) for v in op.inputs}
    assert {f"parameter:{n}" for n, _ in model.named_parameters()} <= sources


def test_model_that_cannot_be_copied():
    model, optimizer, loss, batch = live("mlp")
    model.lock = __import__("threading").Lock()
    with pytest.raises(CaptureError, match="cannot be copied .*use a recipe file"):
        capture((model, optimizer, loss, batch))


def test_model_on_another_device_than_asked_for():
    with pytest.raises(CaptureError, match="the model is on cpu: a capture for h200 needs a recipe file"):
        capture_tables(live("mlp"), devices.find("h200"))


def test_failure_leaves_no_hooks_behind():
    model, optimizer, _, batch = live("mlp")
    with pytest.raises(ZeroDivisionError):
        capture((model, optimizer, lambda m, b: 1 / 0, batch))
    assert not torch.nn.modules.module._global_forward_hooks
    assert gc.isenabled()


# ---- what cannot be captured


def refused(loss, match: str) -> None:
    model, optimizer, _, batch = live("mlp")
    with pytest.raises(CaptureError, match=match) as caught:
        capture((model, optimizer, loss, batch))
    assert "\n" not in str(caught.value)


def test_item_names_the_op():
    refused(lambda m, b: m(b[0]).sum() * m(b[0]).max().item(), r"aten\._local_scalar_dense.* in the loss function: its result depends on the data")


def test_item_names_the_module():
    model, optimizer, loss, batch = live("mlp")
    model.up.forward = lambda x: x * x.max().item()
    with pytest.raises(CaptureError, match=r"in Linear up: "):
        capture((model, optimizer, loss, batch))


def test_boolean_mask():
    refused(lambda m, b: m(b[0])[b[0] > 0].sum(), r"aten\.(index|nonzero).*the shape of its result depends on the data")


def test_custom_op_without_meta_kernel():
    library = torch.library.Library("tonnage_test", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CPU")
    refused(lambda m, b: torch.ops.tonnage_test.double(m(b[0])).sum(), r"tonnage_test\.double\.default .*no meta kernel")


def test_loss_that_is_no_scalar():
    refused(lambda m, b: m(b[0]), r"returned a tensor of shape \[8, 32\]; expected a scalar tensor")
    refused(lambda m, b: 1.0, r"returned float; expected a scalar tensor")
    refused(lambda m, b: m(b[0]).detach().sum(), r"without gradient")


def test_batch_without_a_common_dimension():
    model, optimizer, loss, _ = live("mlp")
    from tonnage.errors import Error

    with pytest.raises(Error, match=r"do not share dimension 0 \(\[8, 32\] \[3\]\)"):
        capture((model, optimizer, loss, (torch.zeros(8, 32), torch.zeros(3))), micro_batch=2, passes=2)
