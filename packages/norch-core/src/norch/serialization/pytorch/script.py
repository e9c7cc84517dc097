"""TorchScript archives: the weights of their modules, by the names of a state_dict. Their code is not run."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ...tensor import Tensor
from .machine import Machine
from .names import Load, WeightNames

if TYPE_CHECKING:
    from .archive import Archive

MAX_WEIGHTS = 1_000_000
_CLASS = re.compile(
    r"^class (\w+)\(Module\):\n(?:  __parameters__ = \[(.*)\]\n)?(?:  __buffers__ = \[(.*)\]\n)?", re.MULTILINE
)
_LISTS = ("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist", "restore_type_tag")


class _Kind:
    """A class of the archive: which of its attributes are weights, None where its code does not say."""

    def __init__(self, weights: set[str] | None) -> None:
        self.weights = weights


class _Object:
    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.state: Any = None


class _Value:
    """Stands for functions that give their first argument."""


class _ScriptNames(WeightNames):
    def __init__(self, archive: Archive, load: Load) -> None:
        super().__init__(load)
        self._archive = archive
        self._kinds: dict[str, dict[str, _Kind]] = {}

    def find(self, machine: Machine, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _LISTS:
            return _Value
        if module.partition(".")[0] != "__torch__":
            return super().find(machine, module, name)
        if module not in self._kinds:
            self._kinds[module] = self._declared(module)
        return self._kinds[module].setdefault(name, _Kind(None))

    def _declared(self, module: str) -> dict[str, _Kind]:
        path = f"code/{module.replace('.', '/')}.py"
        text = self._archive.text(path) if self._archive.has(path) else ""
        return {
            name: _Kind(set(re.findall(r'"([^"]+)"', f"{parameters} {buffers}")))
            for name, parameters, buffers in _CLASS.findall(text)
        }

    def call(self, machine: Machine, function: Any, args: tuple[Any, ...], new: bool) -> Any:
        if function is _Value:
            return args[0]
        return _Object(function) if type(function) is _Kind else super().call(machine, function, args, new)

    def build(self, machine: Machine, instance: Any, state: Any) -> None:
        if type(instance) is _Object:
            instance.state = state
        else:
            super().build(machine, instance, state)


def load(archive: Archive, load_storage: Load) -> OrderedDict[str, Tensor]:
    """The state_dict of an archive's module."""
    fail = archive.file.fail
    root = Machine(_ScriptNames(archive, load_storage), fail).run(archive.bytes("data.pkl"))
    found: OrderedDict[str, Tensor] = OrderedDict()
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    visited = 0
    while waiting:
        prefix, module, depth = waiting.pop()
        visited += 1
        if depth > 100 or visited > MAX_WEIGHTS:
            raise fail("its modules are nested too deeply, or there are too many")
        if type(module) is not _Object or not isinstance(module.state, dict):
            continue
        weights, children = module.kind.weights, []
        for name, value in module.state.items():
            if isinstance(value, Tensor) and (weights is None or name in weights):
                found[f"{prefix}{name}"] = value.detach()
            elif type(value) is _Object:
                children.append((f"{prefix}{name}.", value, depth + 1))
        if len(found) > MAX_WEIGHTS:
            raise fail(f"it has more than {MAX_WEIGHTS:,} weights")
        waiting += reversed(children)
    if not found and archive.has("constants/0"):
        raise fail("its weights are frozen into its code as constants; save the module before torch.jit.freeze")
    return found
