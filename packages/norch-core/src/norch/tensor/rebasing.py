"""What the graph learns of memory that is written to: a tensor's new node, and, for a view, its base's.

A view's memory is its base's, so the base gets a new node as well: "the old base, with the new values in the part that
the view shows". Other views of that base then get new nodes when they are next used (`graph.resolve`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd import graph
from ..autograd.graph import (
    UNTRACKED,
    Leaf,
    Node,
    is_recording,
    mark_modified,
    move_retained,
    new_node,
    resolve,
    view_node,
)
from ..dispatch.op import Op
from ..dtype import bool_, can_cast, int64
from ..errors import AutogradError, DTypeError, ShapeError
from ..ops.copying import contiguous, write
from ..ops.creation import FILL, arange, empty_spec, fill_spec
from ..ops.elementwise.arithmetic import where
from ..ops.indexing import gather
from ..ops.shape.strided import as_strided_view
from ..spec import Shape, Spec, span
from ..tensor_base import TensorBase, make_tensor

if TYPE_CHECKING:
    from . import Tensor


def overlapping(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors may share memory without being the same view of it."""
    if a.buffer is not b.buffer or (a.spec is b.spec and a.offset == b.offset):
        return False
    (first, last), (start, end) = [
        (x.offset * size, (x.offset + span(x.spec.shape, x.spec.strides)) * size)
        for x, size in ((a, a.spec.dtype.itemsize), (b, b.spec.dtype.itemsize))
    ]
    return first < end and start < last


def once(tensor: Tensor) -> Tensor:
    """The tensor's memory with expanded dims as of size 1, so that no element is there twice."""
    spec = tensor.spec
    if not spec.overlaps:
        return tensor
    shape = tuple([1 if n > 1 and not s else n for n, s in zip(spec.shape, spec.strides, strict=True)])
    return _part(tensor, shape, spec.strides, 0)


def check_writable(tensor: Tensor, op: str, values: bool = True, alike: bool = False) -> bool:
    """Raises where `tensor`, or its shape alone, may not be changed in place. Whether the graph has to learn of it.

    alike: every element gets the same value, so that those of an expanded dim may share memory.
    """
    root = tensor if tensor.base is None else tensor.base
    if root.node is None and (tensor.node is None or tensor.node is UNTRACKED) and not tensor.spec.overlaps:
        return False
    if values and tensor.spec.overlaps and not (alike and not once(tensor).spec.overlaps):
        raise ShapeError(
            f"{op}(): elements of this tensor (shape {tuple(tensor.spec.shape)}, strides {tensor.spec.strides}) share "
            "memory, as after expand(); clone() it first"
        )
    if is_recording() and tensor.node is not None:
        node = resolve(tensor)
        if type(node) is Leaf:
            raise AutogradError(
                f"{op}(): a leaf that requires grad cannot be changed in place; use no_grad() or detach()"
            )
    base = tensor.base
    if base is not None and is_recording() and base.node is not None:
        if type(base.node) is Leaf:
            raise AutogradError(f"{op}(): this is a view of a leaf that requires grad; use no_grad() or detach()")
        if tensor.node is None:
            raise AutogradError(
                f"{op}(): this view was made under no_grad(), so that its base could not learn of the change; make the "
                "view, or the change, in the other mode"
            )
    return is_recording()


def check_result(op: str, tensor: Tensor, value: Tensor) -> None:
    if value.spec.shape != tensor.spec.shape:
        raise ShapeError(
            f"{op}(): the result has shape {tuple(value.spec.shape)}, the tensor {tuple(tensor.spec.shape)}, which an "
            "in-place op cannot change"
        )
    if not can_cast(value.spec.dtype, tensor.spec.dtype):
        raise DTypeError(f"{op}(): the result is {value.spec.dtype}, which a tensor of {tensor.spec.dtype} cannot hold")


def assign(tensor: Tensor, value: Tensor, op: str) -> Tensor:
    """Writes `value`, of the tensor's shape, into its memory; the graph then takes the tensor for `value`."""
    if value.spec.dtype is not tensor.spec.dtype:
        value = value.to(tensor.spec.dtype)
    if value.spec.device is not tensor.spec.device:
        value = value.to(tensor.spec.device)
    if overlapping(tensor, value):
        value = value.clone()
    if value.buffer is not tensor.buffer or value.offset != tensor.offset or value.spec is not tensor.spec:
        write(tensor, value)
    mark_modified(tensor, op)
    if is_recording():
        rebase(tensor, resolve(value))
    return tensor


def rebase(tensor: Tensor, node: Node | None) -> None:
    """Makes `node` how `tensor` came to be, after its memory was given the values that `node` stands for."""
    base = tensor.base
    if base is None and (node is not None or tensor.node is None):
        if node is not None:
            move_retained(tensor.node, node)
        tensor.node = node
        return
    root = tensor if base is None else base
    old = resolve(root)
    if old is None and node is None:
        return
    form = (tuple(tensor.spec.shape), tensor.spec.strides)
    written = _write_view.plans[root.spec, tensor.spec, *form]
    root.node = written_node = new_node(written, (old, node), (None, None, *form, tensor.offset - root.offset))
    move_retained(old, written_node)
    if base is not None:
        shown = view_node(root, tensor, written_node)
        move_retained(tensor.node, shown)
        tensor.node = shown


def _base_gradient(g: Tensor, base_spec: Spec, shape: Shape, strides: Shape, shift: int) -> Tensor:
    """What the base held before counts only where the view does not show it."""
    hidden = fill_spec(base_spec.like(base_spec.shape, base_spec.strides, bool_), False)
    shown = once(_part(hidden, shape, strides, shift))
    FILL.into(shown, shown.spec, True)
    out: Tensor = where(hidden, 0.0, g)
    return out


def _view_gradient(g: Tensor, base_spec: Spec, shape: Shape, strides: Shape, shift: int) -> Tensor:
    """The part of the base's gradient that the view shows, whatever the gradient's own layout."""
    if base_spec.is_contiguous:
        g = contiguous(g)
    if g.spec.strides == base_spec.strides:
        return as_strided_view(g, shape, strides, shift)
    order = empty_spec(base_spec.like(base_spec.shape, base_spec.strides, int64))
    write(order, arange(base_spec.numel, device=base_spec.device).reshape(base_spec.shape))
    places = _part(order, shape, strides, shift)
    return gather(g.reshape(-1), 0, places.reshape(-1)).reshape(shape)


def _part(tensor: Tensor, shape: Shape, strides: Shape, shift: int) -> Tensor:
    return make_tensor(tensor.spec.like(shape, strides), tensor.buffer, tensor.offset + shift)


_write_view = Op(
    "write_view",
    ("base", "value", "shape", "strides", "shift"),
    2,
    lambda base, value, shape, strides, shift: (base, 0),
    (_base_gradient, _view_gradient),
    kind="view",
    place=4,
)
"""A base after a view of it, of this shape and these strides, was given other values."""

graph.rebase = rebase


def any_tracked(self: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the graph takes part in a change of `self` by these arguments."""
    if self.node is not None and resolve(self) is not None:
        return True
    return any(isinstance(a, TensorBase) and a.node and resolve(a) for a in (*args, *kwargs.values()))  # type: ignore[arg-type]
