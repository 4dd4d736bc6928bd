"""Captured traces against real runs of the same steps: memory to the byte, saved tensors one by one, values bit by bit."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest

torch = pytest.importorskip("torch")

import small_models  # noqa: E402
from interpreter import Interpreter  # noqa: E402
from reading import Reader, peak  # noqa: E402
from real_run import in_runs, memory_events, one_step, outside_kernels, saved_tensors  # noqa: E402
from tonnage import Training, batches, devices  # noqa: E402
from tonnage import tables as T  # noqa: E402
from tonnage.capture import capture_tables  # noqa: E402
from tonnage.errors import CaptureError  # noqa: E402

CPU = devices.find("cpu")
NAMES = list(small_models.ALL)


def captured(training: Training, **options) -> Reader:
    return Reader(capture_tables(training, CPU, **options))


@pytest.fixture(scope="module")
def readers():
    made: dict[str, Reader] = {}

    def get(name: str) -> Reader:
        if name not in made:
            made[name] = captured(small_models.ALL[name])
        return made[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_that_of_the_real_run(name, readers):
    """Each allocation and each free outside kernels, in order, in the first step and in the steady state."""
    reader = readers(name)
    for real, trace in zip(memory_events(small_models.ALL[name]), reader.lives()[1:]):
        assert in_runs(outside_kernels(real, reader.kernels())) == in_runs(trace)


@pytest.mark.parametrize("name", ["mlp", "transformer", "transformer foreach"])
def test_peak_is_that_of_the_real_run(name, readers):
    """The peak itself, kernels' own memory and all, to the byte: in these models it is not inside a kernel."""
    for real, trace in zip(memory_events(small_models.ALL[name]), readers(name).lives()[1:]):
        assert peak([event.bytes for event in real]) == peak(trace)


@pytest.mark.parametrize("name", NAMES)
def test_slots_are_what_the_real_run_saves(name, readers):
    training = small_models.ALL[name]
    model = training.model()
    real = [text for text, _ in saved_tensors(training, model, training.batch())]
    assert readers(name).signatures() == real


@pytest.mark.parametrize("name", ["mlp", "transformer", "convolutions", "writer", "transformer bf16"])
def test_values_are_those_of_the_real_run(name, readers):
    """The trace's ops, run from their recorded arguments alone, give every saved tensor bit by bit: versions, views, writes and all."""
    training = small_models.ALL[name]
    torch.manual_seed(3)
    model, batch = training.model(), training.batch()
    state = {n: b.clone() for n, b in model.named_buffers()}
    torch.manual_seed(4)
    real = saved_tensors(training, model, batch)
    for n, b in model.named_buffers():
        b.copy_(state[n])
    torch.manual_seed(4)
    made = Interpreter(readers(name), model, batches.leaves(batch)).run()
    assert len(made) == len(real)
    for k, (text, tensor) in enumerate(real):
        assert torch.equal(made[k], tensor), (k, text)


@pytest.mark.parametrize("name", NAMES)
def test_steps_repeat(name, readers):
    """Step 1 leaves behind what it found: nothing of the capture itself keeps memory alive."""
    steps = readers(name).lives()
    assert sum(steps[2]) == 0


@pytest.mark.parametrize("name", NAMES)
def test_slots_hold_what_would_die_without_them(name, readers):
    reader = readers(name)
    held, bare = reader.lives(True)[2], reader.lives(False)[2]
    assert sum(bare) == 0
    assert sum(accumulate(bare)) < sum(accumulate(held))


def test_parameters_and_gradients_are_named(readers):
    blocks = readers("mlp").tables.block
    texts = readers("mlp").texts
    by = {}
    for b in blocks:
        by.setdefault(T.CATEGORIES[b[4]], set()).add((texts[b[2]], b[0]))
    sizes = {("up.weight", 8192), ("up.bias", 256), ("down.weight", 8192), ("down.bias", 128)}
    assert by["parameter"] == by["gradient"] == sizes
    assert by["optimizer"] == {(f"{n}.momentum_buffer", s) for n, s in sizes}
    assert by["input"] == {("input:0", 8 * 32 * 4)}


