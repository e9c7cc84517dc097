"""Random arguments: one function for each word of signatures.py, given the call that it is for."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import prod
from random import Random

import literals
from literals import INTS, Shape


@dataclass
class Call:
    """What is known of a call while its arguments are made."""

    r: Random
    dtype: str
    mood: str
    shape: Shape = ()
    """Of the first tensor."""
    chosen: int = 0
    """The dim chosen last."""
    sizes: dict[str, int] = field(default_factory=dict)
    tensors: list[str] = field(default_factory=list)
    """Lines that make the tensors, a variable each."""
    index: Shape = ()
    """The shape of the last index."""

    def variable(self, expression: str) -> str:
        self.tensors.append(f"{chr(97 + len(self.tensors))} = {expression}")
        return chr(96 + len(self.tensors))

    def tensor(self, shape: Shape, kind: str | None = None, mood: str | None = None) -> str:
        return self.variable(literals.tensor(self.r, shape, kind or self.dtype, mood or self.mood))

    def indices(self, shape: Shape, bound: int, once: bool = False, negative: bool = False) -> str:
        """An int64 tensor of indices below `bound`."""
        low = -bound if negative else 0
        drawn = [self.r.randrange(low, bound) if bound else 0 for _ in range(prod(shape))]
        if once:
            drawn = self.r.sample(range(bound), min(bound, prod(shape)))
        self.index = shape
        return self.variable(f"T.tensor({drawn}, dtype=T.int64).reshape({shape})")


def size(c: Call, word: str) -> int:
    if word.isdigit():
        return int(word)
    if word not in c.sizes:
        if word in "HW":
            c.sizes[word] = c.r.choice((3, 4, 5, 6, 7, 9))
        elif word in "hw":
            c.sizes[word] = c.r.choice((1, 2, 3))
        elif word in "LKN":
            c.sizes[word] = c.r.choice((16, 33, 65, 130))
        else:
            c.sizes[word] = c.r.choice((1, 2, 3, 4, 5, 8, 17, 0) if c.r.random() < 0.3 else (2, 3, 4))
    return c.sizes[word]


def sized(c: Call, text: str) -> Shape:
    """The shape that "(m,n)" or "(2-4)" stands for."""
    if "-" in text:
        least, most = map(int, text.split("-"))
        return literals.shape(c.r, least, most)
    return tuple(size(c, w) for w in text.split(",") if w)


def integers(c: Call) -> str:
    return c.dtype if c.dtype in (*INTS, "bool") else literals.dtype(c.r, INTS)


# --- Numbers and words ----------------------------------------------------------------------------------------------


def num(c: Call) -> str:
    return literals.scalar(c.r, c.dtype)


def coefficient(c: Call) -> str:
    """A finite number, not 0: what a product is multiplied by."""
    if c.dtype in literals.FLOATS:
        return c.r.choice(("2", "0.5", "-1.5", "-1", "3"))
    return c.r.choice(("2", "-1") if c.dtype != "uint8" else ("2", "3"))


def int_(c: Call, low: str, high: str) -> str:
    return str(c.r.randrange(int(low), int(high)))


def bool_(c: Call) -> str:
    return c.r.choice(("True", "False"))


def true(c: Call) -> str:
    return "True"


def reduction(c: Call) -> str:
    return c.r.choice(("'mean'", "'sum'", "'none'"))


def dtype(c: Call) -> str:
    return f"T.{literals.dtype(c.r)}"


def wider_dtype(c: Call) -> str:
    """A dtype to compute in that rounds no more than the operand's."""
    return "T.float64" if c.dtype in literals.FLOATS else dtype(c)


def fdtype(c: Call) -> str:
    return f"T.{literals.dtype(c.r, literals.FLOATS)}"


def one(c: Call) -> str:
    """A count for the dim chosen last, or for the last one."""
    n = c.shape[c.chosen] if c.shape else 1
    return str(c.r.randint(0, n))


def start(c: Call) -> str:
    n = c.shape[c.chosen] if c.shape else 1
    return str(c.r.randrange(-n, n) if n else 0)


def window(c: Call) -> str:
    return str(c.r.randint(1, max(1, c.shape[-1] if c.shape else 1)))


# --- Dims and shapes ------------------------------------------------------------------------------------------------


def dim(c: Call) -> str:
    n = max(len(c.shape), 1)
    c.chosen = c.r.randrange(n)
    return str(c.chosen - n if c.r.random() < 0.4 else c.chosen)


def last(c: Call) -> str:
    c.chosen = -1
    return "-1"


def newdim(c: Call) -> str:
    return str(c.r.randrange(-len(c.shape) - 1, len(c.shape) + 1))


def dims(c: Call) -> str:
    n = len(c.shape)
    some = c.r.sample(range(n), c.r.randint(0, n))
    return dim(c) if c.r.random() < 0.5 else str(tuple(d - n if c.r.random() < 0.3 else d for d in some))


def order(c: Call) -> str:
    return str(tuple(c.r.sample(range(len(c.shape)), len(c.shape))))


def shape(c: Call) -> str:
    """One of as many elements."""
    n, found = prod(c.shape), []
    while n > 1 and c.r.random() < 0.7:
        part = c.r.choice([d for d in range(1, n + 1) if n % d == 0])
        found.append(part)
        n //= part
    found.append(n)
    c.r.shuffle(found)
    if prod(found) and c.r.random() < 0.3:
        found[c.r.randrange(len(found))] = -1
    return str(tuple(found))


def shape_any(c: Call) -> str:
    return str(literals.shape(c.r))


def wider(c: Call) -> str:
    more = tuple(c.r.choice((1, 2, 3)) for _ in range(c.r.randrange(3)))
    return str((*more, *(c.r.choice((2, 3, -1)) if n == 1 else n for n in c.shape)))


def narrower(c: Call) -> str:
    return str(literals.broadcastable(c.r, c.shape))


def repeats(c: Call) -> str:
    count = len(c.shape) + c.r.choice((0, 0, 1))
    return str(tuple(c.r.choice((1, 1, 2, 3, 0)) for _ in range(count)))


def indices(c: Call) -> str:
    return str(sorted(c.r.randrange(5) for _ in range(c.r.randint(1, 3))))


def factors(c: Call) -> str:
    n = c.shape[-1] if c.shape else 1
    return f"({c.r.choice([d for d in range(1, n + 1) if n % d == 0] or [1])}, -1)"


def padding(c: Call) -> str:
    """Of the last dims; negative ones crop."""
    return str([c.r.choice((0, 1, 2, -1)) for _ in range(2 * c.r.randint(0, len(c.shape)))])


def normalized(c: Call) -> str:
    c.index = c.shape[-c.r.randint(1, 2) :]
    return str(c.index)


# --- Tensors --------------------------------------------------------------------------------------------------------


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
    return c.variable(f"{literals.plain(c.r, (n, n), c.dtype, 'plain')} / 4 + {c.r.choice((2, 3))} * T.eye({n})")


def positive_definite(c: Call) -> str:
    n = c.r.choice((1, 2, 3))
    m = c.variable(f"{literals.plain(c.r, (n, n), c.dtype, 'plain')} / 4")
    return c.variable(f"{m} @ {m}.t() + 2 * T.eye({n})")


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
