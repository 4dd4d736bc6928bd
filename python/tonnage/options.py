"""The command line of the verbs that need PyTorch.  The options are those of src/base/options.h; a test compares the two."""
from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from .errors import Error

LEVERS = "rebuild,micro-batch,allocator"
ALLOWED = "precision,batchnorm"


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line and exit status 2, as from the C side."""

    def error(self, message: str) -> Any:
        if "required: RECIPE" in message:
            message = "a recipe file is needed"
        raise Error(f"{message}; see tonnage help {self.prog.split()[-1]}")


def _add(parser: Parser, name: str, *letters: str, **how: Any) -> None:
    parser.add_argument(f"--{name}", *letters, **how)


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_whole.__name__ = "whole number above 0"

OPTIONS: dict[str, Callable[[Parser], None]] = {
    "device": lambda p: _add(p, "device", "-d", metavar="NAME", default=os.environ.get("TONNAGE_DEVICE") or None,
                             help="the card to train on: a profile's name (h200, a100-80, rtx4090, cpu) or its file; without it, the card at hand"),
    "budget": lambda p: _add(p, "budget", "-b", metavar="SIZE", default=os.environ.get("TONNAGE_BUDGET") or None,
                             help="device memory that the process may use, context included: 12GiB, 8GB, 0.5g; without it, what the card has"),
    "steps": lambda p: _add(p, "steps", "-n", metavar="N", type=_whole, default=20, help="training steps to run"),
    "plan": lambda p: _add(p, "plan", metavar="FILE", help="run this plan instead of making one"),
    "allow": lambda p: _add(p, "allow", metavar="LEVER", action="append", help=f"also allow what changes numerics, of {ALLOWED}"),
    "levers": lambda p: _add(p, "levers", metavar="LIST", action="append", help=f"use only these levers, of {LEVERS}"),
    "output": lambda p: _add(p, "output", "-o", metavar="FILE", help="write the result to FILE: the plan, the trace or the profile"),
    "trace": lambda p: _add(p, "trace", metavar="FILE", help="also write the captured trace to FILE"),
    "json": lambda p: _add(p, "json", action="store_true", help="print JSON, sizes in bytes, instead of text"),
    "quiet": lambda p: _add(p, "quiet", "-q", action="store_true", help="no progress and no remarks on stderr"),
    "color": lambda p: _add(p, "color", metavar="WHEN", choices=("auto", "always", "never"), default=os.environ.get("TONNAGE_COLOR") or "auto",
                            help="colour: auto, always, never; auto is a terminal without NO_COLOR set"),
}  # fmt: skip

# verb -> takes a recipe, summary, options
VERBS: dict[str, tuple[bool, str, tuple[str, ...]]] = {
    "estimate": (True, "Will it fit, and where do the bytes go?", ("device", "budget", "trace", "json", "quiet", "color")),
    "plan": (True, "The cheapest change that makes it fit", ("device", "budget", "allow", "levers", "output", "trace", "json", "quiet", "color")),
    "fit": (True, "Make it fit, and train",
            ("device", "budget", "steps", "plan", "allow", "levers", "output", "trace", "json", "quiet", "color")),
    "capture": (True, "Write the trace of a training step to a file", ("device", "output", "json", "quiet", "color")),
    "profile": (False, "Measure this machine's device into a small file", ("device", "output", "json", "quiet", "color")),
}  # fmt: skip


def parser_for(verb: str) -> Parser:
    takes_recipe, summary, options = VERBS[verb]
    parser = Parser(prog=f"tonnage {verb}", description=summary, allow_abbrev=False)
    if takes_recipe:
        parser.add_argument("recipe", metavar="RECIPE", help="a Python file with a function training() that returns tonnage.Training")
        parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="arguments of training()")
    for name in options:
        OPTIONS[name](parser)
    return parser


def overrides(words: list[str]) -> dict[str, str]:
    """ "batch=32" -> {"batch": "32"}; Error for a word without "="."""
    for word in words:
        name, equals, _ = word.partition("=")
        if not equals or not name.isidentifier():
            raise Error(f"{word!r} is no override: expected KEY=VALUE, as in batch=32")
    return dict(word.split("=", 1) for word in words)


def listed(given: list[str] | None) -> list[str] | None:
    """Values of an option that takes commas and may be given again."""
    return None if given is None else [word for text in given for word in text.split(",") if word]
