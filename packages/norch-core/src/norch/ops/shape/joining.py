"""Ops that join, split and repeat tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.accumulate import shared_ops
from ...dispatch.arguments import into, must_be
from ...dispatch.op import Op
from ...dispatch.plan import Inferred, Part
from ...dtype import int64, result_dtype
from ...errors import DeviceError, DTypeError, ShapeError, differing, drawn
from ...overriding import of_foreign
from ...spec import Spec, as_int, as_shape, elementwise_layout, image_layout, is_channels_last, wrap_dim, wrap_dims
from ..copying import owned, row_major_copy
from ..creation import arange
from ..families import composite
from ..from_data import of_new_array
from ..indexing import gather, index_select
from ..registry import method, public
from .views import SLICE, broadcast_to, narrow, reshape, select_dim, unsqueeze

if TYPE_CHECKING:
    from ...tensor import Tensor


# --- Joining --------------------------------------------------------------------------------------------------------


def common_spec(specs: Sequence[Spec], op: str) -> Spec:
    """The first spec of tensors to be joined, with the dtype that all promote to. ShapeError where there is none."""
    if not specs:
        raise ShapeError(f"{op}(): expected at least one tensor")
    dtype = result_dtype(list(dict.fromkeys([(s.dtype, s.ndim) for s in specs])))
    return specs[0] if specs[0].dtype is dtype else specs[0].like(dtype=dtype)


def _drawn_parts(tensors: tuple[Spec, ...], one: Spec, other: Spec, joined: int | None = None) -> str:
    """The two that do not fit, by their places, with the dims marked that may not differ."""
    marks: list[int] = []
    if one.ndim == other.ndim:
        marks = [i for i in differing(one.shape, other.shape) if i % one.ndim != joined]
    rows = [(f"tensors[{tensors.index(s)}]", s.shape, marks) for s in (one, other)]
    return drawn(*rows, why="" if marks else "they have different numbers of dims")


def _infer_cat(tensors: tuple[Spec, ...], dim: Any) -> Inferred:
    spec = common_spec(tensors, "cat")
    # A 1-D tensor without elements joins any others, as in PyTorch.
    real = [(i, s) for i, s in enumerate(tensors) if s.shape != (0,)] or [(0, tensors[0])]
    first = real[0][1]
    at = 0 if first.shape == (0,) else wrap_dim(dim, first.ndim, "cat")
    if not first.ndim:
        raise ShapeError("cat(): 0-d tensors cannot be joined; use stack")
    for _, other in real:
        if (*other.shape[:at], *other.shape[at + 1 :]) != (*first.shape[:at], *first.shape[at + 1 :]):
            raise ShapeError(
                f"cat(): shapes {tuple(first.shape)} and {tuple(other.shape)} differ outside dim {dim}"
                + _drawn_parts(tensors, first, other, at)
            )
    size = sum(s.shape[at] for _, s in real)
    shape = (*first.shape[:at], size, *first.shape[at + 1 :])
    layout = image_layout(shape, first) if all(is_channels_last(s) for _, s in real) else None
    out = first.like(shape, layout, dtype=spec.dtype)
    parts, start = [], 0
    for i, s in real:
        if s.numel:
            parts.append(Part("copy", out.like(s.shape, out.strides), start * out.strides[at], i))
        start += s.shape[at]
    return Inferred((out,), tensors, {"dim": at}, parts=tuple(parts))


def _cat_vjp(g: Tensor, tensors_spec: tuple[Spec, ...], dim: int, needs: tuple[bool, ...]) -> list[Tensor | None]:
    grads: list[Tensor | None] = []
    start = 0
    for spec, needed in zip(tensors_spec, needs, strict=True):
        joined = spec.ndim == g.spec.ndim
        size = spec.shape[dim] if joined else 0
        part = narrow(g, dim, start, size) if joined else g.new_zeros(tuple(spec.shape))
        grads.append(part if needed else None)
        start += size
    return grads


_CAT = Op("cat", ("tensors", "dim"), 1, _infer_cat, _cat_vjp, kind="composite", variadic=True)


@public("concat", "concatenate", method=False, check=False)
def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None, out: Tensor | None = None) -> Tensor:
    """The tensors one after another along `dim`. Their dtypes promote; their other sizes must agree.

    A 1-D tensor without elements joins any others, as in PyTorch. Raises ShapeError for no tensors, 0-d ones and sizes
    that differ, DTypeError for anything but tensors, DeviceError for tensors on several devices.
    """
    if out is not None:
        return into(cat, out, tensors, dim, axis=axis)  # type: ignore[no-any-return]
    dim = dim if axis is None else axis
    if type(tensors) in (list, tuple):
        return _CAT.call(tensors, dim)
    asked = of_foreign(tensors)
    return asked("cat", (tensors, dim), {}) if asked else _CAT.call(_several(tensors, "cat"), dim)


def _several(tensors: Any, op: str) -> tuple[Any, ...]:
    if not hasattr(tensors, "__iter__"):
        raise DTypeError(f"{op}(): {must_be('tensors', 'Sequence[Tensor]', tensors)}")
    return tuple(tensors)


def _infer_stack(tensors: tuple[Spec, ...], dim: Any) -> Inferred:
    spec = common_spec(tensors, "stack")
    shape = tuple(spec.shape)
    for other in tensors:
        if other.shape != shape:
            raise ShapeError(
                f"stack(): shapes {shape} and {tuple(other.shape)} differ" + _drawn_parts(tensors, tensors[0], other)
            )
    at = wrap_dim(dim, len(shape) + 1, "stack")
    out = spec.like((*shape[:at], len(tensors), *shape[at:]))
    strides = out.strides
    form = out.like(shape, (*strides[:at], *strides[at + 1 :]))
    parts = tuple([Part("copy", form, i * strides[at], i) for i in range(len(tensors)) if spec.numel])
    return Inferred((out,), tensors, {"dim": at}, parts=parts)


def _stack_vjp(g: Tensor, dim: int, needs: tuple[bool, ...]) -> list[Tensor | None]:
    at = wrap_dim(dim, g.spec.ndim, "stack")
    return [select_dim(g, at, i) if needed else None for i, needed in enumerate(needs)]


_STACK = Op("stack", ("tensors", "dim"), 1, _infer_stack, _stack_vjp, kind="composite", variadic=True)


@public(method=False, check=False)
def stack(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None, out: Tensor | None = None) -> Tensor:
    """Tensors of one shape along a new dim `dim`. Their dtypes promote. Raises as `cat` does."""
    if out is not None:
        return into(stack, out, tensors, dim, axis=axis)  # type: ignore[no-any-return]
    dim = dim if axis is None else axis
    if type(tensors) in (list, tuple):
        return _STACK.call(tensors, dim)
    asked = of_foreign(tensors)
    return asked("stack", (tensors, dim), {}) if asked else _STACK.call(_several(tensors, "stack"), dim)


shared_ops["stack"] = stack


@public(method=False)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The `tensors`, joined along dim 1; vectors along dim 0."""
    joined = [x.reshape(-1) if not x.spec.ndim else x for x in tensors]
    return cat(joined, 0 if joined and joined[0].spec.ndim == 1 else 1)


