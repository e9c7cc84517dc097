"""Models for evaluation, made of fewer steps."""

from __future__ import annotations

import copy
from typing import Any

from norch import nn

from .._symbolic_trace import symbolic_trace
from ..graph_module import GraphModule
from ..interpreter import Transformer
from ..node import Node

_FUSED: dict[type[nn.Module], tuple[type[nn.Module], Any]] = {
    nn.Conv1d: (nn.BatchNorm1d, nn.utils.fuse_conv_bn_eval),
    nn.Conv2d: (nn.BatchNorm2d, nn.utils.fuse_conv_bn_eval),
    nn.Conv3d: (nn.BatchNorm3d, nn.utils.fuse_conv_bn_eval),
    nn.Linear: (nn.BatchNorm1d, nn.utils.fuse_linear_bn_eval),
}


def fuse(model: nn.Module, inplace: bool = False, no_trace: bool = False) -> nn.Module:
    """A model in evaluation whose batch normalisations are in the convolution or linear layer before each of them.

    model: in evaluation mode. inplace: whether it, rather than a copy, is changed. no_trace: whether it is a
    GraphModule that need not be traced. Layers whose results others use too, or that are called more than once, stay.
    Raises ValueError for modules that are training, and as `symbolic_trace`.
    """
    model = model if inplace else copy.deepcopy(model)
    traced: Any = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    calls: list[str] = [node.target for node in traced.graph.find_nodes(op="call_module")]
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        if calls.count(before.target) > 1 or calls.count(node.target) > 1:
            continue
        layer, normalisation = traced.get_submodule(before.target), traced.get_submodule(node.target)
        if type(layer) not in _FUSED:
            continue
        wanted, fused = _FUSED[type(layer)]
        if type(normalisation) is not wanted or not normalisation.track_running_stats:
            continue
        parent, _, name = before.target.rpartition(".")
        setattr(traced.get_submodule(parent), name, fused(layer, normalisation))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced  # type: ignore[no-any-return]


def remove_dropout(model: nn.Module) -> nn.Module:
    """A GraphModule that does what a model does, but for its modules of the class Dropout."""

    class _Without(Transformer):
        def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[target], nn.Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)

    return _Without(symbolic_trace(model)).transform()
