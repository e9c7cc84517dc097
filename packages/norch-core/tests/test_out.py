"""`out=`: results written into tensors that the caller gives, by one rule for every function."""

from __future__ import annotations

import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import norch
from norch import AutogradError, DeviceError, DTypeError, ShapeError
from norch.testing.samples import SAMPLES, build
from norch.testing.samples.record import flat

NOT_IN_PYTORCH = {
    "clone", "einsum", "group_norm", "hardsigmoid", "hardswish", "hardtanh", "index_put", "leaky_relu", "logsigmoid",
    "mish", "pad", "relu", "silu", "softplus", "softshrink", "softsign",
}  # fmt: skip
"""Functions that take no `out` there either, and here check their arguments themselves."""


def inputs(device: str) -> tuple[norch.Tensor, norch.Tensor]:
    make = norch.tensor
    return make([[1.0, 2.0], [3.0, 5.0]], device=device), make([[2.0, 1.0], [1.0, 4.0]], device=device)


@pytest.mark.parametrize(
    "name", [n for n, s in SAMPLES.items() if s.call is None and hasattr(norch, n) and n not in NOT_IN_PYTORCH]
)
def test_every_function_takes_it(name: str, device: str) -> None:
    sample = SAMPLES[name]
    function = getattr(norch, name)
    dtype = sample.dtypes[-1]
    built = build(sample, sample.cases[0], dtype, device)
    wanted = flat(function(*built.args, **built.kwargs))
    if sample.view or not all(isinstance(x, norch.Tensor) for x in wanted):
        return
    empty = [norch.empty(0, dtype=x.dtype, device=device) for x in wanted]
    out = empty if len(wanted) > 1 else empty[0]
    found = flat(function(*built.args, **built.kwargs, out=out))
    assert all(a is b for a, b in zip(found, empty, strict=True))
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert norch.allclose(a.double(), b.double(), equal_nan=True)
    filled = [norch.empty_like(x) for x in wanted]
    before = [x.spec for x in filled]
    buffers = [x.buffer for x in filled]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(*built.args, **built.kwargs, out=filled if len(wanted) > 1 else filled[0])
    assert [x.spec for x in filled] == before
    assert all(x.buffer is b for x, b in zip(filled, buffers, strict=True))
    for a, b in zip(filled, wanted, strict=True):
        assert norch.allclose(a.double(), b.double(), equal_nan=True)


FACTORIES: list[Any] = [
    lambda **k: norch.zeros(2, 3, **k), lambda **k: norch.ones(4, **k), lambda **k: norch.full((2,), 7, **k),
    lambda **k: norch.arange(5, **k), lambda **k: norch.arange(1, 9, 2, **k), lambda **k: norch.eye(3, **k),
    lambda **k: norch.linspace(0, 3, 4, **k),
]  # fmt: skip


@pytest.mark.parametrize("make", FACTORIES)
@pytest.mark.parametrize("dtype", [norch.float64, norch.int64, norch.float32])
def test_factories_take_its_dtype_and_device(make: Any, dtype: norch.DType, device: str) -> None:
    out = norch.empty(0, dtype=dtype, device=device)
    assert make(out=out) is out
    assert out.dtype is dtype
    assert out.tolist() == make(dtype=dtype).tolist()
    assert norch.rand(3, out=norch.empty(3)).shape == (3,)


def test_several_results(device: str) -> None:
    a, _ = inputs(device)
    values, indices = norch.empty(2, device=device), norch.empty(0, dtype=norch.int64, device=device)
    found = norch.max(a, 0, out=(values, indices))
    assert found.values is values
    assert found.indices is indices
    assert (values.tolist(), indices.tolist()) == ([3, 5], [1, 1])
    with pytest.raises(TypeError, match="gives 2 tensors, out has 1"):
        norch.sort(a, out=values)


def test_shapes(device: str) -> None:
    a, b = inputs(device)
    out = norch.zeros(3, device=device)
    with pytest.warns(UserWarning, match=r"add\(\): out has shape \(3,\) and takes that of the result, \(2, 2\)"):
        assert norch.add(a, b, out=out) is out
    assert out.tolist() == [[3, 3], [4, 9]]
    with pytest.raises(ShapeError, match="out is a view of shape"):
        norch.exp(a, out=norch.zeros(4, device=device)[1:])
    layout = norch.zeros(2, 4, device=device).t()[::2]
    assert norch.mul(a, b, out=layout) is layout
    assert layout.tolist() == [[2, 2], [3, 20]]


