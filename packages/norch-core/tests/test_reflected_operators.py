"""Operators with a number on the left, `1 - x`: PyTorch's values and dtypes, and the gradients."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import norch
from norch import DTypeError, Tensor
from norch.autograd import gradcheck, gradgradcheck

BOOL, UINT8 = (norch.bool,), (norch.uint8,)
SIGNED = (norch.int8, norch.int16, norch.int32, norch.int64)
FLOATING = (norch.float16, norch.bfloat16, norch.float32, norch.float64)
KINDS: tuple[tuple[tuple[norch.dtype, ...], list[Any]], ...] = (
    (BOOL, [False, True]),
    (UINT8, [1, 2, 4]),
    (SIGNED, [-2, 1, 4]),
    (FLOATING, [-2.0, 0.5, 4.0]),
)
"""The dtypes of `x` that one column of RESULTS is about, and its values."""

INF, NAN = float("inf"), float("nan")
RESULTS: dict[str, tuple[Any, ...]] = {
    "1 + x": (("int64", 1, 2), ("same", 2, 3, 5), ("same", -1, 2, 5), ("same", -1, 1.5, 5)),
    "2.5 + x": (("float32", 2.5, 3.5), ("float32", 3.5, 4.5, 6.5), ("float32", 0.5, 3.5, 6.5), ("same", 0.5, 3, 6.5)),
    "True + x": (("same", True, True), ("same", 2, 3, 5), ("same", -1, 2, 5), ("same", -1, 1.5, 5)),
    "1 - x": (None, ("same", 0, 255, 253), ("same", 3, 0, -3), ("same", 3, 0.5, -3)),
    "2.5 - x": (None, ("float32", 1.5, 0.5, -1.5), ("float32", 4.5, 1.5, -1.5), ("same", 4.5, 2, -1.5)),
    "3 * x": (("int64", 0, 3), ("same", 3, 6, 12), ("same", -6, 3, 12), ("same", -6, 1.5, 12)),
    "0.5 * x": (("float32", 0, 0.5), ("float32", 0.5, 1, 2), ("float32", -1, 0.5, 2), ("same", -1, 0.25, 2)),
    "2 / x": (("float32", INF, 2), ("float32", 2, 1, 0.5), ("float32", -1, 2, 0.5), ("same", -1, 4, 0.5)),
    "True / x": (("float32", INF, 1), ("float32", 1, 0.5, 0.25), ("float32", -0.5, 1, 0.25), ("same", -0.5, 2, 0.25)),
    "7 // x": (None, ("same", 7, 3, 1), ("same", -4, 7, 1), ("same", -4, 14, 1)),
    "-7 // x": (None, None, ("same", 3, -7, -2), ("same", 3, -14, -2)),
    "7.5 // x": (("float32", INF, 7), ("float32", 7, 3, 1), ("float32", -4, 7, 1), ("same", -4, 15, 1)),
    "-7 % x": (None, None, ("same", -1, 0, 1), ("same", -1, 0, 1)),
    "7.5 % x": (("float32", NAN, 0.5), ("float32", 0.5, 1.5, 3.5), ("float32", -0.5, 0.5, 3.5), ("same", -0.5, 0, 3.5)),
    "2 ** x": (("int64", 1, 2), ("same", 2, 4, 16), ("same", 0, 2, 16), ("same", 0.25, 2**0.5, 16)),
    "0.5 ** x": (
        ("float32", 1, 0.5), ("float32", 0.5, 0.25, 0.0625), ("float32", 4, 0.5, 0.0625), ("same", 4, 0.5**0.5, 0.0625)
    ),
    "5 & x": (("int64", 0, 1), ("same", 1, 0, 4), ("same", 4, 1, 4), "refused"),
    "True & x": (("same", False, True), ("same", 1, 0, 0), ("same", 0, 1, 0), "refused"),
    "5 | x": (("int64", 5, 5), ("same", 5, 7, 5), ("same", -1, 5, 5), "refused"),
    "5 ^ x": (("int64", 5, 4), ("same", 4, 7, 1), ("same", -5, 4, 1), "refused"),
    "1 << x": (None, ("same", 2, 4, 16), None, "refused"),
    "64 >> x": (None, ("same", 32, 16, 4), None, "refused"),
    "1 == x": (("bool", 0, 1), ("bool", 1, 0, 0), ("bool", 0, 1, 0), ("bool", 0, 0, 0)),
    "1 != x": (("bool", 1, 0), ("bool", 0, 1, 1), ("bool", 1, 0, 1), ("bool", 1, 1, 1)),
    "1 < x": (("bool", 0, 0), ("bool", 0, 1, 1), ("bool", 0, 0, 1), ("bool", 0, 0, 1)),
    "1 <= x": (("bool", 0, 1), ("bool", 1, 1, 1), ("bool", 0, 1, 1), ("bool", 0, 0, 1)),
    "1 > x": (("bool", 1, 0), ("bool", 0, 0, 0), ("bool", 1, 0, 0), ("bool", 1, 1, 0)),
    "0.5 >= x": (("bool", 1, 0), ("bool", 0, 0, 0), ("bool", 1, 0, 0), ("bool", 1, 1, 0)),
}  # fmt: skip
"""What PyTorch 2 gives, by the kinds of KINDS: a dtype and the values. None where it differs, or says nothing."""


@pytest.mark.parametrize("expression", RESULTS)
def test_values_and_dtypes(expression: str) -> None:
    for (dtypes, values), expected in zip(KINDS, RESULTS[expression], strict=True):
        for dtype in dtypes if expected is not None else ():
            x = norch.tensor(values, dtype=dtype)
            if expected == "refused":
                with pytest.raises(DTypeError):
                    eval(expression, {"x": x})
                continue
            result = eval(expression, {"x": x})
            wanted = dtype if expected[0] == "same" else getattr(norch, expected[0])
            assert result.dtype is wanted, f"{expression} of {dtype}"
            bound = norch.finfo(wanted).eps if wanted.is_floating_point else 0
            assert result.tolist() == pytest.approx(list(expected[1:]), rel=bound, abs=0, nan_ok=True), dtype
            assert x.tolist() == values


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (0, 2)])
def test_shape_and_memory_are_new(shape: tuple[int, ...]) -> None:
    x = norch.full(shape, 2.0)
    for result in (1 - x, 2 / x, 3 + x, 4 * x, 2**x, 5 // x, 5 % x):
        assert result.shape == shape
        assert result.data_ptr() != x.data_ptr() or not x.numel()


def test_a_view_on_the_right_keeps_its_place() -> None:
    x = norch.arange(12.0).reshape(3, 4)
    for view in (x.t(), x[1:, ::2], x[:, 1], x[0].expand(2, 4)):
        expected = view.numpy()
        assert (1 - view).tolist() == (1 - expected).tolist()
        assert (2**view).tolist() == (2**expected).tolist()
        assert (12 / (view + 1)).tolist() == (np.float32(12) / (expected + 1)).tolist()


GRADIENTS = {
    "1 - x": lambda x: 1 - x,
    "2.5 - x": lambda x: 2.5 - x,
    "3 + x": lambda x: 3 + x,
    "3 * x": lambda x: 3 * x,
    "2 / x": lambda x: 2 / x,
    "2 ** x": lambda x: 2**x,
    "7.3 % x": lambda x: 7.3 % x,
    "rsub": lambda x: norch.rsub(x, 2.0, alpha=3),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    x = norch.tensor([[0.7, 1.5], [2.2, 3.1]], dtype=norch.float64, requires_grad=True)
    assert gradcheck(GRADIENTS[name], (x,))
    assert gradcheck(lambda x: GRADIENTS[name](x.t()[1:]), (x,))
    assert gradgradcheck(GRADIENTS[name], (x,), fast_mode=True)


def test_gradient_of_a_result_that_forgets_its_operand() -> None:
    x = norch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    z = 1 - y
    y.zero_()  # 1 - y saved nothing
    z.sum().backward()
    assert x.grad.tolist() == [-1, -1]


def test_numpy_on_the_left() -> None:
    x = norch.tensor([1.0, 2.0])
    for left in (np.float32(3), np.float64(3), np.int64(3)):
        for op in (operator.sub, operator.truediv, operator.mul, operator.add):
            result = op(left, x)
            assert type(result) is Tensor
            assert result.dtype is norch.float32
            assert result.tolist() == op(3.0, x.numpy()).tolist()


def test_what_is_no_number_on_the_left_is_a_type_error() -> None:
    x = norch.tensor([1.0, 2.0])
    for op in (operator.sub, operator.truediv, operator.pow, operator.floordiv, operator.matmul):
        for left in ("1", None, object(), {}):
            with pytest.raises(TypeError):
                op(left, x)
