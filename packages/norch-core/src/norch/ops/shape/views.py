"""Views, and the ops that rearrange elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtype import ComplexDType, as_dtype
from ...errors import IndexError, ShapeError, differing, drawn
from ...overriding import of_foreign
from ...spec import (
    Shape,
    Spec,
    as_int,
    broadcast_shapes,
    dense_strides,
    expand_strides,
    infer_size,
    reshape_strides,
    wrap_dim,
    wrap_dims,
)
from ..copying import contiguous, write
from ..creation import fill_spec
from ..families import view
from ..registry import method, public
from .bitcast import bitcast

if TYPE_CHECKING:
    from ...tensor import Tensor

# --- Views ----------------------------------------------------------------------------------------------------------


def _permute_spec(spec: Spec, dims: Shape) -> Spec:
    return spec.like(tuple(spec.shape[d] for d in dims), tuple(spec.strides[d] for d in dims))


def _infer_transpose(spec: Spec, dim0: Any, dim1: Any) -> tuple[Spec, int]:
    a, b = wrap_dim(dim0, spec.ndim, "transpose"), wrap_dim(dim1, spec.ndim, "transpose")
    dims = list(range(spec.ndim))
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return _permute_spec(spec, tuple(dims)), 0


TRANSPOSE = view("transpose", "x dim0 dim1", _infer_transpose, lambda g, dim0, dim1: g.transpose(dim0, dim1))


def _permutation(spec: Spec, dims: Any) -> Shape:
    wrapped = tuple(wrap_dim(d, spec.ndim, "permute") for d in dims)
    if sorted(wrapped) != list(range(spec.ndim)):
        raise ShapeError(f"permute(): dims {dims} are no permutation of the {spec.ndim} dims of {tuple(spec.shape)}")
    return wrapped


def inverse_permutation(dims: Shape) -> list[int]:
    """The `dims` that undo a `permute` by these (the argsort)."""
    return sorted(range(len(dims)), key=lambda i: dims[i])


PERMUTE = view(
    "permute",
    "x dims",
    lambda spec, dims: (_permute_spec(spec, _permutation(spec, dims)), 0),
    lambda g, dims: g.permute(inverse_permutation(tuple(d % len(dims) for d in dims))),
)


def _infer_reshape(spec: Spec, shape: tuple[Any, ...]) -> tuple[Spec, int] | None:
    shape = tuple([as_int(n, "reshape", "size") for n in shape])
    size = infer_size(shape, spec.numel, "reshape", spec.shape)
    if spec.is_contiguous:
        return spec.like(size), 0
    strides = reshape_strides(spec.shape, spec.strides, size)
    return None if strides is None else (spec.like(size, strides), 0)


RESHAPE = view("reshape", "x shape", _infer_reshape, lambda g, x_spec: g.reshape(x_spec.shape))


def _infer_expand(spec: Spec, shape: tuple[Any, ...]) -> tuple[Spec, int]:
    shape = tuple([as_int(n, "expand", "size") for n in shape])
    lead = len(shape) - spec.ndim
    size = tuple(spec.shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(shape))
    fits = lead >= 0 and all(m in (1, n) for m, n in zip(spec.shape, size[max(lead, 0) :], strict=False))
    if not fits or min(size, default=0) < 0:
        wrong = [i for i in differing(spec.shape, size) if -spec.ndim <= i and spec.shape[i] != 1]
        raise ShapeError(
            f"expand(): shape {tuple(spec.shape)} does not expand to {tuple(shape)}"
            + drawn(("input", spec.shape, wrong), ("size", shape, wrong))
        )
    return spec.like(size, expand_strides(spec.shape, spec.strides, size)), 0


# The engine sums a gradient to its operand's shape, so there is nothing left to do.
EXPAND = view("expand", "x shape", _infer_expand, lambda g: g)


def _infer_narrow(spec: Spec, dim: int, start: int, length: int, step: int) -> tuple[Spec, int]:
    shape = (*spec.shape[:dim], length, *spec.shape[dim + 1 :])
    strides = (*spec.strides[:dim], spec.strides[dim] * step, *spec.strides[dim + 1 :])
    return spec.like(shape, strides), start * spec.strides[dim] if length else 0


def _narrow_vjp(g: Tensor, x_spec: Spec, dim: int, start: int, length: int, step: int) -> Tensor:
    return _into_zeros(g, x_spec, lambda zeros: slice_dim(zeros, dim, start, length, step))


SLICE = view("slice", "x dim start length step", _infer_narrow, _narrow_vjp, place="start")


def _infer_select(spec: Spec, dim: int, index: int) -> tuple[Spec, int]:
    shape, strides = spec.shape, spec.strides
    out = spec.like((*shape[:dim], *shape[dim + 1 :]), (*strides[:dim], *strides[dim + 1 :]))
    return out, index * strides[dim]


SELECT = view(
    "select",
    "x dim index",
    _infer_select,
    lambda g, x_spec, dim, index: _into_zeros(g, x_spec, lambda zeros: zeros.select(dim, index)),
    place="index",
)


def _infer_diagonal(spec: Spec, offset: int, dim1: Any, dim2: Any) -> tuple[Spec, int]:
    a, b = wrap_dim(dim1, spec.ndim, "diagonal"), wrap_dim(dim2, spec.ndim, "diagonal")
    if a == b or spec.ndim < 2:
        raise ShapeError(f"diagonal(): needs two different dims, got {dim1} and {dim2} of shape {tuple(spec.shape)}")
    offset = as_int(offset, "diagonal", "offset")
    rows, columns = spec.shape[a] + min(offset, 0), spec.shape[b] - max(offset, 0)
    length = max(min(rows, columns), 0)
    rest = [d for d in range(spec.ndim) if d not in (a, b)]
    shape = (*(spec.shape[d] for d in rest), length)
    strides = (*(spec.strides[d] for d in rest), spec.strides[a] + spec.strides[b])
    start = max(offset, 0) * spec.strides[b] - min(offset, 0) * spec.strides[a]
    return spec.like(shape, strides), start if length else 0


DIAGONAL = view(
    "diagonal",
    "x offset dim1 dim2",
    _infer_diagonal,
    lambda g, x_spec, offset, dim1, dim2: _into_zeros(g, x_spec, lambda zeros: zeros.diagonal(offset, dim1, dim2)),
)


def _into_zeros(g: Tensor, spec: Spec, select: Any) -> Tensor:
    """Zeros of `spec`'s shape, with `g` in the part that `select` shows: the gradient of a view.

    In its layout too if that is dense, so that the gradients of other parts can be added in place.
    """
    zeros = fill_spec(g.spec.like(spec.shape, dense_strides(spec.shape, spec.strides)), 0)
    part = select(zeros)
    part.copy_(g) if g.requires_grad else write(part, g)
    return zeros


@public("swapdims", check=False)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view with dims `dim0` and `dim1` exchanged. Raises IndexError for a dim out of range."""
    return TRANSPOSE.call(input, dim0, dim1)


