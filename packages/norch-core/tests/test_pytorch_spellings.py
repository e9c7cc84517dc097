"""Arguments and names that scripts of PyTorch use beside the usual ones."""

from __future__ import annotations

import numpy as np
import pytest

import norch


def test_split_size():
    x = norch.arange(10)
    assert [part.tolist() for part in x.split(split_size=4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [len(part) for part in x.split(split_size=[3, 7], dim=0)] == [3, 7]
    assert [len(part) for part in norch.split(x, split_size_or_sections=5)] == [5, 5]
    for call in (lambda: x.split(), lambda: x.split(2, split_size=3)):
        with pytest.raises(TypeError, match="split"):
            call()


def test_grad_takes_only_inputs():
    x = norch.ones(2, requires_grad=True)
    (g,) = norch.autograd.grad((x * x).sum(), x, None, None, False, True, True)
    assert g.tolist() == [2, 2]
    assert norch.autograd.grad((x * x).sum(), x, only_inputs=True)[0].tolist() == [2, 2]


def test_grad_of_a_batch_of_gradients():
    x, unused = norch.tensor([1.0, 2.0], requires_grad=True), norch.ones(1, requires_grad=True)
    y = x**3
    jacobian, nothing = norch.autograd.grad(
        y, (x, unused), norch.eye(2), create_graph=True, allow_unused=True, is_grads_batched=True
    )
    assert jacobian.tolist() == [[3, 0], [0, 12]]
    assert nothing is None
    (second,) = norch.autograd.grad(jacobian.sum(), x)
    assert second.tolist() == [6, 12]
    (found,) = norch.autograd.grad(y, x, (norch.ones(3, 2),), is_grads_batched=True)
    assert found.tolist() == [[3, 12]] * 3
    for wrong in (None, norch.ones(()), norch.ones(0, 2), (norch.ones(2, 2), norch.ones(3, 2))):
        with pytest.raises(norch.ShapeError, match="is_grads_batched grad_outputs need one first dim"):
            norch.autograd.grad(y, x, wrong, is_grads_batched=True)
    with pytest.raises(norch.AutogradError, match="freed|retain_graph"):
        norch.autograd.grad(y, x, norch.ones(2))


def test_a_batch_of_gradients_frees_what_one_gradient_would():
    class Square(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad

    x = norch.tensor([1.0, 2.0], requires_grad=True)
    for kept in (x * 2, x + x, x.reshape(2, 1)):
        for _ in range(2):
            (found,) = norch.autograd.grad(kept, x, norch.ones(3, *kept.shape), is_grads_batched=True)
            assert found.shape == (3, 2)
    squared = Square.apply(x)
    (found,) = norch.autograd.grad(squared, x, norch.ones(3, 2), is_grads_batched=True)
    assert found.tolist() == [[2, 4]] * 3
    with pytest.raises(norch.AutogradError, match="freed|retain_graph"):
        norch.autograd.grad(squared, x, norch.ones(2))


def test_an_error_of_a_batch_of_gradients_is_that_of_one():
    class Refusing(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("own")

    x = norch.ones(2, requires_grad=True)
    with pytest.raises(KeyError, match="own") as raised:
        norch.autograd.grad(Refusing.apply(x), x, norch.eye(2), is_grads_batched=True)
    assert raised.value.__context__ is None


def test_norms_take_axis_and_keepdims():
    x = norch.tensor([[3.0, 4.0], [6.0, 8.0]])
    assert norch.linalg.vector_norm(x, axis=1).tolist() == [5, 10]
    assert norch.linalg.vector_norm(x, axis=1, keepdims=True).shape == (2, 1)
    assert norch.linalg.norm(x, axis=0, ord=1).tolist() == [9, 12]
    assert norch.linalg.matrix_norm(x, keepdims=True).shape == (1, 1)
    assert norch.linalg.vecdot(x, x, axis=0).tolist() == [45, 80]
    assert norch.linalg.cross(norch.eye(3)[0], norch.eye(3)[1], axis=0).tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nextafter(dtype):
    tiny = np.nextafter(np.zeros((), dtype), np.ones((), dtype))
    values = np.array([0.0, -0.0, 1.0, -1.0, tiny, -tiny, 1e30, np.inf, -np.inf, np.nan, 0.1], dtype)
    a, b = (part.ravel() for part in np.meshgrid(values, values))
    out = norch.nextafter(norch.tensor(a), norch.tensor(b)).numpy()
    expected = np.nextafter(a, b)
    assert np.array_equal(out, expected, equal_nan=True)
    zeros = ~np.isnan(expected)
    assert np.array_equal(np.signbit(out[zeros]), np.signbit(expected[zeros]))


def test_nextafter_of_sixteen_bits():
    one = norch.ones(1, dtype=norch.bfloat16)
    assert norch.nextafter(one, one * 2).item() == 1 + 2**-7
    assert norch.nextafter(one.to(norch.float16), norch.zeros(1, dtype=norch.float16)).item() == 1 - 2**-11
    with pytest.raises(norch.DTypeError, match="a floating dtype, got norch.int64"):
        norch.nextafter(norch.ones(1, dtype=norch.int64), norch.ones(1, dtype=norch.int64))
    assert norch.nextafter(norch.ones(1), norch.ones(1, dtype=norch.int64) * 2).dtype is norch.float32
    x = norch.ones(2)
    assert x.nextafter_(norch.zeros(2)) is x
    a = norch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    norch.nextafter(a, norch.tensor([1.0, 0.0, 2.0])).sum().backward()
    assert a.grad.tolist() == [1, 1, 0]  # as PyTorch's
    assert x[0].item() < 1


def test_matrices_without_elements():
    for rows, columns in ((0, 3), (3, 0), (0, 0)):
        x = norch.zeros(rows, columns)
        assert x.diagonal().shape == (0,)
        assert norch.linalg.pinv(x).shape == (columns, rows)
        assert norch.from_dlpack(x).shape == (rows, columns)
        assert np.from_dlpack(x).shape == (rows, columns)
    assert norch.from_dlpack(np.array([True, False])).tolist() == [True, False]
    assert np.from_dlpack(norch.tensor([True, False])).tolist() == [True, False]


def test_the_type_tensor_is_the_default_dtype():
    assert norch.arange(3).type(norch.Tensor).dtype is norch.float32
    assert norch.ones(2, dtype=norch.float64).type(norch.Tensor).dtype is norch.get_default_dtype()


def test_capsules_are_taken():
    x = norch.arange(3)
    y = norch.from_dlpack(x.__dlpack__(max_version=(1, 0)))
    y[0] = 7
    assert x.tolist() == [7, 1, 2]
