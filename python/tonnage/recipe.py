"""Recipes: a training step as four callables, and the files that hold them."""
from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import RecipeError


@dataclass
class Training:
    """What a training step is made of, as callables, so that it can be built for a device that is not there.

    model() -> torch.nn.Module, built on whatever device is the default; optimizer(model) -> torch.optim.Optimizer;
    loss(model, batch) -> a scalar tensor; batch() -> any pytree of tensors that share dimension 0, called once for each step.
    weight(batch), optional: how many terms the loss of a (micro-)batch averages over, where that cannot be seen from its ops.
    """

    model: Callable[[], Any]
    optimizer: Callable[[Any], Any]
    loss: Callable[[Any, Any], Any]
    batch: Callable[[], Any]
    weight: Callable[[Any], Any] | None = None


def load(path: str, overrides: Mapping[str, str] | None = None) -> Training:
    """The Training of a recipe file, `training(**overrides)` with each override converted to the type of the parameter's default.

    Raises RecipeError: no such file, no training() in it, an unknown override, a value of the wrong type, or an exception of the file's own,
    whose traceback is in the message.
    """
    file = Path(path)
    if not file.is_file():
        raise RecipeError(f"{path}: no such recipe file")
    module = _run(file)
    make = getattr(module, "training", None)
    if not callable(make):
        raise RecipeError(f"{path}: has no function training(); a recipe returns tonnage.Training from it")
    arguments = _convert(path, make, overrides or {})
    with foreign(path):
        training = make(**arguments)
    if not isinstance(training, Training):
        raise RecipeError(f"{path}: training() returned {type(training).__name__}, not tonnage.Training")
    for field in ("model", "optimizer", "loss", "batch"):
        if not callable(getattr(training, field)):
            raise RecipeError(f"{path}: Training.{field} is not callable; give the function, not its result")
    return training


class foreign:
    """`with foreign(path):` turns an exception of the user's own code into a RecipeError that shows their traceback, and says that it is theirs."""

    def __init__(self, path: str):
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, frames: Any) -> None:
        from .errors import Error

        if not isinstance(error, (Exception, SystemExit)) or isinstance(error, Error):
            return
        raise RecipeError(f"{self.path}: raised {type(error).__name__}. The traceback is the recipe's own:\n{_theirs(error)}") from None


def _theirs(error: BaseException) -> str:
    """The traceback without the frames of this package."""
    here = str(Path(__file__).parent)
    stack = traceback.extract_tb(error.__traceback__)
    kept = [f for f in stack if not f.filename.startswith(here) and not f.filename.startswith("<frozen importlib")]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(kept), *traceback.format_exception_only(type(error), error)]
    return "".join("  " + line.replace("\n", "\n  ").rstrip(" ") for line in lines).rstrip()


def _run(file: Path) -> Any:
    """Imports a file as a module of its own name, its folder on the path as `python FILE` has it."""
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"tonnage_recipe_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise RecipeError(f"{file}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with foreign(str(file)):
        spec.loader.exec_module(module)
    return module


def _convert(path: str, make: Callable[..., Any], overrides: Mapping[str, str]) -> dict[str, Any]:
    parameters = inspect.signature(make).parameters
    named = {n: p for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    out: dict[str, Any] = {}
    for name, text in overrides.items():
        if name in named:
            out[name] = _value(path, name, text, named[name].default)
        elif open_ended:
            out[name] = text
        else:
            known = " ".join(named) or "none"
            raise RecipeError(f"{path}: unknown override {name!r}; it knows: {known}")
    missing = [n for n, p in named.items() if p.default is p.empty and n not in out]
    if missing:
        raise RecipeError(f"{path}: training() needs {missing[0]}=VALUE")
    return out


_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _value(path: str, name: str, text: str, default: Any) -> Any:
    """A command-line text as the type of the default; without a default it stays text."""
    try:
        if isinstance(default, bool):
            return _BOOLEANS[text.lower()]
        if isinstance(default, int):
            return int(text, 0)
        if isinstance(default, float):
            return float(text)
    except (ValueError, KeyError):
        raise RecipeError(f"{path}: {name}={text}: expected {type(default).__name__}, as in {name}={default}") from None
    if default is None and text.lower() in ("none", ""):
        return None
    return text
