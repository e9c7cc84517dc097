"""Matrix products, and what is built on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .record import Array, Sample, case, samples, x


def _addmm(v: Array, a: Array, b: Array, beta: float = 1, alpha: float = 1) -> Array:
    return beta * v + alpha * (a @ b)


def _triangle(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda v, diagonal=0: function(v, diagonal)


TRIANGLES = (case(x(3, 3)), case(x(2, 3, 4), 1), case(x(3, 2), -1), case(x(0, 3)), case(x(2, 2), 5))

SAMPLES = samples(
    Sample("matmul", np.matmul, (
        case(x(2, 3), x(3, 2)),
        case(x(3), x(3)),
        case(x(2, 3), x(3)),
        case(x(3), x(3, 2)),
        case(x(2, 2, 3), x(3, 2)),
        case(x(2, 1, 2, 3), x(2, 3, 1)),
        case(x(2, 2, 3), x(3)),
        case(x(3), x(2, 3, 2)),
        case(x(2, 3), x(2, 3, 2)),
        case(x(2, 0), x(0, 3)),
        case(x(0, 2), x(2, 3)),
        case(x(0, 2, 2), x(2, 3)),
    ), "number", operator="__matmul__", loose=4),
    Sample("mm", np.matmul, (case(x(2, 3), x(3, 2)), case(x(1, 0), x(0, 2))), "number", loose=4),
    Sample("bmm", np.matmul, (case(x(2, 2, 3), x(2, 3, 2)), case(x(0, 2, 3), x(0, 3, 1))), "number", loose=4),
    Sample("mv", np.matmul, (case(x(2, 3), x(3)), case(x(2, 0), x(0))), "number", loose=4),
    Sample("dot", np.dot, (case(x(4), x(4)), case(x(0), x(0))), "number", loose=4),
    Sample("outer", np.outer, (case(x(2), x(3)), case(x(0), x(3))), "any"),
    Sample("addmm", _addmm, (
        case(x(2, 2), x(2, 3), x(3, 2)),
        case(x(2), x(2, 3), x(3, 2), beta=2, alpha=3),
        case(x(), x(2, 3), x(3, 2)),
    ), "number", loose=8),
    Sample("einsum", lambda equation, *v: np.einsum(equation, *v), (
        case("ij,jk->ik", x(2, 3), x(3, 2)),
        case("bij,bjk->bik", x(2, 2, 3), x(2, 3, 1)),
        case("ii->i", x(3, 3)),
        case("ij->ji", x(2, 3)),
        case("i,j->ij", x(2), x(3)),
        case("...i,...i->...", x(2, 3), x(3)),
        case("ij,jk,kl->il", x(2, 2), x(2, 3), x(3, 2)),
        case("bi,oi,bo->b", x(2, 3), x(2, 3), x(2, 2)),
        case("ij,ij->ij", x(2, 3), x(2, 3)),
        case("ba", x(2, 3)),
    ), "number", strict=False, loose=8),
    Sample("tril", _triangle(np.tril), TRIANGLES),
    Sample("triu", _triangle(np.triu), TRIANGLES),
    Sample("diag", lambda v, diagonal=0: np.diag(v, diagonal), (
        case(x(3)), case(x(2), 1), case(x(2), -2), case(x(3, 2)), case(x(2, 3), 1), case(x(0)))),
    Sample("trace", np.trace, (case(x(3, 3)), case(x(2, 3))), gives="sum"),
)  # fmt: skip
