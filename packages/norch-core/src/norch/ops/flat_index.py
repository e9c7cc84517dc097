"""Several index tensors as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dispatch.plan import Inferred
from ..dtype import int64
from ..spec import Spec, broadcast_shapes
from .checks import require_integers
from .creation import arange
from .families import composite
from .indexing import gather

if TYPE_CHECKING:
    from ..tensor import Tensor


def _infer_flat_index(first: Spec, second: Spec, sizes: tuple[int, int]) -> Inferred:
    for index in (first, second):
        require_integers("index", "index", index)
    shape = broadcast_shapes(first.shape, second.shape, op="index")
    return Inferred((first.like(shape, dtype=int64),), ((int64, shape), (int64, shape)), {"sizes": sizes})


@composite(_infer_flat_index, {})
def flat_index(first: Tensor, second: Tensor, sizes: tuple[int, int]) -> Tensor:
    """Places along two dims of these sizes as places along one. IndexError for one out of range."""
    places: Any = 0
    for index, n, step in ((first, sizes[0], sizes[1]), (second, sizes[1], 1)):
        # A gather from the places of a dim wraps negative indices and checks every one.
        of_dim = arange(n, device=index.device) * step
        places = gather(of_dim, 0, index.reshape(-1)).reshape(tuple(index.spec.shape)) + places
    return places  # type: ignore[no-any-return]
