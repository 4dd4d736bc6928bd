"""Recipe files and their overrides: what works, and the one line for what does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tonnage.errors import RecipeError
from tonnage.recipe import Training, load

GOOD = """
from tonnage import Training

def training(size: str = "tiny", batch: int = 8, lr: float = 1e-3, frozen: bool = False, path=None):
    made = Training(model=lambda: size, optimizer=lambda m: lr, loss=lambda m, b: 0, batch=lambda: batch)
    made.seen = (size, batch, lr, frozen, path)
    return made
"""


@pytest.fixture
def recipe(tmp_path):
    def write(text: str = GOOD) -> str:
        file = tmp_path / "recipe.py"
        file.write_text(text)
        return str(file)

    return write


def refused(path: str, overrides=None) -> str:
    with pytest.raises(RecipeError) as caught:
        load(path, overrides)
    assert caught.value.status == 2
    return str(caught.value)


def test_defaults(recipe):
    assert load(recipe()).seen == ("tiny", 8, 1e-3, False, None)


def test_overrides_have_the_type_of_the_default(recipe):
    given = {"size": "large", "batch": "0x20", "lr": "3", "frozen": "yes", "path": "a b"}
    assert load(recipe(), given).seen == ("large", 32, 3.0, True, "a b")
    assert load(recipe(), {"frozen": "off", "path": "none"}).seen == ("tiny", 8, 1e-3, False, None)


def test_recipe_finds_its_neighbours(recipe, tmp_path):
    (tmp_path / "beside_it.py").write_text("SIZE = 7")
    path = recipe("import beside_it\nfrom tonnage import Training\ndef training():\n    f = lambda *a: beside_it.SIZE\n    return Training(f, f, f, f)")
    assert load(path).model() == 7


@pytest.mark.parametrize("name,text", [("batch", "many"), ("batch", "1.5"), ("lr", "fast"), ("frozen", "maybe")])
def test_wrong_value(recipe, name, text):
    message = refused(recipe(), {name: text})
    assert f"{name}={text}: expected" in message and "\n" not in message


def test_unknown_override_lists_the_known(recipe):
    assert refused(recipe(), {"sise": "large"}).endswith("unknown override 'sise'; it knows: size batch lr frozen path")


def test_missing_file():
    assert refused("nowhere/recipe.py") == "nowhere/recipe.py: no such recipe file"


def test_folder(tmp_path):
    assert refused(str(tmp_path)).endswith("no such recipe file")


def test_no_training(recipe):
    assert "has no function training()" in refused(recipe("x = 1"))


def test_needs_a_value(recipe):
    assert refused(recipe("def training(size): ...")).endswith("training() needs size=VALUE")


@pytest.mark.parametrize(
    "text,kind",
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("def training():\n    return undefined", "NameError"),
    ],
)
def test_their_exception_is_shown_as_theirs(recipe, text, kind):
    path = recipe(text)
    message = refused(path)
    first, rest = message.split("\n", 1)
    assert first == f"{path}: raised {kind}. The traceback is the recipe's own:"
    assert "Traceback" in rest and kind in rest and "recipe.py" in rest
    assert str(Path(load.__code__.co_filename).parent) not in rest


def test_returns_something_else(recipe):
    assert "training() returned int, not tonnage.Training" in refused(recipe("def training(): return 3"))


def test_result_in_place_of_a_callable(recipe):
    text = "from tonnage import Training\ndef training():\n    return Training(3, print, print, print)"
    assert "Training.model is not callable" in refused(recipe(text))


def test_importing_the_package_does_not_import_torch():
    import subprocess

    code = "import sys, tonnage; tonnage.Training; tonnage.Error; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(Path(__file__).parents[2] / "python")})


def test_training_is_a_plain_record():
    assert Training(1, 2, 3, 4).loss == 3
