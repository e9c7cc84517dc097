"""Dtypes that are stored and not computed in (float8, uint16 to uint64): what backends are asked in their place.

No backend is told of them. Their elements are moved as integers of the same size, and casts are put together from
kernels that every backend has, so that they work on any device and give the same bits on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import copysign, inf, nan, prod
from struct import pack
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backend.contract import Kernel, Operand
from ..dtype import FLOATING, INTEGER, DType, bool_, float32, float64, int16, int32, int64, uint8
from ..dtype import float8_e4m3fn as e4m3fn
from ..dtype import float8_e4m3fnuz as e4m3fnuz
from ..dtype import float8_e5m2 as e5m2
from ..dtype import float8_e5m2fnuz as e5m2fnuz
from ..errors import DTypeError
from ..spec import contiguous_strides

if TYPE_CHECKING:
    from ..device import Device

_CARRIERS = {1: uint8, 2: int16, 4: int32, 8: int64}
"""By size: the dtype as which elements are moved."""
_MOVES = frozenset({"copy", "fill", "where", "gather", "scatter"})
"""Primitives that look at no element."""
_EQUAL = frozenset({"eq", "ne"})

COMPILE: list[Callable[..., Kernel | None]] = []
"""`compile_kernel`: norch.dispatch.kernels, whose that is, puts it here."""


class _Format(NamedTuple):
    """How a float of 8 bits is made: bits of its fraction, bias of its exponent, the largest code of a finite number,
    and the codes for what is larger and for NaN. With `one_zero`, there is no -0."""

    fraction: int
    bias: int
    largest: int
    over: int
    nan: int
    one_zero: bool = False


_FORMATS = {
    e4m3fn: _Format(3, 7, 0x7E, 0x7E, 0x7F),
    e5m2: _Format(2, 15, 0x7B, 0x7C, 0x7F),
    e4m3fnuz: _Format(3, 8, 0x7F, 0x80, 0x80, True),
    e5m2fnuz: _Format(2, 16, 0x7F, 0x80, 0x80, True),
}


def stored_kernel(
    name: str, device: Device, operands: tuple[Operand, ...], attrs: Mapping[str, Any], required: bool
) -> Kernel | None:
    """What `compile_kernel` gives where some operands are of such a dtype. Raises DTypeError for a computation."""
    if not required:
        return None  # a composite comes to its parts
    dtypes = [o.dtype for o in operands if o.dtype.is_stored]
    if name == "copy" and operands[0].dtype is not operands[1].dtype:
        return _cast(device, *operands)
    if name in _MOVES or (name in _EQUAL and dtypes[0].category == INTEGER):
        return _moved(name, device, operands, attrs)
    if name in _EQUAL:
        return _compared(name, device, operands)
    instead = "int64" if dtypes[0].category == INTEGER else "float32"
    raise DTypeError(
        f"{name}(): {dtypes[0]} is for storing numbers, ops do not compute in it; convert first: x.to(norch.{instead})"
    )


def _moved(name: str, device: Device, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    """The kernel on integers of the same size, with scalars as the bits that they are stored as."""
    carried = tuple([_carried(o) if o.dtype.is_stored else o for o in operands])
    kernel = _kernel(name, device, carried, attrs)
    scalars, at = [], 0
    for operand in operands:
        if operand.is_scalar and operand.dtype.is_stored:
            scalars.append((at, operand.dtype))
        at += 1 if operand.is_scalar else 2
    if not scalars:
        return kernel

    def call(*args: Any) -> None:
        flat = list(args)
        for at, dtype in scalars:
            flat[at] = encoded(flat[at], dtype)
        kernel(*flat)

    return call


def _carried(operand: Operand) -> Operand:
    return operand._replace(dtype=_CARRIERS[operand.dtype.itemsize])


def _kernel(name: str, device: Device, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    kernel = COMPILE[0](name, device, operands, attrs, True)
    assert kernel is not None
    return kernel


def encoded(value: float, dtype: DType) -> int:
    """A number as the integer that carries it."""
    if dtype.category == INTEGER:
        bits = 8 * dtype.itemsize
        wrapped: int = int(value) % (1 << bits)
        return wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped
    form = _FORMATS[dtype]
    try:
        (number,) = memoryview(pack("<f", value)).cast("I")
    except OverflowError:
        number = 0x7F800000 | (value < 0) << 31
    size, sign = number & 0x7FFFFFFF, number >> 31 << 7
    if size > 0x7F800000:
        return form.nan | (0 if form.one_zero else sign)
    shift = 23 - form.fraction
    if size >> 23 <= 127 - form.bias:
        code = round(abs(float(value)) * float(2 ** (form.bias - 1 + form.fraction)))
    else:
        code = ((size + (1 << shift - 1) - 1 + (size >> shift & 1)) >> shift) - ((127 - form.bias) << form.fraction)
    if code > form.largest:
        code = form.over
    return code if form.one_zero and code in (0, form.over) else code | sign


def decoded(dtype: DType) -> list[float]:
    """The numbers of a float of 8 bits, by its codes."""
    form = _FORMATS[dtype]
    found = []
    for code in range(256):
        size, sign = code & 0x7F, -1.0 if code >> 7 else 1.0
        exponent, fraction = size >> form.fraction, size & ((1 << form.fraction) - 1)
        lead = 1 << form.fraction if exponent else 0
        number = (lead | fraction) * 2.0 ** (max(exponent, 1) - form.bias - form.fraction)
        if (code == 0x80) if form.one_zero else (size > form.largest):
            number = inf if size == form.over and not form.one_zero else nan
        found.append(number if number is nan and form.one_zero else copysign(number, sign))
    return found


# --- Casts ----------------------------------------------------------------------------------------------------------


class _Value(NamedTuple):
    """What a step of a program made: the number of its memory, and how that is read."""

    place: int
    operand: Operand


class _Program:
    """Kernels that run one after another on one shape, on memory of their own in between."""

    def __init__(self, device: Device, shape: tuple[int, ...], given: int) -> None:
        self.device, self.shape, self.given = device, tuple(shape), given
        self.steps: list[tuple[Kernel, int, int, list[Any]]] = []  # kernel, place, bytes of it, arguments
        self.count = given

    def run(self, name: str, dtype: DType, *inputs: Any, out: _Value | None = None, **attrs: Any) -> _Value:
        """Adds a step: inputs are values, or numbers of the first value's dtype."""
        if out is None:
            out = _Value(self.count, Operand(dtype, self.shape, contiguous_strides(self.shape)))
            self.count += 1
        kind = next(v.operand.dtype for v in reversed(inputs) if isinstance(v, _Value))
        operands = [v.operand if isinstance(v, _Value) else Operand(kind, (), (), True) for v in inputs]
        kernel = _kernel(name, self.device, (out.operand, *operands), attrs)
        nbytes = prod(self.shape) * dtype.itemsize if out.place >= self.given else 0
        self.steps.append((kernel, out.place, nbytes, [v.place if isinstance(v, _Value) else (v,) for v in inputs]))
        return out

    def done(self) -> Kernel:
        """The kernel of the whole: called with buffer and offset of each operand that was given."""
        last = {}
        for i, (*_, arguments) in enumerate(self.steps):
            last.update({place: i for place in arguments if type(place) is int and place >= self.given})
        ends: list[list[int]] = [[p for p, at in last.items() if at == i] for i in range(len(self.steps))]
        steps, given, index = self.steps, self.given, self.device.index
        allocate = self.device.backend.allocate

        def kernel(*args: Any) -> None:
            memory = {i: args[2 * i : 2 * i + 2] for i in range(given)}
            for (run, place, nbytes, arguments), over in zip(steps, ends, strict=True):
                if nbytes:
                    memory[place] = (allocate(nbytes, index), 0)
                flat = [part for a in arguments for part in (memory[a] if type(a) is int else a)]
                run(*memory[place], *flat)
                for done in over:
                    del memory[done]

        return kernel


