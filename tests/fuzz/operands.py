"""Random tensors as arguments: one function for each word of signatures.py, given the call that it is for."""

from __future__ import annotations

import itertools
from math import prod

import literals
from arguments import Call, coefficient, num, sized, start


def same(c: Call, kind: str | None = None) -> str:
    return c.tensor(c.shape, kind)


def operand(c: Call, kind: str | None = None) -> str:
    """A tensor that broadcasts with the first, at times of another dtype, or a number."""
    if c.r.random() < 0.25:
        return num(c)
    if kind is None and c.r.random() < 0.2:
        kind = literals.dtype(c.r)
    return c.tensor(literals.broadcastable(c.r, c.shape), kind)


def weight(c: Call) -> str:
    return c.r.choice(("0.5", "1.0", "0.0", "0.3", c.tensor(literals.broadcastable(c.r, c.shape))))


def bound(c: Call) -> str:
    return coefficient(c) if c.r.random() < 0.6 else c.tensor(literals.broadcastable(c.r, c.shape))


def mask(c: Call) -> str:
    return c.tensor(literals.broadcastable(c.r, c.shape), "bool", "plain")


def bmask(c: Call) -> str:
    """A condition; it comes before the tensors that it chooses from."""
    c.shape = literals.shape(c.r)
    return c.tensor(c.shape, "bool", "plain")


def fraction(c: Call) -> str:
    return c.r.choice(("0.5", "0.0", "1.0", "0.3", f"T.tensor([0.25, 0.75], dtype=T.{c.dtype})"))


def nonnegative(c: Call) -> str:
    return c.indices((c.r.randint(0, 6),), 9)


def fsorted(c: Call) -> str:
    return c.variable(f"T.tensor({sorted(c.r.choice((-1, -0.5, 0, 0.5, 2)) for _ in range(4))}, dtype=T.{c.dtype})")


def matrix(c: Call) -> str:
    """Well-conditioned: what decompositions lose is no difference between libraries."""
    n = c.r.choice((1, 2, 3, 3))
    c.shape = (n, n)
    return c.variable(
        f"{literals.plain(c.r, (n, n), c.dtype, 'plain')} / 4 + {c.r.choice((2, 3))} * T.eye({n}, dtype=T.{c.dtype})"
    )


def positive_definite(c: Call) -> str:
    n = c.r.choice((1, 2, 3))
    m = c.variable(f"{literals.plain(c.r, (n, n), c.dtype, 'plain')} / 4")
    return c.variable(f"{m} @ {m}.t() + 2 * T.eye({n}, dtype=T.{c.dtype})")


def variance(c: Call, sizes: str = "n") -> str:
    return c.variable(f"{literals.plain(c.r, sized(c, sizes), c.dtype, 'plain')}.abs() + 0.5")


def fweight(c: Call, sizes: str) -> str:
    return variance(c, sizes)


def normal_weight(c: Call) -> str:
    return c.tensor(c.index)


def probability(c: Call, sizes: str | None = None) -> str:
    of = literals.shape(c.r) if sizes is None else sized(c, sizes)
    if sizes is None:
        c.shape = of
    return c.variable(f"{literals.plain(c.r, of, c.dtype, 'plain')}.abs() / 4 + 0.125")


def probability_same(c: Call) -> str:
    return c.variable(f"{literals.plain(c.r, c.shape, c.dtype, 'plain')}.abs() / 4")


def classes(c: Call, sizes: str) -> str:
    return c.indices(sized(c, sizes), 9)


def signs(c: Call, sizes: str) -> str:
    return c.variable(f"T.tensor({[c.r.choice((-1, 1)) for _ in range(prod(sized(c, sizes)))]})")


def embedded(c: Call) -> str:
    return c.indices(literals.shape(c.r, 0, 2), 9)


def parts(c: Call) -> str:
    """Tensors that differ in one dim alone."""
    base = literals.shape(c.r, 1, 3)
    c.shape = base
    axis = c.r.randrange(len(base))
    made = [c.tensor((*base[:axis], c.r.randint(0, 3), *base[axis + 1 :])) for _ in range(c.r.randint(1, 3))]
    return f"[{', '.join(made)}]"


