"""ShapeProp: notes of each node what shape and dtype its result has."""

from __future__ import annotations

from typing import Any, NamedTuple

import norch

from ..interpreter import Interpreter
from ..node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """What is noted of a tensor."""

    shape: norch.Size
    dtype: norch.dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: norch.Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """The metadata of a tensor. include_contiguity: whether its memory format is looked at."""
    formats = (norch.contiguous_format, norch.channels_last)
    found = None
    if include_contiguity:
        found = next((each for each in formats if result.is_contiguous(memory_format=each)), None)
    shape, stride = norch.Size(result.shape), tuple(result.stride())
    return TensorMetadata(shape, result.dtype, result.requires_grad, stride, found, False, {})


class ShapeProp(Interpreter):
    """Computes a GraphModule's graph, and puts what is known of each result into its node's `meta`: "tensor_meta", a
    TensorMetadata or such in tuples, lists and dicts, and "type"."""

    def run_node(self, n: Node) -> Any:
        """What a node gives, with its metadata noted."""
        result = super().run_node(n)
        tensors: list[norch.Tensor] = []

        def metadata(leaf: Any) -> Any:
            if not isinstance(leaf, norch.Tensor):
                return leaf
            tensors.append(leaf)
            return _extract_tensor_metadata(leaf)

        found = map_aggregate(result, metadata)
        if tensors:
            n.meta["tensor_meta"] = found
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """`run` of the arguments. Raises as it does."""
        return super().run(*args)
