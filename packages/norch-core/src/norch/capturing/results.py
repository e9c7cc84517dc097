"""What a run of a captured step leaves behind: tensors that it returns, and gradients of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from ..autograd.accumulate import ALONE_BUFFER
from ..autograd.graph import Leaf, Node, resolve
from ..errors import AutogradError
from ..tensor_base import make_tensor
from .places import ARGUMENT, OfLeaf
from .recorder import Recorder

if TYPE_CHECKING:
    from ..tensor import Tensor


class CapturedNode(Node):
    """The node of a result of a captured step that was differentiated in the step."""

    __slots__ = ()

    def title(self) -> str:
        return "captured"

    def run_backward(self, backward: Any, grad: Any) -> None:
        raise AutogradError(
            "backward(): this tensor was made and differentiated in a captured step, which keeps no graph of it"
        )


def is_differentiated(tensor: Tensor, since: int = 0) -> bool | None:
    """Whether a backward pass has used up the graph of `tensor`; None where it has none. What is older is not asked."""
    node = None if tensor.node is None else resolve(tensor)
    if node is None or type(node) is Leaf:
        return None
    seen, stack = {node}, [node]
    while stack:
        found = stack.pop()
        if found.plan is not None and found.saved_inputs is None:
            return True
        for edge in found.edges:
            if edge is not None and edge not in seen and edge.sequence_number >= since:
                seen.add(edge)
                stack.append(edge)
    return False


class Result:
    """A tensor that each run makes anew: at `offset` of a place. node: the number of its node, -1 for none."""

    __slots__ = ("node", "offset", "place", "spec")

    def __init__(self, place: int, offset: int, spec: Any, node: int = -1) -> None:
        self.place, self.offset, self.spec, self.node = place, offset, spec, node

    def get(self, buffers: Sequence[Any], tensors: Sequence[Tensor], nodes: Sequence[Any]) -> Any:
        node = nodes[self.node] if self.node >= 0 else None
        return make_tensor(self.spec, buffers[self.place], self.offset, node)


class NewLeaf(Result):
    """One that requires grad, as a leaf, or has a gradient: `grad`, which is made likewise."""

    __slots__ = ("grad", "requires_grad")

    grad: Result | None
    requires_grad: bool

    def get(self, buffers: Sequence[Any], tensors: Sequence[Tensor], nodes: Sequence[Any]) -> Any:
        out = super().get(buffers, tensors, nodes)
        if self.requires_grad:
            out.node = Leaf(out)
        out._grad = None if self.grad is None else self.grad.get(buffers, tensors, nodes)
        return out


class Standing:
    """A tensor that was there before, or the gradient of such a leaf."""

    __slots__ = ("of_leaf", "tensor")

    def __init__(self, tensor: Any, of_leaf: bool) -> None:
        self.tensor, self.of_leaf = tensor, of_leaf

    def get(self, buffers: Sequence[Any], tensors: Sequence[Tensor], nodes: Sequence[Any]) -> Any:
        found = self.tensor()
        return found._grad if self.of_leaf else found


class Given:
    """An argument (`spec` is None), or a view of it: `at` bytes behind its first element, with node `node`."""

    __slots__ = ("at", "node", "position", "spec")

    def __init__(self, position: int, at: int = 0, spec: Any = None, node: int = -1) -> None:
        self.position, self.at, self.spec, self.node = position, at, spec, node

    def get(self, buffers: Sequence[Any], tensors: Sequence[Tensor], nodes: Sequence[Any]) -> Any:
        tensor = tensors[self.position]
        if self.spec is None:
            return tensor
        begin = tensor.offset * tensor.spec.dtype.itemsize + self.at
        node = nodes[self.node] if self.node >= 0 else None
        return make_tensor(self.spec, tensor.buffer, begin // self.spec.dtype.itemsize, node)


def make_output(recorder: Recorder, i: int, node: int) -> Any:
    """What gives result `i` of a step, whose node has number `node`, at each run."""
    where, grad = recorder.results[i], recorder.result_grads[i]
    if type(where) is int:
        return Given(where)
    if isinstance(where, OfLeaf):
        return Standing(where.leaf, True)
    if type(where) is not tuple:
        return Standing(where, False)
    place, offset, spec = where
    info = recorder.places[place]
    if info.kind == ARGUMENT:
        return Given(info.argument, offset * spec.dtype.itemsize, spec, node)
    if grad is None and not recorder.leaves[i]:
        return Result(place, offset, spec, node)
    made = NewLeaf(place, offset, spec, node)
    made.requires_grad, made.grad = recorder.leaves[i], None if grad is None else Result(*grad)
    return made


def entry_of(recorder: Recorder, grads: Sequence[Gradient], read: Sequence[tuple[Any, int]]) -> list[tuple[Any, Any]]:
    """The leaves (weakly) that matter to a program, with the spec and offset of the gradient they have, or None."""
    found: list[tuple[Any, Any]] = []
    known: dict[int, None] = {}
    for leaf in (*[grad.leaf for grad in grads], *[leaf for leaf, _ in read]):
        tensor = leaf()
        grad = None if tensor is None else recorder.known[id(tensor)].grad
        if id(tensor) in known or (grad is not None and id(tensor) not in recorder.read_grads):
            continue
        known[id(tensor)] = None
        seen = None if grad is None else recorder.grad_specs.get(id(tensor))
        found.append((leaf, seen))
    return found


class Gradient:
    """The gradient that a run leaves in a leaf. Its memory is used again where nothing else holds it by then.

    left: None, a tensor (weakly), or a Result. allocation: how to get the memory of a gradient which has its own.
    """

    __slots__ = ("allocation", "leaf", "left", "reused", "tensor")

    def __init__(self, leaf: Any, where: Any) -> None:
        self.leaf, self.left = leaf, Result(*where) if isinstance(where, tuple) else where
        self.allocation: Any = None
        self.tensor: Any = None
        self.reused = False

    def prepare(self, buffers: list[Any]) -> None:
        if self.allocation is None:
            return
        tensor = self.tensor
        place, nbytes, allocate, index = self.allocation
        if (
            tensor is not None
            and getrefcount(tensor) <= _OF_LEAF_ALONE - (self.leaf()._grad is not tensor)
            and getrefcount(tensor.buffer) <= ALONE_BUFFER
            and tensor.buffer is not None
            and tensor.spec is self.left.spec
            and tensor.node is None
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
                if self.allocation is not None and self.reused:
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
