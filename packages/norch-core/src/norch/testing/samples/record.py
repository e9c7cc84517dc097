"""What a sample record is: an op, arguments to call it with, and a NumPy oracle that says what should come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from ... import ops
from ...dtype import BOOL, DTYPES, FLOATING, INTEGER, DType, float64, get_default_dtype, int64
from ...dtype import bool_ as bool_dtype
from ...ops.registry import IN_PLACE, METHODS
from ...tensor import Tensor

Array: TypeAlias = Any
"""An ndarray. NumPy's stubs say Any of most of what oracles compute with one."""

LAYOUTS = ("plain", "transposed", "offset", "stepped", "expanded")
"""How an operand may lie in memory; "expanded" repeats its first slice with stride 0, so it changes the values."""

TAKES: dict[str, tuple[int, ...]] = {
    "any": (BOOL, INTEGER, FLOATING),
    "number": (INTEGER, FLOATING),
    "float": (FLOATING,),
    "bits": (BOOL, INTEGER),
    "ints": (INTEGER,),
}
"""The categories of dtype that an op takes, by the word a record uses for them."""

TOLERANCES = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Relative and absolute error allowed at magnitudes about 1; a record's `loose` multiplies it."""


class Operand(NamedTuple):
    """A tensor argument to be made: its shape, and the range and kind of its values.

    dtype: None for the dtype under test. values: the exact values, where they matter. nonzero: whole numbers without 0.
    """

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: DType | None = None
    values: Any = None
    nonzero: bool = False

    def array(self, dtype: DType, seed: int) -> Array:
        """The values, as `dtype`: no two floats the same nor close to 0, so that no derivative jumps near them."""
        chosen = self.dtype or dtype
        if self.values is not None:
            return np.asarray(self.values).astype(chosen.numpy).reshape(self.shape)
        return _draw(self, chosen, seed).copy()


@cache  # the same for many ops, dtypes and layouts, and slow to make
def _draw(operand: Operand, chosen: DType, seed: int) -> Array:
    draw, shape = np.random.default_rng(seed), operand.shape
    n = prod(shape)
    if chosen.category == BOOL:
        return (draw.permutation(n) % 3 > 0).reshape(shape)
    if chosen.category == INTEGER:
        low = max(int(np.ceil(operand.low)), 0 if not chosen.is_signed else -100)
        whole = draw.integers(low, max(int(np.floor(operand.high)), low) + 1, shape)
        return np.asarray(np.where((whole == 0) & operand.nonzero, 1, whole)).astype(chosen.numpy)
    phase = (0.37, 0.61, 0.13, 0.83)[seed % 4]
    values = operand.low + (operand.high - operand.low) * (draw.permutation(n) + phase) / max(n, 1)
    values = np.where(np.abs(values) < 0.05, values + 0.11, values) if operand.low < 0 else values
    return values.astype(chosen.numpy).reshape(shape)


def x(*shape: int, low: float = -2.0, high: float = 2.0, nonzero: bool = False) -> Operand:
    """An operand of the dtype under test."""
    return Operand(shape, low, high, nonzero=nonzero)


def exactly(values: Any, dtype: DType | None = None) -> Operand:
    """An operand of these values, in the dtype under test unless given."""
    return Operand(np.shape(values), dtype=dtype, values=values)


def index(values: Any, dtype: DType = int64) -> Operand:
    """An integer operand of these values."""
    return exactly(values, dtype)


def mask(*shape: int) -> Operand:
    """A bool operand."""
    return Operand(shape, dtype=bool_dtype)


