"""The command `tonnage fit`: what it prints, how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tonnage import train  # noqa: E402
from tonnage.errors import Error  # noqa: E402
from tonnage.progress import Progress  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"

RECIPE = """
import torch
from tonnage import Training

class Count:
    steps = 0

def training(batch: int = 4, stop: int = 99, out_of_memory: int = 99) -> Training:
    def make():
        Count.steps += 1
        if Count.steps > stop:
            raise KeyboardInterrupt
        return torch.randn(batch, 8)
    def loss(model, x):
        if Count.steps > out_of_memory:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")
        return model(x).pow(2).mean()
    return Training(lambda: torch.nn.Linear(8, 8), lambda m: torch.optim.SGD(m.parameters(), lr=0.1), loss, make)
"""


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "recipe.py"
    file.write_text(RECIPE)
    return str(file)


def test_table(capsys):
    assert train.main([str(EXAMPLES / "gpt.py"), "batch=4", "--budget", "1GiB", "--steps", "4", "-q", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Plan for 1.00 GiB on cpu")
    at = next(i for i, line in enumerate(lines) if line.split() == ["predicted", "measured", "budget"])
    table = {line.split()[0]: line.split()[1:] for line in lines[at + 1 :]}
    assert set(table) == {"allocated", "step", "loss", "fits"}
    assert table["allocated"][4:6] == ["1.00", "GiB"] and abs(float(table["allocated"][-2])) < 1
    assert float(table["loss"][2]) < float(table["loss"][0]) and table["loss"][-2:] == ["4", "steps"]


def test_json_and_plan_file(tmp_path, capsys):
    plan = tmp_path / "plan.json"
    common = [str(EXAMPLES / "gpt.py"), "batch=4", "--budget", "1GiB", "--steps", "3", "--json", "-d", "cpu"]
    assert train.main([*common, "-o", str(plan)]) == 0
    first = json.loads(capsys.readouterr().out)
    assert json.loads(plan.read_text())["tonnage_plan"] == 1
    assert train.main([*common, "--plan", str(plan)]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["loss"] == first["loss"] and second["verdict"] == "fits" and second["steps"] == 3
    assert second["measured"]["allocated_bytes"] == pytest.approx(second["predicted"]["allocated_bytes"], rel=0.01)


def test_plan_of_another_model(tmp_path, capsys):
    plan = tmp_path / "plan.json"
    assert train.main([str(EXAMPLES / "gpt.py"), "batch=4", "--budget", "1GiB", "--steps", "1", "-q", "-o", str(plan), "-d", "cpu"]) == 0
    with pytest.raises(Error, match=r"made for another model or batch: slot 0 is int64\[4,64\] - in words, where the plan expects int64\[4,128\]"):
        train.main([str(EXAMPLES / "gpt.py"), "batch=4", "seq=64", "--budget", "1GiB", "--steps", "1", "-q", "--plan", str(plan), "-d", "cpu"])


def test_interrupted(recipe, capsys):
    assert train.main([recipe, "stop=2", "--budget", "1GiB", "--steps", "9", "-q", "-d", "cpu"]) == 130
    out = capsys.readouterr().out
    assert "interrupted after 2 of 9 steps" in out and "after 2 steps" in out


def test_out_of_memory(recipe, capsys):
    assert train.main([recipe, "out_of_memory=2", "--budget", "1GiB", "--steps", "9", "-q", "-d", "cpu"]) == 1
    assert "does not fit: CUDA out of memory. Tried to allocate 1 GiB." in capsys.readouterr().out


def test_over_the_budget(recipe, tmp_path, capsys):
    """A plan that someone edited, or a prediction that was wrong."""
    plan = tmp_path / "plan.json"
    assert train.main([recipe, "--budget", "1GiB", "--steps", "1", "-q", "-d", "cpu", "-o", str(plan)]) == 0
    assert train.main([recipe, "--budget", "1KiB", "--steps", "3", "-q", "-d", "cpu", "--plan", str(plan)]) == 1
    assert "over the budget by" in capsys.readouterr().out


def test_not_key_value(recipe):
    with pytest.raises(Error, match="'batch' is no override: expected KEY=VALUE"):
        train.main([recipe, "batch"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_card_that_is_not_here(recipe):
    with pytest.raises(Error, match="no CUDA device here for h200") as caught:
        train.main([recipe, "-d", "h200", "--budget", "1GiB"])
    assert caught.value.status == 3


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_off_a_terminal_is_a_line_every_tenth():
    stream = io.StringIO()
    progress = Progress(50, stream)
    for _ in range(50):
        progress.update(1.5)
    progress.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11 and lines[0].startswith("step 1/50  loss 1.5000") and lines[-1].startswith("step 50/50")
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_progress_on_a_terminal_is_one_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    stream = Terminal()
    progress = Progress(3, stream)
    for _ in range(3):
        progress.shown = 0
        progress.update(1.5)
    progress.close()
    assert stream.getvalue().count("\n") == 1
    assert all(len(line) < 70 for line in stream.getvalue().replace("\x1b[K", "").split("\r"))


def test_progress_quiet():
    stream = Terminal()
    progress = Progress(3, stream, quiet=True)
    progress.update(1.0)
    progress.close()
    assert stream.getvalue() == ""