def test_dtypes(device: str) -> None:
    a, b = inputs(device)
    for dtype in (norch.float64, norch.float16):
        assert norch.mul(a, b, out=norch.empty(2, 2, dtype=dtype, device=device)).tolist() == [[2, 2], [3, 20]]
    for compute in (norch.add, norch.matmul, norch.atan2):
        with pytest.raises(DTypeError, match="the result is norch.float32, which out of norch.int64 cannot hold"):
            compute(a, b, out=norch.empty(2, 2, dtype=norch.int64, device=device))


def test_gradients_are_refused(device: str) -> None:
    a, b = inputs(device)
    tracked = a.clone().requires_grad_()
    for call in (
        lambda: norch.mul(tracked, b, out=norch.empty(0, device=device)),
        lambda: norch.exp(a, out=tracked),
        lambda: norch.mm(tracked, b, out=norch.empty(0, device=device)),
        lambda: norch.cat([b, tracked], out=norch.empty(0, device=device)),
    ):
        with pytest.raises(AutogradError, match=r"\(\): out= does not support automatic differentiation"):
            call()
    with norch.no_grad():
        assert not norch.mul(tracked, b, out=norch.empty(0, device=device)).requires_grad
        norch.exp(a, out=tracked)
    assert norch.equal(tracked.detach(), a.exp())


def test_memory_that_overlaps(device: str) -> None:
    a, b = inputs(device)
    total = a + b
    assert norch.add(a, b, out=a) is a
    assert norch.equal(a, total)
    product = a @ b
    assert norch.equal(norch.matmul(a, b, out=a), product)
    line = norch.arange(4.0, device=device)
    for call in (
        lambda: norch.exp(line[:-1], out=line[1:]),
        lambda: norch.cumsum(line[:-1], 0, out=line[1:]),
        lambda: norch.mul(a, a.t(), out=a),
    ):
        with pytest.raises(ShapeError, match="out shares memory with an operand without being the same"):
            call()
    with pytest.raises(ShapeError, match=r"clone\(\) it first"):
        norch.add(b, b, out=norch.zeros(1, 2, device=device).expand(2, 2))


def test_versions_and_saved_tensors() -> None:
    x = norch.ones(3, requires_grad=True)
    out = norch.ones(3)
    y = x * out
    norch.exp(out.clone(), out=out)
    with pytest.raises(AutogradError, match="exp"):
        y.sum().backward()


def test_what_is_no_tensor_and_other_mistakes() -> None:
    a, b = inputs("cpu")
    for call in (lambda: norch.exp(a, out=3), lambda: norch.add(a, b, out="x"), lambda: norch.sum(a, out=3)):
        with pytest.raises(DTypeError, match=r"out must be a Tensor, got"):
            call()
    with pytest.raises(TypeError, match="positional"):
        norch.exp(a, b)
    with pytest.raises(TypeError, match="positional"):
        norch.mul(a, b, a)
    assert norch.exp(a, out=None).shape == norch.sum(a, 0, out=None).shape * 2
    with pytest.raises(TypeError):
        norch.sum(a, wrong=1, out=b)
    with pytest.raises(DeviceError):
        norch.exp(norch.empty(2, device="meta"), out=norch.empty(2))


def test_functions_that_take_it_are_found_by_name() -> None:
    for function in (norch.exp, norch.mul, norch.matmul, norch.add):
        assert pickle.loads(pickle.dumps(function)) is function
    norch.exp(norch.ones(1))
    assert "out" in inspect.signature(norch.exp).parameters
    assert norch.exp.__doc__ == norch.Tensor.exp.__doc__


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_methods_take_no_out(name):
    x, out = norch.ones(3), norch.zeros(3)
    with pytest.raises(TypeError, match="out"):
        getattr(x, name)(x, out=out)
    assert out.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("a", "b"), [((7,), (2, 3, 7, 5)), ((2, 3, 6, 7), (7,)), ((6, 7), (7,)), ((7,), (7, 5)), ((7,), (7,))]
)
def test_products_with_vectors_in_batches(a, b):
    left, right = norch.randn(a), norch.randn(b)
    expected = np.matmul(left.numpy(), right.numpy())
    out = norch.full(expected.shape, -1.0)
    norch.matmul(left, right, out=out)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["arange", "linspace", "logspace", "range"])
def test_rows_of_numbers_take_the_shape_of_out(name):
    args = (1, 5) if name == "arange" else (1, 4) if name == "range" else (1, 4, 4)
    function = getattr(norch, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = function(*args).to(norch.float32)
        whole = norch.zeros(2, 3)
        function(*args, out=whole[:, 1:])
        assert whole.tolist() == [[0, *expected[:2].tolist()], [0, *expected[2:].tolist()]]
        empty = norch.empty(0)
        assert function(*args, out=empty) is empty
        assert empty.tolist() == expected.tolist()
