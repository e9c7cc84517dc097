"""Elementwise kernels on rows of few elements, of which operands repeat rows, columns or both."""

from __future__ import annotations

import numpy as np
import pytest

import norch

DTYPES = ["float32", "float64", "float16", "int64", "int32", "uint8"]
FORMS = {
    "whole": lambda v: v,
    "row": lambda v: v[7:8],
    "column": lambda v: v[:, :1],
    "one": lambda v: v[3:4, :1],
    "part": lambda v: np.concatenate([v, v], 1)[:, 1 : 1 + v.shape[1]],
    "transposed": lambda v: np.ascontiguousarray(v.T).T,
    "stepped": lambda v: np.repeat(v, 2, 1)[:, ::2],
}
OPS = {
    "add": (norch.add, np.add),
    "mul": (norch.mul, np.multiply),
    "less": (norch.lt, np.less),
    "maximum": (norch.maximum, np.maximum),
}


def operand(form, values):
    """The values in a form, and a tensor that lies as the array does."""
    array = FORMS[form](values)
    whole = norch.from_numpy(array.base if form == "part" and array.base is not None else np.ascontiguousarray(array))
    if form == "part":
        return array, whole[:, 1 : 1 + values.shape[1]]
    if form == "transposed":
        return array, norch.from_numpy(np.ascontiguousarray(array.T)).T
    if form == "stepped":
        return array, norch.from_numpy(np.repeat(values, 2, 1))[:, ::2]
    return array, whole


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("rows", [15, 3000])
@pytest.mark.parametrize("form", FORMS)
def test_two_operands(dtype, columns, rows, form):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 9, (rows, columns)).astype(dtype) for _ in range(2))
    a, given = operand(form, x)
    for other in FORMS:
        b, second = operand(other, y)
        for name, (call, expected) in OPS.items():
            got, want = call(given, second).numpy(), expected(a, b)
            assert got.dtype == want.dtype
            assert np.array_equal(got, want), (other, name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_three_operands_scalars_and_results_that_lie_apart(dtype, form):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 9, (500, 3)).astype(dtype) for _ in range(2))
    a, given = operand(form, x)
    condition = rng.integers(0, 2, (500, 3)).astype(bool)
    for chosen in (condition, condition[:, :1], condition[:1]):
        found = norch.where(norch.tensor(chosen), given, norch.tensor(y))
        np.testing.assert_array_equal(found.numpy(), np.where(chosen, a, y))
    np.testing.assert_array_equal((norch.tensor(y)[:, :2] * 3).numpy(), y[:, :2] * 3)
    out, expected = norch.tensor(np.zeros((500, 5), dtype)), np.zeros((500, 5), dtype)
    out[:, 1:4] = given + norch.tensor(y)
    expected[:, 1:4] = a + y
    out[:, 1:4] += given
    expected[:, 1:4] += a
    np.testing.assert_array_equal(out.numpy(), expected)