def test_tied_weight_has_its_first_name(readers):
    reader = readers("transformer")
    sources = {reader.texts[v[5]] for v in reader.tables.value}
    assert "parameter:words.weight" in sources and "parameter:head.weight" not in sources


def test_modules_in_forward_and_backward(readers):
    reader = readers("transformer")
    for phase in ("forward", "backward"):
        where = {op.module for op in reader.ops(phases=(phase,)) if op.name in ("aten.addmm.default", "aten.mm.default")}
        assert {"layers.0.qkv", "layers.0.up", "layers.1.down", "head"} <= where, phase
    assert {op.phase for op in reader.ops() if "log_softmax" in op.name} == {"loss", "backward"}
    assert {op.module for op in reader.ops(phases=("backward",)) if op.name == "aten.gelu_backward.default"} == {"layers.0", "layers.1"}


def test_flags(readers):
    flags = {op.name: op.flags for op in readers("transformer").ops(phases=("forward", "loss"))}
    assert flags["aten.bernoulli_.float"] == T.OP_RANDOM | T.OP_REBUILDABLE
    assert flags["aten.permute.default"] == T.OP_VIEW | T.OP_REBUILDABLE
    assert flags["aten.addmm.default"] == T.OP_REBUILDABLE
    flags = {op.name: op.flags for op in readers("convolutions").ops(phases=("forward",))}
    assert flags["aten.relu_.default"] == T.OP_REBUILDABLE  # on memory of this pass
    assert flags["aten.add_.Tensor"] == 0  # num_batches_tracked, a buffer


def test_batch_norm_gets_copies_of_its_statistics(readers):
    reader = readers("convolutions")
    op = next(op for op in reader.ops(phases=("forward",)) if "batch_norm" in op.name)
    call = json.loads(op.args)["args"]
    assert [reader.source(a["scratch"]) for a in call[3:5]] == ["buffer:body.1.running_mean", "buffer:body.1.running_var"]
    assert op.flags == T.OP_REBUILDABLE
    assert len(op.outputs) == 5  # three results, two statistics


def test_costs(readers):
    reader = readers("mlp")
    op = next(op for op in reader.ops(phases=("forward",)) if op.name == "aten.addmm.default")
    assert (op.flops, op.rate) == (2 * 8 * 32 * 64, "fp32")
    assert op.bytes_moved == 4 * (64 + 8 * 32 + 32 * 64 + 8 * 64)
    expanded = next(op for op in reader.ops(phases=("backward",)) if op.name == "aten.div.Scalar")
    assert expanded.bytes_moved == 4 + 4 * 8 * 32  # a broadcast gradient is read once


def test_two_passes():
    """Gradients are born in the first pass and accumulated in place in the second."""
    reader = captured(small_models.ALL["transformer"], micro_batch=2, passes=2)
    marks = [reader.texts[i] for kind, i in reader.tables.event if kind == T.MARK]
    assert marks[:5] == ["step:0", "pass:0", "phase:forward", "phase:loss", "phase:backward"]
    assert marks.count("pass:1") == 2 and marks[-1] == "end"
    slots = reader.slots()
    count = sum(s[5] == 0 for s in slots)
    assert [s[7] for s in slots] == [*range(count), *range(count)]
    assert [reader.texts[s[2]] for s in slots[:count]] == [reader.texts[s[2]] for s in slots[count:]]
    summed = [op for op in reader.ops(phases=("backward",)) if op.in_pass == 1 and op.name == "aten.add_.Tensor" and op.module == "layers.0.up"]
    assert len(summed) == 2
    inputs = {reader.source(v) for op in reader.ops(phases=("forward",)) if op.in_pass == 1 for v in op.inputs}
    assert "input:0" in inputs
    assert reader.tables.meta["micro_batch"] == "2" and reader.tables.meta["batch_size"] == "4"
    assert sum(reader.lives()[2]) == 0


def test_precision_is_autocast_around_the_loss(readers):
    inside = readers("transformer bf16").signatures()
    outside = captured(small_models.ALL["transformer"], precision="bf16").signatures()
    assert outside == inside


