"""Micro-batches must add up to the whole batch's gradient, or be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from tonnage import batches  # noqa: E402
from tonnage.capture import capture_tables  # noqa: E402
from tonnage.devices import find  # noqa: E402
from tonnage.errors import Error  # noqa: E402
from tonnage.lossterms import Graph, describe  # noqa: E402
from tonnage.recipe import Training, load  # noqa: E402
from tonnage.weights import Weights  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
CPU = torch.device("cpu")
ROWS = 11


class Model(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 5))
        self.register_buffer("w", torch.rand(5))


def ignoring(targets, share):
    return torch.where(torch.rand(targets.shape) < share, -100, targets)


def classes():
    return torch.randn(ROWS, 6), ignoring(torch.randint(0, 5, (ROWS,)), 0.4)


def text():
    return torch.randn(ROWS, 3, 6), ignoring(torch.randint(0, 5, (ROWS, 3)), 0.5)


def full_text():
    return torch.randn(ROWS, 3, 6), torch.randint(0, 5, (ROWS, 3))


def numbers():
    return {"x": torch.randn(ROWS, 6), "y": torch.randn(ROWS, 5)}


def masked(m, b, least=0):
    each = F.cross_entropy(m(b[0]).flatten(0, 1), b[1].flatten(), reduction="none")
    wanted = b[1] > 1
    return (each * wanted.flatten()).sum() / (wanted.sum().clamp(min=least) if least else wanted.sum())


# name: (loss, batch, kind)
KNOWN = {
    "cross entropy": (lambda m, b: F.cross_entropy(m(b[0]), b[1]), classes, "count"),
    "label smoothing": (lambda m, b: F.cross_entropy(m(b[0]), b[1], label_smoothing=0.1), classes, "count"),
    "class weights": (lambda m, b: F.cross_entropy(m[0](b[0]), b[1], weight=m.w), classes, "count"),
    "cross entropy, summed": (lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="sum"), classes, "sum"),
    "summed, divided by rows": (lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="sum") / len(b[0]), classes, "rows"),
    "summed, times 1 / rows": (lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="sum") * (1 / len(b[0])), classes, "rows"),
    "none, then mean": (lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="none").mean(), classes, "rows"),
    "text, flattened": (lambda m, b: F.cross_entropy(m(b[0]).flatten(0, 1), b[1].flatten()), text, "count"),
    "text, shifted": (lambda m, b: F.cross_entropy(m(b[0])[:, :-1].reshape(-1, 5), b[1][:, 1:].reshape(-1)), text, "count"),
    "text, classes second": (lambda m, b: F.cross_entropy(m(b[0]).transpose(1, 2), b[1]), text, "count"),
    "text, sequence first": (lambda m, b: F.cross_entropy(m(b[0]).transpose(0, 1).flatten(0, 1), b[1].t().flatten()), text, "count"),
    "plus a penalty": (lambda m, b: 3 * F.cross_entropy(m(b[0]), b[1]) + 0.01 * m[0].weight.pow(2).sum(), classes, "count"),
    "mse": (lambda m, b: F.mse_loss(m(b["x"]), b["y"]), numbers, "rows"),
    "two means": (lambda m, b: F.mse_loss(m(b["x"]), b["y"]) + 0.5 * F.l1_loss(m(b["x"]), b["y"]), numbers, "rows"),
    "stacked means": (lambda m, b: torch.stack([F.mse_loss(m(b["x"]), b["y"]), F.huber_loss(m(b["x"]), b["y"])]).sum(), numbers, "rows"),
    "bce": (lambda m, b: F.binary_cross_entropy_with_logits(m(b["x"]), b["y"].sigmoid()), numbers, "rows"),
    "sum over columns, mean over rows": (lambda m, b: ((m(b["x"]) - b["y"]) ** 2).sum(1).mean(), numbers, "rows"),
    "mean over rows, sum over columns": (lambda m, b: ((m(b["x"]) - b["y"]) ** 2).mean(0).sum(), numbers, "rows"),
    "mean over columns, sum over rows": (lambda m, b: ((m(b["x"]) - b["y"]) ** 2).mean(1).sum(), numbers, "sum"),
    "kl": (lambda m, b: F.kl_div(m(b["x"]).log_softmax(1), b["y"].softmax(1), reduction="batchmean"), numbers, "rows"),
    "soft targets": (lambda m, b: F.cross_entropy(m(b["x"]), b["y"].softmax(1)), numbers, "rows"),
    "targets by argmax": (lambda m, b: F.cross_entropy(m(b["x"]), b["y"].argmax(1)), numbers, "count"),
    "a mask of one's own": (masked, full_text, "value"),
    "a mask, clamped": (lambda m, b: masked(m, b, 1), full_text, "value"),
}  # fmt: skip

UNKNOWN = {
    "root of a mean": (lambda m, b: F.mse_loss(m(b["x"]), b["y"]).sqrt(), "aten.sqrt.default, which is neither a sum nor a mean"),
    "two counts": (
        lambda m, b: F.cross_entropy(m(b["x"]), b["y"].argmax(1)) + F.mse_loss(m(b["x"]), b["y"]),
        "averaged over different numbers (targets that are not ignored and rows)",
    ),
    "log of a sum": (lambda m, b: m(b["x"]).flatten().logsumexp(0), "aten.logsumexp.default"),
    "penalty on a sum": (lambda m, b: F.mse_loss(m(b["x"]), b["y"], reduction="sum") + m[0].weight.pow(2).sum(), "does not depend on the batch"),
    "targets by the model": (lambda m, b: F.cross_entropy(m(b["x"]), m(b["y"] @ torch.ones(5, 6)).argmax(1)), "not made from the batch alone"),
}  # fmt: skip


def spec_of(loss, batch):
    training = Training(model=Model, optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.1), loss=loss, batch=batch)
    return describe(Graph.of_tables(capture_tables(training, find("cpu"))))


def gradient(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad(set_to_none=True)
    return flat


@pytest.mark.parametrize("name", KNOWN)
def test_micro_batches_add_up(name):
    loss, make, kind = KNOWN[name]
    torch.manual_seed(3)
    spec = spec_of(loss, make)
    assert spec["kind"] == kind
    model, batch = Model(), make()
    whole = loss(model, batch)
    whole.backward()
    want = gradient(model)
    pieces = [batches.cut(batch, a, b) for a, b in ((0, 4), (4, 8), (8, 11))]
    total = 0.0
    for piece, share in zip(pieces, Weights(spec, model, CPU).shares(pieces)):
        value = loss(model, piece)
        value.backward(torch.as_tensor(share, dtype=value.dtype))
        total += float(value.detach() * share)
    got = gradient(model)
    assert (got - want).norm() <= 1e-5 * want.norm()
    if name != "plus a penalty":
        assert total == pytest.approx(float(whole.detach()), rel=1e-5)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_understood_is_refused(name):
    loss, why = UNKNOWN[name]
    spec = spec_of(loss, numbers)
    assert spec["kind"] == "unknown" and why in spec["why"]
    with pytest.raises(Error, match="weight=FUNCTION"):
        Weights(spec, Model(), CPU)
    shares = Weights(spec, Model(), CPU, function=lambda b: len(b["x"])).shares([batches.cut(numbers(), 0, 3), batches.cut(numbers(), 3, 4)])
    assert shares == [0.75, 0.25]


def test_a_piece_whose_targets_are_all_ignored_counts_nothing():
    spec = spec_of(KNOWN["text, flattened"][0], text)
    x, targets = text()
    targets[:4] = -100
    shares = Weights(spec, Model(), CPU).shares([(x[:4], targets[:4]), (x[4:], targets[4:])])
    assert [float(s) for s in shares] == [0.0, 1.0]


@pytest.mark.parametrize("name,kind", [("mlp", "rows"), ("bert", "count"), ("gpt", "count"), ("llama", "count"), ("resnet", "count")])
def test_examples(name, kind):
    spec = describe(Graph.of_tables(capture_tables(load(str(EXAMPLES / f"{name}.py"), {"batch": "4"}), find("cpu"))))
    assert spec["kind"] == kind
