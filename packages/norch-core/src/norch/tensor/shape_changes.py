"""In-place changes of what a tensor shows of its memory: `squeeze_`, `transpose_`, ... and sizes that cannot change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import switches
from ..autograd.graph import UNTRACKED, Leaf, is_recording, mark_modified, resolve, set_recording
from ..errors import AutogradError, DeviceError, DTypeError, ShapeError
from ..memory_formats import channels_last, channels_last_3d, contiguous_format, preserve_format
from ..ops.creation import empty_spec
from ..ops.registry import method
from ..ops.shape import views as movement
from ..ops.shape.strided import as_strided, as_strided_view
from ..spec import Shape, as_shape, channels_last_strides, contiguous_strides, is_channels_last
from ..tensor_base import make_tensor
from .inplace import fill_
from .rebasing import check_writable
from .storage import Storage

if TYPE_CHECKING:
    from . import Tensor


def reshaping(function: Callable[..., Tensor], *also: str) -> Callable[..., Any]:
    """The in-place method (`squeeze_`) of a view op (`squeeze`)."""
    title = function.__name__ + "_"

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(self, title, values=False)
        node = None if self.node is None else resolve(self)
        recording = is_recording()
        set_recording(True)  # without, too, its gradient would else be of the shape that it had
        try:
            view = function(self, *args, **kwargs)
            if node is not None:
                # What saved this very object, to read it by its shape, must learn that the shape is another.
                mark_modified(self, title)
                view = function(self, *args, **kwargs)
                node = node if type(node) is Leaf else resolve(view)
        finally:
            set_recording(recording)
        self.spec, self.offset = view.spec, view.offset
        self.node = node if node is not None else (None if self.base is None else UNTRACKED)
        return self

    call.__name__ = call.__qualname__ = title
    call.__doc__ = f"Makes this tensor what `{title[:-1]}` gives a view of. Returns the tensor. Raises what that does."
    call.__wrapped__ = function  # type: ignore[attr-defined]
    return method(title, *also)(call)


squeeze_ = reshaping(movement.squeeze)
unsqueeze_ = reshaping(movement.unsqueeze)
transpose_ = reshaping(movement.transpose, "swapaxes_", "swapdims_")
t_ = reshaping(movement.t)
as_strided_ = reshaping(as_strided)


_BEHIND = {4: channels_last, 5: channels_last_3d}


def _strides_of(shape: Shape, wanted: Any) -> Shape | None:
    """Those of a tensor without gaps in a memory format; None for row by row."""
    if wanted in (None, contiguous_format):
        return None
    if wanted not in _BEHIND.values():
        raise ValueError(f"resize_(): memory_format must be contiguous_format or a channels-last one, got {wanted!r}")
    if _BEHIND.get(len(shape)) is not wanted:
        raise ShapeError(f"resize_(): {wanted!r} is for {4 if wanted is channels_last else 5} dims, got shape {shape}")
    return channels_last_strides(shape)


@method()
def resize_(self: Tensor, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
    """Gives the tensor the shape `sizes` or `size`, row by row in its memory, or in new memory where that is too small,
    into which its elements are copied; what is beyond them is not set. Returns the tensor.

    memory_format: how the elements lie in that memory; without it a tensor that has the shape is left as it is. Views
    of the old memory stay on it. Raises AutogradError for a tensor in the graph, ShapeError for a view that would need
    new memory, and for a format of tensors of other dims.
    """
    if self.requires_grad:
        raise AutogradError("resize_(): a tensor that requires grad cannot be resized; use reshape")
    check_writable(self, "resize_", values=False)
    given = self.spec
    sizes = sizes if size is None else (size,)
    shape = as_shape(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes, "resize_")
    if memory_format is None and shape == given.shape:
        return self
    new = given.like(shape, _strides_of(shape, memory_format))
    room = self.buffer.nbytes // given.dtype.itemsize - self.offset
    if new.numel <= room or given.device.is_meta:
        self.spec = new
    elif self.base is not None:
        raise ShapeError(f"resize_(): a view of shape {tuple(given.shape)} has no memory for {tuple(shape)}")
    else:
        fresh = empty_spec(new)
        kept = as_strided_view(self, (room,), (1,), 0)
        as_strided_view(fresh, (room,), (1,), 0).copy_(kept)
        self.spec, self.buffer, self.offset = new, fresh.buffer, 0
        switches.moved()
    mark_modified(self, "resize_")
    return self


@method()
def resize_as_(self: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of `the_template`, and with `preserve_format` to its layout. Raises as that does."""
    if memory_format is preserve_format:
        like = the_template.spec
        memory_format = _BEHIND[like.ndim] if is_channels_last(like) else contiguous_format
    return resize_(self, tuple(the_template.spec.shape), memory_format=memory_format)


@method()
def set_(
    self: Tensor, source: Any = None, storage_offset: int | None = None, size: Any = None, stride: Any = None
) -> Tensor:
    """Makes the tensor one on the memory of `source`, a tensor or a storage; without it, one of no elements.

    size, stride, storage_offset: what it shows of that memory, row by row where there are no strides. Views of the old
    memory stay on it. Raises AutogradError for a tensor that requires grad, unless it is a leaf under `no_grad`,
    DTypeError and DeviceError where `source` is of another dtype or device, ShapeError for what its memory does not
    hold.
    """
    if self.requires_grad and (is_recording() or not self.is_leaf):
        raise AutogradError("set_(): a tensor that requires grad keeps its memory; use x.data = y")
    if source is None:
        source = empty_spec(self.spec.like((0,)))
    elif isinstance(source, Storage):
        memory = source._tensor
        room = memory.buffer.nbytes // self.spec.dtype.itemsize
        source = make_tensor(memory.spec.like((room,), (1,), self.spec.dtype), memory.buffer)
    if source.spec.dtype is not self.spec.dtype:
        raise DTypeError(f"set_(): the source is {source.spec.dtype}, the tensor {self.spec.dtype}")
    if source.spec.device is not self.spec.device:
        raise DeviceError(f"set_(): the source is on {source.spec.device}, the tensor on {self.spec.device}")
    if size is not None or storage_offset is not None:
        shape = tuple(source.spec.shape) if size is None else as_shape(size, "set_")
        source = as_strided(source, shape, contiguous_strides(shape) if stride is None else stride, storage_offset or 0)
    self.data = source
    self.base = None
    return self


@method()
def fill_diagonal_(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Sets the main diagonal to a number, `fill_value`; with `wrap`, of a tall matrix also those below it, every n + 1
    rows.

    Raises ShapeError below 2 dims, or for more dims of different sizes.
    """
    shape = tuple(self.spec.shape)
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(f"fill_diagonal_(): needs 2 dims, or more of one size, got shape {shape}")
    check_writable(self, "fill_diagonal_")
    step = sum(self.spec.strides)
    size = min(shape)
    if size:
        fill_(as_strided_view(self, (size,), (step,), 0), fill_value)
    if wrap and len(shape) == 2:
        rows, columns = shape
        for start in range(columns + 1, rows, columns + 1):
            count = min(columns, rows - start)
            fill_(as_strided_view(self, (count,), (step,), start * self.spec.strides[0]), fill_value)
    return self
