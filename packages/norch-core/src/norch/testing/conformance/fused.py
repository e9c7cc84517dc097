"""Level 8: programs of the composite "fused", for backends that compile them, against their kernels of the steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...backend.fused import parse_steps
from ...device import Device
from .calls import Call, draw
from .case import Case, rerunning
from .kernels import Ran, check_untouched
from .place import Array, Number, Place, get, put


class Program(NamedTuple):
    """inputs: dtypes, and numbers for scalars, which have the dtype of the first input. steps, results: the attributes
    of "fused"."""

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
LAYOUTS = (
    ((33, 65), "dense", "dense"), ((1030,), "dense", "offset"), ((3, 5), "transposed", "dense"),
    ((33, 7), "broadcast", "dense"), ((2, 3, 4, 5), "stepped", "pitched"), ((), "dense", "dense"),
)  # fmt: skip


def cases() -> Iterator[Case]:
    for program in PROGRAMS:
        for shape, inputs, outputs in LAYOUTS:
            name = f"fused gives the bits of its steps: {program.name}, {shape} {outputs} <- {inputs}"
            yield _case(name, program, shape, inputs, outputs)
    yield Case(8, "fused", "-", IN_PLACE, 10, _in_place, rerunning(f"8: {IN_PLACE}"))


def _case(name: str, program: Program, shape: tuple[int, ...], inputs: str, outputs: str) -> Case:
    def check(device: Device) -> None:
        check_program(device, call_of(program, shape, inputs, outputs))

    return Case(8, "fused", str(program.inputs[0]), name, 10, check, rerunning(f"8: {name}"))


def call_of(program: Program, shape: tuple[int, ...], inputs: str, outputs: str) -> Call:
    first = str(program.inputs[0])
    places = [Place(i, shape, inputs) if isinstance(i, str) else Number(first, i) for i in program.inputs]
    steps = parse_steps(program.steps)
    out = tuple([Place(steps[k].dtype, shape, outputs) for k in program.results])
    values = tuple([draw("sub", p.dtype, shape, 0) if isinstance(p, Place) else p.value for p in places])
    return Call("fused", out, tuple(places), {"steps": program.steps, "results": program.results}, values)


def check_program(device: Device, call: Call) -> None:
    """The outputs have the bits that the steps' own kernels give. A backend need not compile it."""
    operands = tuple(p.operand for p in (*call.outputs, *call.inputs))
    if device.backend.compile("fused", operands, call.attrs) is None:
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
    for step in parse_steps(call.attrs["steps"]):
        given: list[Any] = [(results if r[0] == "s" else operands)[int(r[1:])] for r in step.reads]
        out = Place(step.dtype, call.outputs[0].shape)
        inputs, values = tuple(p for p, _ in given), tuple(v for _, v in given)
        own = Call(step.op, (out,), inputs, dict(step.attrs), values)
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
