"""StrictBackend: the NumPy reference behind a wall. It refuses whatever the contract does not promise.

Its memory is out of the host's sight, new memory and outputs are poisoned, operands are checked against the contract's
table, and what a kernel may not write is compared afterwards. Core that works on it asks nothing of a backend that is
not in the contract.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, TypeAlias

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
        data = np.empty(nbytes, np.uint8)
        data.fill(POISON)
        self._host = HostBuffer(data)


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


@cache
def _taken_by(rule: Callable[..., Requirements]) -> tuple[int, set[str]]:
    """How many operands a rule has, and the names of the attributes."""
    named = inspect.signature(rule).parameters.values()
    return sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in named), {p.name for p in named if p.kind is p.KEYWORD_ONLY}


def _op_is_promised(op: str, operands: Any, attrs: Any, outputs: int) -> Requirements:
    rule = _elementwise if op in ELEMENTWISE else _reduction if op in REDUCTION else _OTHER[op]
    count, named = _taken_by(rule)
    yield set(attrs) == named, "the attributes are others"
    if rule in (_elementwise, _reduction):
        operands = op, *operands
    elif len(operands) != count:
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


class _Layout:
    """An operand, and what each call asks about where its elements lie."""

    def __init__(self, operand: Operand) -> None:
        self.operand, self.dtype, self.itemsize = operand, operand.dtype, operand.dtype.itemsize
        self.elements = span(operand.shape, operand.strides)
        self.dense = operand.strides == contiguous_strides(operand.shape)

    @cached_property
    def _places(self) -> np.ndarray[Any, Any]:
        shape = self.operand.shape
        at = np.zeros(shape, np.int64)
        for d, (n, s) in enumerate(zip(shape, self.operand.strides, strict=True)):
            at += (np.arange(n) * s).reshape((n,) + (1,) * (len(shape) - 1 - d))
        return at.reshape(-1)

    def at(self, offset: int) -> slice | np.ndarray[Any, Any]:
        """The elements of a buffer that it covers, as flat places."""
        return slice(offset, offset + self.elements) if self.dense else self._places + offset

    def is_all(self, buffer: StrictBuffer, offset: int) -> bool:
        """Whether it covers every byte of the buffer."""
        return self.dense and offset == 0 and 0 < self.elements * self.itemsize == buffer.nbytes


def _byte_mask(buffer: StrictBuffer, layout: _Layout, offset: int) -> Any:
    """Which bytes of a buffer an operand covers; True for all of them."""
    if layout.is_all(buffer, offset):
        return True
    mask = np.zeros(buffer.nbytes, bool)
    size = layout.itemsize
    mask[: buffer.nbytes // size * size].reshape(-1, size)[layout.at(offset)] = True
    return mask


Tensors: TypeAlias = list[tuple[_Layout, StrictBuffer, int]]


def _guarded(op: str, operands: tuple[Operand, ...], outputs: int, kernel: Kernel) -> Kernel:
    """The kernel, with its arguments checked before and its memory afterwards."""
    layouts = [o.dtype if o.is_scalar else _Layout(o) for o in operands]

    def call(*args: Any) -> None:
        tensors = _parted(op, layouts, args)
        if len({buffer.index for _, buffer, _ in tensors}) > 1:
            raise BackendError(f"strict: {op}: the buffers are on different devices")
        writable: dict[int, Any] = {}
        for layout, buffer, offset in tensors[:outputs]:
            mask, others = _byte_mask(buffer, layout, offset), writable.get(id(buffer))
            if others is not None:
                if np.any(others & mask):
                    raise BackendError(f"strict: {op}: two outputs overlap")
                mask = others | mask
            writable[id(buffer)] = mask
        _check_aliases(op, tensors, outputs, writable)
        before = {id(b): (b, b._host.data.tobytes()) for _, b, _ in tensors if writable.get(id(b)) is not True}
        # What an input shares with an output is read from a copy, so that the poison does not reach it.
        copied = op not in IN_PLACE
        inputs = {
            id(b): HostBuffer(b._host.data.copy()) if copied and id(b) in writable else b._host
            for _, b, _ in tensors[outputs:]
        }
        if copied:
            for layout, buffer, offset in tensors[:outputs]:
                _poison(layout, buffer, offset)
        flat: list[Any] = []
        found = iter(tensors)
        i = 0
        for given in layouts:
            if type(given) is not _Layout:
                flat.append(args[i])
                i += 1
                continue
            _, buffer, offset = next(found)
            flat += (buffer._host if i < 2 * outputs else inputs[id(buffer)], offset)
            i += 2
        kernel(*flat)
        for key, (buffer, old) in before.items():
            now = buffer._host.data.tobytes()
            if now == old:
                continue
            changed = np.frombuffer(now, np.uint8) != np.frombuffer(old, np.uint8)
            if key in writable:
                changed &= ~writable[key]
            if changed.any():
                raise BackendError(f"strict: kernel {op} wrote outside its output")

    return call


def _parted(op: str, layouts: list[Any], args: tuple[Any, ...]) -> Tensors:
    """The tensors among a call's arguments, all checked."""
    expected = sum(1 + (type(layout) is _Layout) for layout in layouts)
    if len(args) != expected:
        too = "few" if len(args) < expected else "many"
        raise BackendError(f"strict: kernel {op} was called with too {too} arguments")
    tensors, i = [], 0
    for layout in layouts:
        if type(layout) is not _Layout:
            _check_scalar(op, layout, args[i])
            i += 1
            continue
        buffer, offset = args[i], args[i + 1]
        size = layout.itemsize
        _check_range(buffer, offset * size if layout.elements else 0, layout.elements * size, f"kernel {op}")
        tensors.append((layout, buffer, offset if layout.elements else 0))
        i += 2
    return tensors


def _check_aliases(op: str, tensors: Tensors, outputs: int, writable: dict[int, Any]) -> None:
    """An input may be exactly the output of an elementwise op; otherwise they must not share an element."""
    out, out_buffer, out_offset = tensors[0]
    for layout, buffer, offset in tensors[outputs:]:
        if id(buffer) not in writable:
            continue
        same = buffer is out_buffer and offset == out_offset and layout.operand[:3] == out.operand[:3]
        if not (same and op in ELEMENTWISE) and np.any(writable[id(buffer)] & _byte_mask(buffer, layout, offset)):
            shown = _described(op, (out.operand, layout.operand))
            raise BackendError(f"strict: {op}: an input overlaps the output, {shown}")


def _poison(layout: _Layout, buffer: StrictBuffer, offset: int) -> None:
    """NaN, or bytes 0x55, in every element of an output."""
    elements = buffer._host.data[: buffer.nbytes // layout.itemsize * layout.itemsize]
    if layout.dtype.is_floating_point:
        elements.view(layout.dtype.numpy)[layout.at(offset)] = np.nan
    else:
        elements.reshape(-1, layout.itemsize)[layout.at(offset)] = POISON
