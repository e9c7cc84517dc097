"""Levels 2, 3, 4 and 8 of a backend's kernels: what each primitive gives, in every dtype and layout, and what it leaves
alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...backend.contract import IN_PLACE, PRIMITIVES, UNARY
from ...device import Device
from .calls import ALL, FLOATS, Call, calls, draw, dtypes_of
from .oracle import expected, wrong
from .place import Array, Place, get, put


class Missing(AssertionError):
    """A primitive for which the backend has no kernel."""


class Without(Exception):
    """Raised by a case that needs a dtype, `dtype`, which the device does not have: neither passed, nor failed."""

    def __init__(self, dtype: str) -> None:
        super().__init__(f"the device has no {dtype}")
        self.dtype = dtype


class Prepared:
    """A kernel call with its operands on the device; `before` has the bytes of every buffer, outputs first."""

    def __init__(self, device: Device, call: Call, *, poisoned: bool = False, kernel: Any = None) -> None:
        self.call = call
        tensors = [p for p in call.inputs if isinstance(p, Place)]
        values = list(call.values)
        held = [values.pop(0)] if call.op in IN_PLACE else [None] * len(call.outputs)
        given = [p.shown(v) if isinstance(p, Place) else v for p, v in zip(call.inputs, values)]
        self.inputs = given
        self.before = [p.memory(v, poisoned=poisoned) for p, v in zip(call.outputs, held)]
        self.before += [p.memory(v) for p, v in zip(call.inputs, given) if isinstance(p, Place)]
        self.kernel = kernel or compiled(device, call)
        buffers = [put(device, memory) for memory in self.before]
        places = [*call.outputs, *tensors]
        self.buffers = list(zip(buffers, places))
        located = iter([(b, p.offset) for b, p in self.buffers])
        self.args: list[Any] = []
        for p, v in zip((*call.outputs, *call.inputs), (*held, *given)):
            self.args += next(located) if isinstance(p, Place) else [v]

    def launch(self) -> None:
        self.kernel(*self.args)


class Ran(Prepared):
    """A kernel call that was made: `after` has the bytes of every buffer."""

    def __init__(self, device: Device, call: Call, *, poisoned: bool = False, kernel: Any = None) -> None:
        super().__init__(device, call, poisoned=poisoned, kernel=kernel)
        self.launch()
        self.after = [get(device, b, p.nbytes) for b, p in self.buffers]

    def results(self) -> list[Array]:
        """The outputs' values."""
        return [p.view(memory).copy() for p, memory in zip(self.call.outputs, self.after)]

    def expected(self) -> list[Any]:
        before = [p.view(memory) for p, memory in zip(self.call.outputs, self.before)]
        return expected(self.call.op, self.inputs, self.call.attrs, before)


def compiled(device: Device, call: Call) -> Any:
    """The kernel of a call. Raises Without where an operand's dtype is one that the device does not have."""
    places = (*call.outputs, *call.inputs)
    kernel = device.backend.compile(call.op, tuple(p.operand for p in places), call.attrs)
    missing = [p.dtype for p in places if isinstance(p, Place) and p.dtype in device.backend.missing_dtypes]
    if missing and kernel is None:
        raise Without(missing[0])
    if set(missing) - {"int64"}:  # of indices there may be kernels all the same
        raise AssertionError(f"{missing[0]} is one of missing_dtypes, but compile() gave a kernel for {call}")
    if kernel is None:
        raise Missing(f"there is no kernel for {call}: compile() gave None for a primitive")
    return kernel


def check_values(device: Device, call: Call, *, poisoned: bool = False) -> None:
    """The outputs hold what NumPy computes."""
    ran = Ran(device, call, poisoned=poisoned)
    for i, (got, want) in enumerate(zip(ran.results(), ran.expected(), strict=True)):
        off = wrong(got, want, call.outputs[i].type)
        if off.any():
            place = tuple(int(n) for n in np.argwhere(off)[0])
            values = np.broadcast_to(want.values, got.shape)
            raise AssertionError(
                f"{int(off.sum())} of {off.size} elements are wrong{' in output 1' if i else ''}; the first is "
                f"{place}: got {got[place]}, expected {values[place]}"
            )


