"""Level 8: programs of the composites "fused" and "fused_rows", for backends that compile them, against their kernels
of the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backend.fused import ROW_REDUCTIONS, Step, parse_steps
from ...device import Device
from .calls import Call, draw
from .case import Case, rerunning
from .kernels import Ran, check_untouched
from .place import Array, Number, Place, get, put


class Program(NamedTuple):
    """inputs: dtypes ("row float32": one number for each row), and numbers for scalars, which have the dtype of the
    first input. steps, results: the attributes."""

    name: str
    inputs: tuple[str | float, ...]
    steps: str
    results: tuple[int, ...]


PROGRAMS = (
    Program(
        "a chain", ("float32", 1.7), "mul float32 o1 o2;sigmoid float32 s0;mul float32 o1 s1;add float32 s2 o1", (3,)
    ),
    Program("a product and a sum", ("float32",) * 3, "mul float32 o1 o2;add float32 s0 o3", (1,)),
    Program("two results", ("float32",) * 2, "tanh float32 o2;mul float32 s0 o3;neg float32 s1", (0, 2)),
    Program("16 bits", ("float16", "float16", 0.3), "mul float16 o1 o3;add float16 s0 o2;exp float16 s1", (2,)),
    Program("bfloat16", ("bfloat16", "bfloat16"), "mul bfloat16 o1 o1;sub bfloat16 s0 o2;neg bfloat16 s1", (2,)),
    Program(
        "casts", ("bfloat16", "float32"), "copy float32 o1;mul float32 s0 o2;copy bfloat16 s1;add bfloat16 s2 o1", (3,)
    ),
    Program("choices", ("float32", "float32", 0.0), "lt bool o1 o3;where float32 s0 o3 o2;maximum float32 s1 o1", (2,)),
    Program("integers", ("int32", "int32", 3), "add int32 o1 o3;mul int32 s0 o2;bitwise_and int32 s1 o1", (2,)),
    Program("a value read often", ("float32",), "mul float32 o1 o1;mul float32 s0 s0;add float32 s1 s0", (2,)),
    Program("activations", ("float32", 0.5), "add float32 o1 o2;gelu float32 s0 approximate=tanh;neg float32 s1", (2,)),
)
ROW_PROGRAMS = (
    Program(
        "RMS norm", ("float32", "float32", 600.0, 1e-6, 1.0),
        "mul float32 o1 o1;sum float32 s0;div float32 s1 o3;add float32 s2 o4;sqrt float32 s3;div float32 o5 s4;"
        "mul float32 o1 s5;mul float32 s6 o2", (7,),
    ),
    Program(
        "softmax", ("float32",),
        "amax float32 o1;sub float32 o1 s0;exp float32 s1;sum float32 s2;div float32 s2 s3", (4,),
    ),
    Program("rows of float16", ("float16", "float16"), "add float16 o1 o2;sum float16 s0;sub float16 o1 s1", (2,)),
    Program("a cast", ("bfloat16",), "copy float32 o1;amin float32 s0;sub float32 s0 s1;copy bfloat16 s2", (3,)),
    Program("of each row", ("float32", "row float32"), "mul float32 o1 o2;prod float32 s0;neg float32 s1", (2,)),
    Program("both", ("float32", "row float32"), "sub float32 o2 o3;sum float32 s0;mul float32 s0 s1", (1, 2)),
)  # fmt: skip
ROW_LAYOUTS = (
    ((5, 600), "dense", "dense"), ((2, 3, 1030), "dense", "offset"), ((1, 513), "offset", "pitched"),
    ((33, 700), "broadcast", "dense"), ((6, 40), "dense", "dense"), ((4, 520), "transposed", "dense"),
    ((2, 20000), "dense", "dense"),
)  # fmt: skip
LAYOUTS = (
    ((33, 65), "dense", "dense"), ((1030,), "dense", "offset"), ((3, 5), "transposed", "dense"),
    ((33, 7), "broadcast", "dense"), ((2, 3, 4, 5), "stepped", "pitched"), ((), "dense", "dense"),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for program in PROGRAMS:
        for shape, inputs, outputs in LAYOUTS:
            name = f"fused gives the bits of its steps: {program.name}, {shape} {outputs} <- {inputs}"
            yield _case("fused", name, program, shape, inputs, outputs)
    for program in ROW_PROGRAMS:
        for rows, inputs, outputs in ROW_LAYOUTS:
            name = f"fused_rows gives the bits of its steps: {program.name}, {rows} {outputs} <- {inputs}"
            yield _case("fused_rows", name, program, rows, inputs, outputs)
    yield Case(8, "fused", "-", IN_PLACE, 10, _in_place, rerunning(f"8: {IN_PLACE}"))


def _case(op: str, name: str, program: Program, shape: tuple[int, ...], inputs: str, outputs: str) -> Case:
    def check(device: Device) -> None:
        check_program(device, call_of(program, shape, inputs, outputs, op))

    return Case(8, op, str(program.inputs[0]), name, 10, check, rerunning(f"8: {name}"))


def call_of(program: Program, shape: tuple[int, ...], inputs: str, outputs: str, op: str = "fused") -> Call:
    first = str(program.inputs[0])
    places: list[Place | Number] = []
    for given in program.inputs:
        if not isinstance(given, str):
            places.append(Number(first, given))
        elif given.startswith("row "):
            places.append(Place(given.removeprefix("row "), _row_shape(shape), "dense"))
        else:
            places.append(Place(given, shape, inputs))
    steps = parse_steps(program.steps)
    of_rows = _steps_of_rows(steps, places, len(program.results)) if op == "fused_rows" else set[int]()
    out = tuple([Place(steps[k].dtype, _row_shape(shape) if k in of_rows else shape, outputs) for k in program.results])
    values = tuple([draw("sub", p.dtype, p.shape, 0) if isinstance(p, Place) else p.value for p in places])
    return Call(op, out, tuple(places), {"steps": program.steps, "results": program.results}, values)


def _row_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 1)


def _steps_of_rows(steps: Sequence[Step], inputs: Sequence[Place | Number], outputs: int) -> set[int]:
    """The steps that make one number of each row: reductions, and what reads only such numbers."""
    found: set[int] = set()
    for k, step in enumerate(steps):
        kinds = set[bool]()
        for read in step.reads:
            if read[0] == "s":
                kinds.add(int(read[1:]) in found)
            elif isinstance(place := inputs[int(read[1:]) - outputs], Place):
                kinds.add(place.shape[-1] == 1)
        if step.op in ROW_REDUCTIONS or kinds == {True}:
            found.add(k)
    return found


def check_program(device: Device, call: Call) -> None:
    """The outputs have the bits that the steps' own kernels give. A backend need not compile it."""
    operands = tuple(p.operand for p in (*call.outputs, *call.inputs))
    if device.backend.compile(call.op, operands, call.attrs) is None:
        return
    steps = _apart(device, call)
    if steps is None:
        return
    found = Ran(device, call, poisoned=True).results()
    for got, step in zip(found, call.attrs["results"], strict=True):
        want = steps[step]
        if got.tobytes() != want.tobytes():
            off = np.flatnonzero(_bits(got) != _bits(want))
            raise AssertionError(
                f"{off.size} of {got.size} elements of step {step} are not what the separate kernels give; the first "
                f"is {off[0]}: got {got.flat[off[0]]!r}, expected {want.flat[off[0]]!r}"
            )
    check_untouched(device, call)


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.itemsize}").ravel()