class Case(NamedTuple):
    """Arguments of one call; operands are made into tensors, all else is passed as it is."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def operands(self) -> Iterator[Operand]:
        yield from _leaves((self.args, self.kwargs))

    def has_elements(self) -> bool:
        return all(prod(o.shape) for o in self.operands())


def case(*args: Any, **kwargs: Any) -> Case:
    return Case(args, kwargs)


def _leaves(value: Any) -> Iterator[Operand]:
    if isinstance(value, Operand):
        yield value
    elif isinstance(value, dict):
        yield from _leaves(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _leaves(part)


def replace(value: Any, make: Callable[[Operand], Any]) -> Any:
    """`value`, nested lists and dicts included, with each operand replaced by what `make` gives for it."""
    if isinstance(value, Operand):
        return make(value)
    if isinstance(value, dict):
        return {k: replace(v, make) for k, v in value.items()}
    if type(value) in (tuple, list):
        return type(value)(replace(v, make) for v in value)
    return value


@dataclass(frozen=True)
class Sample:
    """One op.

    name: of the function in norch, or of the method where there is no function.
    oracle: the same on float64, int64 and bool arrays, in NumPy; the arguments are the op's own.
    cases: what to call both with.
    takes: a key of TAKES: what dtypes the op takes; it refuses all others with DTypeError.
    gives: the dtype that comes out, or one for each result: "same", "bool", "int64", "float" (integers give the default
        dtype), "sum" (bools and integers give int64), "float64", or "python" for results that are not tensors.
    strict: whether it refuses every other dtype.
    grad: whether it is differentiable in its floating operands.
    promotes: whether operands of several dtypes promote, and broadcast.
    scalars: whether a Python scalar may stand for an operand, where it promotes.
    method: without effect: the op's entry says. Records of plug-ins for contract 1.1 may give it.
    operator: the Python operator, such as "__add__", if there is one.
    loose: a factor on the tolerances.
    special: whether NaN, infinities and signed zeros must come out as the oracle's.
    call: what to call, where it is neither function nor method of that name.
    view: whether the result shares its operand's memory.
    layouts: whether the op does the same in any layout; False where strides are what it is about.
    """

    name: str
    oracle: Callable[..., Any]
    cases: tuple[Case, ...]
    takes: str = "any"
    gives: str | tuple[str, ...] = "same"
    strict: bool = True
    grad: bool = True
    promotes: bool = False
    scalars: bool = True
    method: str | None = None
    operator: str | None = None
    loose: float = 1.0
    special: bool = False
    call: Callable[..., Any] | None = field(default=None, repr=False)
    view: bool = False
    layouts: bool = True

    @property
    def function(self) -> Callable[..., Any]:
        found: Any = self.call or getattr(ops, self.name, None) or getattr(Tensor, self.name)
        return found  # type: ignore[no-any-return]

    @property
    def _of_method(self) -> Any:
        return getattr(self.function, "of_method", self.function)

    @property
    def method_name(self) -> str | None:
        """The method that the op's entry registered, if there is one."""
        return self.name if METHODS.get(self.name) is self._of_method else None

    @property
    def inplace(self) -> str | None:
        """The in-place method that the op's entry registered, if its result may have the operand's dtype."""
        name = f"{self.name}_"
        written = name in METHODS and not self.view and self.call is None  # as index_put_ is
        registered = written or IN_PLACE.get(name) is self._of_method
        return name if registered and self.gives != "float64" else None

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(d for d in DTYPES if d.category in TAKES[self.takes])

    @property
    def refused(self) -> tuple[DType, ...]:
        return tuple(d for d in DTYPES if self.strict and d.category not in TAKES[self.takes])

    @property
    def differentiable(self) -> bool:
        return self.grad and FLOATING in TAKES[self.takes] and self.gives != "python"

    def result_dtypes(self, dtype: DType) -> tuple[DType, ...]:
        """The dtypes that should come out for operands of `dtype`; the last one goes for all further results."""
        rules = self.gives if isinstance(self.gives, tuple) else (self.gives,)
        return tuple(_given(rule, dtype) for rule in rules)

    def seed(self, position: int) -> int:
        """A fixed seed for the values of the operand at `position`."""
        return crc32(self.name.encode()) // 4 * 4 + position


