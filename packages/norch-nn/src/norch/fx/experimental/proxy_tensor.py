"""Functions as graphs of ops: PyTorch's `torch.fx.experimental.proxy_tensor`."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any

import norch
from norch import nn
from norch.utils._python_dispatch import TorchDispatchMode  # type: ignore[import-untyped]
from norch.utils._pytree import tree_map, tree_map_only

from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node


class _Recording(TorchDispatchMode):  # type: ignore[misc]
    """Records the ops of a call. Tensors are known by their memory, so that `detach()` of one is the same node."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph, self.root = graph, nn.Module()
        self.nodes: dict[Any, tuple[Node, norch.Tensor]] = {}
        self.constants: Counter[str] = Counter()

    @staticmethod
    def place(tensor: norch.Tensor) -> Any:
        return (
            tensor.untyped_storage()._cdata,
            tensor.storage_offset(),
            tensor.dtype,
            tuple(tensor.shape),
            tensor.stride(),
        )

    def track(self, tensor: norch.Tensor, node: Node) -> None:
        self.nodes[self.place(tensor)] = node, tensor  # which keeps the memory, and so its id

    def take(self, node: Node, value: Any) -> None:
        """Has the tensors in an argument be `node`, or parts of it."""
        if isinstance(value, norch.Tensor):
            self.track(value, node)
        elif isinstance(value, dict | list | tuple):
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                self.take(self.graph.call_function(operator.getitem, (node, key)), part)

    def node_of(self, tensor: norch.Tensor) -> Node:
        found = self.nodes.get(self.place(tensor))
        if found is None:
            kind = "param" if isinstance(tensor, nn.Parameter) else "tensor"
            name, self.constants[kind] = f"_{kind}_constant{self.constants[kind]}", self.constants[kind] + 1
            register: Any = self.root.register_parameter if kind == "param" else self.root.register_buffer
            register(name, tensor)
            self.track(tensor, self.graph.get_attr(name))
            return self.node_of(tensor)
        return found[0]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func._schema.name == "aten::_local_scalar_dense" and self.place(args[0]) in self.nodes:
            raise RuntimeError(
                "make_fx(): a value of a tensor that is traced is read: what depends on it would be frozen"
            )
        given, named = tree_map_only(norch.Tensor, self.node_of, (args, kwargs))
        out = func(*args, **kwargs)
        node = self.graph.call_function(func, tuple(given), named, name=func.overloadpacket.__name__)
        for i, x in enumerate(out if isinstance(out, tuple | list) else (out,)):
            if isinstance(x, norch.Tensor):
                each = self.graph.call_function(operator.getitem, (node, i)) if isinstance(out, tuple | list) else node
                self.track(x, each)
        return out


def make_fx(
    f: Callable[..., Any], decomposition_table: Any = None, tracing_mode: str = "real", **options: Any
) -> Callable[..., GraphModule]:
    """A function that calls `f` and gives what it computed: a GraphModule of the ops, `torch.ops.aten`'s.

    Gradients that `f` takes are in it. Its arguments are those of `f`, containers of tensors among them; tensors that
    `f` finds elsewhere become constants. Shapes and the way through Python's branches are those of the call. The other
    arguments are PyTorch's, ignored. Raises RuntimeError where `f` reads a value of a tensor, as `item()` does, and
    what `f` raises.
    """

    @wraps(f)
    def trace(*args: Any) -> GraphModule:
        graph = Graph()
        recording = _Recording(graph)
        names = [
            p.name for p in signature(f).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        for i, x in enumerate(args):
            recording.take(graph.placeholder(f"{names[i] if i < len(names) else f'arg{i}'}_1"), x)
        with recording:
            out = f(*args)
        graph.output(tree_map(lambda x: recording.node_of(x) if isinstance(x, norch.Tensor) else x, out))
        return GraphModule(recording.root, graph)

    return trace


def get_proxy_mode() -> None:
    """None: what `make_fx` records with is no mode of proxies."""