def _cast(device: Device, out: Operand, x: Operand) -> Kernel:
    """Copies `x` to `out`, of which one at least is stored, by way of int64, float32 or float64."""
    program = _Program(device, x.shape, 2)
    target, value = _Value(0, out), _Value(1, x)
    if x.dtype.is_stored:
        value = _read(program, value, out.dtype)
    if not out.dtype.is_stored:
        program.run("copy", out.dtype, value, out=target)
    else:
        carrier = _Value(0, _carried(out))
        to_float = out.dtype.category == FLOATING
        (_write_float if to_float else _write_integer)(program, carrier, value, out.dtype)
    return program.done()


def _compared(name: str, device: Device, operands: tuple[Operand, ...]) -> Kernel:
    """`eq` and `ne` of floats of 8 bits, in float32: -0 equals 0, and NaN nothing."""
    out, *inputs = operands
    dtype = inputs[0].dtype
    tensors = [o for o in inputs if not o.is_scalar]
    program = _Program(device, out.shape, 1 + len(tensors))
    values = iter([_read(program, _Value(i + 1, o), float32) for i, o in enumerate(tensors)])
    numbers = [at for at, o in enumerate(inputs) if o.is_scalar]
    if not numbers:
        program.run(name, bool_, *values, out=_Value(0, out))
        return program.done()
    value = _Value(0, Operand(float32, tuple(out.shape), contiguous_strides(out.shape)))
    program.run("copy", float32, next(values), out=value)
    kernel = _kernel(name, device, (out, value.operand, Operand(float32, (), (), True)), {})
    read, table = program.done(), decoded(dtype)
    size, index, allocate = prod(out.shape) * 4, device.index, device.backend.allocate

    def call(*args: Any) -> None:
        number = args[2] if numbers[0] == 0 else args[4]
        source = args[3:5] if numbers[0] == 0 else args[2:4]
        memory = allocate(size, index)
        read(memory, 0, *source)
        kernel(args[0], args[1], memory, 0, table[encoded(number, dtype)])

    return call


