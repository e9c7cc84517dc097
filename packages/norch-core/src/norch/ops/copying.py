"""Copies: `clone`, `contiguous`, and the write of one tensor into another's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..autograd.graph import UNTRACKED
from ..spec import Spec, channels_last_strides, is_channels_last
from .creation import COPY
from .registry import method, public

if TYPE_CHECKING:
    from ..tensor import Tensor


def write(out: Tensor, source: Tensor) -> None:
    """Copies `source` into the memory of `out`, unrecorded."""
    COPY.into(out, source, out.spec.dtype, None)


@public(check=False)
def clone(input: Tensor, *, memory_format: object = None) -> Tensor:
    """A copy in memory of its own, through which gradients flow; laid out as `memory_format` says, if given."""
    if memory_format is not None:
        from ..memory_formats import channels_behind, contiguous_format

        behind = channels_behind(input, memory_format, "clone")
        if behind is not None or memory_format is contiguous_format:
            copy: Tensor = COPY.call(input if behind is None else behind, None, True)
            return copy if behind is None else copy.movedim(-1, 1)
    return COPY.call(input, None, None)


@method()
def contiguous(input: Tensor, memory_format: object = None) -> Tensor:
    """The tensor itself if its elements lie in row-major order without gaps, else a copy of which that is true.

    memory_format: `norch.channels_last` (of 4 dims, or `channels_last_3d` of 5) asks for the order without dim 1, which
    then varies fastest.
    """
    if memory_format is not None:
        from ..memory_formats import channels_behind

        behind = channels_behind(input, memory_format, "contiguous")
        if behind is not None:
            return input if behind.spec.is_contiguous else contiguous(behind).movedim(-1, 1)
    return input if input.spec.is_contiguous else row_major_copy(input)


def row_major_copy(input: Tensor) -> Tensor:
    """A copy whose elements lie in row-major order without gaps, so that every `reshape` of it is a view."""
    return COPY.call(input, None, True)


def owned(view: Tensor) -> Tensor:
    """A view of a copy that nothing else knows, as a tensor of its own: `base` None, as of PyTorch's result."""
    view.base = None
    if view.node is UNTRACKED:
        view.node = None
    return view


def like_images(out: Tensor, input: Tensor) -> Tensor:
    """`out`, its channels last in memory where those of `input` are, as PyTorch has results of images."""
    spec = input.spec
    if spec.is_contiguous or out.spec.ndim != spec.ndim or type(spec) is not Spec or not is_channels_last(spec):
        return out
    if out.spec.strides == channels_last_strides(out.spec.shape):
        return out
    return contiguous(out.movedim(1, -1)).movedim(-1, 1)


def fresh(out: Tensor, input: Tensor) -> Tensor:
    """`out`, or a copy where it shares memory with `input`: for ops whose result is never an alias."""
    if out is not input and type(out.spec) is not Spec:  # vmap's
        return out
    return out.clone() if out is input or out.buffer is input.buffer else out