def _given(rule: str, dtype: DType) -> DType:
    if rule == "bool":
        return bool_dtype
    if rule == "int64" or (rule == "sum" and not dtype.is_floating_point):
        return int64
    if rule == "float64":
        return float64
    if rule == "float" and not dtype.is_floating_point:
        return get_default_dtype()
    return dtype


class Built(NamedTuple):
    """A case made real: the op's arguments as tensors, and the oracle's as arrays."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arrays: tuple[Any, ...]
    array_kwargs: dict[str, Any]
    tensors: list[Tensor]
    """The tensors of the dtype under test, in order."""


def build(
    sample: Sample,
    case: Case,
    dtype: DType,
    device: Any = "cpu",
    layout: str = "plain",
    requires_grad: bool = False,
) -> Built:
    """Makes the operands of a case on `device`, lying in memory as `layout` says."""
    count = 0
    floats = sample.gives == "float"  # integers are computed as floats, and so must the oracle's be
    arrays: list[Array] = []
    tensors: list[Tensor] = []
    tested: list[Tensor] = []

    def make(operand: Operand) -> int:
        nonlocal count
        values = operand.array(dtype, sample.seed(count))
        chosen = layout if operand.dtype is None or layout != "expanded" else "plain"
        if chosen == "expanded" and values.ndim and values.shape[0]:
            values = np.broadcast_to(values[:1], values.shape)
        tensor = place(values, device, chosen)
        if operand.dtype is None:
            tested.append(tensor.requires_grad_() if requires_grad else tensor)
        arrays.append(upcast(values).astype(np.float64) if floats and operand.dtype is None else upcast(values))
        tensors.append(tensor)
        count += 1
        return count - 1

    places = replace((case.args, case.kwargs), lambda o: _Place(make(o)))
    args, kwargs = _fill(places, tensors)
    array_args, array_kwargs = _fill(places, arrays)
    return Built(args, kwargs, array_args, array_kwargs, tested)


class _Place(int):
    """The position of an operand among those of a case."""


def _fill(value: Any, found: list[Any]) -> Any:
    if type(value) is _Place:
        return found[value]
    if isinstance(value, dict):
        return {k: _fill(v, found) for k, v in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_fill(v, found) for v in value)
    return value


def upcast(values: Array) -> Array:
    """The same values as float64, int64 or bool: what oracles compute in."""
    if values.dtype == np.bool_:
        return np.asarray(values)
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)


def place(values: Array, device: Any, layout: str) -> Tensor:
    """A tensor of `values` on `device`, detached, that lies in memory as `layout` says."""
    ndim = values.ndim
    if layout == "plain":
        return _tensor(values, device)
    if layout == "transposed":
        return _tensor(values.T, device).permute(tuple(range(ndim))[::-1]).detach()
    if layout == "expanded":
        if not ndim or not values.shape[0]:
            return _tensor(values, device)
        return _tensor(values[:1], device).expand(tuple(values.shape)).detach()
    if not ndim:
        return _tensor(np.stack([np.ones_like(values), values, np.ones_like(values)]), device)[1].detach()
    if layout == "offset":
        edge = np.ones((1, *values.shape[1:]), values.dtype)
        return _tensor(np.concatenate([edge, values, edge]), device)[1:-1].detach()
    spread = np.ones((*values.shape[:-1], 2 * values.shape[-1] + 1), values.dtype)
    spread[..., 1::2] = values
    return _tensor(spread, device)[..., 1::2].detach()


def _tensor(values: Array, device: Any) -> Tensor:
    return ops.tensor(np.array(values, order="C"), device=device)


def flat(result: Any) -> list[Any]:
    """A result, or several, as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def samples(*records: Sample | Iterable[Sample]) -> tuple[Sample, ...]:
    """Records, and series of them, as one tuple."""
    return tuple(s for r in records for s in ([r] if isinstance(r, Sample) else r))
