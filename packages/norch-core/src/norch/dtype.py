"""Element types and type promotion.

Promotion follows PyTorch: operands fall into three priorities (tensors with dims, 0-d tensors, Python scalars), and a
lower priority only matters where its category (bool < integer < floating) is higher.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np

from . import settings, shown
from .errors import DTypeError

BOOL, INTEGER, FLOATING = 0, 1, 2


class DType:
    """An element type, such as `norch.float32`. There is one object for each; compare with `is` or `==`.

    Attributes: `name`, `itemsize` (bytes), `category` (0 bool, 1 integer, 2 floating), `rank` (the order of promotion
    within the category), `is_signed`, `is_stored` (for keeping numbers: they are moved and cast, not computed in).
    """

    __slots__ = ("_numpy", "category", "is_signed", "is_stored", "itemsize", "name", "rank")

    def __init__(self, name: str, itemsize: int, category: int, rank: int, is_stored: bool = False) -> None:
        self.name = name
        self.itemsize = itemsize
        self.category = category
        self.rank = rank
        self.is_signed = category != BOOL and not name.startswith("uint")
        self.is_stored = is_stored
        self._numpy: np.dtype[Any] | None = None

    @property
    def is_floating_point(self) -> bool:
        """Whether its category is 2, floating."""
        return self.category == FLOATING

    @property
    def is_complex(self) -> bool:
        """False: norch has no complex dtypes."""
        return False

    @property
    def is_foreign(self) -> bool:
        """Whether NumPy itself has no such dtype."""
        return self is bfloat16 or (self.is_stored and self.category == FLOATING)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16's and those of 8 bits come from ml_dtypes, loaded when it is first needed."""
        if self._numpy is None:
            if self.is_foreign:
                import ml_dtypes

                self._numpy = np.dtype(getattr(ml_dtypes, self.name))
            else:
                self._numpy = np.dtype(self.name)
        return self._numpy

    def __repr__(self) -> str:
        return f"{shown.root}.{self.name}"

    def __reduce__(self) -> str:
        # Pickled and copied by reference, as the name in this module: dtypes are singletons.
        return "bool_" if self.name == "bool" else self.name


class ComplexDType:
    """A name for the dtype of complex numbers, to be compared with: a `ComplexPair` has one, no tensor does.

    Attributes: `name`, `itemsize` (bytes of both parts), `is_complex` (True), `is_floating_point` (False), `parts` (the
    DType of each part).
    """

    __slots__ = ("itemsize", "name", "parts")
    is_complex, is_floating_point, is_signed = True, False, True

    def __init__(self, name: str, parts: DType) -> None:
        self.name, self.itemsize, self.parts = name, 2 * parts.itemsize, parts

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """To programs it is a dtype, as PyTorch's is."""
        asking = sys._getframe(1).f_globals.get("__name__", "")
        return ComplexDType if asking.partition(".")[0] == __name__.partition(".")[0] else DType

    def __repr__(self) -> str:
        return f"{shown.root}.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    @staticmethod
    def _norch_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function gives that was asked for complex numbers: a `ComplexPair`, of those that make tensors."""
        return import_module("norch.compat.complex_creation").created(name, args, kwargs)


bool_ = DType("bool", 1, BOOL, 0)
uint8 = DType("uint8", 1, INTEGER, 1)
int8 = DType("int8", 1, INTEGER, 1)
int16 = DType("int16", 2, INTEGER, 2)
int32 = DType("int32", 4, INTEGER, 3)
int64 = DType("int64", 8, INTEGER, 4)
float16 = DType("float16", 2, FLOATING, 1)
bfloat16 = DType("bfloat16", 2, FLOATING, 1)
float32 = DType("float32", 4, FLOATING, 2)
float64 = DType("float64", 8, FLOATING, 3)

uint16 = DType("uint16", 2, INTEGER, 2, True)
uint32 = DType("uint32", 4, INTEGER, 3, True)
uint64 = DType("uint64", 8, INTEGER, 4, True)
float8_e4m3fn = DType("float8_e4m3fn", 1, FLOATING, 0, True)
float8_e5m2 = DType("float8_e5m2", 1, FLOATING, 0, True)
float8_e4m3fnuz = DType("float8_e4m3fnuz", 1, FLOATING, 0, True)
float8_e5m2fnuz = DType("float8_e5m2fnuz", 1, FLOATING, 0, True)

complex32, complex64, complex128 = chalf, cfloat, cdouble = (
    ComplexDType("complex32", float16), ComplexDType("complex64", float32), ComplexDType("complex128", float64),
)  # fmt: skip

DTYPES = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)
STORED = (uint16, uint32, uint64, float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz)
"""Dtypes that numbers are kept in and not computed in."""
ALL = (*DTYPES, *STORED)
_BY_NAME = {d.name: d for d in ALL}
_BY_NUMPY = {np.dtype(d.name): d for d in _BY_NAME.values() if not d.is_foreign}
_PYTHON = {bool: bool_, int: int64}
_TYPES = {**_PYTHON, float: float64}
"""Python's types as dtypes: unlike a Python number, which is of the default dtype, `float` is float64, as in NumPy."""
_default = float32


