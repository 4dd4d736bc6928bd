"""The verbs that run here: estimate, plan, capture.  `fit` and `profile` have files of their own."""
from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from . import _lib, devices, files, options, recipe, virtual_card
from .errors import Error

if TYPE_CHECKING:
    from .tables import Tables


def estimate(args: argparse.Namespace) -> int:
    device, training = prepared(args)
    budget = _lib.size_parse(args.budget) if args.budget else 0
    profile = _lib.profile_parse(device.text)
    trace = _lib.Trace.from_tables(captured(args, device, training))
    if args.trace:
        trace.save(args.trace)
    sys.stdout.write(_lib.report_estimate(trace, profile, budget, args.json))
    return 0


def capture(args: argparse.Namespace) -> int:
    device, training = prepared(args)
    tables = captured(args, device, training)
    path = args.output or f"{Path(args.recipe).stem}.trace"
    _lib.Trace.from_tables(tables).save(path)
    counts = {name: len(getattr(tables, name)) for name in ("op", "block", "value", "slot")}
    if args.json:
        print(json.dumps({"trace": path, **tables.meta, **{f"{name}s": count for name, count in counts.items()}}))
    elif not args.quiet:
        print(f"{path}: 2 steps on {device.name}, " + ", ".join(f"{count} {name}s" for name, count in counts.items()))
    return 0


def plan(args: argparse.Namespace) -> int:
    device, training = prepared(args)
    budget = _lib.size_parse(args.budget) if args.budget else int(device.profile.get("total_bytes", 0))
    if not budget:
        raise Error(f"the profile of {device.name} does not say how much memory it has: give --budget SIZE")
    from . import planning

    first: list[Tables] = []

    def keep(tables: Tables) -> None:
        if not first:
            first.append(tables)

    with Progress(args) as say:
        made = planning.plan_for(training, device, budget, allow=options.listed(args.allow) or (), levers=options.listed(args.levers), say=say,
                                 note_tables=keep)  # fmt: skip
    if args.trace and first:
        _lib.Trace.from_tables(first[0]).save(args.trace)
    text = json.dumps(made, indent=1) + "\n"
    if args.output:
        files.write(Path(args.output), text)
    sys.stdout.write(text if args.json else planning.text_of(made))
    return 0


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {"estimate": estimate, "plan": plan, "capture": capture}


def prepared(args: argparse.Namespace) -> tuple[devices.Device, recipe.Training]:
    """The device, its card made present to PyTorch, and the recipe.  In this order: a recipe imports torch."""
    overrides = options.overrides(args.overrides)
    virtual_card.torch_version()
    device = devices.find(args.device or devices.present())
    if not Path(args.recipe).is_file():
        raise Error(f"{args.recipe}: no such recipe file")
    if device.type == "cuda" and not is_here(device):
        virtual_card.load(device)
    return device, recipe.load(args.recipe, overrides)


def is_here(device: devices.Device) -> bool:
    """Is the card in this machine, and PyTorch built to use it?  Then it answers for itself."""
    build = (virtual_card.torch_folder() / "version.py").read_text()
    if devices.present() != device.name or not re.search(r"^cuda\b[^=]*=\s*['\"]", build, re.MULTILINE):
        return False
    import torch

    return torch.cuda.is_available()


def captured(args: argparse.Namespace, device: devices.Device, training: recipe.Training) -> Tables:
    from .capture import capture_tables

    with Progress(args) as say:
        say(f"capturing two steps on {device.name}")
        tables = capture_tables(training, device)
    tables.meta["recipe"] = " ".join([args.recipe, *args.overrides])
    return tables


class Progress:
    """`with Progress(args) as say:` shows what is going on, on a terminal, and takes it away at the end."""

    def __init__(self, args: argparse.Namespace):
        self.shown = not args.quiet and sys.stderr.isatty()

    def __enter__(self) -> Callable[[str], None]:
        return self.say

    def say(self, line: str) -> None:
        if self.shown:
            sys.stderr.write(f"\r{line} ...\x1b[K")
            sys.stderr.flush()

    def __exit__(self, *exc: object) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