@public(check=False)
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """A view with dims `axis0` and `axis1` exchanged, as `transpose`. Raises IndexError for one out of range."""
    return TRANSPOSE.call(input, axis0, axis1)


def alias(input: Tensor) -> Tensor:
    """A view of the whole tensor."""
    return EXPAND.call(input, tuple(input.spec.shape))


@public()
def t(input: Tensor) -> Tensor:
    """A view of a matrix with its dims exchanged; of a vector or 0-d tensor, itself. Raises ShapeError above 2-D."""
    if input.spec.ndim > 2:
        raise ShapeError(f"t(): expected at most 2 dims, got shape {tuple(input.spec.shape)}; use mT or transpose")
    if input.spec.ndim == 2:
        return transpose(input, 0, 1)
    return alias(input)


@public("permute_dims")
def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """A view with its dims in the order `dims`. Raises ShapeError unless that is a permutation of all dims."""
    dims = order if dims is None else (dims,)
    return PERMUTE.call(input, tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims)


@public("moveaxis")
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """A view with dims `source` (an int or several) at the positions `destination`, the others in their order.

    Raises ShapeError for lists of different lengths or repeated dims, IndexError for a dim out of range.
    """
    sources, targets = [
        tuple([as_int(d, "movedim", "dim") for d in (dims if isinstance(dims, tuple | list) else (dims,))])
        for dims in (source, destination)
    ]
    return PERMUTE.call(input, _moved(input.spec.ndim, sources, targets))