def alike(c: Call) -> str:
    c.shape = literals.shape(c.r, 0, 3)
    return f"[{', '.join(c.tensor(c.shape) for _ in range(c.r.randint(1, 3)))}]"


def index(c: Call) -> str:
    """For gather along the dim chosen last: at times smaller than x, or empty."""
    n = c.shape[c.chosen] if c.shape else 1
    smaller = [c.r.randint(0, k) if c.r.random() < 0.3 else k for k in c.shape]
    if smaller:
        smaller[c.chosen] = c.r.randint(0, n + 1)
    return c.indices(tuple(smaller) if n else tuple(0 if i == c.chosen else k for i, k in enumerate(smaller)), n)


def index_like(c: Call) -> str:
    c.chosen = c.r.randrange(max(len(c.shape), 1))
    return index(c)


def scattered(c: Call) -> str:
    """Indices that hit no element twice, since of such writes any may win; of the shape of x or smaller."""
    n = c.shape[c.chosen] if c.shape else 1
    where = [c.r.randint(0, k) if c.r.random() < 0.2 else k for k in c.shape]
    drawn = c.r.sample(range(n), n)
    turned = [1] * len(c.shape)
    if c.shape:
        turned[c.chosen] = where[c.chosen]
        drawn = drawn[: where[c.chosen]]
    c.index = tuple(where)
    # PyTorch takes an expanded index for one that covers the tensor.
    whole = "" if tuple(where) == tuple(c.shape) else ".contiguous()"
    return c.variable(f"T.tensor({drawn}, dtype=T.int64).reshape({tuple(turned)}).expand({tuple(where)}){whole}")


def src(c: Call) -> str:
    return c.tensor(c.index)


def positions(c: Call) -> str:
    n = c.shape[c.chosen] if c.shape else 1
    return c.indices((c.r.randint(0, 4) if n else 0,), n)


def positions_once(c: Call) -> str:
    n = c.shape[c.chosen] if c.shape else 1
    return c.indices((c.r.randint(0, n),), n, once=True)


def chosen(c: Call) -> str:
    """A source for the positions chosen along a dim."""
    of = list(c.shape)
    if of:
        of[c.chosen] = c.index[0]
    return c.tensor(tuple(of))


chosen_once = chosen


def flat_positions(c: Call) -> str:
    n = prod(c.shape)
    return c.indices(literals.shape(c.r, 0, 2) if n else (0,), n, negative=True)


def flat_positions_once(c: Call) -> str:
    n = prod(c.shape)
    return c.indices((c.r.randint(0, n),), n, once=True)


def flat_values(c: Call) -> str:
    return c.tensor(c.index)


def slice_of(c: Call) -> str:
    c.chosen = c.r.randrange(max(len(c.shape), 1))
    return c.tensor(tuple(n for i, n in enumerate(c.shape) if i != c.chosen))


def dim_of(c: Call) -> str:
    return str(c.chosen)


start_of = start


def places(c: Call) -> str:
    """A tuple of one index, of places along dim 0."""
    return f"({c.indices((c.r.randint(0, c.shape[0]),), c.shape[0], once=True)},)"


def element(c: Call) -> str:
    return c.tensor((), mood="plain")


def factors_of(c: Call) -> str:
    """Matrices whose product there is."""
    sizes = [c.r.randint(1, 4) for _ in range(c.r.randint(3, 5))]
    return f"[{', '.join(c.tensor((m, n)) for m, n in itertools.pairwise(sizes))}]"


def labels(c: Call, sizes: str) -> str:
    """A row of classes for each example, the first of them distinct, then -1."""
    count, classes = sized(c, sizes)
    rows = [c.r.sample(range(classes), c.r.randint(0, classes)) for _ in range(count)]
    padded = [row + [-1] * (classes - len(row)) for row in rows]
    return c.variable(f"T.tensor({padded}, dtype=T.int64).reshape({(count, classes)})")


def parts_of(c: Call) -> str:
    """Sizes that add up to that of dim 0."""
    n = c.shape[0]
    first = c.r.randint(0, n)
    return f"[{first}, {n - first}]"
