"""Levels 5 and 6: the ops as users call them, their derivatives and the composites, by norch's sample records.

Values are compared with the record's NumPy oracle in float64, derivatives with differences of that oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from ... import ops, plugin_ops
from ...autograd import grad
from ...backend.contract import PRIMITIVES
from ...device import Device
from ...dtype import DType, bfloat16, float32, float64, int64
from ...tensor import Tensor
from ..gradcheck import central_differences
from ..samples import SAMPLES, Sample, checks
from ..samples import record as records
from .case import Case, rerunning
from .place import Array

STEP = 1e-6


def gradients() -> Iterator[Case]:
    """Level 5: derivatives of every differentiable op, in float64, or in float32 where a device lacks it."""
    for sample in (*SAMPLES.values(), *of_plugins()):
        if sample.differentiable:
            for one in sample.cases:
                if any(o.dtype is None for o in one.operands()):
                    yield _case(5, sample, one, float64, _gradient_check(sample, one), "derivatives of ")


def composites() -> Iterator[Case]:
    """Level 6: everything that is made of primitives, by value; ops of plug-ins in every dtype and layout."""
    for sample in SAMPLES.values():
        if sample.name in PRIMITIVES or sample.view:
            continue
        for dtype in (float32, int64, bfloat16):
            if dtype in sample.dtypes and (dtype is not int64 or float32 not in sample.dtypes):
                for one in sample.cases:
                    yield _case(6, sample, one, dtype, _value_check(sample, one, dtype))
    for sample in of_plugins():
        for dtype in sample.dtypes:
            for one in sample.cases:
                for layout in records.LAYOUTS:
                    yield _case(6, sample, one, dtype, _value_check(sample, one, dtype, layout), layout=layout)


def of_plugin(function: Any) -> Sample | str:
    """The record of an op of a plug-in, or why there is none."""
    try:
        found = function.sample()
    except Exception as error:
        return f"its sample raised {type(error).__name__}: {error}"
    return found if isinstance(found, Sample) else f"its sample gives {found!r:.60}, no norch.testing.samples.Sample"


def of_plugins() -> Iterator[Sample]:
    """The records of the ops of all plug-ins that can be used."""
    return (s for s in map(of_plugin, plugin_ops.load_all()) if isinstance(s, Sample))


def _case(
    level: int,
    sample: Sample,
    one: records.Case,
    dtype: DType,
    check: Callable[[Device], None],
    prefix: str = "",
    layout: str = "plain",
) -> Case:
    name = prefix + checks.label(sample, one, dtype, layout)
    size = sum(prod(o.shape) for o in one.operands())

    def snippet(device: str) -> str:
        if sample.call is not None or not hasattr(ops, sample.name) or layout != "plain":
            return rerunning(f"{level}: {name}")(device)
        return _snippet(sample, one, dtype, device, bool(prefix))

    return Case(level, sample.name, dtype.name, name, size, check, snippet)


def _value_check(sample: Sample, one: records.Case, dtype: DType, layout: str = "plain") -> Callable[[Device], None]:
    return lambda device: checks.check_case(sample, one, dtype, device, layout)


def _gradient_check(sample: Sample, one: records.Case) -> Callable[[Device], None]:
    known: dict[Any, list[Array]] = {}  # what NumPy finds is the same for every device

    def check(device: Device) -> None:
        lacks = "float64" in device.backend.missing_dtypes
        near = 2e-3 if lacks else 2e-5
        built = records.build(sample, one, float32 if lacks else float64, device, requires_grad=True)
        results = records.flat(sample.function(*built.args, **built.kwargs))
        followed = [i for i, r in enumerate(results) if isinstance(r, Tensor) and r.requires_grad]
        if not followed:
            raise AssertionError("no result requires grad")
        draw = np.random.default_rng(0)
        weights = {i: draw.uniform(0.5, 1.5, tuple(results[i].shape)) for i in followed}
        seeds = [ops.tensor(weights[i], dtype=results[i].dtype, device=device) for i in followed]
        found = grad([results[i] for i in followed], built.tensors, seeds, materialize_grads=True)
        key = lacks, *[(i, w.shape) for i, w in weights.items()]
        wanted = known.get(key) or known.setdefault(key, _differences(sample, built, weights))
        for i, (got, want) in enumerate(zip(found, wanted, strict=True)):
            assert got is not None
            values = got.cpu().numpy()
            if values.shape != want.shape or not np.allclose(
                values, want, near, near * max(1.0, np.abs(want).max(initial=0))
            ):
                raise AssertionError(f"the derivative by operand {i} is\n{values}\nexpected\n{want}")

    return check


def _differences(sample: Sample, built: records.Built, weights: dict[int, Array]) -> list[Array]:
    """Central differences of the weighted sum of the oracle's results, by each operand that is followed."""
    followed = {id(t) for t in built.tensors}
    pairs = list(_pairs((built.args, built.kwargs), (built.arrays, built.array_kwargs)))
    arrays = {id(t): a for t, a in pairs if id(t) in followed}

    def total() -> float:
        with np.errstate(all="ignore"):
            results = records.flat(sample.oracle(*built.arrays, **built.array_kwargs))
        return float(sum((np.asarray(results[i], np.float64) * w).sum() for i, w in weights.items()))

    return [central_differences(total, arrays[id(tensor)], STEP) for tensor in built.tensors]


def _pairs(tensors: Any, arrays: Any) -> Iterator[tuple[Tensor, Array]]:
    """The tensors of nested arguments, with the arrays at the same places."""
    if isinstance(tensors, Tensor):
        yield tensors, arrays
    elif isinstance(tensors, dict):
        for key in tensors:
            yield from _pairs(tensors[key], arrays[key])
    elif isinstance(tensors, tuple | list):
        for t, a in zip(tensors, arrays):
            yield from _pairs(t, a)


def _snippet(sample: Sample, one: records.Case, dtype: DType, device: str, with_grad: bool) -> str:
    built = records.build(sample, one, dtype, "cpu")
    names: dict[int, str] = {}
    lines = ["import norch", "from norch import inf, nan", ""]
    for tensor, _ in _pairs((built.args, built.kwargs), (built.arrays, built.array_kwargs)):
        name = names.setdefault(id(tensor), f"x{len(names)}")
        values = tensor.double().tolist() if tensor.dtype.is_floating_point else tensor.tolist()
        needs = ", requires_grad=True" if with_grad and tensor.dtype.is_floating_point else ""
        lines.append(f"{name} = norch.tensor({values}, dtype=norch.{tensor.dtype.name}, device={device!r}{needs})")

    def shown(value: Any) -> str:
        if isinstance(value, Tensor):
            return names[id(value)]
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {shown(v)}" for k, v in value.items()) + "}"
        if type(value) in (list, tuple):
            inner = ", ".join(map(shown, value))
            return f"[{inner}]" if type(value) is list else f"({inner}{',' if len(value) == 1 else ''})"
        return repr(value) if not isinstance(value, DType) else f"norch.{value.name}"

    arguments = ", ".join([*map(shown, built.args), *(f"{k}={shown(v)}" for k, v in built.kwargs.items())])
    lines.append(f"y = norch.{sample.name}({arguments})")
    if with_grad:
        lines += ["y = y if isinstance(y, norch.Tensor) else next(z for z in y if z.requires_grad)"]
        lines += ["y.sum().backward()", "print(x0.grad)"]
    else:
        expected = records.flat(sample.oracle(*built.arrays, **built.array_kwargs))
        lines.append(f"print(y)  # expected {np.asarray(expected[0]).tolist()}")
    return "\n".join(lines)
