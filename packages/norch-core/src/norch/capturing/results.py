"""What a run of a captured step leaves behind: tensors that it returns, and gradients of leaves."""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

from ..autograd.accumulate import ALONE_BUFFER
from ..autograd.graph import Node
from ..errors import AutogradError
from ..tensor_base import make_tensor

if TYPE_CHECKING:
    from ..tensor import Tensor


class CapturedNode(Node):
    """The node of a result of a captured step that was differentiated in the step."""

    __slots__ = ()

    def name(self) -> str:
        return "captured_backward"

    def run_backward(self, backward: Any, grad: Any) -> None:
        raise AutogradError(
            "backward(): this tensor was made and differentiated in a captured step, which keeps no graph of it"
        )


def is_differentiated(tensor: Tensor) -> bool | None:
    """Whether a backward pass has used up the graph of `tensor`; None where it has none."""
    node = tensor.node
    if node is None:
        return None
    seen, stack = {node}, [node]
    while stack:
        found = stack.pop()
        if found.plan is not None and found.saved_inputs is None:
            return True
        for edge in found.edges:
            if edge is not None and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return False


class Result:
    """A tensor that each run makes anew: at `offset` of a place."""

    __slots__ = ("differentiated", "offset", "place", "spec")

    def __init__(self, place: int, offset: int, spec: Any, differentiated: bool = False) -> None:
        self.place, self.offset, self.spec, self.differentiated = place, offset, spec, differentiated


class Gradient:
    """The gradient that a run leaves in a leaf. Its memory is used again where nothing else holds it by then.

    left: None, a tensor (weakly), or a Result. allocation: how to get the memory of a gradient which has its own.
    """

    __slots__ = ("allocation", "leaf", "left", "tensor")

    def __init__(self, leaf: Any, where: Any) -> None:
        self.leaf, self.left = leaf, Result(*where) if isinstance(where, tuple) else where
        self.allocation: Any = None
        self.tensor: Any = None

    def prepare(self, buffers: list[Any]) -> None:
        if self.allocation is None:
            return
        tensor = self.tensor
        place, nbytes, allocate, index = self.allocation
        if (
            tensor is not None
            and getrefcount(tensor) <= _OF_LEAF_ALONE
            and getrefcount(tensor.buffer) <= ALONE_BUFFER
            and tensor.buffer is not None
            and tensor.spec is self.left.spec
        ):
            buffers[place] = tensor.buffer
            return
        self.tensor = None
        buffers[place] = allocate(nbytes, index)

    def leave(self, buffers: list[Any]) -> None:
        left = self.left
        if isinstance(left, Result):
            tensor = self.tensor
            if tensor is None:
                tensor = make_tensor(left.spec, buffers[left.place], left.offset)
                if self.allocation is not None:
                    self.tensor = tensor
            self.leaf()._grad = tensor
        else:
            self.leaf()._grad = None if left is None else left()


def _of_leaf_alone() -> int:
    """What `getrefcount` says in a method like `prepare` of a tensor that the Gradient and the leaf hold."""
    gradient = Gradient(None, None)
    gradient.tensor = object()
    gradient.left = gradient.tensor
    tensor = gradient.tensor
    return getrefcount(tensor)


_OF_LEAF_ALONE = _of_leaf_alone()