def check_untouched(device: Device, call: Call) -> None:
    """Nothing but the outputs' elements changes."""
    ran = Ran(device, call)
    places = [*call.outputs, *(p for p in call.inputs if isinstance(p, Place))]
    for i, (place, before, after) in enumerate(zip(places, ran.before, ran.after)):
        if i < len(call.outputs):
            if not (place.outside(before) == place.outside(after)).all():
                raise AssertionError(f"wrote outside of output {i}'s elements")
        elif not (before == after).all():
            raise AssertionError(f"wrote to input {i - len(call.outputs)} or around it")


def check_repeatable(device: Device, call: Call) -> None:
    """One kernel gives the same bits again and again, on other values between."""
    kernel = compiled(device, call)
    first = Ran(device, call, kernel=kernel)
    other = tuple(np.flip(v) if isinstance(v, np.ndarray) and v.dtype != np.int64 else v for v in call.values)
    Ran(device, Call(call.op, call.outputs, call.inputs, call.attrs, other), kernel=kernel)
    again = Ran(device, call, kernel=kernel)
    moved = Ran(device, call.laid_out("offset", "offset"), kernel=kernel)  # the strides are the same
    for when, ran in (("repeated", again), ("repeated elsewhere in memory", moved)):
        for a, b in zip(first.results(), ran.results()):
            if a.tobytes() != b.tobytes():
                raise AssertionError(f"the same call gave other bits when it was {when}")


# --- Which calls, at which level ------------------------------------------------------------------------------------

OPS = sorted(PRIMITIVES)


def by_value() -> Iterator[Call]:
    """Level 2: every primitive in one dtype."""
    for op in OPS:
        yield from calls(op, dtypes_of(op)[0])
        yield from _special(op)


def by_dtype() -> Iterator[Call]:
    """Level 3: the other dtypes, and casts."""
    for op in OPS:
        for dtype in dtypes_of(op)[1:]:
            yield from calls(op, dtype, few=True)
    for source in ALL:
        for to in ALL:
            values = np.array([0, 1, 2, 3, 100, 7]) if "uint8" in (source, to) else np.array([0, 1, -2, 3, -100, 7])
            if to in FLOATS and source in FLOATS:
                values = values * 1.1
            elif source in FLOATS:
                values = values + np.where(values < 0, -0.5, 0.5)
            if source != to:
                place = Place(source, (6,))
                yield Call("copy", (Place(to, (6,)),), (place,), {}, (place.shown(values),))
    whole = {
        "floor_divide": ([7, -7, 7, -7, 0], [2, 2, -2, -2, 5]),
        "remainder": ([7, -7, 7, -7, 0], [2, 2, -2, -2, 5]),
        "pow": ([2, 0, 1, -1, 3], [-1, 0, -3, -3, 4]),
        "bitwise_left_shift": ([1, 1, 1, -1, 5], [31, 32, 40, 40, 2]),
        "bitwise_right_shift": ([9, -9, 9, -9, 5], [1, 1, 40, 40, 32]),
        "mul": ([2**30, -(2**31), 3, 0, 7], [4, -1, 3, 1, 7]),
        "add": ([2**31 - 1, 5, -(2**31), 0, 1], [1, 5, -1, 0, 1]),
    }
    large = np.array([2**53 + 1, -(2**53) - 1, 2**62, 7, -(2**62)])
    place = Place("int64", (5,))
    yield Call("add", (place,), (place, place), {}, (large, np.array([1, -1, 2, 3, 4])), "beyond float64")
    yield Call("copy", (place,), (place,), {}, (large,), "beyond float64")
    for op, pair in whole.items():
        a, b = (np.array(v, np.int32) for v in pair)
        yield Call(op, (Place("int32", (5,)),), (Place("int32", (5,)),) * 2, {}, (a, b), "at its edges")


