"""The calls that every primitive is tried with: operands, attributes and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from ...backend.contract import BINARY, COMPARISON, REDUCTION, UNARY
from ...dtype import BOOL, DTYPES, FLOATING, INTEGER, DType, as_dtype
from ..samples import SAMPLES
from .place import Array, Number, Place

ALL = tuple(d.name for d in DTYPES)
FLOATS = tuple(d.name for d in DTYPES if d.category == FLOATING)
INTS = tuple(d.name for d in DTYPES if d.category == INTEGER)
NUMBERS = (*INTS, *FLOATS)
_NUMERIC = frozenset("sum prod cumsum matmul arange argmax argmin".split())

SHAPES = ((), (1,), (7,), (3, 5), (2, 3, 4, 5), (1030,), (33, 65))
REDUCED = (
    ((), ()), ((5,), (0,)), ((3, 5), (1,)), ((3, 5), (0,)), ((3, 4, 5), (0, 2)), ((3, 4, 5), (1,)),
    ((2, 3, 4, 5), (0, 1, 2, 3)), ((1030,), (0,)), ((4, 1030), (1,)), ((1030, 4), (0,)), ((100_003,), (0,)),
)  # fmt: skip
SCANNED = (((), 0), ((5,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 3, 4), 1), ((1030,), 0))
PRODUCTS = (  # batch, m, k, n
    ((), 1, 1, 1), ((), 3, 4, 5), ((2,), 3, 4, 5), ((2, 3), 2, 2, 2), ((), 33, 65, 17), ((), 64, 64, 64),
    ((), 70, 1, 7), ((), 1, 100, 1),
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One call of a kernel. `values` has an array for each input (a number for a scalar), and before them, for an op
    that writes in place, what its output holds."""

    op: str
    outputs: tuple[Place, ...]
    inputs: tuple[Place | Number, ...]
    attrs: dict[str, Any]
    values: tuple[Array, ...]
    note: str = ""  # what is special about the values

    @property
    def size(self) -> int:
        return sum(prod(p.shape) for p in (*self.outputs, *self.inputs) if isinstance(p, Place))

    def __str__(self) -> str:
        """Such as "add float32 (3, 5) stepped <- transposed, dense"."""
        places = [p for p in self.inputs if isinstance(p, Place)]
        shape = (places or list(self.outputs))[0].shape
        dtypes = dict.fromkeys(p.dtype for p in (*self.outputs, *places))
        layouts = (
            ", ".join(p.layout for p in self.outputs)
            + " <- "
            + ", ".join(p.layout if isinstance(p, Place) else repr(p.value) for p in self.inputs)
        )
        attrs = "".join(f" {k}={v}" for k, v in self.attrs.items())
        return f"{self.op} {'/'.join(dtypes)} {shape} {layouts}{attrs}{' ' * bool(self.note)}{self.note}"

    def laid_out(self, inputs: str, outputs: str) -> Call:
        """The same with other layouts."""
        return replace(
            self,
            outputs=tuple(replace(p, layout=outputs) for p in self.outputs),
            inputs=tuple(replace(p, layout=inputs) if isinstance(p, Place) else p for p in self.inputs),
        )


def dtypes_of(op: str) -> tuple[str, ...]:
    """The dtypes that an op must take, the first being the one that it is tried with first."""
    if op in (*UNARY, *BINARY, *COMPARISON):
        record = SAMPLES[op]
        found = FLOATS if record.gives == "float" else tuple(d.name for d in record.dtypes)
    elif op in ("any", "all"):
        found = ("bool",)
    elif op == "random":
        found = ("int64", *FLOATS)
    elif op in _NUMERIC:
        found = NUMBERS
    else:
        found = ALL
    first = next(d for d in ("float32", "int32", "bool") if d in found)
    return (first, *(d for d in found if d != first))


