"""Level 8: sizes from nothing to more than a device indexes, numbers of any value, and what a device does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ... import ops
from ...backend.contract import Operand
from ...device import Device
from ...dtype import as_dtype, float32
from ...errors import DeviceError, MissingDTypeError
from ...spec import contiguous_strides
from .calls import Call
from .case import Case, kernel_case, rerunning
from .kernels import Ran, Without, check_values, compiled
from .order import LATE, adder, filled, holds
from .place import Number, Place

ROWS = 70_000
"""More than the 65,535 groups that a grid has along a dim in WebGPU, or in y and z in CUDA."""


def cases() -> Iterator[Case]:
    for call in _many_rows():
        yield kernel_case(8, call, check_values)
    for dtype in ("int32", "int64", "int8", "uint8"):
        for op in ("floor_divide", "remainder"):
            name = f"{op} of {dtype} by 0 does not trap"
            yield Case(8, op, dtype, name, 10, _Divides(op, dtype), rerunning(f"8: {name}"))
    for name, check in (
        ("a tensor of 17 million elements", _large),
        ("more elements than can be indexed are refused, or indexed", _too_many),
        ("kernels and copies of nothing", _nothing),
        ("a kernel takes numbers of any value", _numbers),
        ("a missing dtype is refused by name", _missing),
        ("a kernel serves all devices", _devices),
    ):
        yield Case(8, "contract", "-", name, 10, check, rerunning(f"8: {name}"))


def _many_rows() -> Iterator[Call]:
    x = np.arange(3 * ROWS, dtype=np.float32).reshape(ROWS, 3) % 7 - 3
    place, note = Place("float32", (ROWS, 3)), "of many rows"
    yield Call("copy", (place,), (Place("float32", (ROWS, 3), "transposed"),), {}, (x,), note)
    yield Call("sum", (Place("float32", (ROWS, 1)),), (place,), {"dims": (1,)}, (x,), note)
    yield Call("cumsum", (place,), (place,), {"dim": 1}, (x,), note)
    sorted_to = place, Place("int64", (ROWS, 3))
    yield Call("sort", sorted_to, (place,), {"dim": 1, "descending": False}, (x,), note)


class _Divides:
    """Checks all elements but those whose divisor is 0: of these only that the device survives them."""

    def __init__(self, op: str, dtype: str) -> None:
        self.op, self.dtype = op, dtype

    def __call__(self, device: Device) -> None:
        kind = as_dtype(self.dtype)
        least = int(np.iinfo(kind.numpy).min)
        a = np.array([7, 9, least, 0, 5, least, 100], kind.numpy)
        b = np.array([2, 0, 0, 0, 3, -1 if least else 1, 7], kind.numpy)
        place = Place(self.dtype, (7,))
        try:
            ran = Ran(device, Call(self.op, (place,), (place, place), {}, (a, b)))
        except ZeroDivisionError:
            good = np.where(b == 0, 1, b).astype(kind.numpy)
            check_values(device, Call(self.op, (place,), (place, place), {}, (a, good)))
            return
        found = ran.results()[0].tolist()
        function = int.__floordiv__ if self.op == "floor_divide" else int.__mod__
        for i, (x, y) in enumerate(zip(a.tolist(), b.tolist())):
            wanted = least if (x, y) == (least, -1) and self.op == "floor_divide" else function(x, y) if y else found[i]
            if found[i] != wanted:
                raise AssertionError(f"{self.op}({x}, {y}) gave {found[i]}, expected {wanted}: 0 is elsewhere")


def _large(device: Device) -> None:
    count = 2**24 + 300
    place = Place("float32", (count,))
    x = device.backend.allocate(4 * count, device.index or 0)
    compiled(device, Call("fill", (place,), (Number("float32", 3.0),), {}, ()))(x, 0, 3.0)
    adder(device, count)(x, x, x)
    for start in (0, count // 2, count - 300):
        found = np.zeros(300, np.float32)
        device.backend.copy_out(x, 4 * start, found.view(np.uint8).data)
        if (found != 6).any():
            raise AssertionError(f"3 + 3 in {count:,} elements: {found[found != 6][0]} near {start:,}")


def _too_many(device: Device) -> None:
    def operand(*shape: int) -> Operand:
        return Operand(float32, shape, contiguous_strides(shape))

    line, square, narrow = operand(2**33), operand(2**17, 2**17), operand(2**17, 1)
    attempts: list[tuple[str, tuple[Operand, ...], dict[str, Any]]] = [
        ("add", (line, line, line), {}), ("copy", (square, square._replace(strides=(1, 2**17))), {}),
        ("sum", (narrow, square), {"dims": (1,)}), ("matmul", (square, square, square), {}),
    ]  # fmt: skip
    for op, operands, attrs in attempts:
        shapes = ", ".join(str(o.shape) for o in operands)
        try:
            kernel = device.backend.compile(op, operands, attrs)
        except DeviceError as error:
            if not str(error):
                raise AssertionError(f"compile({op!r}) of shapes {shapes} raised {error!r}: why?") from None
            continue
        except Exception as error:
            raise AssertionError(f"compile({op!r}) of shapes {shapes} raised {error!r}, no DeviceError") from error
        if kernel is None:
            raise AssertionError(f"compile({op!r}) of shapes {shapes} gave None: what is too large raises DeviceError")


def _nothing(device: Device) -> None:
    backend = device.backend
    nothing, data = backend.allocate(0, device.index or 0), bytearray()
    x = filled(device, 3, 5)
    for buffer, end in ((nothing, 0), (x, 20)):
        backend.copy_in(buffer, end, memoryview(data))
        backend.copy_out(buffer, end, memoryview(data))
        backend.copy(x, 20, buffer, end, 0)
    for shape in ((0,), (0, 3), (3, 0)):
        place = Place("float32", shape)
        for op, inputs, more in (("add", (place, place), (x, 9, nothing, 0)), ("copy", (place,), (x, 9))):
            compiled(device, Call(op, (place,), inputs, {}, ()))(x, 7, *more)
        compiled(device, Call("fill", (place,), (Number("float32", 1.0),), {}, ()))(nothing, 0, 1.0)
    holds(device, x, 3, "after kernels and copies of nothing", 5)


_NAN, _INF = float("nan"), float("inf")
_FILLS: list[tuple[str, Any, Any]] = [
    ("float32", 1e300, _INF), ("float32", -1e300, -_INF), ("float32", _NAN, _NAN), ("float32", -_INF, -_INF),
    ("float32", -0.0, -0.0), ("float32", 1e-300, 0.0), ("float32", 3, 3.0), ("float32", 2**63, 2.0**63),
    ("float32", 10**300, _INF), ("float16", 1e6, _INF), ("float16", 70_000, _INF), ("bfloat16", _NAN, _NAN),
    ("bfloat16", -1e300, -_INF), ("int64", 2**62 + 1, 2**62 + 1), ("int64", -(2**63), -(2**63)), ("int32", -7, -7),
    ("uint8", 255, 255), ("int8", -128, -128), ("bool", True, True), ("float64", 1e300, 1e300),
]  # fmt: skip
_ROWS: list[tuple[str, str, list[Any], Any, list[Any]]] = [
    ("mul", "float32", [0, 1, -1], _INF, [_NAN, _INF, -_INF]), ("add", "float32", [0, 1, -1], 1e300, [_INF] * 3),
    ("maximum", "float32", [0, 1, -1], _NAN, [_NAN] * 3), ("mul", "float32", [0, 1, -1], 1e-300, [0, 0, -0.0]),
    ("mul", "float16", [0, 0.5, 2**-10], 1e6, [0, _INF, 976.5]), ("lt", "float32", [0, 1, _INF], _INF, [1, 1, 0]),
    ("eq", "float32", [0, _NAN, 1], _NAN, [0, 0, 0]),
    ("add", "int64", [0, 1, -1], 2**53 + 1, [2**53 + 1, 2**53 + 2, 2**53]),
]  # fmt: skip


def _numbers(device: Device) -> None:
    problems = []
    for op, dtype, given, number, wanted in (
        *[("fill", dtype, None, number, [wanted] * 3) for dtype, number, wanted in _FILLS],
        *_ROWS,
    ):
        out, x = Place("bool" if op in ("lt", "eq") else dtype, (3,)), Place(dtype, (3,))
        inputs = (Number(dtype, number),) if given is None else (x, Number(dtype, number))
        values = (number,) if given is None else (np.array(given).astype(x.type.numpy), number)
        try:
            found = Ran(device, Call(op, (out,), inputs, {}, values)).results()[0]
        except Without:
            continue
        except Exception as error:
            problems.append(f"{op} of {dtype} with {number!r:.12} raised {error!r}")
            continue
        with np.errstate(all="ignore"):
            right = np.array(wanted).astype(out.type.numpy)
        if out.type.is_floating_point:
            found, right = found.astype(np.float64), right.astype(np.float64)
            signs = np.signbit(found) == np.signbit(right)
            same = np.array_equal(found, right, equal_nan=True) and bool((signs | np.isnan(right)).all())
        else:
            same = np.array_equal(found, right)
        if not same:
            problems.append(f"{op} of {dtype} with {number!r:.12} gave {found.tolist()}, expected {right.tolist()}")
    if problems:
        raise AssertionError("; ".join(problems))


def _missing(device: Device) -> None:
    for dtype, reason in device.backend.missing_dtypes.items():
        makers: list[Callable[[Any], Any]] = [
            lambda missing: ops.zeros(3, dtype=missing, device=device),
            lambda missing: ops.zeros(3, dtype=missing).to(device),
            lambda missing: ops.ones(3, device=device).to(missing),
        ]
        for make in makers:
            try:
                make(as_dtype(dtype))
            except MissingDTypeError as error:
                if not all(part in str(error) for part in (dtype, str(device), reason)):
                    raise AssertionError(f"a user who asks for {dtype} sees: {error}") from None
            else:
                if dtype != "int64":  # the dtype of indices, which are moved
                    raise AssertionError(f"a tensor of {dtype} was made, which is one of missing_dtypes")
    if (ops.ones(3, device=device) + 1).tolist() != [2, 2, 2]:
        raise AssertionError("1 + 1 is not 2 after a missing dtype was asked for")


def _devices(device: Device) -> None:
    if device.backend.device_count() < 2:
        return
    add = adder(device, 5)
    for index in (0, 1, 0):
        here = Device(device.type, index)
        x = filled(here, 2 + index, 5)
        add(x, x, x)
        holds(here, x, 4 + 2 * index, f"a kernel on {here}", 5)
    source, to = filled(Device(device.type, 0), 6, 5), filled(Device(device.type, 1), 0, 5)
    device.backend.copy(to, 0, source, 0, 20)
    add(to, to, to)
    holds(Device(device.type, 1), to, 12, "what was copied from device 0 to 1, and added there", 5)
    values, wrong = ops.ones(5, device=Device(device.type, 0)), ops.tensor([9], device=Device(device.type, 0))
    with suppress(IndexError):
        ops.gather(values, 0, wrong)
        for waited in (1, 0, 1):
            try:
                device.backend.synchronize(waited)
            except LATE as error:
                if waited:
                    raise AssertionError(f"a wait for device 1 reported what happened on device 0: {error}") from None
