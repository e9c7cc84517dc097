"""softmax and log_softmax, forward and backward, against float64 NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from rows_harness import FLOATS, LAYOUTS, assert_close, draw, exact, gradient, numbers_close, tensor

import norch


def softmax(v, dim):
    e = np.exp(v - v.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


def log_softmax(v, dim):
    shifted = v - v.max(dim, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))


ORACLES = {"softmax": softmax, "log_softmax": log_softmax}


def slope(name, v, g, dim):
    y = softmax(v, dim)
    return (g - (g * y).sum(dim, keepdims=True)) * y if name == "softmax" else g - y * g.sum(dim, keepdims=True)


def check(name, x, dim, dtype=norch.float32, layout="plain"):
    v = exact(x)
    function = getattr(norch, name)
    assert_close(function(x, dim), ORACLES[name](v, dim), dtype, 4)
    g = tensor(draw(*v.shape, low=-1, high=1, seed=1), dtype, layout)
    assert_close(gradient(lambda t: function(t, dim), x, g), slope(name, v, exact(g), dim), dtype, 12)


both = pytest.mark.parametrize("name", sorted(ORACLES))


@both
@pytest.mark.parametrize("n", [1, 2, 7, 10, 16, 17, 63, 65, 255, 256, 257, 1000, 3000])
def test_row_lengths(name, n):
    check(name, tensor(draw(5, n)), 1)


@both
@pytest.mark.parametrize("shape", [(1, 9, 1), (3, 5, 7), (2, 3, 8), (2, 40, 129), (1, 2, 300), (300, 3, 9)])
@pytest.mark.parametrize("dim", [0, 1, 2, -2])
def test_dims(name, shape, dim):
    check(name, tensor(draw(*shape)), dim)


@both
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layouts_and_dtypes(name, layout, dtype):
    for shape, dim in (((4, 33), 1), ((33, 20), 0), ((3, 5, 9), 1)):
        check(name, tensor(draw(*shape), dtype, layout), dim, dtype, layout)


@both
@pytest.mark.parametrize("n", [129, 200, 255])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_many_rows_that_are_converted_or_moved(name, n, dtype):
    check(name, tensor(draw(40, n), dtype), 1, dtype)
    check(name, tensor(draw(40, n).T.copy(), dtype).t(), 1, dtype)


@both
@pytest.mark.parametrize("shape", [(2, 3, 150), (1, 300, 140), (2, 2500, 21)], ids=str)
@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16, norch.float32], ids=str)
def test_columns_that_are_converted(name, shape, dtype):
    check(name, tensor(draw(*shape), dtype), 1, dtype)


@both
def test_many_threads_worth(name):
    check(name, tensor(draw(3000, 70)), 1)
    check(name, tensor(draw(40, 70, 100)), 1)


@both
def test_results_do_not_depend_on_the_threads(name):
    x = tensor(draw(900, 300))
    before = norch.get_num_threads()
    results = []
    try:
        for threads in (1, 3):
            norch.set_num_threads(threads)
            results.append([getattr(norch, name)(t, d).numpy() for t, d in ((x, 1), (x, 0))])
    finally:
        norch.set_num_threads(before)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@both
def test_empty_and_0d(name):
    function = getattr(norch, name)
    for shape in ((0, 3), (3, 0), (0,)):
        x = norch.zeros(*shape, requires_grad=True)
        function(x, -1).sum().backward()
        assert x.grad.shape == shape
    assert function(norch.tensor(3.0), 0).item() == (1.0 if name == "softmax" else 0.0)


@both
@pytest.mark.parametrize("n", [5, 300])
@pytest.mark.parametrize("dim", [0, 1])
def test_special_values(name, n, dim):
    v = draw(10, n)
    v[1, 0], v[2, 1], v[3, 2], v[4] = np.nan, np.inf, -np.inf, -np.inf
    v[5] += 1000
    v[6] *= 100
    v = v if dim == 1 else np.ascontiguousarray(v.T)
    x = tensor(v)
    with np.errstate(all="ignore"):
        expected = ORACLES[name](exact(x), dim)
    numbers_close(exact(getattr(norch, name)(x, dim)), expected)


@pytest.mark.parametrize("n", [20, 1000])
@pytest.mark.parametrize("dim", [0, 1])
def test_chances_down_to_subnormal_ones_and_0(n, dim):
    v = np.zeros((9, n), np.float32)
    v[:, 1:] = np.linspace(-140, -80, 9 * (n - 1)).reshape(9, n - 1)
    v[::3, 2] = -np.inf
    found = norch.softmax(norch.from_numpy(v if dim else v.T.copy()), dim).numpy()
    found = found if dim else found.T
    with np.errstate(under="ignore"):
        expected = softmax(v.astype(np.float64), 1)
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1.5e-45)
    assert (found[::3, 2] == 0).all()


def test_expanded_gradient():
    x = tensor(draw(6, 20)).requires_grad_()
    x.log_softmax(1).sum().backward()
    assert_close(x.grad, 1 - 20 * softmax(exact(x), 1), loose=20)


@both
def test_errors(name):
    with pytest.raises(norch.IndexError):
        getattr(norch, name)(norch.ones(2, 3), 2)
    with pytest.raises(norch.DTypeError):
        getattr(norch, name)(norch.tensor([1, 2]), 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("shape", "dim"), [((2, 21, 9, 13), 1), ((3, 300, 40), 1), ((70, 5, 33), 0), ((5, 49, 49), 2), ((2, 5000, 20), 1)]
)
def test_where_an_input_lies_changes_no_bit(shape, dim, dtype):
    x = norch.tensor(np.random.default_rng(0).standard_normal(shape) * 3).to(getattr(norch, dtype))
    g = norch.tensor(np.random.default_rng(1).standard_normal(shape)).to(x.dtype)
    for op in (norch.softmax, norch.log_softmax):
        whole = x.clone().requires_grad_()
        expected = op(whole, dim)
        (of_whole,) = norch.autograd.grad(expected, whole, g)
        for order in itertools.permutations(range(len(shape))):
            back = np.argsort(order).tolist()
            lying = x.permute(order).contiguous().permute(back).requires_grad_()
            found = op(lying, dim)
            assert (found == expected).all()
            (of_input,) = norch.autograd.grad(found, lying, g.permute(order).contiguous().permute(back))
            np.testing.assert_allclose(of_input.double().numpy(), of_whole.double().numpy(), 1e-2, 1e-3)