def draw(op: str, dtype: str, shape: tuple[int, ...], position: int = 0) -> Array:
    """Values that the op has a meaning for, the same at every run; whole numbers where there are many to add."""
    kind: DType = as_dtype(dtype)
    values: Array
    rng = np.random.default_rng(crc32(f"{op} {dtype} {shape} {position}".encode()))
    if kind.category == BOOL:
        return np.asarray(rng.random(shape) < {"any": 0.15, "all": 0.85}.get(op, 0.6))
    right = position == 1
    if kind.category == INTEGER:
        least, end = -100 if kind.is_signed else 0, 100 if kind.is_signed else 250
        if op == "prod":
            least, end = (-2 if kind.is_signed else 0), 3
        elif op == "pow" and not right:
            least, end = -9 if kind.is_signed else 0, 10
        elif right and op in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
            least, end = 0, 5
        values = np.asarray(rng.integers(least, end, shape))
        return np.where((values == 0) & (right and op in ("floor_divide", "remainder")), 3, values).astype(kind.numpy)
    low, high = (0.9, 1.1) if op == "prod" else (-2.0, 2.0)
    if op in UNARY:
        operand = SAMPLES[op].cases[0].args[0]
        low, high = operand.low, operand.high
    if op in ("sum", "cumsum", "scatter_add") and prod(shape) >= 1000:
        return np.asarray(rng.integers(-1, 3, shape)).astype(kind.numpy)
    if op == "pow" and not right:
        low, high = 0.2, 2.0
    values = np.asarray(rng.uniform(low, high, shape))
    if op in ("floor_divide", "remainder"):  # far from where a rounding would make a step
        values = np.round(values * 4) / 4 + (0.125 if not right else 0.0)
        values = np.where(values == 0, 0.75, values)
    elif op in ("floor", "ceil", "trunc", "round"):
        values = np.round(values * 8) / 8
    elif op in ("sort", "argmax", "argmin", "amax", "amin") or op in COMPARISON:
        values = np.round(values * 4) / 4  # with ties
    return values.astype(kind.numpy)


def calls(op: str, dtype: str, *, few: bool = False) -> Iterator[Call]:
    """What a primitive is tried with in a dtype: its shapes, or `few` of them."""
    maker = _MAKERS.get(op) or (_reductions if op in REDUCTION else _elementwise)
    yield from maker(op, dtype, few)


def _elementwise(op: str, dtype: str, few: bool) -> Iterator[Call]:
    count = 1 if op in UNARY or op == "copy" else 2
    out = "bool" if op in COMPARISON else dtype
    shapes = ((3, 5), (1030,)) if few else (*SHAPES, (300_001,)) if op in ("add", "copy", "exp") else SHAPES
    for shape in shapes:
        values = tuple(draw(op, dtype, shape, i) for i in range(count))
        yield Call(op, (Place(out, shape),), (Place(dtype, shape),) * count, {}, values)
    if op in BINARY or op in COMPARISON:
        x, y = draw(op, dtype, (7,)), draw(op, dtype, (), 1)
        number = Number(dtype, y.item())
        yield Call(op, (Place(out, (7,)),), (Place(dtype, (7,)), number), {}, (x, y.item()))
        if op not in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
            number, x = Number(dtype, draw(op, dtype, (), 0).item()), draw(op, dtype, (7,), 1)
            yield Call(op, (Place(out, (7,)),), (number, Place(dtype, (7,))), {}, (number.value, x))


def _fills(op: str, dtype: str, few: bool) -> Iterator[Call]:
    value = draw(op, dtype, (), 0).item()
    for shape in ((3, 5), (1030,)) if few else SHAPES:
        yield Call(op, (Place(dtype, shape),), (Number(dtype, value),), {}, (value,))


def _choices(op: str, dtype: str, few: bool) -> Iterator[Call]:
    for shape in ((3, 5), (1030,)) if few else SHAPES:
        places = (Place("bool", shape), Place(dtype, shape), Place(dtype, shape))
        values = (draw(op, "bool", shape), draw(op, dtype, shape, 1), draw(op, dtype, shape, 2))
        yield Call(op, (Place(dtype, shape),), places, {}, values)


def _reductions(op: str, dtype: str, few: bool) -> Iterator[Call]:
    is_arg = op in ("argmax", "argmin")
    for shape, dims in (*REDUCED[2:5], REDUCED[7]) if few else REDUCED:
        if is_arg and len(dims) != 1:
            continue
        given = draw(op, dtype, shape)
        out = tuple(1 if d in dims else n for d, n in enumerate(shape))
        yield Call(op, (Place("int64" if is_arg else dtype, out),), (Place(dtype, shape),), {"dims": dims}, (given,))


