"""The product of several matrices, in the order that needs the fewest multiplications. Loaded when it is first used."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ...dispatch.arguments import check_functions
from ...errors import ShapeError

if TYPE_CHECKING:
    from ...tensor import Tensor


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that needs the fewest multiplications.

    The first may be a vector, which is a row, and the last one, which is a column. Raises ShapeError for fewer than two
    tensors, for others than matrices, and for shapes that do not match.
    """
    given = list(tensors)
    if len(given) < 2:
        raise ShapeError(f"linalg.multi_dot(): expected at least 2 tensors, got {len(given)}")
    first, last = given[0].ndim == 1, given[-1].ndim == 1
    matrices = [*given]
    matrices[0] = matrices[0].unsqueeze(0) if first else matrices[0]
    matrices[-1] = matrices[-1].unsqueeze(1) if last else matrices[-1]
    shapes = ", ".join(str(tuple(m.shape)) for m in given)
    if any(m.ndim != 2 for m in matrices):
        raise ShapeError(f"linalg.multi_dot(): expected matrices, got {shapes}")
    if any(a.shape[1] != b.shape[0] for a, b in pairwise(matrices)):
        raise ShapeError(f"linalg.multi_dot(): shapes {shapes} do not match")
    out = _product(matrices, _order([m.shape[0] for m in matrices] + [matrices[-1].shape[1]]), 0, len(matrices) - 1)
    out = out.squeeze(0) if first else out
    return out.squeeze(-1) if last else out


def _order(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of factors: the dynamic programme of Cormen et al., "Introduction to Algorithms"."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    splits: dict[tuple[int, int], int] = {}
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            found = [(cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i, j], splits[i, j] = min(found)
    return splits


def _product(matrices: list[Tensor], splits: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return matrices[i]
    k = splits[i, j]
    return _product(matrices, splits, i, k) @ _product(matrices, splits, k + 1, j)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the order that needs the fewest multiplications; of one, itself. Raises as matmul
    does.
    """
    given = matrices[0] if len(matrices) == 1 and isinstance(matrices[0], tuple | list) else matrices
    return given[0] if len(given) == 1 else multi_dot(given)


check_functions(globals())