def _read(program: _Program, x: _Value, target: DType) -> _Value:
    """The elements in a dtype that is computed in."""
    carrier = x._replace(operand=_carried(x.operand))
    if x.operand.dtype.category == FLOATING:
        return _decode(program, carrier, x.operand.dtype)
    if x.operand.dtype.itemsize == 8:
        return _read_uint64(program, carrier, target)
    whole = program.run("copy", int64, carrier)
    return program.run("bitwise_and", int64, whole, 2 ** (8 * x.operand.dtype.itemsize) - 1)


def _read_uint64(program: _Program, carrier: _Value, target: DType) -> _Value:
    if target.category != FLOATING:
        return carrier
    # Above 2**63 half of it, with the lost bit kept for the rounding, and twice that.
    dtype = float64 if target is float64 else float32
    whole = program.run("copy", int64, carrier)
    half = program.run("bitwise_right_shift", int64, whole, 1)
    half = program.run("bitwise_and", int64, half, 2**63 - 1)
    half = program.run("bitwise_or", int64, half, program.run("bitwise_and", int64, whole, 1))
    double = program.run("mul", dtype, program.run("copy", dtype, half), 2.0)
    return program.run("where", dtype, program.run("lt", bool_, whole, 0), double, program.run("copy", dtype, whole))


def _write_integer(program: _Program, out: _Value, x: _Value, dtype: DType) -> None:
    if x.operand.dtype.category != FLOATING:
        program.run("copy", out.operand.dtype, x, out=out)  # which wraps around
        return
    if dtype.itemsize < 8:
        program.run("copy", out.operand.dtype, program.run("copy", int64, x), out=out)
        return
    whole = program.run("copy", float64, x)
    large = program.run("ge", bool_, whole, 2.0**63)
    rest = program.run("copy", int64, program.run("sub", float64, whole, 2.0**63))
    rest = program.run("bitwise_xor", int64, rest, -(2**63))
    program.run("where", int64, large, rest, program.run("copy", int64, whole), out=out)


def _decode(program: _Program, carrier: _Value, dtype: DType) -> _Value:
    """Floats of 8 bits as float32, looked up."""
    device, count = program.device, prod(program.shape)
    at = program.run("copy", int64, carrier)
    out = _Value(program.count, Operand(float32, program.shape, contiguous_strides(program.shape)))
    program.count += 1
    flat, codes, places = (Operand(d, (n,), (1,)) for d, n in ((float32, count), (float32, 256), (int64, count)))
    lookup = _kernel("gather", device, (flat, codes, places), {"dim": 0})
    table = device.backend.allocate(1024, device.index)
    device.backend.copy_in(table, 0, memoryview(pack("<256f", *decoded(dtype))))

    def look_up(buffer: Any, offset: int, index: Any, index_offset: int) -> None:
        lookup(buffer, offset, table, 0, index, index_offset)

    program.steps.append((look_up, out.place, 4 * count, [at.place]))
    return out


def _write_float(program: _Program, out: _Value, x: _Value, dtype: DType) -> None:
    """Rounds to nearest, ties to even, as PyTorch does: in the bits of a float32."""
    form = _FORMATS[dtype]
    run: Callable[..., _Value] = program.run
    number = run("copy", float32, x)
    bits = number._replace(operand=number.operand._replace(dtype=int32))
    size = run("bitwise_and", int32, bits, 0x7FFFFFFF)
    positive = size._replace(operand=number.operand)
    is_nan = run("gt", bool_, size, 0x7F800000)
    shift = 23 - form.fraction
    least = (128 - form.bias) << 23  # the smallest normal number
    small = run("round", float32, run("mul", float32, positive, 2.0 ** (form.bias - 1 + form.fraction)))
    is_small = run("lt", bool_, size, least)
    size = run("minimum", int32, size, 0x7F800000)
    odd = run("bitwise_and", int32, run("bitwise_right_shift", int32, size, shift), 1)
    code = run("add", int32, run("add", int32, size, odd), (1 << shift - 1) - 1)
    code = run("sub", int32, run("bitwise_right_shift", int32, code, shift), (127 - form.bias) << form.fraction)
    # What is not small would be beyond an int32.
    small = run("copy", int32, run("minimum", float32, small, 256.0))
    code = run("where", int32, is_small, small, code)
    code = run("where", int32, run("gt", bool_, code, form.largest), form.over, code)
    code = run("where", int32, is_nan, form.nan, code)
    sign = run("bitwise_and", int32, run("bitwise_right_shift", int32, bits, 24), 0x80)
    if form.one_zero:
        plain = run("bitwise_and", int32, code, 0x7F)
        sign = run("where", int32, run("eq", bool_, plain, 0), 0, sign)
    program.run("copy", uint8, run("bitwise_or", int32, code, sign), out=out)
