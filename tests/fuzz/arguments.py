"""Random arguments: one function for each word of signatures.py, given the call that it is for."""

from __future__ import annotations

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
    large: bool = False
    """Whether the first tensor may have many elements."""

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
