"""matmul: products of matrices, which are read as they lie, transposed ones too."""

from math import prod
from typing import NamedTuple

from norch.backend import Kernel, Operand

from .devices import Runtime
from .dtypes import Attrs, Kind, Operands, kind
from .products import Product, multiply, places
from .source import Walk


class Matrix(NamedTuple):
    """A matrix in memory, `lines` (rows; of a right operand columns) by `others`: its strides, those of the batch dims
    too, and which of the batch is the first."""

    kind: Kind
    batch: tuple[int, ...]
    line: int
    other: int
    lines: int
    others: int
    first: int = 0

    @property
    def turned(self) -> "Matrix":
        return self._replace(line=self.other, other=self.line, lines=self.others, others=self.lines)

    def has_quads(self, along: bool) -> bool:
        """Whether its elements lie by fours, along the other dim or else the lines."""
        fast, slow, size = (self.other, self.line, self.others) if along else (self.line, self.other, self.lines)
        return fast == 1 and size % 4 == 0 and slow % 4 == 0 and not any(step % 4 for step in self.batch)


def matrix(o: Operand) -> Matrix:
    return Matrix(kind(o), o.strides[:-2], *o.strides[-2:], *o.shape[-2:])


def matmul(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    out, a, b = map(matrix, operands)
    batch = operands[0].shape[:-2]
    return multiply(run, product(batch, out, a, b.turned, prod(batch)))


def product(batch: tuple[int, ...], out: Matrix, a: Matrix, b: Matrix, count: int) -> Product:
    """out = a @ b.T for `count` indices of the batch dims."""
    numbers: dict[str, int] = {}
    text = ""
    for name, x in (("o", out), ("a", a), ("b", b)):
        walk = Walk(name, batch, [x.batch], f"{name}i", bake=False)
        numbers |= {f"{name}_line": x.line, f"{name}_other": x.other, f"{name}_first": x.first, **walk.numbers}
        base = f"let {name}i = i + P.{name}_first; {walk.code()} return at_{name};"
        text += places(name, base, f"at + i * P.{name}_line + k * P.{name}_other")
    along = (a.other == 1 or a.line != 1, b.other == 1 or b.line != 1)
    return Product(
        (out.kind, a.kind, b.kind), count, out.lines, out.others, a.others, along,
        quads=(out.has_quads(True), a.has_quads(along[0]), b.has_quads(along[1])),
        text=text, numbers=numbers,
    )  # fmt: skip