def _apart(device: Device, call: Call) -> list[Array] | None:
    """The results of the steps' own kernels; None where a composite has none."""
    operands: list[tuple[Place | Number | None, Any]] = [(None, None)] * len(call.outputs)
    operands += [(p, p.shown(v) if isinstance(p, Place) else v) for p, v in zip(call.inputs, call.values)]
    results: list[tuple[Place, Array]] = []
    steps = parse_steps(call.attrs["steps"])
    shape = max(p.shape for p in (*call.outputs, *call.inputs) if isinstance(p, Place))
    rows = _steps_of_rows(steps, call.inputs, len(call.outputs)) if call.op == "fused_rows" else set[int]()
    for k, step in enumerate(steps):
        given: list[Any] = [(results if r[0] == "s" else operands)[int(r[1:])] for r in step.reads]
        out = Place(step.dtype, _row_shape(shape) if k in rows else shape)
        attrs: dict[str, Any] = dict(step.attrs)
        if k in rows and step.op in ROW_REDUCTIONS:
            attrs = {"dims": (len(shape) - 1,)}
        elif k not in rows:  # numbers of rows are repeated
            given = [
                (Place(p.dtype, shape), np.ascontiguousarray(np.broadcast_to(v, shape)))
                if isinstance(p, Place) and p.shape != shape
                else (p, v)
                for p, v in given
            ]
        inputs, values = tuple(p for p, _ in given), tuple(v for _, v in given)
        own = Call(step.op, (out,), inputs, attrs, values)
        kernel = device.backend.compile(step.op, tuple(p.operand for p in (out, *inputs)), own.attrs)
        if kernel is None:
            return None
        results.append((out, Ran(device, own, kernel=kernel).results()[0]))
    return [values for _, values in results]


IN_PLACE = "fused may write to an input that later steps read"


def _in_place(device: Device) -> None:
    place = Place("float32", (1030,))
    attrs = {"steps": "mul float32 o2 o2;add float32 s0 o2", "results": (0, 1)}
    kernel = device.backend.compile("fused", (place.operand,) * 3, attrs)
    if kernel is None:
        return
    values = np.arange(1030, dtype=np.float32)
    x, y = put(device, place.memory(values)), put(device, place.memory())
    kernel(x, 0, y, 0, x, 0)
    for buffer, want in ((x, values * values), (y, values * values + values)):
        if (place.view(get(device, buffer, place.nbytes)) != want).any():
            raise AssertionError("x, y = x * x, x * x + x, where x is an output too, gave something else")