def test_hooks_in_place_of_the_notes(readers):
    """With a plan's own hooks there are no slots, and what they keep lives as long as they keep it."""
    plain = readers("mlp")
    kept = captured(small_models.ALL["mlp"], hooks=lambda model, batch: (lambda t: t.detach(), lambda t: t))
    assert not kept.tables.slot
    assert kept.lives()[2] == plain.lives()[2]
    assert {T.CATEGORIES[b[4]] for b in kept.tables.block} == {T.CATEGORIES[b[4]] for b in plain.tables.block}


def test_frozen_parameters_and_no_grad():
    def model():
        m = small_models.Transformer()
        for p in m.layers[0].parameters():
            p.requires_grad_(False)
        return m

    def loss(model, batch):
        with torch.no_grad():
            model.layers[1](torch.zeros(1, 4, 32))
        return small_models.classes(model, batch)

    training = Training(model, lambda m: small_models.adamw(m), loss, small_models.ids)
    reader = captured(training)
    assert sum(reader.lives()[2]) == 0
    gradients = {reader.texts[b[2]] for b in reader.tables.block if b[4] == T.GRADIENT}
    assert "layers.1.up.weight" in gradients and not any(n.startswith("layers.0") for n in gradients)
    assert reader.signatures() == [text for text, _ in saved_tensors(training, training.model(), training.batch())]


def test_gradients_kept_as_zeros():
    """zero_grad(set_to_none=False) in the loss function: gradients are there from the second step on."""

    def loss(model, batch):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        return small_models.square(model, batch)

    training = Training(small_models.Mlp, small_models.sgd, loss, small_models.rows())
    reader = captured(training)
    for real, trace in zip(memory_events(training), reader.lives()[1:]):
        assert in_runs(outside_kernels(real, reader.kernels())) == in_runs(trace)
    assert "gradient" in {T.CATEGORIES[b[4]] for b in reader.tables.block}


def test_closure_over_real_tensors():
    """Class weights in a closure are memory that was there before, read where they are used."""
    weight = torch.rand(50)
    seen = []

    def loss(model, batch):
        y = model(batch[0])
        seen.append(weight.data_ptr())
        return torch.nn.functional.cross_entropy(y.flatten(0, 1), batch[1].flatten(), weight=weight)

    training = Training(small_models.Transformer, small_models.adamw, loss, small_models.ids)
    before = weight.clone()
    reader = captured(training)
    assert torch.equal(weight, before) and len(set(seen)) == 1
    unknown = [b for b in reader.tables.block if b[4] == T.UNKNOWN]
    assert [b[0] for b in unknown] == [200]
    assert reader.signatures() == [text for text, _ in saved_tensors(training, training.model(), training.batch())]


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD", "Adafactor", "Muon"])
def test_optimizers(name):
    """Each in the forms that it has; a learning rate that is a real tensor; state is named."""
    kind = getattr(torch.optim, name, None)
    if kind is None:
        pytest.skip(f"this PyTorch has no {name}")
    for options in ({}, {"foreach": True}, {"fused": True}, {"lr": torch.tensor(0.1)}):
        try:
            kind([torch.nn.Parameter(torch.zeros(2, 2))], **options)
        except (TypeError, RuntimeError, ValueError):
            continue  # not a form of this one

        def optimizer(model, options=options):
            return kind([p for p in model.parameters() if p.dim() == 2], **options)

        reader = captured(Training(small_models.Mlp, optimizer, small_models.square, small_models.rows()))
        assert sum(reader.lives()[2]) == 0, options
        if name not in ("SGD",):
            assert any(b[4] == T.OPTIMIZER for b in reader.tables.block), options


def test_optimizer_with_a_closure():
    with pytest.raises(CaptureError, match=r"LBFGS: its step\(\) runs the loss function itself"):
        captured(Training(small_models.Mlp, lambda m: torch.optim.LBFGS(m.parameters()), small_models.square, small_models.rows()))


def test_real_step_of_every_model():
    """The models above train at all: a capture of something broken proves nothing."""
    for training in small_models.ALL.values():
        model = training.model()
        before = [p.clone() for p in model.parameters()]
        one_step(training, model, training.optimizer(model), training.batch())
        assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters()))
