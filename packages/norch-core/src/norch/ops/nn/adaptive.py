"""The largest of parts of images, of as many as are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dispatch.arguments import check_functions
from ...dtype import int64
from ...errors import ShapeError
from ...spec import Spec, is_channels_last
from ..creation import arange
from ..elementwise.arithmetic import minimum
from ..families import composite

if TYPE_CHECKING:
    from ...tensor import Tensor


def adaptive_max_indices(input: Tensor, output_size: tuple[int, int]) -> Tensor:
    """Where in its image the first largest element of each of y * x parts is: (..., h, w) -> int64 (..., y, x), indices
    into h * w.

    output_size: (y, x). Part i of y has the rows from i * h / y, rounded down, to before (i + 1) * h / y, rounded up;
    columns alike. NaN is larger than all others. Raises ShapeError for images without elements, or less than 2 dims.
    """
    sizes = tuple(output_size)
    if input.ndim < 2 or len(sizes) != 2 or min(sizes) < 0 or 0 in input.shape[-2:]:
        raise ShapeError(f"adaptive_max_indices(): cannot find the largest of {sizes} parts of {tuple(input.shape)}")
    return _indices(input.detach(), sizes)


def _infer(input: Spec, sizes: tuple[int, int]) -> Spec:
    return input.like((*input.shape[:-2], *sizes), dtype=int64)


@composite(_infer, name="adaptive_max_indices")
def _indices(input: Tensor, sizes: tuple[int, int]) -> Tensor:
    h, w = input.spec.shape[-2:]
    rows, columns = _places(h, sizes[0], input), _places(w, sizes[1], input)
    places = (rows.unsqueeze(1).unsqueeze(-1) * w + columns.unsqueeze(0).unsqueeze(2)).flatten(2)
    if input.spec.ndim == 4 and not input.is_contiguous() and is_channels_last(input.spec):  # pixels are rows
        pixels = input.permute((0, 2, 3, 1)).reshape((len(input), h * w, input.shape[1]))
        parts = pixels.index_select(1, places.reshape(-1)).reshape((len(input), *places.spec.shape, -1))
        shape = (len(input), *sizes, places.spec.shape[2], input.shape[1])
        which = parts.max(3, keepdim=True)[1]
        return places.unsqueeze(-1).expand(shape).gather(3, which).squeeze(3).permute((0, 3, 1, 2))
    shape = (*input.spec.shape[:-2], *places.spec.shape)
    parts = input.flatten(-2).index_select(-1, places.reshape(-1)).reshape(shape)
    return places.expand(shape).gather(-1, parts.max(-1)[1].unsqueeze(-1)).squeeze(-1)


def _places(n: int, count: int, x: Tensor) -> Tensor:
    """The places (count, longest) of `count` parts of a dim of size n; a shorter part repeats its last."""
    at = arange(count, device=x.device)
    first, last = at * n // count, ((at + 1) * n + (count - 1)) // count - 1
    # Where the sizes do not divide, parts may begin anywhere and be one longer than n / count rounded up.
    longest = n // count if count and n % count == 0 else min(n, -(-n // max(count, 1)) + 1)
    return minimum(first.unsqueeze(1) + arange(longest, device=x.device), last.unsqueeze(1))


check_functions(globals())