@lru_cache(1024)
def _moved(n: int, source: tuple[int, ...], destination: tuple[int, ...]) -> tuple[int, ...]:
    sources, targets = ([wrap_dim(d, n, "movedim") for d in dims] for dims in (source, destination))
    if not len(sources) == len(targets) == len(set(sources)) == len(set(targets)):
        raise ShapeError(f"movedim(): cannot move dims {source} to {destination}")
    order = [d for d in range(n) if d not in sources]
    for target, dim in sorted(zip(targets, sources, strict=True)):
        order.insert(target, dim)
    return tuple(order[:n])


def _sizes(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a user gave as `*shape`, several sizes or one sequence of them, as a tuple."""
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape


@public(check="function")
def reshape(input: Tensor, *given: Any, shape: Any = None) -> Tensor:
    """The same elements, in row-major order, in another `shape`, ints or one sequence of them; one size may be -1.

    A view wherever the strides allow, else a copy. Raises ShapeError where the element counts differ.
    """
    sizes = _sizes(given) if shape is None else tuple(shape)
    out: Tensor | None = RESHAPE.call(input, sizes)
    return RESHAPE.call(contiguous(input), sizes) if out is None else out


@method("view", check=False)
def view_as_shape(input: Tensor, *shape: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """`reshape` that never copies; with a dtype, `bitcast`. Raises ShapeError where the strides would need a copy."""
    if size is not None:
        shape = (tuple(size),)
    if dtype is not None:
        shape = (*shape, dtype)
    if len(shape) == 1 and not isinstance(shape[0], int | tuple | list):
        if isinstance(shape[0], ComplexDType):
            return import_module("norch.compat.complex_creation").viewed(input, shape[0])  # type: ignore[no-any-return]
        asked = of_foreign(*shape)
        return asked("view", (input, *shape), {}) if asked else bitcast(input, as_dtype(shape[0], "view"))
    sizes = _sizes(shape)
    out: Tensor | None = RESHAPE.call(input, sizes)
    if out is None:
        raise ShapeError(
            f"view(): shape {tuple(input.spec.shape)} with strides {input.spec.strides} cannot be viewed as {sizes}; "
            "use reshape, which copies" + _drawn_strides(input.spec)
        )
    return out


@method()
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """`view` in the shape of `other`. Raises as view does."""
    return view_as_shape(input, other.spec.shape)


@method()
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`reshape` to the shape of `other`. Raises as reshape does."""
    return reshape(input, other.spec.shape)


def _drawn_strides(spec: Spec) -> str:
    """Shape and strides, with the neighbours marked that do not follow each other in memory."""
    real = [i for i, n in enumerate(spec.shape) if n != 1]
    apart = [(i, j) for i, j in pairwise(real) if spec.strides[i] != spec.strides[j] * spec.shape[j]]
    marks = sorted({i for pair in apart for i in pair})
    return drawn(("shape", spec.shape, ()), ("strides", spec.strides, marks), why="do not follow each other in memory")


@public(check="function")
def ravel(input: Tensor) -> Tensor:
    """All elements in one dim, side by side in memory: a view of a contiguous tensor, a copy of another."""
    out: Tensor = RESHAPE.call(contiguous(input), (-1,))
    return out


@public(check="function")
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dims `start_dim` to `end_dim` flattened into one: a view where strides allow, `input` itself if of one dim.

    Raises ShapeError for a start after the end, IndexError for a dim out of range.
    """
    if input.spec.ndim == 1:
        wrap_dim(start_dim, 1, "flatten"), wrap_dim(end_dim, 1, "flatten")
        return input
    if start_dim == 0 and end_dim == -1:
        out: Tensor | None = RESHAPE.call(input, (-1,))
        return RESHAPE.call(contiguous(input), (-1,)) if out is None else out
    shape = input.spec.shape
    first, last = wrap_dim(start_dim, len(shape), "flatten"), wrap_dim(end_dim, len(shape), "flatten")
    if first > last:
        raise ShapeError(f"flatten(): start_dim {start_dim} comes after end_dim {end_dim}")
    return reshape(input, (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]))


@public()
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dim `dim` split into `sizes`, of which one may be -1. Raises ShapeError for sizes of another product."""
    shape = input.spec.shape
    at = wrap_dim(dim, len(shape), "unflatten")
    return reshape(input, (*shape[:at], *infer_size(tuple(sizes), shape[at], "unflatten", shape), *shape[at + 1 :]))


@public()
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """A view without the dims of size 1, or those of `dim` (one or several). IndexError for a dim out of range."""
    shape = input.spec.shape
    dims = wrap_dims(dim, len(shape), "squeeze")
    return RESHAPE.call(input, tuple([n for i, n in enumerate(shape) if n != 1 or i not in dims]))


@public(check="function")
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A view with a dim of size 1 inserted before `dim`. Raises IndexError for a dim out of range."""
    shape = input.spec.shape
    at = wrap_dim(dim, len(shape) + 1, "unsqueeze")
    return RESHAPE.call(input, (*shape[:at], 1, *shape[at:]))


@method()
def expand(input: Tensor, *shape: Any, size: Any = None) -> Tensor:
    """A view with dims of size 1 repeated to `shape`, and new dims in front; -1 keeps a size. Uses no memory.

    Raises ShapeError for a shape that this one does not expand to.
    """
    return EXPAND.call(input, _sizes(shape) if size is None else tuple(size))


@method()
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`expand` to the shape of `other`. Raises as expand does."""
    return EXPAND.call(input, tuple(other.spec.shape))


@public()
def broadcast_to(input: Tensor, *sizes: Any, shape: Any = None, size: Any = None) -> Tensor:
    """`expand` to `sizes`, one by one or as a tuple, under the array API's name, whose argument is `shape`, PyTorch's
    `size`. Raises as expand does.
    """
    named = shape if size is None else size
    return EXPAND.call(input, _sizes(sizes) if named is None else tuple(named))


@public(method=False)
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Views of the tensors, all of the shape that they broadcast to. Raises ShapeError where they do not."""
    shape = broadcast_shapes(*[x.spec.shape for x in tensors], op="broadcast_tensors")
    return tuple([EXPAND.call(x, shape) for x in tensors])


def slice_dim(input: Tensor, dim: int, start: int, length: int, step: int = 1) -> Tensor:
    """Every `step`-th of the elements from `start`, `length` of them, along `dim`; all in range."""
    shift = start * input.spec.strides[dim] if length else 0
    return SLICE.call(input, dim, start, length, step, shift)


def select_dim(input: Tensor, dim: int, index: int) -> Tensor:
    """`select` of a dim and an index that are in range and not negative."""
    return SELECT.call(input, dim, index, index * input.spec.strides[dim])


@public()
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A view of `length` elements from `start` along `dim`. Raises IndexError where they are out of range."""
    at = wrap_dim(dim, input.spec.ndim, "narrow")
    size = input.spec.shape[at] if input.spec.ndim else 0
    first, count = as_int(start, "narrow", "start"), as_int(length, "narrow", "length")
    first += size if first < 0 else 0
    if not (first >= 0 and count >= 0 and first + count <= size):
        raise IndexError(
            f"narrow(): {count} elements from {start} are not in dim {dim} of shape {tuple(input.spec.shape)}"
        )
    return slice_dim(input, at, first, count)


@public()
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """A view of element `index` along `dim`, without that dim. Raises IndexError for an index or dim out of range."""
    at = wrap_dim(dim, input.spec.ndim, "select")
    if not input.spec.ndim:
        raise IndexError("select(): a 0-d tensor has no dim to select from")
    return select_dim(input, at, wrap_index(index, input.spec.shape[at], at, "select", input.spec.shape))


def wrap_index(index: Any, size: int, dim: int, op: str, shape: Shape) -> int:
    """`index` counted from the front. Raises IndexError out of range, naming the dim and its size."""
    at = as_int(index, op, "index")
    if not -size <= at < size:
        raise IndexError(f"{op}(): index {at} is out of bounds for dim {dim} of size {size} (shape {tuple(shape)})")
    return at + size if at < 0 else at


@public()
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of a diagonal of dims `dim1` and `dim2`, as the last dim; `offset` > 0 is above the main one.

    Raises ShapeError unless the dims differ, IndexError for one out of range.
    """
    return DIAGONAL.call(input, offset, dim1, dim2)
