"""Where in the model an op belongs: the module running in forward, and in backward the module whose op is being differentiated."""
from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from . import tables as T

_node = torch._C._current_autograd_node
_sequence = torch.autograd._get_sequence_nr
NONE = T.NONE


class Scopes:
    """Follows module calls by PyTorch's global hooks, so the model itself is not touched.

    A node of the autograd graph carries the sequence number of the forward op that made it: in forward the number is noted with the
    module, in backward it is looked up.  Gradient accumulation has no such number; its module is the parameter's owner.
    """

    def __init__(self, model: torch.nn.Module, tables: T.Tables):
        self.tables = tables
        self.index: dict[int, int] = {}  # id(module) -> module record
        self.owner: dict[int, int] = {}  # id(parameter) -> module record
        self.stack: list[int] = []
        self.by_sequence: dict[int, int] = {}
        self.last_unpacked = NONE
        self.in_backward = False
        self.root = id(model)
        self.on_root: Any = lambda entered: None
        paths: dict[str, int] = {}
        for path, module in model.named_modules():
            parent = paths.get(path.rpartition(".")[0], NONE) if path else NONE
            paths[path] = self.index[id(module)] = len(tables.module)
            tables.module.append((tables.strings(path), tables.strings(type(module).__name__), parent, 0))
            for parameter in module.parameters(recurse=False):
                self.owner.setdefault(id(parameter), paths[path])

    def __enter__(self) -> Scopes:
        self.hooks = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave, always_call=True)]
        return self

    def __exit__(self, *exc: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        self.stack.append(self.index.get(id(module), self.stack[-1] if self.stack else NONE))
        if id(module) == self.root:
            self.on_root(True)

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if self.stack:
            self.stack.pop()
        if id(module) == self.root:
            self.on_root(False)

    def module(self) -> int:
        """The module that the op being dispatched belongs to."""
        if self.stack:
            return self.stack[-1]
        if self.in_backward:
            node = _node()
            if node is not None:
                module = self.by_sequence.get(node._sequence_nr())
                if module is None:
                    variable = getattr(node, "variable", None)
                    module = self.owner.get(id(variable), self.last_unpacked) if variable is not None else self.last_unpacked
                return module
        return NONE

    def made(self, module: int) -> None:
        """An op was dispatched: the node that autograd made for it, if any, is the newest."""
        if module != NONE and (not self.in_backward or self.stack):
            if self.in_backward:
                self.by_sequence[_sequence() - 1] = module
            else:
                self.by_sequence.setdefault(_sequence() - 1, module)

    def where(self) -> str:
        """For messages: "Linear encoder.layers.3.up"."""
        module = self.module()
        if module == NONE:
            return "the loss function"
        path, kind, _, _ = self.tables.module[module]
        texts = self.tables.strings.texts()
        return f"{texts[kind]} {texts[path]}".rstrip()
