"""What is checked of a record, on any device. Each check raises AssertionError that names op, case and dtype."""

from __future__ import annotations

import builtins
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import ops
from ...autograd.engine import grad
from ...device import Device
from ...dtype import FLOATING, DType, float32, float64
from ...errors import DTypeError, ShapeError
from ...numpy_backend.backend import NumpyBackend
from ...tensor import Tensor
from .. import gradcheck as numerical
from ..strict import strict_device
from .record import TOLERANCES, Array, Case, Operand, Sample, build, case, flat, replace, upcast

SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-6, 700.0]


def expect(holds: bool, message: str) -> None:
    """An `assert` that `python -O` keeps."""
    if not holds:
        raise AssertionError(message)


def label(sample: Sample, case: Case, dtype: DType, layout: str = "plain") -> str:
    def short(o: Operand) -> str:
        return f"{(o.dtype or dtype).name}{list(o.shape)}"

    args, kwargs = replace((case.args, case.kwargs), lambda o: _Text(short(o)))
    words = [*map(repr, args), *[f"{k}={v!r}" for k, v in kwargs.items()]]
    return f"{sample.name}({', '.join(words)}), {layout}"


class _Text(str):
    def __repr__(self) -> str:
        return str(self)


def quietly(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The oracle's answer, without its warnings."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def same_values(got: Any, expected: Any, dtype: DType, what: Any, loose: float = 1.0) -> None:
    """A tensor against the oracle's array: dtype, shape, values within the dtype's tolerance."""
    if not isinstance(got, Tensor):
        raise AssertionError(f"{what}: expected a Tensor, got {type(got).__name__}")
    if got.dtype is not dtype:
        raise AssertionError(f"{what}: gave {got.dtype}, not {dtype}")
    expected = np.asarray(expected)
    if tuple(got.shape) != expected.shape:
        raise AssertionError(f"{what}: gave shape {tuple(got.shape)}, not {expected.shape}")
    with np.errstate(all="ignore"):
        wanted = upcast(expected.astype(dtype.numpy))
    values = upcast(got.detach().cpu().numpy())
    fine = values == wanted
    if dtype.category == FLOATING and not fine.all():
        bound = TOLERANCES[dtype.name] * loose
        with np.errstate(all="ignore"):
            fine = np.isclose(values, wanted, bound, bound, equal_nan=True)
    if not fine.all():
        raise AssertionError(f"{what}:\ngot\n{values}\nexpected\n{wanted}")


class _Label:
    """What `label` gives, made when it is shown, which takes longer than many a check."""

    def __init__(self, *args: Any, before: str = "") -> None:
        self.args, self.before = args, before

    def __str__(self) -> str:
        return self.before + label(*self.args)


def check_case(sample: Sample, case: Case, dtype: DType, device: Any = "cpu", layout: str = "plain") -> None:
    """One call against the oracle: values, dtypes and shapes of every result; operands are left as they were."""
    what = _Label(sample, case, dtype, layout)
    built = build(sample, case, dtype, device, layout)
    before = [upcast(t.cpu().numpy()).copy() for t in built.tensors]
    result = sample.function(*built.args, **built.kwargs)
    expected = quietly(sample.oracle, built.arrays, built.array_kwargs)
    if sample.gives == "python":
        expect(bool(type(result) is type(np.asarray(expected).item()) and result == expected), f"{what}: {result}")
        return
    results, wanted = flat(result), flat(expected)
    if len(results) != len(wanted):
        raise AssertionError(f"{what}: gave {len(results)} results, not {len(wanted)}")
    dtypes = sample.result_dtypes(dtype)
    loose = sample.loose if dtype.itemsize >= 4 else 2 * sample.loose
    for i, (got, want) in enumerate(zip(results, wanted, strict=True)):
        same_values(got, want, dtypes[min(i, len(dtypes) - 1)], what, loose)
    for tensor, old in zip(built.tensors, before, strict=True):
        _equal_arrays(
            upcast(tensor.cpu().numpy()), old, _Label(sample, case, dtype, layout, before="a changed operand of ")
        )


def check_values(sample: Sample, device: Any = "cpu", layout: str = "plain", dtypes: Any = None) -> None:
    """Every case in every dtype that the op takes."""
    for dtype in sample.dtypes if dtypes is None else [d for d in dtypes if d in sample.dtypes]:
        for one in sample.cases:
            check_case(sample, one, dtype, device, layout)


def check_special_values(sample: Sample, device: Any = "cpu") -> None:
    """NaN, infinities, zeros of either sign: what IEEE 754 and NumPy make of them, sign of zero aside."""
    values = np.array(SPECIAL)
    count = len(list(sample.cases[0].operands()))
    arrays = [values] if count == 1 else [values[:, None], values]
    for dtype in (float32, float64):
        tensors = [ops.tensor(a, dtype=dtype, device=device) for a in arrays]
        got = sample.function(*tensors)
        with np.errstate(all="ignore"):
            expected = sample.oracle(*[a.astype(dtype.numpy).astype(np.float64) for a in arrays])
        same_values(got, expected, sample.result_dtypes(dtype)[0], f"{sample.name} of special values", sample.loose)


def check_shares_memory(sample: Sample, device: Any = "cpu", dtype: DType | None = None) -> None:
    """A view lies on its operand's memory. dtype: the operand's, the last that the op takes unless given."""
    dtype = sample.dtypes[-1] if dtype is None else dtype
    for one in sample.cases:
        built = build(sample, one, dtype, device)
        source = built.args[0]
        for result in flat(sample.function(*built.args, **built.kwargs)):
            what = label(sample, one, dtype)
            expect(result.buffer is source.buffer, f"{what}: the result is no view")


# --- Promotion ------------------------------------------------------------------------------------------------------

_ORDER = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
# PyTorch's table: row and column in the order above.
_TABLE = """
0 1 2 3 4 5 6 7 8 9
1 1 3 3 4 5 6 7 8 9
2 3 2 3 4 5 6 7 8 9
3 3 3 3 4 5 6 7 8 9
4 4 4 4 4 5 6 7 8 9
5 5 5 5 5 5 6 7 8 9
6 6 6 6 6 6 6 8 8 9
7 7 7 7 7 7 8 7 8 9
8 8 8 8 8 8 8 8 8 9
9 9 9 9 9 9 9 9 9 9
""".split("\n")[1:-1]


def promoted(a: DType, b: DType) -> DType:
    """What PyTorch gives for two tensors with dims, from its table."""
    from ...dtype import as_dtype

    return as_dtype(_ORDER[int(_TABLE[_ORDER.index(a.name)].split()[_ORDER.index(b.name)])])


def with_scalar(dtype: DType, scalar: Any) -> DType:
    """What PyTorch gives for a tensor and a Python scalar: the tensor's dtype unless the scalar's category is above."""
    from ...dtype import bool_, get_default_dtype, int64

    own = {bool: bool_, int: int64, float: get_default_dtype()}[type(scalar)]
    return dtype if dtype.category >= own.category else own


def check_promotion(sample: Sample, device: Any = "cpu") -> None:
    """Two dtypes, and a dtype with a Python scalar on either side, through function and operator."""
    first, second = list(sample.cases[0].operands())[:2]
    for a in sample.dtypes:
        for b in sample.dtypes:
            common = promoted(a, b)
            if common.category == FLOATING and FLOATING not in [d.category for d in sample.dtypes]:
                continue
            p, q = first.array(a, 0), second.array(b, 1)
            got = sample.function(ops.tensor(p, device=device), ops.tensor(q, device=device))
            expected = quietly(sample.oracle, (_as(p, common, sample), _as(q, common, sample)), {})
            what = f"{sample.name}({a}, {b})"
            same_values(got, expected, sample.result_dtypes(common)[0], what, sample.loose * 2)
            if a.category != b.category:
                continue
            # A 0-d operand does not widen within its category.
            got = sample.function(ops.tensor(p, device=device), ops.tensor(q.reshape(-1)[0], dtype=b, device=device))
            expected = quietly(sample.oracle, (_as(p, a, sample), _as(_as(q, b, sample).reshape(-1)[0], a, sample)), {})
            same_values(got, expected, sample.result_dtypes(a)[0], f"{what}, 0-d", sample.loose * 2)
    call = getattr(operator, sample.operator) if sample.operator else sample.function
    scalars: list[Any] = [] if not sample.scalars else [2, True] if sample.takes in ("bits", "ints") else [2, 1.5, True]
    for dtype in sample.dtypes:
        for scalar in scalars:
            common = with_scalar(dtype, scalar)
            if common not in sample.dtypes or (sample.takes == "number" and scalar is True and not dtype.category):
                continue
            values = first.array(dtype, 0)
            tensor = ops.tensor(values, device=device)
            what = f"{sample.name}({dtype}, {scalar!r})"
            dtypes = sample.result_dtypes(common)
            number = np.array(scalar)
            expected = quietly(sample.oracle, (_as(values, common, sample), _as(number, common, sample)), {})
            same_values(call(tensor, scalar), expected, dtypes[0], what, sample.loose * 2)
            if sample.operator:
                positive = first._replace(low=0.7, high=3.0, nonzero=True).array(dtype, 0)
                tensor = ops.tensor(positive, device=device)
                expected = quietly(sample.oracle, (_as(number, common, sample), _as(positive, common, sample)), {})
                same_values(call(scalar, tensor), expected, dtypes[0], f"reflected {what}", sample.loose * 2)


def _as(values: Array, dtype: DType, sample: Sample) -> Array:
    found = upcast(values.astype(dtype.numpy))
    return found.astype(np.float64) if sample.gives == "float" else found


def check_refusals(sample: Sample, device: Any = "cpu") -> None:
    """DTypeError, naming the op, for each dtype that the op does not take."""
    for dtype in sample.refused:
        one = next(c for c in sample.cases if c.has_elements())
        built = build(sample, one, dtype, device)
        try:
            sample.function(*built.args, **built.kwargs)
        except DTypeError as error:
            expect("(): " in str(error), f"{sample.name}: the message names no op: {error}")
        else:
            raise AssertionError(f"{label(sample, one, dtype)} took {dtype}")


def check_shapes_refused(sample: Sample, device: Any = "cpu") -> None:
    """ShapeError, naming both shapes, for operands that do not broadcast."""
    dtype = sample.dtypes[-1]
    a, b = (ops.tensor(np.ones(s), dtype=dtype, device=device) for s in ((2, 3), (4, 3)))
    try:
        sample.function(a, b)
    except ShapeError as error:
        expect("(2, 3)" in str(error) and "(4, 3)" in str(error), f"{sample.name}: {error}")
    else:
        raise AssertionError(f"{sample.name} took shapes (2, 3) and (4, 3)")


# --- Methods and in-place forms -------------------------------------------------------------------------------------


def check_method(sample: Sample, device: Any = "cpu") -> None:
    """The method gives what the function gives."""
    name = sample.method_name or sample.name
    for dtype in (sample.dtypes[0], sample.dtypes[-1]):
        for one in sample.cases:
            if not isinstance(one.args[0], Operand):
                continue
            built = build(sample, one, dtype, device)
            expected = flat(sample.function(*built.args, **built.kwargs))
            found = getattr(built.args[0], name)(*built.args[1:], **built.kwargs)
            equal_results(flat(found), expected, f"method of {label(sample, one, dtype)}")


def equal_results(found: list[Any], expected: list[Any], what: Any) -> None:
    """Two lists of results agree exactly."""
    if len(found) != len(expected):
        raise AssertionError(f"{what}: gave {len(found)} results, not {len(expected)}")
    for got, want in zip(found, expected, strict=True):
        if not isinstance(want, Tensor):
            if got != want:
                raise AssertionError(f"{what}: {got}, not {want}")
            continue
        if got.dtype is not want.dtype or got.shape != want.shape:
            raise AssertionError(f"{what}: {got.dtype} {got.shape}")
        _equal_arrays(_values(got), _values(want), what)


def _equal_arrays(got: Array, wanted: Array, what: Any) -> None:
    if got.tobytes() != wanted.tobytes():  # quicker
        np.testing.assert_array_equal(got, wanted, str(what))


def _values(tensor: Tensor) -> Array:
    return upcast(tensor.detach().cpu().numpy())


def check_inplace(sample: Sample, device: Any = "cpu", dtypes: Any = None) -> None:
    """The in-place form writes the functional form's values into the same memory, of any layout, and no further."""
    name = sample.inplace or sample.name + "_"
    checked = 0
    for dtype in sample.dtypes if dtypes is None else [d for d in dtypes if d in sample.dtypes]:
        for one in sample.cases:
            for layout in ("plain", "transposed", "offset", "stepped") if dtype.itemsize == 4 else ("offset",):
                built = build(sample, one, dtype, device, layout)
                target = built.args[0]
                expected = sample.function(*built.args, **built.kwargs)
                what = _Label(sample, one, dtype, layout, before=f"{name} of ")
                if expected.shape != target.shape or expected.dtype is not target.dtype:
                    continue
                checked += 1
                buffer, spec, version = target.buffer, target.spec, target._version
                whole = _whole(target)
                outside = _values(whole).copy()
                result = getattr(target, name)(*built.args[1:], **built.kwargs)
                if result is not target:
                    raise AssertionError(f"{what}: did not return the tensor")
                if target.buffer is not buffer or target.spec is not spec:
                    raise AssertionError(f"{what}: memory moved")
                if target._version <= version:
                    raise AssertionError(f"{what}: the change was not noted")
                equal_results([target], [expected], what)
                shown = np.zeros(outside.shape, builtins.bool)
                span = np.lib.stride_tricks.as_strided(
                    shown[target.offset :], tuple(target.shape), tuple(spec.strides), writeable=True
                )
                span[...] = True
                _equal_arrays(_values(whole)[~shown], outside[~shown], f"{name} of {sample.name} wrote outside")
    expect(bool(checked), f"{name}: no case of {sample.name} keeps shape and dtype")


def _whole(tensor: Tensor) -> Tensor:
    """All the memory that a tensor is a part of."""
    size = tensor.buffer.nbytes // tensor.dtype.itemsize
    return tensor.detach().as_strided((size,), (1,), 0)


# --- Gradients ------------------------------------------------------------------------------------------------------


def check_gradients(sample: Sample, device: Any = "cpu", layout: str = "plain", second: bool = True) -> None:
    """First and second derivatives in float64: numerically on the NumPy reference; of a native CPU backend against
    those of the reference, as the device "strict"; on other devices against the CPU's. First derivatives of the layout
    "plain" are compared element by element.
    """
    oracle = "cpu" if str(device) != "cpu" else None if _cpu_is_reference() else strict_device()
    for one in sample.cases:
        if not any(o.dtype is None for o in one.operands()):
            continue
        what = _Label(sample, one, float64, layout)
        if oracle is not None:
            for got, want in zip(*[gradients(sample, one, d, layout) for d in (device, oracle)], strict=True):
                same_values(got, _values(want), float64, _Label(*what.args, before="gradient of "), sample.loose)
            continue
        built = build(sample, one, float64, device, layout, requires_grad=True)

        def function(*inputs: Tensor, built: Any = built) -> Any:
            args, kwargs = _with((built.args, built.kwargs), built.tensors, inputs)
            result = sample.function(*args, **kwargs)
            return result if isinstance(result, Tensor) else tuple(result)

        if not any(r.requires_grad for r in flat(function(*built.tensors)) if isinstance(r, Tensor)):
            raise AssertionError(f"{what}: the result does not require grad")
        try:
            numerical.gradcheck(function, built.tensors, fast_mode=layout != "plain")
            if second:
                numerical.gradgradcheck(function, built.tensors, fast_mode=True)
        except Exception as error:
            raise AssertionError(f"gradients of {what}: {error}") from error


def _cpu_is_reference() -> bool:
    return isinstance(Device("cpu").backend, NumpyBackend)


def _with(value: Any, old: list[Tensor], new: tuple[Tensor, ...]) -> Any:
    """`value` with the tensors `old` in it exchanged for `new`."""
    if isinstance(value, Tensor):
        return next((n for o, n in zip(old, new, strict=True) if o is value), value)
    if isinstance(value, dict):
        return {k: _with(v, old, new) for k, v in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_with(v, old, new) for v in value)
    return value


def gradients(sample: Sample, one: Case, device: Any, layout: str) -> list[Tensor]:
    """First derivatives of a weighted sum of the results, and derivatives of those in turn."""
    built = build(sample, one, float64, device, layout, requires_grad=True)
    results = [r for r in flat(sample.function(*built.args, **built.kwargs)) if r.requires_grad]
    draw = np.random.default_rng(0)
    seeds = [ops.tensor(draw.uniform(0.5, 1.5, tuple(r.shape)), device=device) for r in results]
    first = grad(results, built.tensors, seeds, create_graph=True, materialize_grads=True)
    found = [f for f in first if f is not None]
    again = [f for f in found if f.requires_grad]
    if again:
        seeds = [ops.tensor(draw.uniform(0.5, 1.5, tuple(f.shape)), device=device) for f in again]
        found += [f for f in grad(again, built.tensors, seeds, materialize_grads=True) if f is not None]
    return found


__all__ = [
    "case",
    "check_case",
    "check_gradients",
    "check_inplace",
    "check_method",
    "check_promotion",
    "check_refusals",
    "check_shapes_refused",
    "check_shares_memory",
    "check_special_values",
    "check_values",
    "equal_results",
    "gradients",
    "label",
    "promoted",
    "same_values",
    "with_scalar",
]