@public("row_stack", method=False)
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The `tensors`, joined along dim 0; vectors become rows."""
    return cat([reshape(x, 1, -1) if x.spec.ndim < 2 else x for x in tensors], 0)


MAX_EMPTY = 1 << 20
"""Parts that a dim may be split into where it has fewer elements."""


@public("split_with_sizes", check="function")
def split(
    input: Tensor, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None, split_sizes: Any = None
) -> tuple[Tensor, ...]:
    """split_size_or_sections: views of parts of a size (the last may be smaller), or of the sizes in a list, along
    `dim`.

    split_size, split_sizes: the same, as PyTorch's methods have it. Raises TypeError unless one of them is given,
    ShapeError for a 0-d tensor, sizes below 0, and a list that does not add up.
    """
    at = wrap_dim(dim, input.spec.ndim, "split")
    split_size = split_sizes if split_size is None else split_size
    if (split_size is None) == (split_size_or_sections is None):
        raise TypeError("split(): expected split_size_or_sections, or split_size")
    if split_size_or_sections is None:
        split_size_or_sections = split_size
    if not input.spec.ndim:
        raise ShapeError("split(): a 0-d tensor cannot be split")
    size = input.spec.shape[at]
    if isinstance(split_size_or_sections, tuple | list):
        sizes = [as_int(n, "split", "section") for n in split_size_or_sections]
        if sum(sizes) != size or min(sizes, default=0) < 0:
            raise ShapeError(
                f"split(): sections {sizes} do not add up to {size}, dim {dim} of {tuple(input.spec.shape)}"
            )
    else:
        step = as_int(split_size_or_sections, "split", "split_size")
        if step < 0 or (step == 0 and size):
            raise ShapeError(f"split(): parts of size {step}")
        sizes = _parts(size, step) if size else [0]
    return _cut(input, at, sizes)


def _parts(size: int, step: int) -> list[int]:
    """The sizes of parts of `step` that `size` is cut into: the last may be smaller."""
    whole, rest = divmod(size, step)
    return [step] * whole + [rest] if rest else [step] * whole


def _cut(input: Tensor, dim: int, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Views of parts of these sizes, one after another."""
    parts, start, stride, view = [], 0, input.spec.strides[dim], SLICE.call
    for n in sizes:
        parts.append(view(input, dim, start, n, 1, start * stride if n else 0))
        start += n
    return tuple(parts)


