"""Captures for a card that is not there, each in a process of its own: torch must not be loaded before the card."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tonnage import devices, virtual_card  # noqa: E402
from tonnage.errors import MissingDependency, VirtualCardError  # noqa: E402

HERE = Path(__file__).parent
ANSWERS = HERE.parents[2] / "shared" / "data" / "attention" / "h200_torch2.11_cudnn9.19.csv"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "python"), str(HERE)])}

needs_compiler = pytest.mark.skipif(not shutil.which("g++") and not os.environ.get("CXX"), reason="no C++ compiler")


def python(*words: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env={**ENV, **env})


@pytest.fixture(scope="module")
def on_h200():
    names = ["mlp", "transformer", "transformer foreach", "transformer fused", "transformer bf16", "checkpoint", "convolutions", "attention",
             "attention bf16", "moved", "recurrent"]  # fmt: skip
    done = python(str(HERE / "card_capture.py"), "h200", *names)
    assert done.returncode == 0, done.stderr
    assert "already registered" not in done.stderr
    return json.loads(done.stdout)


def captured(seen: dict) -> dict:
    return {name: one for name, one in seen.items() if "error" not in one}


@needs_compiler
def test_steps_come_back_to_where_they_were(on_h200):
    for name, seen in captured(on_h200).items():
        assert seen["left"][2] == 0, name
        assert seen["peak"][2] > 0, name


@needs_compiler
def test_same_bytes_from_every_build(on_h200):
    """Recorded from the CPU-only and the CUDA build: a difference means that the card answers one of them otherwise."""
    expected = dict(EXPECTED)
    if virtual_card.torch_version() < (2, 10):  # which calls flash attention there, not cuDNN's
        del expected["attention bf16"]
    assert {name: seen["peak"] for name, seen in captured(on_h200).items() if name in expected} == expected


EXPECTED: dict[str, list[int]] = {
    "mlp": [17792, 68190980, 18824],
    "transformer": [109056, 68589672, 416136],
    "transformer foreach": [109056, 68589672, 416136],
    "transformer fused": [109056, 68573576, 416136],
    "transformer bf16": [109056, 68589672, 306304],
    "checkpoint": [109056, 69638248, 293768],
    "convolutions": [6936, 76863199, 8705759],
    "attention": [20864, 68190980, 32904],
    "attention bf16": [20864, 68190980, 27416],
    "moved": [17792, 68190980, 18824],
}


@needs_compiler
def test_kernels_are_the_cards(on_h200):
    ops = {name: set(seen["ops"]) for name, seen in captured(on_h200).items()}
    assert "aten.native_dropout.default" in ops["transformer"]
    assert "aten.cudnn_batch_norm.default" in ops["convolutions"]
    assert "aten._scaled_dot_product_efficient_attention.default" in ops["attention"]
    assert ops["attention bf16"] & {"aten._scaled_dot_product_cudnn_attention.default", "aten._scaled_dot_product_flash_attention.default"}
    assert "aten._foreach_addcdiv_.ScalarList" in ops["transformer"] or "aten._foreach_addcdiv_.Tensor" in ops["transformer"]
    assert "aten._fused_adamw_.default" in ops["transformer fused"]
    assert "aten._foreach_add_.List" in ops["mlp"]  # the optimizer's own default on a card


@needs_compiler
def test_random_and_rebuildable(on_h200):
    assert on_h200["transformer"]["random"] == ["aten.native_dropout.default"]
    assert on_h200["attention"]["random"] == on_h200["attention bf16"]["random"] == []  # no dropout, no draw
    assert on_h200["attention bf16"]["fixed"] == []
    assert on_h200["transformer"]["fixed"] == []
    assert on_h200["convolutions"]["fixed"] == ["aten.add_.Tensor"]  # num_batches_tracked


@needs_compiler
def test_a_workspace_for_each_thread(on_h200):
    assert on_h200["transformer"]["workspaces"] == [
        ["cublas", "aten.addmm.default", "forward"],
        ["cublaslt", "aten.addmm.default", "forward"],  # products with a bias
        ["cublas", "aten.mm.default", "backward"],
    ]


@needs_compiler
def test_rates(on_h200):
    assert on_h200["transformer"]["rates"] == ["fp32"]
    assert on_h200["transformer bf16"]["rates"] == ["bf16"]
    assert "tf32" in on_h200["convolutions"]["rates"]  # cuDNN's default, unlike that of matmul


@needs_compiler
def test_model_that_moves_itself(on_h200):
    assert on_h200["moved"]["peak"] == on_h200["mlp"]["peak"]


@needs_compiler
def test_recurrent_nets_are_refused(on_h200):
    """Their reserve buffer's size is not known here, and an estimate without it would be too low."""
    assert on_h200["recurrent"]["error"].startswith("cannot capture aten._cudnn_rnn.default in LSTM: cuDNN keeps a buffer")
    assert list(captured(on_h200)) == list(EXPECTED)


@needs_compiler
@pytest.mark.skipif(not ANSWERS.is_file(), reason="the card's answers are not here")
@pytest.mark.skipif(virtual_card.torch_version() < (2, 5), reason="cuDNN's attention is off by default in this PyTorch")
def test_attention_is_chosen_as_on_the_card():
    done = python(str(HERE / "attention_answers.py"), str(ANSWERS), "211")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("7200 rows")


