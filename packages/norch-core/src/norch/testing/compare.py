"""`assert_close`: what tests of scripts compare tensors with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtype import INTEGER, as_dtype
from ..memory_formats import strided
from ..ops.from_data import as_tensor

_RELATIVE = {"float16": 1e-3, "bfloat16": 1.6e-2, "float32": 1.3e-6, "float64": 1e-7}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Any = None,
) -> None:
    """Raises AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere.

    Tensors, arrays, numbers, and sequences and mappings of them; shapes, dtypes and devices must agree too. Tolerances
    are PyTorch's by dtype (float32: 1.3e-6 and 1e-5; integers: 0); both must be given, or neither. `msg`: the error's
    text, or a function of it.
    """
    if (rtol is None) != (atol is None):
        raise ValueError("assert_close(): rtol and atol must both be given, or neither")
    if not allow_subclasses and type(actual) is not type(expected):
        raise TypeError(f"assert_close(): {type(actual).__name__} and {type(expected).__name__} are of different types")
    checks = (rtol, atol, equal_nan, check_device, check_dtype, check_stride, check_layout)
    problem = _difference(actual, expected, "", checks)
    if problem is not None:
        raise AssertionError(problem if msg is None else msg(problem) if callable(msg) else msg)


_LENIENT = {"float16": (1e-3, 1e-3), "bfloat16": (1.6e-2, 1e-5), "float32": (1e-4, 1e-5), "float64": (1e-5, 1e-8)}


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: Any = "",
) -> None:
    """`assert_close` of what came before it in PyTorch: dtypes may differ, NaN equals NaN, and tolerances are wider
    (float32: 1e-4 and 1e-5). Raises AssertionError as that does."""
    if rtol is None and atol is None:
        kinds = [as_tensor(x).dtype.name for x in (actual, expected)]
        rtol, atol = (max(_LENIENT.get(kind, (0.0, 0.0))[i] for kind in kinds) for i in (0, 1))
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


def _difference(actual: Any, expected: Any, where: str, checks: tuple[Any, ...]) -> str | None:
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            return f"The keys of the mappings differ{where}: {list(actual)} and {list(expected)}"
        found = [_difference(actual[k], expected[k], f"{where or ' at '}[{k!r}]", checks) for k in actual]
        return next((f for f in found if f is not None), None)
    if _is_list(actual) and _is_list(expected):
        if len(actual) != len(expected):
            return f"The lengths of the sequences differ{where}: {len(actual)} and {len(expected)}"
        pairs = enumerate(zip(actual, expected, strict=True))
        found = [_difference(a, b, f"{where or ' at '}[{i}]", checks) for i, (a, b) in pairs]
        return next((f for f in found if f is not None), None)
    if actual is None or expected is None:
        return None if actual is expected else f"None is not {expected if actual is None else actual!r:.60}{where}"
    layouts = [getattr(x, "layout", strided) for x in (actual, expected)]
    if checks[-1] and layouts[0] is not layouts[1]:
        return f"The layouts differ{where}: {layouts[0]} and {layouts[1]}"
    actual, expected = [x if of is strided else x.to_dense() for x, of in zip((actual, expected), layouts, strict=True)]
    numbers = not hasattr(actual, "dtype") and not hasattr(expected, "dtype")
    return _tensors_differ(as_tensor(actual), as_tensor(expected), where, checks, numbers)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_exact(x: Any) -> bool:
    return not (x.dtype.is_floating_point or x.dtype.is_complex)


def _tensors_differ(a: Any, b: Any, where: str, checks: tuple[Any, ...], numbers: bool) -> str | None:
    rtol, atol, equal_nan, check_device, check_dtype, check_stride, _ = checks
    if a.shape != b.shape:
        return f"The shapes differ{where}: {tuple(a.shape)} and {tuple(b.shape)}"
    if check_device and a.device != b.device:
        return f"The devices differ{where}: {a.device} and {b.device}"
    if check_dtype and not numbers and a.dtype is not b.dtype:
        return f"The dtypes differ{where}: {a.dtype} and {b.dtype}"
    if check_stride and a.stride() != b.stride():
        return f"The strides differ{where}: {a.stride()} and {b.stride()}"
    if rtol is None:
        kinds = ["float64"] if numbers else [getattr(d, "parts", d).name for d in (a.dtype, b.dtype)]
        rtol = max(_RELATIVE.get(kind, 0.0) for kind in kinds)
        atol = max(1e-5 if kind in _RELATIVE else 0.0 for kind in kinds)
        if "float64" in kinds and len(set(kinds)) == 1:
            atol = 1e-7
        if all(map(_is_exact, (a, b))):
            rtol = atol = 0.0
    dtype = as_dtype("int64" if _is_exact(a) and _is_exact(b) else "float64")
    x, y = [(t if t.dtype.is_complex else t.detach().to(dtype)).detach().cpu().numpy() for t in (a, b)]
    bad = x != y if dtype.category == INTEGER and not (rtol or atol) else ~np.isclose(x, y, rtol, atol, equal_nan)
    if not bad.any():
        return None
    with np.errstate(all="ignore"):
        apart = np.abs(x - y)
        most, relative = [np.fmax.reduce(v, axis=None) for v in (apart, apart / np.abs(y))]
    return (
        f"{int(bad.sum())} of {bad.size} elements are not close{where}: the greatest absolute difference is {most} "
        f"(allowed {atol}), the greatest relative {relative} (allowed {rtol}); the first is at "
        f"{tuple(int(i) for i in np.argwhere(bad)[0])}"
    )
