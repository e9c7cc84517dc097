"""Ops that join, split and repeat tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...autograd.graph import Node, is_recording, resolve, tick
from ...dtype import result_dtype
from ...errors import DeviceError, DTypeError, ShapeError
from ...spec import Shape, Spec, as_int, as_shape, wrap_dim, wrap_dims
from ..copying import write_parts
from ..creation import arange, empty_spec, fill_spec
from ..indexing import gather
from ..registry import method, public
from .views import broadcast_to, narrow, reshape, select_dim, slice_dim, unsqueeze

if TYPE_CHECKING:
    from ...tensor import Tensor


class _CatNode(Node):
    """The node of `cat`, which has as many operands as it is given: hands each its part of the gradient."""

    __slots__ = ("dim", "specs")

    dim: int
    specs: tuple[Spec, ...]

    def name(self) -> str:
        return "cat_backward"

    def apply(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        parts, at = [], 0
        for spec, edge in zip(self.specs, self.edges, strict=True):
            size = spec.shape[self.dim]
            part = None if edge is None else narrow(grad, self.dim, at, size)
            parts.append(part if part is None or part.spec.dtype is spec.dtype else part.to(spec.dtype))
            at += size
        return tuple(parts)

    def release(self) -> None:
        pass


class _StackNode(_CatNode):
    """The node of `stack`."""

    __slots__ = ()

    def name(self) -> str:
        return "stack_backward"

    def apply(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        pairs = zip(unbind(grad, self.dim), self.specs, self.edges, strict=True)
        return tuple([None if e is None else p if p.spec.dtype is s.dtype else p.to(s.dtype) for p, s, e in pairs])


def common_spec(tensors: Sequence[Tensor], op: str) -> Spec:
    """The spec of the first of the tensors to be joined, with the dtype that all promote to."""
    if not tensors:
        raise ShapeError(f"{op}(): expected at least one tensor")
    try:
        dtype = result_dtype([(s.dtype, s.ndim) for s in dict.fromkeys([x.spec for x in tensors])])
    except AttributeError:
        kinds = ", ".join(type(x).__name__ for x in tensors)
        raise DTypeError(f"{op}(): expected a sequence of tensors, got {kinds}") from None
    spec = tensors[0].spec
    return spec if spec.dtype is dtype else spec.like(dtype=dtype)


@public("concat", "concatenate", method=False)
def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """The tensors one after another along `dim`. Their dtypes promote; their other sizes must agree.

    A 1-D tensor without elements joins any others, as in PyTorch.
    """
    if axis is not None:
        dim = axis
    tensors = list(tensors)
    spec = common_spec(tensors, "cat")
    real = [x for x in tensors if x.spec.shape != (0,)] or tensors[:1]
    first = real[0].spec
    at = wrap_dim(dim, first.ndim, "cat")
    if not first.ndim:
        raise ShapeError("cat(): 0-d tensors cannot be joined; use stack")
    for other in dict.fromkeys([x.spec for x in real]):
        if other.device is not first.device:
            raise DeviceError(f"cat(): operands are on different devices: {first.device} and {other.device}")
        same = len(other.shape) == first.ndim and all(
            n == m for d, (n, m) in enumerate(zip(other.shape, first.shape, strict=True)) if d != at
        )
        if not same:
            raise ShapeError(f"cat(): shapes {tuple(first.shape)} and {tuple(other.shape)} differ outside dim {dim}")
    size = sum(x.spec.shape[at] for x in real)
    out = empty_spec(first.like((*first.shape[:at], size, *first.shape[at + 1 :]), dtype=spec.dtype))
    start, step = 0, out.spec.strides[at]
    for spec, run in groupby(real, lambda x: x.spec):
        alike, n = list(run), spec.shape[at]
        if spec.numel:
            form = out.spec.like((*first.shape[:at], n, *first.shape[at + 1 :]), out.spec.strides)
            write_parts(out, alike, form, range(start * step, (start + n * len(alike)) * step, n * step))
        start += n * len(alike)
    _record(_CatNode, out, real, at)
    return out


def _record(kind: type[_CatNode], out: Tensor, tensors: list[Tensor], dim: int) -> None:
    if is_recording():
        edges = tuple([None if x.node is None else resolve(x) for x in tensors])
        if any(edges):
            node: _CatNode = object.__new__(kind)
            node.order, node.edges, node.hooks = tick(), edges, None
            node.values = node.result = None
            node.dim, node.specs = dim, tuple([x.spec for x in tensors])
            out.node = node


@public(method=False)
def stack(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors of one shape along a new dim `dim`."""
    if axis is not None:
        dim = axis
    tensors = list(tensors)
    spec = common_spec(tensors, "stack")
    shape = tuple(spec.shape)
    for other in dict.fromkeys([x.spec for x in tensors]):
        if other.shape != spec.shape:
            raise ShapeError(f"stack(): shapes {shape} and {tuple(other.shape)} differ")
        if other.device is not spec.device:
            raise DeviceError(f"stack(): operands are on different devices: {spec.device} and {other.device}")
    at = wrap_dim(dim, len(shape) + 1, "stack")
    out = empty_spec(spec.like((*shape[:at], len(tensors), *shape[at:])))
    strides = out.spec.strides
    form, step, start = out.spec.like(shape, (*strides[:at], *strides[at + 1 :])), strides[at], 0
    for _, run in groupby(tensors, lambda x: x.spec):
        same = list(run)
        if spec.numel:
            write_parts(out, same, form, range(start * step, (start + len(same)) * step, step))
        start += len(same)
    _record(_StackNode, out, tensors, at)
    return out


