"""StrictBackend: the NumPy reference behind a wall. It refuses whatever the contract does not promise.

Its memory is out of the host's sight, new memory and outputs are poisoned, operands are checked against the contract's
table, and what a kernel may not write is compared afterwards. Core that works on it asks nothing of a backend that is
not in the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..backend.contract import (
    BINARY,
    COMPARISON,
    ELEMENTWISE,
    IN_PLACE,
    PRIMITIVES,
    REDUCTION,
    TWO_OUTPUTS,
    UNARY,
    Backend,
    Kernel,
    Operand,
)
from ..device import Device
from ..dtype import BOOL, FLOATING, INTEGER, DType, bool_, iinfo, int64
from ..errors import BackendError
from ..numpy_backend.backend import HostBuffer, NumpyBackend
from ..spec import may_overlap, span
from .null import ensure_registered

POISON = 0x55

_ANY_DTYPE = frozenset({"sign"})
_NUMBERS = frozenset({"neg", "abs", "floor", "ceil", "round", "trunc", "sub", "floor_divide", "remainder", "pow"})
_BITS = frozenset({"bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"})
_INTS = frozenset({"bitwise_left_shift", "bitwise_right_shift"})
_ALL_DTYPES = frozenset({"add", "mul", "maximum", "minimum"})


class StrictBuffer:
    """Memory that only this backend's kernels and copies can reach."""

    __slots__ = ("__weakref__", "_host", "index", "modified", "nbytes")

    def __init__(self, nbytes: int, index: int) -> None:
        self.nbytes = nbytes
        self.index = index
        self.modified: tuple[int, str] | None = None
        self._host = HostBuffer(np.full(nbytes, POISON, np.uint8))


class StrictBackend(Backend):
    """Device type "strict". Raises BackendError where core, or a kernel, breaks the contract."""

    device_type = "strict"

    def __init__(self) -> None:
        self._numpy = NumpyBackend()

    def device_count(self) -> int:
        return 2

    def allocate(self, nbytes: int, index: int) -> StrictBuffer:
        if type(nbytes) is not int or nbytes < 0 or not 0 <= index < self.device_count():
            raise BackendError(f"strict: allocate({nbytes!r}, {index!r})")
        return StrictBuffer(nbytes, index)

    def copy_in(self, buffer: StrictBuffer, offset: int, data: memoryview) -> None:
        _check_range(buffer, offset, data.nbytes, "copy_in")
        _check_bytes(data, "copy_in")
        self._numpy.copy_in(buffer._host, offset, data)

    def copy_out(self, buffer: StrictBuffer, offset: int, data: memoryview) -> None:
        _check_range(buffer, offset, data.nbytes, "copy_out")
        _check_bytes(data, "copy_out")
        if data.readonly:
            raise BackendError("strict: copy_out into read-only memory")
        self._numpy.copy_out(buffer._host, offset, data)

    def copy(self, out: StrictBuffer, out_offset: int, source: StrictBuffer, source_offset: int, nbytes: int) -> None:
        _check_range(out, out_offset, nbytes, "copy")
        _check_range(source, source_offset, nbytes, "copy")
        self._numpy.copy(out._host, out_offset, source._host, source_offset, nbytes)

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        if op not in PRIMITIVES:
            return None
        outputs = 2 if op in TWO_OUTPUTS else 1
        check_operands(op, operands, attrs, outputs)
        kernel = self._numpy.compile(op, operands, attrs)
        if kernel is None:
            raise BackendError(f"strict: the reference has no kernel for {_described(op, operands)}")
        return _guarded(op, operands, outputs, kernel)


def strict_device() -> Device:
    """The device "strict", its backend registered if it was not."""
    return ensure_registered(StrictBackend)


# --- At compile time: the contract's table --------------------------------------------------------------------------


def _described(op: str, operands: tuple[Operand, ...]) -> str:
    shown = [f"{o.dtype.name}" + ("" if o.is_scalar else f"{list(o.shape)}/{list(o.strides)}") for o in operands]
    return f"{op}({', '.join(shown)})"


