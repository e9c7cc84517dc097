"""StrictBackend: the NumPy reference behind a wall. It refuses whatever the contract does not promise.

Its memory is out of the host's sight, new memory and outputs are poisoned, operands are checked against the contract's
table, and what a kernel may not write is compared afterwards. Core that works on it asks nothing of a backend that is
not in the contract.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
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
from ..spec import contiguous_strides, may_overlap, span
from .null import ensure_registered

POISON = 0x55

_NUMBERS = frozenset({"neg", "abs", "floor", "ceil", "round", "trunc", "sub", "floor_divide", "remainder", "pow"})
_BITS = frozenset({"bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"})
_INTS = frozenset({"bitwise_left_shift", "bitwise_right_shift"})
_ALL_DTYPES = frozenset({"sign", "add", "mul", "maximum", "minimum"})


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
    for requirements in (_operands_are_well_formed, _outputs_do_not_overlap, _op_is_promised):
        for holds, what in requirements(op, operands, attrs, outputs):
            if not holds:
                raise BackendError(f"strict: {_described(op, operands)}, {dict(attrs)}: {what}")


Requirements = Iterator[tuple[bool, str]]
"""Whether each requirement holds, and what is wrong where it does not; none is asked for after one that does not."""


def _operands_are_well_formed(op: str, operands: Any, attrs: Any, outputs: int) -> Requirements:
    for o in operands:
        yield isinstance(o, Operand) and isinstance(o.dtype, DType), "an operand is not an Operand"
        yield isinstance(o.shape, tuple) and isinstance(o.strides, tuple), "shape and strides must be tuples"
        yield len(o.shape) == len(o.strides), "shape and strides differ in length"
        yield all(type(n) is int and n >= 0 for n in (*o.shape, *o.strides)), "a size or stride is < 0"


def _outputs_do_not_overlap(op: str, operands: Any, attrs: Any, outputs: int) -> Requirements:
    for o in operands[:outputs]:
        yield not o.is_scalar, "an output is a scalar"
        yield not may_overlap(o.shape, o.strides), "an output overlaps itself"


def _op_is_promised(op: str, operands: Any, attrs: Any, outputs: int) -> Requirements:
    rule = _elementwise if op in ELEMENTWISE else _reduction if op in REDUCTION else _OTHER[op]
    named = inspect.signature(rule).parameters.values()
    yield set(attrs) == {p.name for p in named if p.kind is p.KEYWORD_ONLY}, "the attributes are others"
    if rule in (_elementwise, _reduction):
        operands = op, *operands
    elif len(operands) != sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in named):
        yield False, "the operands are fewer or more"
    yield from rule(*operands, **attrs)


def _elementwise(op: str, out: Operand, *inputs: Operand) -> Requirements:
    count = 3 if op == "where" else 2 if op in BINARY or op in COMPARISON else 1
    yield len(inputs) == count, f"{len(inputs)} inputs, not {count}"
    yield all(o.is_scalar or o.shape == out.shape for o in inputs), "shapes differ"
    if op == "copy":
        yield not inputs[0].is_scalar, "copy takes a tensor"
        return
    if op in COMPARISON:
        yield out.dtype is bool_, "a comparison gives bool"
        yield inputs[0].dtype is inputs[1].dtype, "dtypes differ"
        return
    if op == "where":
        yield inputs[0].dtype is bool_, "the condition must be bool"
        inputs = inputs[1:]
    if op == "fill":
        yield inputs[0].is_scalar, "fill takes a scalar"
    yield all(o.dtype is out.dtype for o in inputs), "dtypes differ"
    if op in UNARY or op in BINARY:
        category = out.dtype.category
        if op in _NUMBERS:
            taken = category != BOOL
        elif op in _BITS or op in _INTS:
            taken = category == INTEGER or (category == BOOL and op in _BITS)
        else:
            taken = category == FLOATING or op in _ALL_DTYPES
        yield taken, "the contract does not promise that the op takes this dtype"


def _reduction(op: str, out: Operand, x: Operand, *, dims: Any) -> Requirements:
    yield type(dims) is tuple and list(dims) == sorted(set(dims)), "dims must be an ascending tuple"
    yield all(0 <= d < len(x.shape) for d in dims), "a dim is out of range"
    yield out.shape == tuple(1 if d in dims else n for d, n in enumerate(x.shape)), "out's shape is wrong"
    if op in ("argmax", "argmin"):
        yield len(dims) == 1 and out.dtype is int64, "argmax and argmin have one dim and give int64"
    elif op in ("any", "all"):
        yield out.dtype is bool_ and x.dtype is bool_, "any and all are of bool"
    else:
        yield out.dtype is x.dtype, "dtypes differ"
    if op not in ("sum", "prod", "any", "all"):
        yield all(x.shape[d] for d in dims), "there is nothing to choose from"


def _dim_in_range(dim: Any, x: Operand) -> tuple[bool, str]:
    return type(dim) is int and 0 <= dim < max(len(x.shape), 1), "dim is out of range"


def _fits(index: Operand, x: Operand, dim: int) -> bool:
    """Whether `index` has the dims of `x`, and in all but `dim` no more places."""
    pairs = enumerate(zip(index.shape, x.shape))
    return len(index.shape) == len(x.shape) and all(m <= n for d, (m, n) in pairs if d != dim)


def _cumsum(out: Operand, x: Operand, *, dim: Any) -> Requirements:
    yield _dim_in_range(dim, x)
    yield out.shape == x.shape and out.dtype is x.dtype, "shapes or dtypes differ"


def _matmul(out: Operand, a: Operand, b: Operand) -> Requirements:
    yield out.dtype is a.dtype is b.dtype and out.dtype.category != BOOL, "one dtype, not bool"
    yield min(len(o.shape) for o in (out, a, b)) >= 2, "each operand has rows and columns"
    batch, m, n, k = out.shape[:-2], *out.shape[-2:], a.shape[-1]
    yield a.shape == (*batch, m, k) and b.shape == (*batch, k, n), "shapes do not fit"


def _gather(out: Operand, x: Operand, index: Operand, *, dim: Any) -> Requirements:
    yield _dim_in_range(dim, x)
    yield index.dtype is int64 and out.dtype is x.dtype, "index is int64, out of x's dtype"
    yield out.shape == index.shape and _fits(index, x, dim), "shapes do not fit"


def _scatter(out: Operand, index: Operand, src: Operand, *, dim: Any) -> Requirements:
    yield _dim_in_range(dim, out)
    yield index.dtype is int64 and out.dtype is src.dtype, "index is int64, src of out's dtype"
    yield src.shape == index.shape and _fits(index, out, dim), "shapes do not fit"


def _sort(values: Operand, indices: Operand, x: Operand, *, dim: Any, descending: Any) -> Requirements:
    yield _dim_in_range(dim, x)
    yield type(descending) is bool, "descending is a bool"
    yield values.shape == indices.shape == x.shape, "shapes differ"
    yield values.dtype is x.dtype and indices.dtype is int64, "values have x's dtype, indices are int64"


def _arange(out: Operand, start: Operand, step: Operand) -> Requirements:
    yield len(out.shape) == 1, "out has one dim"
    yield start.is_scalar and step.is_scalar, "start and step are scalars"
    yield start.dtype is out.dtype and step.dtype is out.dtype, "dtypes differ"
    yield out.dtype.category != BOOL, "bool cannot count"


def _random(out: Operand, seed: Operand, offset: Operand, *, kind: Any) -> Requirements:
    kinds = {"uniform": FLOATING, "normal": FLOATING, "bits": INTEGER, "bits64": INTEGER}
    yield kinds.get(kind) == out.dtype.category, "the kind is not one of this dtype"
    yield out.dtype.is_floating_point or out.dtype is int64, "bits are int64"
    yield seed.is_scalar and offset.is_scalar, "seed and offset are scalars"


_OTHER: dict[str, Callable[..., Requirements]] = {
    "cumsum": _cumsum, "matmul": _matmul, "gather": _gather, "scatter": _scatter, "scatter_add": _scatter,
    "sort": _sort, "arange": _arange, "random": _random,
}  # fmt: skip


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


def _places(operand: Operand, offset: int) -> slice | np.ndarray[Any, Any]:
    """The elements of a buffer that an operand covers, as flat places."""
    if operand.strides == contiguous_strides(operand.shape):
        return slice(offset, offset + math.prod(operand.shape))
    at = np.full(operand.shape, offset, np.int64)
    for d, (n, s) in enumerate(zip(operand.shape, operand.strides, strict=True)):
        at += (np.arange(n) * s).reshape((n,) + (1,) * (len(operand.shape) - 1 - d))
    return at.reshape(-1)


def _byte_mask(buffer: StrictBuffer, operand: Operand, offset: int) -> np.ndarray[Any, Any]:
    mask = np.zeros(buffer.nbytes, bool)
    size = operand.dtype.itemsize
    mask[: buffer.nbytes // size * size].reshape(-1, size)[_places(operand, offset)] = True
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