@public(method=False)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dim 1; vectors along dim 0."""
    joined = [x.reshape(-1) if not x.spec.ndim else x for x in tensors]
    return cat(joined, 0 if joined and joined[0].spec.ndim == 1 else 1)


@public("row_stack", method=False)
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dim 0; vectors become rows."""
    return cat([reshape(x, 1, -1) if x.spec.ndim < 2 else x for x in tensors], 0)


@public("split_with_sizes")
def split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of parts of a size (the last may be smaller), or of the sizes in a list, along `dim`."""
    at = wrap_dim(dim, input.spec.ndim, "split")
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
        sizes = [min(step, size - i) for i in range(0, size, step)] if size else [0]
    starts = [sum(sizes[:i]) for i in range(len(sizes))] if len(sizes) < 16 else _starts(sizes)
    return tuple(slice_dim(input, at, start, n) for start, n in zip(starts, sizes, strict=True))


def _starts(sizes: list[int]) -> list[int]:
    from itertools import accumulate

    return [0, *accumulate(sizes)][:-1]


@public()
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` parts of equal size (the last may be smaller) along `dim`."""
    if chunks < 1:
        raise ShapeError(f"chunk(): needs at least 1 chunk, got {chunks}")
    at = wrap_dim(dim, input.spec.ndim, "chunk")
    size = input.spec.shape[at] if input.spec.ndim else 0
    if size == 0:
        return split(input, 0, at) * chunks if input.spec.ndim else split(input, 0, at)
    return split(input, -(-size // chunks), at)


@public()
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of the slices along `dim`, without that dim."""
    at = wrap_dim(dim, input.spec.ndim, "unbind")
    if not input.spec.ndim:
        raise ShapeError("unbind(): a 0-d tensor has no dim to take apart")
    return tuple(select_dim(input, at, i) for i in range(input.spec.shape[at]))


@method()
def repeat(input: Tensor, *sizes: Any, repeats: Any = None) -> Tensor:
    """The tensor laid side by side sizes[i] times in dim i; more sizes than dims add dims in front."""
    times = as_shape(sizes if repeats is None else repeats, "repeat")
    if len(times) < input.spec.ndim:
        raise ShapeError(f"repeat(): {len(times)} sizes for a tensor of {input.spec.ndim} dims")
    shape = (1,) * (len(times) - input.spec.ndim) + tuple(input.spec.shape)
    spaced = reshape(input, [m for n in shape for m in (1, n)])
    wide = broadcast_to(spaced, [m for t, n in zip(times, shape, strict=True) for m in (t, n)])
    return reshape(
        wide.clone() if all(t == 1 for t in times) else wide, [t * n for t, n in zip(times, shape, strict=True)]
    )


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

    repeats: an int, or a tensor with one for each element along `dim`; with a tensor of repeats alone, the indices
    0, 1, ... are repeated. `output_size` is the length of the result, which else is waited for.
    """
    if repeats is None:
        return repeat_interleave(arange(input.spec.numel, device=input.device), input, 0, output_size=output_size)
    x = reshape(input, -1) if dim is None else input
    at = wrap_dim(0 if dim is None else dim, x.spec.ndim, "repeat_interleave")
    shape = tuple(x.spec.shape)
    if isinstance(repeats, int):
        wide = broadcast_to(unsqueeze(x, at + 1), (*shape[: at + 1], repeats, *shape[at + 1 :]))
        return reshape(wide, (*shape[:at], shape[at] * repeats, *shape[at + 1 :]))
    return _repeat_each(x, repeats, at, output_size)


def _repeat_each(x: Tensor, repeats: Tensor, at: int, output_size: int | None) -> Tensor:
    from ..indexing import index_select
    from ..reduction.sorting import searchsorted

    op = "repeat_interleave"
    if not hasattr(repeats, "spec") or repeats.spec.dtype.is_floating_point:
        raise DTypeError(f"{op}(): repeats must be an int or a tensor of integers, got {repeats!r:.60}")
    times = reshape(repeats, -1)
    if times.spec.numel not in (1, x.spec.shape[at]):
        raise ShapeError(f"{op}(): {times.spec.numel} repeats for dim {at} of shape {tuple(x.spec.shape)}")
    ends = broadcast_to(times, (x.spec.shape[at],)).cumsum(0)
    if output_size is None:
        output_size = int(ends[-1].item()) if ends.spec.numel else 0
    return index_select(x, at, searchsorted(ends, arange(output_size, device=x.device), right=True))


def _reorder(input: Tensor, dim: int, index: Tensor) -> Tensor:
    shape = [1] * input.spec.ndim
    shape[dim] = index.spec.numel
    return gather(input, dim, broadcast_to(reshape(index, shape), tuple(input.spec.shape)))


@public()
def flip(input: Tensor, *given: Any, dims: Any = None) -> Tensor:
    """A copy with the order of the elements along `dims`, ints or one sequence of them, reversed."""
    dims = given if dims is None else (dims,)
    axes = wrap_dims(dims[0] if len(dims) == 1 else dims, input.spec.ndim, "flip")
    out = input
    for d in axes:
        n = input.spec.shape[d]
        out = _reorder(out, d, n - 1 - arange(n, device=input.device))
    return out.clone() if out is input else out


@public()
def fliplr(input: Tensor) -> Tensor:
    """Dim 1 reversed."""
    return flip(input, 1)


@public()
def flipud(input: Tensor) -> Tensor:
    """Dim 0 reversed."""
    return flip(input, 0)


@public()
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """The elements moved by `shifts` along `dims`, those that leave one end coming back at the other."""
    if dims is None:
        return reshape(roll(reshape(input, -1), shifts, 0), tuple(input.spec.shape))
    by = shifts if isinstance(shifts, tuple | list) else (shifts,)
    axes = dims if isinstance(dims, tuple | list) else (dims,)
    if len(by) != len(axes):
        raise ShapeError(f"roll(): {len(by)} shifts for {len(axes)} dims")
    out = input
    for shift, dim in zip(by, axes, strict=True):
        at = wrap_dim(dim, input.spec.ndim, "roll")
        if not input.spec.ndim:
            raise ShapeError("roll(): a 0-d tensor has no dim to roll along")
        n = input.spec.shape[at]
        start = -as_int(shift, "roll", "shift") % n if n else 0
        if start:
            out = cat([narrow(out, at, start, n - start), narrow(out, at, 0, start)], at)
    return out.clone() if out is input else out


_PAD_MODES = ("constant", "reflect", "replicate", "circular")


@public(method=False)
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements put around the tensor, or cut off where negative: `pad` has (before, after) of the last dim first.

    mode: "constant" (`value`, 0 by default), "reflect" (mirrored, the edge not repeated), "replicate" (the edge),
    "circular" (from the other end). Raises ShapeError for pads that do not fit.
    """
    amounts = [as_int(p, "pad", "pad") for p in pad]
    if len(amounts) % 2 or len(amounts) // 2 > input.spec.ndim:
        raise ShapeError(f"pad(): {amounts} are not pairs for at most {input.spec.ndim} dims")
    if mode not in _PAD_MODES:
        raise ValueError(f"pad(): mode must be one of {', '.join(_PAD_MODES)}, got {mode!r}")
    pairs = [(input.spec.ndim - 1 - i // 2, amounts[i], amounts[i + 1]) for i in range(0, len(amounts), 2)]
    out, constant = input, {}
    for dim, before, after in pairs:
        n = out.spec.shape[dim]
        if n + before + after < 0:
            raise ShapeError(
                f"pad(): {before} and {after} cut off more than dim {dim} of shape {tuple(input.spec.shape)} has"
            )
        if before < 0 or after < 0:
            start = max(-before, 0)
            out = narrow(out, dim, start, max(n - start - max(-after, 0), 0))
            before, after = max(before, 0), max(after, 0)
        if (before or after) and mode != "constant":
            out = _pad_by_index(out, dim, before, after, mode)
        elif before or after:
            constant[dim] = before, after
    if constant:
        out = _pad_constant(out, constant, 0 if value is None else value)
    return out.clone() if out is input else out


class _PadNode(_CatNode):
    """The node of `pad` with a constant: the part of the gradient that is the operand's. `dim` is not used."""

    __slots__ = ("before",)

    before: list[int]

    def name(self) -> str:
        return "pad_backward"

    def apply(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        for d, (start, size) in enumerate(zip(self.before, self.specs[0].shape, strict=True)):
            if size != grad.spec.shape[d]:
                grad = slice_dim(grad, d, start, size)
        return (grad,)


def _pad_constant(x: Tensor, amounts: dict[int, tuple[int, int]], value: float) -> Tensor:
    both = [amounts.get(d, (0, 0)) for d in range(x.spec.ndim)]
    shape = tuple(x.spec.shape)
    out = fill_spec(x.spec.like(tuple([n + a + b for n, (a, b) in zip(shape, both, strict=True)])), value)
    strides = out.spec.strides
    if x.spec.numel:
        place = sum([a * s for (a, _), s in zip(both, strides, strict=True)])
        write_parts(out, [x], out.spec.like(shape, strides), [place])
    _record(_PadNode, out, [x], 0)
    if out.node is not None:
        out.node.before = [a for a, _ in both]
    return out


def _pad_by_index(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    n = x.spec.shape[dim]
    if (mode == "reflect" and max(before, after) >= n) or (mode == "circular" and max(before, after) > n) or n == 0:
        raise ShapeError(
            f"pad(): {mode} by {before} and {after} is too much for dim {dim} of shape {tuple(x.spec.shape)}"
        )
    places = arange(-before, n + after, device=x.device)
    if mode == "replicate":
        places = places.clamp(0, n - 1)
    elif mode == "circular":
        places = places % n
    else:
        places = (n - 1) - ((n - 1) - places.abs()).abs()
    shape = [1] * x.spec.ndim
    shape[dim] = places.spec.numel
    return gather(
        x, dim, broadcast_to(reshape(places, shape), (*x.spec.shape[:dim], places.spec.numel, *x.spec.shape[dim + 1 :]))
    )


def pad_end(input: Tensor, shape: Shape) -> Tensor:
    """Zeros put behind the elements of each dim, up to `shape`."""
    amounts = [a for n, m in zip(reversed(input.spec.shape), reversed(shape), strict=True) for a in (0, m - n)]
    return pad(input, amounts)


@public(method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Views of vectors as the coordinates of a grid; "xy" exchanges the first two dims."""
    vectors = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else list(tensors)
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid(): indexing must be 'ij' or 'xy', got {indexing!r}")
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
