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


@pytest.mark.parametrize("columns", [2, 3, 8, 9])
def test_16_bit_floats_that_are_repeated_in_rows(columns):
    rng = np.random.default_rng(0)
    x, column, row = (rng.integers(-9, 9, s).astype("float32") for s in ((300, columns), (300, 1), (1, columns)))
    for dtype in (norch.bfloat16, norch.float16):
        a, b, c = (norch.tensor(v).to(dtype) for v in (x, column, row))
        for got, want in ((a * b, x * column), (b - a, column - x), (norch.maximum(a, b), np.maximum(x, column))):
            np.testing.assert_array_equal(got.float().numpy(), want)
        np.testing.assert_array_equal((a * c + b).float().numpy(), x * row + column)
        np.testing.assert_array_equal((-a).abs().float().numpy(), np.abs(x))


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 16, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_reductions_of_rows_that_are_parts_of_others(columns, dtype):
    values = np.random.default_rng(0).integers(-4, 5, (5, 70, columns + 2)).astype("float64")
    x, want = norch.tensor(values).to(getattr(norch, dtype)), values[:, ::2, 1:-1]
    part = x[:, ::2, 1:-1]
    for got, expected in (
        (part.sum(-1), want.sum(-1)),
        (part.amax(-1), want.max(-1)),
        (part.contiguous().amax(-1), want.max(-1)),
        (part.contiguous().sum(-1), want.sum(-1)),
        (part.mul(part).sum(-1), (want * want).sum(-1)),
    ):
        np.testing.assert_allclose(got.double().numpy(), expected, rtol=2.0**-8 if dtype == "bfloat16" else 0)
    for rows in (part, part.contiguous(), part.transpose(0, 1)):
        norm = np.sqrt((rows.double().numpy() ** 2).sum(-1))
        np.testing.assert_allclose(
            rows.norm(dim=-1).double().numpy(), norm, rtol=2.0**-8 if dtype == "bfloat16" else 1e-6
        )
    windows = norch.tensor(values[0]).unfold(0, 9, 2).sum(-1).numpy()
    np.testing.assert_array_equal(windows, np.lib.stride_tricks.sliding_window_view(values[0], 9, 0)[::2].sum(-1))


@pytest.mark.parametrize("index", [[2, 0], [0, 0, 1, -1], list(range(3)) * 7])
def test_an_index_that_rows_share(index):
    x = np.random.default_rng(0).integers(0, 200, (6, 50, 3))
    for dtype in (norch.uint8, norch.float32, norch.int64):
        t = norch.tensor(x).to(dtype)
        for given, want in ((t, x), (t.transpose(0, 1), x.swapaxes(0, 1)), (t[:, ::3], x[:, ::3])):
            np.testing.assert_array_equal(given[..., index].double().numpy(), want[..., index])
            if min(index) >= 0:
                got = given.index_select(-1, norch.tensor(index))
                np.testing.assert_array_equal(got.double().numpy(), want[..., index])


@pytest.mark.parametrize("columns", [1, 3, 16, 17])
@pytest.mark.parametrize("rows", [3, 700, 5001])
def test_places_of_extremes_in_few_columns(columns, rows):
    values = np.random.default_rng(0).integers(0, 50, (rows, columns)).astype("float32")
    values[rows // 3, -1] = values[rows // 2, 0] = np.nan
    for x in (values, np.nan_to_num(values)):
        t = norch.tensor(x)
        np.testing.assert_array_equal(t.argmin(0).numpy(), x.argmin(0))
        np.testing.assert_array_equal(t.argmax(0).numpy(), x.argmax(0))