@public(check="function")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` parts of equal size (the last may be smaller) along `dim`. ShapeError for none."""
    chunks = as_int(chunks, "chunk", "chunks")
    if chunks < 1:
        raise ShapeError(f"chunk(): needs at least 1 chunk, got {chunks}")
    at = wrap_dim(dim, input.spec.ndim, "chunk")
    size = input.spec.shape[at] if input.spec.ndim else 0
    if size == 0:
        if chunks > MAX_EMPTY:
            raise ShapeError(f"chunk(): {chunks} chunks of a dim of size 0")
        return split(input, 0, at) * chunks if input.spec.ndim else split(input, 0, at)
    return _cut(input, at, _parts(size, -(-size // chunks)))


@public()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of the slices along `dim`, without that dim. Raises ShapeError for a 0-d tensor."""
    at = wrap_dim(dim, input.spec.ndim, "unbind")
    if not input.spec.ndim:
        raise ShapeError("unbind(): a 0-d tensor has no dim to take apart")
    return tuple(select_dim(input, at, i) for i in range(input.spec.shape[at]))


@method()
def repeat(input: Tensor, *sizes: Any, repeats: Any = None) -> Tensor:
    """A copy of the tensor laid side by side sizes[i] times in dim i; more sizes than dims add dims in front.

    repeats: the sizes by name. Raises ShapeError for fewer sizes than dims.
    """
    times = as_shape(sizes if repeats is None else repeats, "repeat")
    if len(times) < input.spec.ndim:
        raise ShapeError(f"repeat(): {len(times)} sizes for a tensor of {input.spec.ndim} dims")
    shape = (1,) * (len(times) - input.spec.ndim) + tuple(input.spec.shape)
    spaced = reshape(input, [m for n in shape for m in (1, n)])
    expanded = broadcast_to(spaced, [m for t, n in zip(times, shape, strict=True) for m in (t, n)])
    return owned(reshape(row_major_copy(expanded), [t * n for t, n in zip(times, shape, strict=True)]))


@public()
def tile(input: Tensor, *given: Any, dims: Any = None) -> Tensor:
    """`repeat` that takes fewer sizes than dims: they count from the last dim."""
    times = as_shape(given if dims is None else dims, "tile")
    return repeat(input, (1,) * (input.spec.ndim - len(times)) + times)


@public()
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element `repeats` times in a row, along `dim` or in the flattened tensor.

    repeats: an int, or a tensor with one for each element along `dim`; with a tensor of repeats alone, the indices 0,
    1, ... are repeated. `output_size` is the length of the result, which else is waited for. Raises ShapeError for
    repeats alone that are no vector, for another number of repeats and for negative ones, unless `output_size` is
    given, DTypeError unless they are integers.
    """
    if repeats is None:
        if input.spec.ndim != 1:
            raise ShapeError(f"repeat_interleave(): repeats alone are a vector, got shape {tuple(input.spec.shape)}")
        return repeat_interleave(arange(input.spec.numel, device=input.device), input, 0, output_size=output_size)
    x = reshape(input, -1) if dim is None else input
    at = wrap_dim(0 if dim is None else dim, x.spec.ndim, "repeat_interleave")
    shape = tuple(x.spec.shape)
    if isinstance(repeats, int):
        if repeats < 0:
            raise ShapeError(f"repeat_interleave(): repeats cannot be negative, got {repeats}")
        expanded = broadcast_to(unsqueeze(x, at + 1), (*shape[: at + 1], repeats, *shape[at + 1 :]))
        return reshape(row_major_copy(expanded), (*shape[:at], shape[at] * repeats, *shape[at + 1 :]))
    return _repeat_each(x, repeats, at, output_size)


def _repeat_each(x: Tensor, repeats: Tensor, at: int, output_size: int | None) -> Tensor:
    from ..reduction.sorting import searchsorted

    op = "repeat_interleave"
    if not hasattr(repeats, "spec") or repeats.spec.dtype.is_floating_point:
        raise DTypeError(f"{op}(): repeats must be an int or a tensor of integers, got {repeats!r:.60}")
    times = reshape(repeats, -1)
    if times.spec.numel not in (1, x.spec.shape[at]):
        raise ShapeError(f"{op}(): {times.spec.numel} repeats for dim {at} of shape {tuple(x.spec.shape)}")
    times = broadcast_to(times, (x.spec.shape[at],))
    if output_size is None and times.spec.device.type == x.spec.device.type == "cpu":
        return index_select(x, at, _repeated_places(times.numpy()))
    ends = times.cumsum(0)
    if output_size is None:
        output_size, least = stack([ends[-1], times.amin().to(int64)]).tolist() if ends.spec.numel else (0, 0)
        _not_negative(least)
    return index_select(x, at, searchsorted(ends, arange(output_size, device=x.device), right=True))


def _repeated_places(times: Any) -> Tensor:
    if times.size:
        _not_negative(int(times.min()))
    return of_new_array(np.repeat(np.arange(times.size), times), int64)


def _not_negative(least: int) -> None:
    if least < 0:
        raise ShapeError(f"repeat_interleave(): repeats cannot be negative, the smallest is {least}")


@public()
def flip(input: Tensor, *given: Any, dims: Any = None) -> Tensor:
    """A copy with the order of the elements along `dims`, ints or one sequence of them, reversed."""
    dims = given if dims is None else (dims,)
    axes = wrap_dims(dims[0] if len(dims) == 1 else dims, input.spec.ndim, "flip")
    return reverse(input, tuple(axes)) if axes else input.clone()


def _flip_rule(g: Tensor, dims: tuple[int, ...]) -> Tensor:
    return reverse(g, dims)


def _infer_flip(input: Spec, dims: tuple[int, ...]) -> Spec:
    return input.like(input.shape, elementwise_layout(input.shape, (input,)))


@composite(_infer_flip, _flip_rule, name="flip")
def reverse(input: Tensor, dims: tuple[int, ...]) -> Tensor:
    """`flip` of dims that are in range and not negative."""
    out, shape = input, tuple(input.spec.shape)
    for d in dims:
        index = shape[d] - 1 - arange(shape[d], device=input.device)
        out = gather(out, d, broadcast_to(reshape(index, [-1 if i == d else 1 for i in range(len(shape))]), shape))
    return out


@public()
def fliplr(input: Tensor) -> Tensor:
    """Dim 1 reversed."""
    return flip(input, 1)


@public()
def flipud(input: Tensor) -> Tensor:
    """Dim 0 reversed. Raises ShapeError for a 0-d tensor."""
    if not input.spec.ndim:
        raise ShapeError("flipud(): needs at least 1 dim, got shape ()")
    return flip(input, 0)


def _require_vectors(specs: list[Spec]) -> None:
    """Raises what meshgrid does."""
    if not specs or any(s.ndim > 1 for s in specs):
        raise ShapeError(f"meshgrid(): expected vectors, got shapes {[tuple(s.shape) for s in specs]}")
    if len({s.dtype for s in specs}) > 1:
        raise DTypeError(f"meshgrid(): expected one dtype, got {', '.join(str(s.dtype) for s in specs)}")
    if len({s.device for s in specs}) > 1:
        raise DeviceError(f"meshgrid(): expected one device, got {', '.join(str(s.device) for s in specs)}")


@public(method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Views of vectors (0-d tensors are such of one element) as the coordinates of a grid; `indexing` "ij", or "xy",
    which exchanges the first two dims.

    Raises ValueError for another `indexing`, ShapeError for no tensors and for those of more dims, DTypeError unless
    all are of one dtype, DeviceError unless they are on one device.
    """
    vectors = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else list(tensors)
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid(): indexing must be 'ij' or 'xy', got {indexing!r}")
    _require_vectors([v.spec for v in vectors])
    swap = indexing == "xy" and len(vectors) > 1
    if swap:
        vectors[:2] = vectors[1], vectors[0]
    shape = [v.spec.numel for v in vectors]
    grids = []
    for i, v in enumerate(vectors):
        grids.append(broadcast_to(reshape(v, [-1 if d == i else 1 for d in range(len(vectors))]), shape))
    if swap:
        grids[:2] = grids[1], grids[0]
    return tuple(grids)
