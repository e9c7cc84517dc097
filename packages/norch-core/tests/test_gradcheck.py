"""gradcheck of complex numbers and of float32, and what passes refuse."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.autograd import Function, gradcheck, gradgradcheck
from norch.autograd.graph import save_on_cpu

RNG = np.random.default_rng(4)


def numbers(*shape: int) -> norch.Tensor:
    return norch.tensor(RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).requires_grad_()


def test_complex_numbers_are_checked_by_their_parts():
    a, x = numbers(3, 2), norch.tensor(RNG.standard_normal((2, 2))).requires_grad_()
    for function in (lambda a, x: (a @ x).exp(), lambda a, x: a.abs() + x[0], lambda a, x: (a.conj() * 2j, x)):
        assert gradcheck(function, (a, x))
        assert gradgradcheck(function, (a, x))
    assert gradcheck(lambda x: norch.polar(x.abs(), x), x)


def test_a_wrong_gradient_by_complex_numbers_is_found():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, z):
            return z * 2j

        @staticmethod
        def backward(ctx, g):
            return g * 2j  # not its conjugate

    with pytest.raises(norch.AutogradError, match="the gradient is"):
        gradcheck(Wrong.apply, numbers(2))


def test_float32_is_checked_with_a_warning():
    x = norch.rand(4, requires_grad=True)
    with pytest.warns(UserWarning, match="input 0 is .*float32.* use float64"):
        assert gradcheck(lambda x: x * x, x, eps=1e-2, atol=1e-2)
    with pytest.warns(UserWarning, match="float32"), pytest.raises(norch.AutogradError, match="the gradient is"):
        gradcheck(lambda x: x * x.detach(), x, eps=1e-2, atol=1e-2)


def test_passes_without_inputs_are_refused():
    x = norch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="inputs is empty"):
        x.sum().backward(inputs=[])
    with pytest.raises(RuntimeError, match="no inputs"):
        norch.autograd.grad(x.sum(), [])
    with pytest.raises(RuntimeError, match="allow_unused=False"):
        norch.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True)


def test_what_lies_on_the_cpu_is_not_pinned():
    x = norch.ones(2, requires_grad=True)
    with save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2, 2]