def _scans(op: str, dtype: str, few: bool) -> Iterator[Call]:
    for shape, dim in SCANNED[2:4] if few else SCANNED:
        yield Call(op, (Place(dtype, shape),), (Place(dtype, shape),), {"dim": dim}, (draw(op, dtype, shape),))


def _products(op: str, dtype: str, few: bool) -> Iterator[Call]:
    for batch, m, k, n in PRODUCTS[1:3] if few else PRODUCTS:
        a, b = (*batch, m, k), (*batch, k, n)
        values = draw(op, dtype, a), draw(op, dtype, b, 1)
        yield Call(op, (Place(dtype, (*batch, m, n)),), (Place(dtype, a), Place(dtype, b)), {}, values)


def _gathers(op: str, dtype: str, few: bool) -> Iterator[Call]:
    for shape, index, dim in _INDEXED[:2] if few else _INDEXED:
        values = draw(op, dtype, shape), pointers(shape, index, dim)
        yield Call(op, (Place(dtype, index),), (Place(dtype, shape), Place("int64", index)), {"dim": dim}, values)


def _scatters(op: str, dtype: str, few: bool) -> Iterator[Call]:
    for shape, index, dim in _INDEXED[:2] if few else _INDEXED:
        where = pointers(shape, index, dim, distinct=op == "scatter")
        values = draw(op, dtype, shape), where, draw(op, dtype, index, 1)
        inputs = Place("int64", index), Place(dtype, index)
        yield Call(op, (Place(dtype, shape),), inputs, {"dim": dim}, values)


_INDEXED = (  # a tensor's shape, the index's, the dim
    ((6, 5), (4, 5), 0), ((3, 7), (2, 5), 1), ((), (), 0), ((5,), (3,), 0), ((4, 3, 6), (3, 2, 4), 2),
    ((1030,), (1000,), 0),
)  # fmt: skip


def pointers(shape: tuple[int, ...], index: tuple[int, ...], dim: int, distinct: bool = False) -> Array:
    """Indices into `dim`, some of them negative; no two the same along it where they must not be."""
    size = shape[dim] if shape else 1
    rng = np.random.default_rng(crc32(f"{shape} {index} {dim}".encode()))
    if distinct and index:
        order = np.argsort(rng.random((*index[:dim], size, *index[dim + 1 :])), axis=dim)
        values = np.take(order, np.arange(index[dim]), axis=dim)
    else:
        values = np.asarray(rng.integers(0, size, index))
    return np.where(rng.random(index) < 0.3, values - size, values)


def _sorts(op: str, dtype: str, few: bool) -> Iterator[Call]:
    for shape, dim in SCANNED[2:4] if few else SCANNED:
        for descending in (False, True):
            outputs = Place(dtype, shape), Place("int64", shape)
            attrs = {"dim": dim, "descending": descending}
            yield Call(op, outputs, (Place(dtype, shape),), attrs, (draw(op, dtype, shape),))


def _ranges(op: str, dtype: str, few: bool) -> Iterator[Call]:
    whole = as_dtype(dtype).category == INTEGER
    for n, start, step in ((1, 3, 1), (7, 2, 3), (90, 0, 1)):
        numbers = (Number(dtype, start if whole else start + 0.5), Number(dtype, step if whole else step * 0.25))
        yield Call(op, (Place(dtype, (n,)),), numbers, {}, tuple(number.value for number in numbers))


def _randoms(op: str, dtype: str, few: bool) -> Iterator[Call]:
    for kind in ("bits", "bits64") if dtype == "int64" else ("uniform", "normal"):
        for shape, seed, offset in (((1,), 0, 0), ((3, 7), 7, 1), ((1030,), 2**64 - 1, 2**40 + 3)):
            numbers = Number("int64", seed), Number("int64", offset)
            yield Call(op, (Place(dtype, shape),), numbers, {"kind": kind}, (seed, offset))


_MAKERS = {
    "fill": _fills, "where": _choices, "cumsum": _scans, "matmul": _products, "gather": _gathers, "scatter": _scatters,
    "scatter_add": _scatters, "sort": _sorts, "arange": _ranges, "random": _randoms,
}  # fmt: skip