def check_operands(op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any], outputs: int = 1) -> None:
    """Raises BackendError unless the contract promises that a backend may be asked for this."""

    def require(condition: bool, what: str) -> None:
        if not condition:
            raise BackendError(f"strict: {_described(op, operands)}, {dict(attrs)}: {what}")

    for operand in operands:
        require(isinstance(operand, Operand) and isinstance(operand.dtype, DType), "an operand is not an Operand")
        require(
            isinstance(operand.shape, tuple) and isinstance(operand.strides, tuple), "shape and strides must be tuples"
        )
        require(len(operand.shape) == len(operand.strides), "shape and strides differ in length")
        require(all(type(n) is int and n >= 0 for n in (*operand.shape, *operand.strides)), "a size or stride is < 0")
    for operand in operands[:outputs]:
        require(not operand.is_scalar, "an output is a scalar")
        require(not may_overlap(operand.shape, operand.strides), "an output overlaps itself")
    if op in ELEMENTWISE:
        _check_elementwise(op, operands, require)
        require(not attrs, "elementwise ops have no attributes")
    elif op in REDUCTION:
        _check_reduction(op, operands, attrs, require)
    else:
        _OTHER[op](operands, attrs, require)


Require = Callable[[bool, str], None]


def _check_elementwise(op: str, operands: tuple[Operand, ...], require: Require) -> None:
    out, *inputs = operands
    count = 3 if op == "where" else 2 if op in BINARY or op in COMPARISON else 1
    require(len(inputs) == count, f"{len(inputs)} inputs, not {count}")
    require(all(o.is_scalar or o.shape == out.shape for o in inputs), "shapes differ")
    if op in ("copy", "fill"):
        require(inputs[0].is_scalar == (op == "fill"), "copy takes a tensor, fill a scalar")
        require(op == "copy" or inputs[0].dtype is out.dtype, "dtypes differ")
        return
    if op in COMPARISON:
        require(out.dtype is bool_, "a comparison gives bool")
        require(inputs[0].dtype is inputs[1].dtype, "dtypes differ")
        return
    if op == "where":
        require(inputs[0].dtype is bool_, "the condition must be bool")
        inputs = inputs[1:]
    require(all(o.dtype is out.dtype for o in inputs), "dtypes differ")
    if op in UNARY or op in BINARY:
        category = out.dtype.category
        if op in _NUMBERS:
            taken = category != BOOL
        elif op in _BITS or op in _INTS:
            taken = category == INTEGER or (category == BOOL and op in _BITS)
        else:
            taken = category == FLOATING or op in _ALL_DTYPES or op in _ANY_DTYPE
        require(taken, "the contract promises no such dtype")


def _check_reduction(op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any], require: Require) -> None:
    require(len(operands) == 2, "needs an output and an input")
    out, x = operands
    require(set(attrs) == {"dims"}, "the attribute is dims")
    dims, rank = attrs["dims"], len(x.shape)
    require(type(dims) is tuple and list(dims) == sorted(set(dims)), "dims must be an ascending tuple")
    require(all(0 <= d < rank for d in dims), "a dim is out of range")
    require(out.shape == tuple(1 if d in dims else n for d, n in enumerate(x.shape)), "out's shape is wrong")
    if op in ("argmax", "argmin"):
        require(len(dims) == 1 and out.dtype is int64, "argmax and argmin have one dim and give int64")
    elif op in ("any", "all"):
        require(out.dtype is bool_ and x.dtype is bool_, "any and all are of bool")
    else:
        require(out.dtype is x.dtype, "dtypes differ")
    if op not in ("sum", "prod", "any", "all"):
        require(all(x.shape[d] for d in dims), "there is nothing to choose from")


def _check_dim(attrs: Mapping[str, Any], x: Operand, names: set[str], require: Require) -> int:
    require(set(attrs) == names, f"the attributes are {', '.join(sorted(names))}")
    dim = attrs["dim"]
    require(type(dim) is int and 0 <= dim < max(len(x.shape), 1), "dim is out of range")
    return int(dim)


def _check_cumsum(operands: tuple[Operand, ...], attrs: Mapping[str, Any], require: Require) -> None:
    out, x = operands
    _check_dim(attrs, x, {"dim"}, require)
    require(out.shape == x.shape and out.dtype is x.dtype, "shapes or dtypes differ")


def _check_matmul(operands: tuple[Operand, ...], attrs: Mapping[str, Any], require: Require) -> None:
    out, a, b = operands
    require(not attrs, "matmul has no attributes")
    require(out.dtype is a.dtype is b.dtype and out.dtype.category != BOOL, "one dtype, not bool")
    require(min(len(o.shape) for o in operands) >= 2, "each operand has rows and columns")
    fits = (*out.shape[:-2], out.shape[-2], a.shape[-1]) == a.shape
    require(fits and (*out.shape[:-2], a.shape[-1], out.shape[-1]) == b.shape, "shapes do not fit")


