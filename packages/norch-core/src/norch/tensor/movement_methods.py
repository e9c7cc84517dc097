"""Views and rearrangements as methods. Each is the function of the same name in `norch.ops`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ShapeError
from ..ops import copying
from ..ops.shape import arranging, joining, strided
from ..ops.shape import views as movement

if TYPE_CHECKING:
    from . import Tensor


class MovementMethods:
    __slots__ = ()

    reshape = movement.reshape
    view = movement.view_as_shape
    view_as = movement.view_as
    reshape_as = movement.reshape_as
    flatten = movement.flatten
    ravel = movement.flatten
    unflatten = movement.unflatten
    squeeze = movement.squeeze
    unsqueeze = movement.unsqueeze
    transpose = swapaxes = swapdims = movement.transpose
    t = movement.t
    permute = movement.permute
    movedim = moveaxis = movement.movedim
    expand = movement.expand
    expand_as = movement.expand_as
    broadcast_to = movement.broadcast_to
    narrow = movement.narrow
    select = movement.select
    diagonal = movement.diagonal
    as_strided = strided.as_strided
    unfold = strided.unfold
    clone = copying.clone
    contiguous = copying.contiguous
    repeat = joining.repeat
    tile = joining.tile
    repeat_interleave = joining.repeat_interleave
    split = split_with_sizes = joining.split
    tensor_split = arranging.tensor_split
    hsplit = arranging.hsplit
    vsplit = arranging.vsplit
    dsplit = arranging.dsplit
    diag_embed = arranging.diag_embed
    diagflat = arranging.diagflat
    rot90 = arranging.rot90
    chunk = joining.chunk
    unbind = joining.unbind
    flip = joining.flip
    fliplr = joining.fliplr
    flipud = joining.flipud
    roll = joining.roll

    @property
    def T(self: Any) -> Tensor:
        """A view with all dims in reverse order."""
        return movement.permute(self, tuple(range(self.spec.ndim))[::-1])

    @property
    def mT(self: Any) -> Tensor:
        """A view with the last two dims exchanged."""
        if self.spec.ndim < 2:
            raise ShapeError(f"mT: needs at least 2 dims, got shape {tuple(self.spec.shape)}")
        return movement.transpose(self, -2, -1)
