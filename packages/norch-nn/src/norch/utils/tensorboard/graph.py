"""The graph of a model as TensorBoard draws it: what autograd recorded, by the modules that were called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import norch


class _Calls:
    """Which module called the ops that were recorded between two moments."""

    def __init__(self, model: Any) -> None:
        self.names = {id(module): name for name, module in model.named_modules()}
        self.marker = norch.ones((), requires_grad=True)
        self.begun: list[int] = []
        self.spans: list[tuple[int, int, str]] = []
        """First and last moment and name, inner calls before outer ones."""

    def now(self) -> int:
        made: Any = (self.marker * 1).grad_fn
        return int(made.sequence_number)

    def begin(self, module: Any, args: Any) -> None:
        self.begun.append(self.now())

    def end(self, module: Any, args: Any, result: Any) -> None:
        self.spans.append((self.begun.pop(), self.now(), self.names[id(module)]))

    def scope(self, moment: int) -> str:
        return next((name for first, last, name in self.spans if first < moment < last), "")


def tensors(value: Any) -> Iterator[norch.Tensor]:
    """All tensors in lists, tuples and dicts."""
    if isinstance(value, norch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


def graph_event(graph: Any) -> Any:
    """The event that a file has of a graph."""
    from tensorboardX.proto.event_pb2 import Event

    return Event(graph_def=graph.SerializeToString())


def model_graph(model: Any, inputs: Any) -> Any:
    """TensorBoard's GraphDef of `model(*inputs)`, as it computes in evaluation. Raises ValueError where nothing is
    recorded."""
    if inputs is None:
        raise ValueError("add_graph(): input_to_model is needed, a tensor or a tuple of arguments")
    args = inputs if isinstance(inputs, list | tuple) else (inputs,)
    # So that what is done to the inputs is recorded too.
    args = [a.detach().requires_grad_() if isinstance(a, norch.Tensor) and a.is_floating_point() else a for a in args]
    calls = _Calls(model)
    hooks = [hook for module in model.modules() for hook in _watched(module, calls)]
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        with norch.enable_grad():
            result = list(tensors(model(*args)))
    finally:
        for module in training:
            module.training = True
        for hook in hooks:
            hook.remove()
    ends = [tensor.grad_fn for tensor in result]
    if not any(ends):
        raise ValueError("add_graph(): autograd recorded nothing of this model: its result has no grad_fn")
    return _drawn(model, args, ends, calls)


def _watched(module: Any, calls: _Calls) -> Iterator[Any]:
    yield module.register_forward_pre_hook(calls.begin, prepend=True)
    yield module.register_forward_hook(calls.end)


def _recorded(ends: list[Any]) -> list[Any]:
    """Every node that the ends come from, in the order of recording."""
    found: dict[int, Any] = {}
    stack = [end for end in ends if end is not None]
    while stack:
        node = stack.pop()
        if id(node) not in found:
            found[id(node)] = node
            stack += [before for before, _ in node.next_functions if before is not None]
    return sorted(found.values(), key=lambda node: node.sequence_number)


def _drawn(model: Any, args: list[Any], ends: list[Any], calls: _Calls) -> Any:
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.versions_pb2 import VersionDef

    title = type(model).__name__
    leaves = {id(parameter): f"{title}/{name.replace('.', '/')}" for name, parameter in model.named_parameters()}
    leaves |= {id(arg): f"input/{i}" for i, arg in enumerate(args) if isinstance(arg, norch.Tensor)}
    names: dict[int, str] = {}
    used: Counter[str] = Counter()
    nodes = []
    for node in _recorded(ends):
        tensor = node.tensor() if node.title() == "accumulate_grad" else None
        if tensor is not None:
            name = leaves.get(id(tensor), f"{title}/tensor")
            kind = "input" if name.startswith("input/") else "Parameter"
        else:
            kind = node.title()
            name = "/".join([title, *filter(None, calls.scope(node.sequence_number).split(".")), kind])
        used[name] += 1
        names[id(node)] = name if used[name] == 1 and tensor is not None else f"{name}_{used[name]}"
        before = [names[id(other)] for other, _ in node.next_functions if other is not None]
        nodes.append(_node(names[id(node)], kind, before, tensor))
    nodes += [_node(f"output/{i}", "output", [names[id(e)]], None) for i, e in enumerate(ends) if e is not None]
    return GraphDef(node=nodes, versions=VersionDef(producer=22))


def _node(name: str, kind: str, before: list[str], tensor: norch.Tensor | None) -> Any:
    from tensorboardX.proto.attr_value_pb2 import AttrValue
    from tensorboardX.proto.node_def_pb2 import NodeDef
    from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

    attributes = {}
    if tensor is not None:
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in tensor.shape])
        attributes["_output_shapes"] = AttrValue(list=AttrValue.ListValue(shape=[shape]))
    return NodeDef(name=name, op=kind, input=before, attr=attributes)