def _check_gather(operands: tuple[Operand, ...], attrs: Mapping[str, Any], require: Require) -> None:
    out, x, index = operands
    dim = _check_dim(attrs, x, {"dim"}, require)
    require(index.dtype is int64 and out.dtype is x.dtype, "index is int64, out of x's dtype")
    require(out.shape == index.shape and len(x.shape) == len(index.shape), "shapes do not fit")
    require(all(m <= n for d, (m, n) in enumerate(zip(index.shape, x.shape, strict=True)) if d != dim), "x is smaller")


def _check_scatter(operands: tuple[Operand, ...], attrs: Mapping[str, Any], require: Require) -> None:
    out, index, src = operands
    dim = _check_dim(attrs, out, {"dim"}, require)
    require(index.dtype is int64 and out.dtype is src.dtype, "index is int64, src of out's dtype")
    require(src.shape == index.shape and len(out.shape) == len(index.shape), "shapes do not fit")
    sizes = zip(index.shape, out.shape, strict=True)
    require(all(m <= n for d, (m, n) in enumerate(sizes) if d != dim), "out is smaller")


def _check_sort(operands: tuple[Operand, ...], attrs: Mapping[str, Any], require: Require) -> None:
    values, indices, x = operands
    _check_dim(attrs, x, {"dim", "descending"}, require)
    require(type(attrs["descending"]) is bool, "descending is a bool")
    require(values.shape == indices.shape == x.shape, "shapes differ")
    require(values.dtype is x.dtype and indices.dtype is int64, "values have x's dtype, indices are int64")


def _check_arange(operands: tuple[Operand, ...], attrs: Mapping[str, Any], require: Require) -> None:
    out, start, step = operands
    require(not attrs and len(out.shape) == 1, "out has one dim")
    require(start.is_scalar and step.is_scalar, "start and step are scalars")
    require(start.dtype is out.dtype and step.dtype is out.dtype, "dtypes differ")
    require(out.dtype.category != BOOL, "bool cannot count")


def _check_random(operands: tuple[Operand, ...], attrs: Mapping[str, Any], require: Require) -> None:
    out, seed, offset = operands
    require(set(attrs) == {"kind"}, "the attribute is kind")
    kinds = {"uniform": FLOATING, "normal": FLOATING, "bits": INTEGER, "bits64": INTEGER}
    require(kinds.get(attrs["kind"]) == out.dtype.category, "no such kind for this dtype")
    require(out.dtype.is_floating_point or out.dtype is int64, "bits are int64")
    require(seed.is_scalar and offset.is_scalar, "seed and offset are scalars")


_OTHER: dict[str, Callable[[tuple[Operand, ...], Mapping[str, Any], Require], None]] = {
    "cumsum": _check_cumsum,
    "matmul": _check_matmul,
    "gather": _check_gather,
    "scatter": _check_scatter,
    "scatter_add": _check_scatter,
    "sort": _check_sort,
    "arange": _check_arange,
    "random": _check_random,
}


# --- At every call --------------------------------------------------------------------------------------------------


def _check_range(buffer: Any, offset: int, nbytes: int, what: str) -> None:
    if not isinstance(buffer, StrictBuffer):
        raise BackendError(f"strict: {what} was given {type(buffer).__name__}, no buffer of this backend")
    if type(offset) is not int or offset < 0 or offset + nbytes > buffer.nbytes:
        raise BackendError(f"strict: {what} of {nbytes} bytes at {offset!r} in a buffer of {buffer.nbytes}")


def _check_bytes(data: memoryview, what: str) -> None:
    if not isinstance(data, memoryview) or data.itemsize != 1 or data.ndim != 1 or not data.c_contiguous:
        raise BackendError(f"strict: {what} needs a flat memoryview of bytes")


def _check_scalar(op: str, dtype: DType, value: Any) -> None:
    kind = type(value)
    if op == "random":
        fits = kind is int and 0 <= value < 2**64
    elif dtype.category == BOOL:
        fits = kind is bool
    elif dtype.category == INTEGER:
        limits = iinfo(dtype)
        fits = kind is int and limits.min <= value <= limits.max
    else:
        fits = kind in (int, float)
    if not fits:
        raise BackendError(f"strict: {op} was given {value!r} of type {kind.__name__} for a scalar of {dtype}")


def _places(operand: Operand, offset: int) -> np.ndarray[Any, Any]:
    """The elements of a buffer that an operand covers, as flat places."""
    at = np.full(operand.shape, offset, np.int64)
    for d, (n, s) in enumerate(zip(operand.shape, operand.strides, strict=True)):
        at += (np.arange(n) * s).reshape((n,) + (1,) * (len(operand.shape) - 1 - d))
    return at.reshape(-1)


