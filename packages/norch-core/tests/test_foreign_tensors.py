"""Tensors of other frameworks, given to norch's functions, and norch's to theirs."""

from __future__ import annotations

import pytest

import norch


class CallsAgain:
    """As PyTorch's own Tensor: its default calls the function, which it takes for one of PyTorch's."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_what_only_calls_the_function_again_is_named():
    x = norch.ones(2)
    for call in (lambda y: norch.add(x, y), lambda y: x @ y, lambda y: x + y, norch.exp, lambda y: norch.stack([y])):
        with pytest.raises(TypeError, match=r"CallsAgain is no Tensor of norch.*from_dlpack\(\) converts it"):
            call(CallsAgain())


def test_a_foreign_function_that_asks_again_is_not_implemented():
    def foreign(x):
        found = type(x).__torch_function__(foreign, (type(x),), (x,))
        if found is NotImplemented:
            raise TypeError("nothing implements foreign")
        return found

    with pytest.raises(TypeError, match="nothing implements foreign"):
        foreign(norch.ones(2))


def test_tensors_of_pytorch_are_converted_first():
    torch = pytest.importorskip("torch")
    x, y = norch.ones(2), torch.ones(2)
    for call in (lambda: x + y, lambda: norch.exp(y), lambda: y * x, lambda: y.add(x)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(RuntimeError, match="dtype"):
        norch.from_dlpack(y.to(torch.complex64))
    assert (x + norch.from_dlpack(y)).tolist() == [2, 2]
