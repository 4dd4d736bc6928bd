"""python -m tonnage: what the verbs print, and the one line and exit status of each thing that can be wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tonnage import _lib, verbs  # noqa: E402
from tonnage.__main__ import main  # noqa: E402
from tonnage.errors import LibraryError  # noqa: E402

ROOT = Path(__file__).parents[2]
MLP = str(ROOT / "examples" / "mlp.py")

try:
    _lib.library()
except LibraryError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture
def run(capsys):
    def go(*words: str) -> tuple[int, str, str]:
        status = main(words)
        out = capsys.readouterr()
        return status, out.out, out.err

    return go


def refused(run, *words: str) -> str:
    status, out, err = run(*words)
    assert status == 2 and out == ""
    assert err.startswith("tonnage: ") and err.count("\n") == 1
    return err.strip()


def test_estimate_of_the_mlp_is_exact(run):
    status, out, err = run("estimate", MLP, "--device", "cpu", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)

    def numbers(x):
        if isinstance(x, dict):
            for y in x.values():
                yield from numbers(y)
        elif isinstance(x, list):
            for y in x:
                yield from numbers(y)
        else:
            yield x

    assert 16789504 in list(numbers(found))


def test_estimate_as_text_with_a_trace(run, tmp_path):
    path = tmp_path / "mlp.trace"
    status, out, _ = run("estimate", MLP, "batch=8", "-d", "cpu", "-b", "1GiB", "--trace", str(path))
    assert status == 0 and "Peak of a training step" in out
    trace = _lib.Trace.load(path)
    assert trace.meta("recipe") == f"{MLP} batch=8" and trace.meta("batch_size") == "8"


def test_options_and_overrides_in_any_order(run):
    assert run("estimate", "-d", "cpu", MLP, "--json", "batch=8", "-q", "width=64")[0] == 0


def test_capture_writes_the_trace(run, tmp_path):
    path = tmp_path / "out.trace"
    status, out, _ = run("capture", MLP, "-d", "cpu", "-o", str(path))
    assert status == 0 and out.startswith(f"{path}: 2 steps on cpu, ")
    status, out, _ = run("capture", MLP, "-d", "cpu", "-o", str(path), "--json")
    assert json.loads(out)["slots"] == len(_lib.Trace.load(path).table("slot"))


def test_plan_that_needs_nothing(run, tmp_path):
    path = tmp_path / "plan.json"
    status, out, _ = run("plan", MLP, "-d", "cpu", "-b", "2GiB", "-o", str(path))
    assert status == 0 and "Plan for 2.00 GiB" in out
    assert json.loads(path.read_text())["tonnage_plan"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_plan_that_is_impossible(run):
    status, out, err = run("plan", MLP, "-d", "cpu", "-b", "1MiB")
    assert status == 1 and out == "" and err.count("\n") == 1
    assert "smallest" in err


def test_wrong_usage(run):
    assert refused(run, "estimate") == "tonnage: a recipe file is needed; see tonnage help estimate"
    assert "unrecognized arguments: --bogus; see tonnage help plan" in refused(run, "plan", MLP, "--bogus")
    assert "unknown verb 'estimat'; here are: estimate, plan" in refused(run, "estimat")
    assert "'batch' is no override: expected KEY=VALUE" in refused(run, "estimate", MLP, "batch")
    assert "invalid whole number above 0 value: '0'" in refused(run, "fit", MLP, "--steps", "0")


def test_wrong_recipe(run, tmp_path):
    assert refused(run, "estimate", "nowhere.py", "-d", "cpu") == "tonnage: nowhere.py: no such recipe file"
    assert refused(run, "estimate", MLP, "btch=3", "-d", "cpu").endswith("unknown override 'btch'; it knows: batch width hidden lr seed")


def test_recipe_that_raises_shows_its_traceback(run, tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("from tonnage import Training\ndef training():\n    f = lambda *a: 1 / 0\n    return Training(f, f, f, f)\n")
    status, out, err = run("estimate", str(file), "-d", "cpu")
    assert status == 2 and out == ""
    assert "raised ZeroDivisionError. The traceback is the recipe's own:" in err and 'broken.py", line 3' in err
    assert str(ROOT / "python") not in err


def test_wrong_size_and_device(run):
    assert "12X" in refused(run, "estimate", MLP, "-d", "cpu", "-b", "12X")
    assert "h999" in refused(run, "estimate", MLP, "-d", "h999")


def test_output_that_cannot_be_written(run, tmp_path):
    missing = tmp_path / "nowhere" / "file"
    for words in (("estimate", MLP, "-d", "cpu", "--trace"), ("capture", MLP, "-d", "cpu", "-o"), ("plan", MLP, "-d", "cpu", "-b", "2GiB", "-o")):
        assert str(missing) in refused(run, *words, str(missing))


def test_interrupted(run, monkeypatch):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setitem(verbs.VERBS, "estimate", interrupted)
    status, out, err = run("estimate", MLP)
    assert (status, out, err) == (130, "", "\ntonnage: interrupted\n")


def test_reader_that_leaves():
    """As `| head -1` does: no traceback."""
    code = f"import sys; sys.argv[1:] = ['estimate', {MLP!r}, '-d', 'cpu']; import runpy; runpy.run_module('tonnage', run_name='__main__')"
    env = {"PYTHONPATH": str(ROOT / "python"), "TONNAGE_LIB": str(_lib.library_path())}
    command = f'{sys.executable} -c "{code}" | head -c 1'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=env)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


def test_overview(run):
    for words in ((), ("--help",)):
        status, out, _ = run(*words)
        assert status == 0 and "estimate, plan, fit, capture, profile" in out