def _byte_mask(buffer: StrictBuffer, operand: Operand, offset: int) -> np.ndarray[Any, Any]:
    mask = np.zeros(buffer.nbytes, bool)
    size = operand.dtype.itemsize
    mask[(_places(operand, offset)[:, None] * size + np.arange(size)).reshape(-1)] = True
    return mask


def _guarded(op: str, operands: tuple[Operand, ...], outputs: int, kernel: Kernel) -> Kernel:
    """The kernel, with its arguments checked before and its memory afterwards."""

    def call(*args: Any) -> None:
        parts = _parted(op, operands, args)
        tensors = [(o, *p) for o, p in zip(operands, parts, strict=True) if not o.is_scalar]
        if len({buffer.index for _, buffer, _ in tensors}) > 1:
            raise BackendError(f"strict: {op}: the buffers are on different devices")
        writable: dict[int, tuple[StrictBuffer, np.ndarray[Any, Any]]] = {}
        for operand, buffer, offset in tensors[:outputs]:
            mask = _byte_mask(buffer, operand, offset)
            if id(buffer) in writable:
                if (writable[id(buffer)][1] & mask).any():
                    raise BackendError(f"strict: {op}: two outputs overlap")
                mask |= writable[id(buffer)][1]
            writable[id(buffer)] = buffer, mask
        _check_aliases(op, tensors, outputs, writable)
        before = {id(b): (b, b._host.data.copy()) for _, b, _ in tensors}
        # What an input shares with an output is read from a copy, so that the poison does not reach it.
        inputs = {
            id(b): HostBuffer(before[id(b)][1].copy()) if id(b) in writable and op not in IN_PLACE else b._host
            for _, b, _ in tensors[outputs:]
        }
        if op not in IN_PLACE:
            for operand, buffer, offset in tensors[:outputs]:
                _poison(operand, buffer, offset)
        flat: list[Any] = []
        for i, part in enumerate(parts):
            if operands[i].is_scalar:
                flat.append(part[0])
            else:
                flat += (part[0]._host if i < outputs else inputs[id(part[0])], part[1])
        kernel(*flat)
        for key, (buffer, old) in before.items():
            changed = buffer._host.data != old
            if key in writable:
                changed &= ~writable[key][1]
            if changed.any():
                raise BackendError(f"strict: kernel {op} wrote outside its output")

    return call


def _parted(op: str, operands: tuple[Operand, ...], args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Each operand's arguments: (buffer, offset) or (number,), checked."""
    given = list(args)
    parts: list[tuple[Any, ...]] = []
    for operand in operands:
        if operand.is_scalar:
            if not given:
                raise BackendError(f"strict: kernel {op} was called with too few arguments")
            value = given.pop(0)
            _check_scalar(op, operand.dtype, value)
            parts.append((value,))
            continue
        if len(given) < 2:
            raise BackendError(f"strict: kernel {op} was called with too few arguments")
        buffer, offset = given.pop(0), given.pop(0)
        size = operand.dtype.itemsize
        elements = span(operand.shape, operand.strides)
        _check_range(buffer, offset * size if elements else 0, elements * size, f"kernel {op}")
        parts.append((buffer, offset if elements else 0))
    if given:
        raise BackendError(f"strict: kernel {op} was called with too many arguments")
    return parts


def _check_aliases(op: str, tensors: list[Any], outputs: int, writable: dict[int, Any]) -> None:
    """An input may be exactly the output of an elementwise op; otherwise they must not share an element."""
    out, out_buffer, out_offset = tensors[0]
    for operand, buffer, offset in tensors[outputs:]:
        if id(buffer) not in writable:
            continue
        exact = buffer is out_buffer and offset == out_offset and operand[:3] == out[:3] and op in ELEMENTWISE
        if not exact and (writable[id(buffer)][1] & _byte_mask(buffer, operand, offset)).any():
            raise BackendError(f"strict: {op}: an input overlaps the output, {_described(op, (out, operand))}")


def _poison(operand: Operand, buffer: StrictBuffer, offset: int) -> None:
    """NaN, or bytes 0x55, in every element of an output."""
    elements = buffer._host.data[: buffer.nbytes // operand.dtype.itemsize * operand.dtype.itemsize]
    if operand.dtype.is_floating_point:
        elements.view(operand.dtype.numpy)[_places(operand, offset)] = np.nan
    else:
        mask = _byte_mask(buffer, operand, offset)
        buffer._host.data[mask] = POISON