def get_default_dtype() -> DType:
    """The dtype of floating-point results that nothing else decides: float32 unless set."""
    return _default


def set_default_dtype(dtype: DType) -> None:
    """Sets `get_default_dtype()`. Raises DTypeError unless `dtype` is floating."""
    global _default
    if not isinstance(dtype, DType) or not dtype.is_floating_point or dtype.is_stored:
        raise DTypeError(f"set_default_dtype(): expected a floating dtype that ops compute in, got {dtype!r}")
    if dtype is not _default:
        _default = dtype
        settings.changed()  # plans that mixed integers with a Python float chose the old default


def as_dtype(value: object, op: str = "dtype") -> DType:
    """The DType that `value` names: a DType, a Python type (float, int, bool), a NumPy dtype or its name."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _TYPES:
        return _TYPES[value]
    if isinstance(value, np.dtype) and value in _BY_NUMPY:
        return _BY_NUMPY[value]
    if isinstance(getattr(value, "dtype", None), DType):  # an old tensor type, such as FloatTensor
        return value.dtype  # type: ignore[attr-defined, no-any-return]
    try:
        name = value if isinstance(value, str) else np.dtype(value).name  # type: ignore[call-overload]
    except TypeError:
        name = None
    found = _BY_NAME.get(str(name).removeprefix("norch.").removeprefix("torch."))
    if isinstance(value, ComplexDType):
        raise DTypeError(f"{op}(): no tensor is complex, got {value!r}; view_as_complex() of (..., 2) is")
    if found is None:
        raise DTypeError(f"{op}(): norch has no dtype for {value!r}; it has {', '.join(_BY_NAME)}")
    return found


def scalar_dtype(kind: type) -> DType:
    """The dtype that a Python scalar of type `kind` has on its own."""
    return _PYTHON.get(kind) or (int64 if issubclass(kind, int) else _default)


def promote_types(a: DType, b: DType) -> DType:
    """The smallest dtype that both, `a` and `b`, can be converted to, by PyTorch's table. Raises DTypeError where one
    is only stored and there is none.
    """
    if a is b:
        return a
    if a.is_stored or b.is_stored:
        return _promote_stored(a, b)
    if a.category != b.category:
        return a if a.category > b.category else b
    if a.category == INTEGER and a.is_signed != b.is_signed:
        signed = a if a.is_signed else b
        return signed if signed.itemsize > 1 else int16
    if a.rank == b.rank:  # float16 with bfloat16
        return float32
    return a if a.rank > b.rank else b


def _promote_stored(a: DType, b: DType) -> DType:
    """As PyTorch: an unsigned integer gives way to a floating dtype; nothing else is promoted."""
    for stored, other in ((a, b), (b, a)):
        if stored.category == INTEGER and other.category == FLOATING and not other.is_stored:
            return other
    raise DTypeError(f"promote_types(): {a} and {b} have no common dtype; convert one, such as by x.to(norch.float32)")


def result_dtype(tensors: Iterable[tuple[DType, int]], scalars: Iterable[type] = ()) -> DType:
    """The common dtype of operands: `tensors` as (dtype, ndim), `scalars` as the Python types bool, int or float.

    Raises DTypeError if there are no operands.
    """
    levels: list[DType | None] = [None, None, None]
    for dtype, ndim in tensors:
        at = 0 if ndim else 1
        seen = levels[at]
        levels[at] = dtype if seen is None else promote_types(seen, dtype)
    for kind in scalars:
        scalar = scalar_dtype(kind)
        seen = levels[2]
        levels[2] = scalar if seen is None else promote_types(seen, scalar)
    result: DType | None = None
    for level in levels:
        if level is not None and (result is None or level.category > result.category):
            result = level
    if result is None:
        raise DTypeError("result_type(): no operands")
    return result


def can_cast(source: DType, target: DType) -> bool:
    """Whether an in-place op may store a `source` result in a `target` tensor: never in one of a lower category."""
    return source.category <= target.category


def _as_limits_say(dtype: DType) -> Any:
    return dtype.name if shown.root == "torch" else dtype


class finfo:
    """Limits of a floating dtype: `bits`, `eps`, `max`, `min`, `tiny`, `smallest_normal`, `resolution`. `dtype` is that
    dtype; in the place of PyTorch its name, as there.

    Of a complex dtype those of its parts. Raises DTypeError for other dtypes.
    """

    def __init__(self, dtype: DType | ComplexDType | None = None) -> None:
        parts = dtype.parts if isinstance(dtype, ComplexDType) else dtype
        dtype = _default if parts is None else as_dtype(parts, "finfo")
        self.dtype: Any = _as_limits_say(dtype)
        if not dtype.is_floating_point:
            raise DTypeError(f"finfo(): expected a floating dtype, got {dtype}; use iinfo")
        if dtype.is_foreign:
            import ml_dtypes

            info: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
        else:
            info = np.finfo(dtype.numpy)
        self.bits = int(info.bits)
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.tiny)
        self.resolution = 1.0 if dtype.is_stored else float(info.resolution)

    def __repr__(self) -> str:
        name = getattr(self.dtype, "name", self.dtype)
        return f"finfo(dtype={name}, eps={self.eps:g}, min={self.min:g}, max={self.max:g}, tiny={self.tiny:g})"


class iinfo:
    """Limits of an integer dtype: `bits`, `min`, `max`; `dtype` as of `finfo`. Raises DTypeError for other dtypes."""

    def __init__(self, dtype: DType) -> None:
        dtype = as_dtype(dtype, "iinfo")
        self.dtype: Any = _as_limits_say(dtype)
        if dtype.category != INTEGER:
            raise DTypeError(f"iinfo(): expected an integer dtype, got {dtype}")
        info = np.iinfo(dtype.numpy)
        self.bits, self.min, self.max = int(info.bits), int(info.min), int(info.max)

    def __repr__(self) -> str:
        return f"iinfo(dtype={getattr(self.dtype, 'name', self.dtype)}, min={self.min}, max={self.max})"


TENSOR_TYPES = {
    "HalfTensor": float16, "BFloat16Tensor": bfloat16, "FloatTensor": float32,
    "DoubleTensor": float64, "ByteTensor": uint8, "CharTensor": int8, "ShortTensor": int16,
    "IntTensor": int32, "LongTensor": int64, "BoolTensor": bool_,
}  # fmt: skip
"""PyTorch's old names of tensors of one dtype."""


def split_tensor_type(text: str, op: str) -> tuple[str, str]:
    """Name and device type of "torch.FloatTensor" or "torch.cuda.FloatTensor". Raises DTypeError for another name."""
    *place, name = text.removeprefix("norch.").removeprefix("torch.").split(".")
    if name not in TENSOR_TYPES or len(place) > 1:
        raise DTypeError(f"{op}(): there is no tensor type {text!r}")
    return name, place[0] if place else "cpu"