@needs_compiler
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another dynamic linker")
def test_no_library_takes_functions_from_the_card(tmp_path):
    """With the card loaded first, torch and the C++ runtime did, and a CUDA build died of "free(): invalid pointer"."""
    code = "from tonnage import devices, virtual_card; virtual_card.load(devices.find('h200'))"
    virtual_card.compiled()
    done = python("-c", code, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(tmp_path / "log"))
    assert done.returncode == 0, done.stderr
    lines = "".join(log.read_text(errors="replace") for log in tmp_path.iterdir()).splitlines()
    pairs = [found.groups() for found in map(re.compile(r"binding file (\S+) \[0\] to (\S+) \[0\]").search, lines) if found]
    assert any("virtual_card-" in taker for taker, _ in pairs)
    assert [taker for taker, giver in pairs if "virtual_card-" in giver and taker != giver] == []


# ---- what can go wrong


@pytest.mark.parametrize("trial, says", [("import os; os.abort()", "killed by SIGABRT"), ("raise OSError('no')", r"failed \(OSError: no\)")])
def test_trial_that_dies(monkeypatch, tmp_path, trial, says):
    """It takes its own process along, not the user's, and the card is not kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "/bin/true")
    monkeypatch.setattr(virtual_card, "TRIAL", trial)
    with pytest.raises(VirtualCardError, match=f"does not work with this PyTorch: a trial of it {says}"):
        virtual_card.compiled()
    assert not list((tmp_path / "tonnage").iterdir())


def test_card_that_cannot_be_loaded():
    code = """if True:
        from pathlib import Path
        from tonnage import devices, errors, virtual_card
        try:
            virtual_card._start(Path("/nothing.so"), devices.find("h200"))
        except errors.VirtualCardError as error:
            print(error)"""
    done = python("-c", code)
    assert done.stdout.startswith("/nothing.so: cannot be loaded ("), done.stderr
    assert done.stdout.endswith("remove it, and it is made again\n")


def test_torch_is_loaded_already():
    with pytest.raises(VirtualCardError, match="process of its own"):
        virtual_card.load(devices.find("h200"))


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(VirtualCardError, match=r"g\+\+ is needed .*apt install g\+\+") as caught:
        virtual_card.compiled()
    assert caught.value.status == 2
    assert not list((tmp_path / "tonnage").glob("*")) if (tmp_path / "tonnage").is_dir() else True


def test_compiler_that_cannot_run(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(tmp_path / "nothing"))
    with pytest.raises(VirtualCardError, match=r"cannot be run"):
        virtual_card.compiled()
    assert not list((tmp_path / "tonnage").iterdir())


def test_compiler_that_fails(monkeypatch, tmp_path):
    """Nothing half-made is left in the cache, and the message is the compiler's first error."""
    fake = tmp_path / "c++"
    fake.write_text("#!/bin/sh\necho 'x.cc:3: error: no such thing' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(VirtualCardError, match=r"does not compile .*no such thing"):
        virtual_card.compiled()
    assert not list((tmp_path / "cache" / "tonnage").iterdir())


def test_cache_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("CXX", "/bin/true")
    with pytest.raises(VirtualCardError, match="set XDG_CACHE_HOME"):
        virtual_card.compiled()


def test_compiled_once(monkeypatch, tmp_path):
    calls = tmp_path / "calls"
    fake = tmp_path / "c++"
    fake.write_text(f'#!/bin/sh\necho call >> {calls}\nwhile [ "$1" != -o ]; do shift; done\necho made > "$2"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(fake))
    monkeypatch.setattr(virtual_card, "_try", lambda library: None)
    first, second = virtual_card.compiled(), virtual_card.compiled()
    assert first == second and first.read_text() == "made\n"
    assert calls.read_text().split() == ["call"]
    assert list(first.parent.iterdir()) == [first]


def torch_of(monkeypatch, tmp_path, text: str | None) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    if text is not None:
        (folder / "version.py").write_text(text)
    monkeypatch.setattr(virtual_card, "torch_folder", lambda: folder)


def test_torch_too_old(monkeypatch, tmp_path):
    torch_of(monkeypatch, tmp_path, "__version__ = '2.1.2+cu121'\n")
    with pytest.raises(MissingDependency, match=r"PyTorch 2\.1 is too old: Tonnage needs 2\.4 or newer") as caught:
        virtual_card.torch_version()
    assert caught.value.status == 2


def test_torch_that_is_no_torch(monkeypatch, tmp_path):
    torch_of(monkeypatch, tmp_path, None)
    with pytest.raises(MissingDependency, match="pip install torch"):
        virtual_card.torch_version()


def test_torch_version_needs_no_import():
    code = "import sys; from tonnage import virtual_card; print(virtual_card.torch_version()); assert 'torch' not in sys.modules"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


def test_no_torch():
    code = """if True:
        import importlib.util, sys
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *a: None if name == "torch" else find(name, *a)
        from tonnage.__main__ import main
        sys.exit(main(["estimate", __file__ if "__file__" in globals() else "recipe.py", "--device", "h200"]))"""
    done = python("-c", code)
    assert done.returncode == 2
    assert done.stderr == "tonnage: PyTorch is not installed for this Python: pip install torch\n"