def by_layout() -> Iterator[Call]:
    """Level 4: operands that do not lie densely from the start of their buffer, dims of size 1, and no elements."""
    for op in OPS:
        seen = 0
        for call in calls(op, dtypes_of(op)[0], few=True):
            seen += 1
            for inputs, outputs in _LAYOUTS:
                if inputs != "dense" and not any(isinstance(p, Place) for p in call.inputs):
                    continue
                if op == "scatter" and inputs == "broadcast":  # would write two values to one place
                    continue
                yield call.laid_out(inputs, outputs)
            if seen == 2:
                break
    yield from _odd_shapes()


def of_nothing() -> Iterator[Call]:
    """Level 4, over poison: what reductions and products of no elements give."""
    for op in ("sum", "prod", "any", "all"):
        dtype = dtypes_of(op)[0]
        empty: Array = np.zeros((0, 3), np.bool_ if dtype == "bool" else np.float32)
        yield Call(op, (Place(dtype, (1, 3), "stepped"),), (Place(dtype, (0, 3)),), {"dims": (0,)}, (empty,))
    nothing = np.zeros((2, 0), np.float32)
    inputs = Place("float32", (2, 0)), Place("float32", (0, 3))
    yield Call("matmul", (Place("float32", (2, 3)),), inputs, {}, (nothing, np.zeros((0, 3), np.float32)))


_LAYOUTS = (
    ("offset", "dense"), ("dense", "offset"), ("transposed", "dense"), ("dense", "transposed"), ("stepped", "dense"),
    ("dense", "stepped"), ("pitched", "pitched"), ("broadcast", "dense"), ("transposed", "stepped"),
)  # fmt: skip


def _odd_shapes() -> Iterator[Call]:
    for shape in ((2, 1, 7), (1, 1), (2, 3, 1, 2, 3, 2)):
        for op, count in (("exp", 1), ("add", 2)):
            values = tuple(draw(op, "float32", shape, i) for i in range(count))
            for layout in ("transposed", "stepped"):
                yield Call(op, (Place("float32", shape, layout),), (Place("float32", shape),) * count, {}, values)
                yield Call(op, (Place("float32", shape),), (Place("float32", shape, layout),) * count, {}, values)
    many = (2,) * 11
    values = draw("add", "float32", many), draw("add", "float32", many, 1)
    for layouts in (("transposed", "dense"), ("dense", "stepped")):
        given = Call("add", (Place("float32", many),), (Place("float32", many),) * 2, {}, values, "of many dims")
        yield given.laid_out(*layouts)


NAN, INF = float("nan"), float("inf")


def _special(op: str) -> Iterator[Call]:
    """NaN, infinities and zeros of either sign, where an op takes floats."""
    if "float32" not in dtypes_of(op) or op in ("floor_divide", "remainder", "cumsum", "arange", "random", "matmul"):
        return
    values = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, 3e38], np.float32)
    place = Place("float32", (9,))
    if op in UNARY or op == "copy":
        yield Call(op, (place,), (place,), {}, (values,), "nan inf 0")
    elif op in ("amax", "amin", "argmax", "argmin"):
        out = Place("int64" if op.startswith("arg") else "float32", (1, 2))
        for rows in ([[1, 2], [NAN, -INF], [3, 5]], [[INF, 2], [-INF, 2], [INF, 2]]):
            yield Call(
                op, (out,), (Place("float32", (3, 2)),), {"dims": (0,)}, (np.array(rows, np.float32),), f"of {rows}"
            )
    elif op == "sort":
        for descending in (False, True):
            attrs = {"dim": 0, "descending": descending}
            yield Call(op, (place, Place("int64", (9,))), (place,), attrs, (values,), "nan inf 0")
    elif op in ("add", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"):
        a, b = np.repeat(values, 9), np.tile(values, 9)
        out = Place("bool" if op in ("eq", "ne", "lt", "le", "gt", "ge") else "float32", (81,))
        yield Call(op, (out,), (Place("float32", (81,)),) * 2, {}, (a, b), "at its edges")
