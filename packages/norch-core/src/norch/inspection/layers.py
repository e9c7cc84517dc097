"""The calls of a model's modules in one forward pass: shapes, parameters, FLOPs, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..tensor_base import TensorBase

_NOTE = "norch.summary(): in "

DEEPEST = 8
"""How many containers within each other are looked into."""


@dataclass
class Layer:
    """A module where the forward pass called it, or did not (`calls` is 0).

    name: within the layer above it; path: within the model. kind: its class. inputs, outputs: shapes, in tuples and
    dicts as the module takes and gives them; those of several calls if they have the same. parameters, trainable: of
    the module itself, without those of the layers below. is_shared: its parameters are counted in a layer above this
    one. flops, nbytes: of the layer with those below; nbytes is the memory of results of layers that have none below.
    """

    name: str
    path: str
    kind: str
    module_id: int = field(repr=False)
    inputs: Any = None
    outputs: Any = None
    parameters: int = 0
    trainable: int = 0
    is_shared: bool = False
    flops: int = 0
    nbytes: int = 0
    calls: int = 0
    layers: list[Layer] = field(default_factory=list)

    def all(self, depth: int = 0) -> Iterator[tuple[int, Layer]]:
        """This layer and all below it, with their depths."""
        yield depth, self
        for layer in self.layers:
            yield from layer.all(depth + 1)

    def total(self, name: str) -> int:
        """`parameters` or `trainable`, of the layer with those below, each parameter once."""
        return sum([getattr(layer, name) for _, layer in self.all() if not layer.is_shared])


class Recorder:
    """Notes the calls of modules, which it is told of by `watch`."""

    def __init__(self, model: Any) -> None:
        self.names = {id(m): name for name, m in model.named_modules()}
        self.root = Layer("", "", type(model).__name__, id(model))
        self.open: list[Layer] = []

    def count(self, flops: int, op: str) -> None:
        for layer in self.open:
            layer.flops += flops

    def watch(self, module: Any) -> None:
        """Puts a function before the module's `forward`, in its dict, from where `keeping.kept` takes it again."""
        forward: Callable[..., Any] = module.forward

        def call(*args: Any, **kwargs: Any) -> Any:
            layer = self._entered(module)
            try:
                result = forward(*args, **kwargs)
            except Exception as error:
                if not any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ())):
                    error.add_note(f"{_NOTE}{layer.path or 'the model'} ({layer.kind})")
                raise
            finally:
                self.open.pop()
            self._left(layer, args, kwargs, result)
            return result

        module.__dict__["forward"] = call

    def _entered(self, module: Any) -> Layer:
        path = self.names.get(id(module), "")
        if not self.open and id(module) == self.root.module_id:
            layer = self.root
        else:
            above = self.open[-1] if self.open else self.root
            start = f"{above.path}." if above.path else ""
            layer = Layer(path.removeprefix(start), path, type(module).__name__, id(module))
        self.open.append(layer)
        return layer

    def _left(self, layer: Layer, args: Any, kwargs: Any, result: Any) -> None:
        given = args[0] if len(args) == 1 and not kwargs else (*args, *kwargs.values())
        layer.inputs, layer.outputs = shapes(given), shapes(result)
        layer.calls += 1
        if layer.layers:
            layer.nbytes = sum([below.nbytes for below in layer.layers])
        else:
            known = {id(x.buffer) for x in tensors(given)}
            new = {id(x.buffer): x for x in tensors(result) if id(x.buffer) not in known}
            layer.nbytes = sum([int(x.buffer.nbytes) for x in new.values()])
        if layer is self.root:
            return
        beside = (self.open[-1] if self.open else self.root).layers
        for other in beside:
            if _is_same(other, layer):
                _merge(other, layer)
                return
        beside.append(layer)


def _is_same(a: Layer, b: Layer) -> bool:
    return a.module_id == b.module_id and a.inputs == b.inputs and a.outputs == b.outputs


def _merge(into: Layer, layer: Layer) -> None:
    """Adds a call of the same module with the same shapes."""
    into.calls += layer.calls
    into.flops += layer.flops
    into.nbytes += layer.nbytes
    for below in layer.layers:
        for other in into.layers:
            if _is_same(other, below):
                _merge(other, below)
                break
        else:
            into.layers.append(below)


def add_uncalled(root: Layer, model: Any) -> None:
    """Puts the modules that were not called where the model has them, if it was called those with parameters only."""
    called = {layer.module_id for _, layer in root.all()}
    by_path = {layer.path: layer for _, layer in reversed(list(root.all()))}
    for path, module in model.named_modules():
        if id(module) in called:
            continue
        above = path
        while above:
            above = above.rpartition(".")[0]
            if above in by_path:
                break
        if (root.calls and not list(module.parameters())) or type(module).forward is _no_forward(module):
            continue
        start = f"{above}." if above else ""
        layer = Layer(path.removeprefix(start), path, type(module).__name__, id(module))
        by_path[above].layers.append(layer)
        by_path[path] = layer


def _no_forward(module: Any) -> Any:
    """The `forward` of the base of all modules, which containers such as ModuleList have."""
    return next((vars(kind)["forward"] for kind in reversed(type(module).__mro__) if "forward" in vars(kind)), None)


def count_parameters(root: Layer, model: Any) -> None:
    """Gives each layer its own parameters; what containers that are no layers hold goes to the layer above them."""
    modules = {id(m): m for m in model.modules()}
    shown = {layer.module_id for _, layer in root.all()}
    seen: set[int] = set()
    counted: set[int] = set()
    for _, layer in root.all():
        layer.is_shared = layer.module_id in seen
        seen.add(layer.module_id)
        for parameter in _own(modules[layer.module_id], shown):
            if layer.is_shared or id(parameter) not in counted:
                counted.add(id(parameter))
                layer.parameters += parameter.numel()
                layer.trainable += parameter.numel() * bool(parameter.requires_grad)


def _own(module: Any, shown: set[int]) -> Iterator[Any]:
    yield from module.parameters(recurse=False)
    for child in module.children():
        if id(child) not in shown:
            yield from _own(child, shown)


# --- Values ---------------------------------------------------------------------------------------------------------


def tensors(value: Any, depth: int = DEEPEST) -> list[Any]:
    """The tensors in a value of tuples, lists, dicts and dataclasses."""
    if isinstance(value, TensorBase):
        return [value]
    return [x for part in (_parts(value) if depth else {}).values() for x in tensors(part, depth - 1)]


def shapes(value: Any, depth: int = DEEPEST) -> Any:
    """The shapes of a value's tensors, in tuples and dicts as it has them; None for what has none."""
    if isinstance(value, TensorBase):
        return list(value.spec.shape)
    parts = _parts(value) if depth else {}
    found = {str(k): shape for k, part in parts.items() if (shape := shapes(part, depth - 1)) is not None}
    if not isinstance(value, tuple | list):
        return found or None
    several = tuple(found.values())
    return (several[0] if len(several) == 1 else several) if several else None


def _parts(value: Any) -> Mapping[Any, Any]:
    """What a container holds, by key, place or name."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    names = () if isinstance(value, type) else getattr(value, "__dataclass_fields__", ())
    return {name: getattr(value, name, None) for name in names}
