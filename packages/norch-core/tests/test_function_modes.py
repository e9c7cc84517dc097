"""`TorchFunctionMode`: contexts that are asked for all public functions."""

from __future__ import annotations

import threading

import pytest

import norch
from norch import Tensor
from norch.overrides import (
    BaseTorchFunctionMode,
    TorchFunctionMode,
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
)


class Log(TorchFunctionMode):
    """Lists what it is asked for."""

    def __init__(self) -> None:
        self.asked: list = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.asked.append(func)
        return func(*args, **(kwargs or {}))


X = norch.arange(12.0).reshape(3, 4)

CALLS = {
    "norch.ones(2)": norch.ones, "norch.rand(2)": norch.rand, "norch.tensor([1, 2])": norch.tensor,
    "norch.add(X, 1)": norch.add, "X.add(2)": Tensor.add, "X + 1": Tensor.add, "2 * X": Tensor.mul,
    "X @ X.T": Tensor.matmul, "X[0]": Tensor.__getitem__, "X[:, 1:3]": Tensor.__getitem__, "len(X)": Tensor.__len__,
    "norch.cat([X, X])": norch.cat, "X.view(-1)": Tensor.view, "X.to(norch.float64)": Tensor.to,
    "norch.linalg.norm(X)": norch.linalg.norm, "norch.special.erf(X)": norch.special.erf,
    "norch.softmax(X, 0)": norch.softmax, "X.softmax(0)": Tensor.softmax, "bool(X[0, 0] > 0)": Tensor.__bool__,
    "norch.einsum('ij,ij->i', X, X)": norch.einsum, "X.clone().add_(1)": Tensor.add_, "-X": Tensor.neg,
    "norch.fft.rfft(X)": norch.fft.rfft, "norch.zeros_like(X)": norch.zeros_like, "X.tolist()": Tensor.tolist,
    "norch.where(X > 2, X, 0)": norch.where,
}  # fmt: skip


@pytest.mark.parametrize(("call", "function"), CALLS.items())
def test_functions_methods_and_operators_are_asked_for(call, function):
    names = {"X": X, "norch": norch}
    before = function.__code__
    expected = eval(call, names)
    with Log() as log:
        found = eval(call, names)
    assert log.asked[-1] is function
    assert len(log.asked) <= 1 + (".T" in call) + call.count(">") + ("clone" in call) + ("0, 0" in call)
    assert function.__code__ is before
    if isinstance(expected, Tensor) and "rand" not in call:
        assert norch.equal(found, expected)


def test_a_mode_changes_what_functions_give():
    class Double(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if func in (norch.ones, norch.zeros):
                kwargs["dtype"] = norch.float64
            return func(*args, **kwargs)

    with Double():
        assert norch.ones(2).dtype is norch.float64
        assert norch.empty(2).dtype is norch.float32
    assert norch.ones(2).dtype is norch.float32


def test_nested_modes_are_asked_from_within():
    order = []

    class Named(TorchFunctionMode):
        def __init__(self, name):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            order.append(self.name)
            return func(*args, **(kwargs or {}))

    with Named("outer"), BaseTorchFunctionMode(), Named("inner"):
        X.exp()
    assert order == ["inner", "outer"]


def test_a_mode_is_off_within_it_and_may_be_entered_again():
    class Twice(TorchFunctionMode):
        depth = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            if self.depth == 1:
                return func(*args, **(kwargs or {}))
            self.depth += 1
            with self:
                found = args[0] + 1
            self.depth -= 1
            return found

    with Twice():
        assert norch.equal(X.exp(), X + 1) is not None
        found = X.exp()
    assert found.tolist() == (X + 1).tolist()


def test_subclasses_are_asked_after_modes():
    class Noted(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "the class"

    class Types(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return types, func(*args, **(kwargs or {}))

    x = norch.ones(2).as_subclass(Noted)
    with Types():
        assert norch.add(x, 1) == ((Noted,), "the class")
        assert norch.exp(X)[0] == ()


def test_functions_of_ones_own_ask_the_mode():
    def halved(x):
        if has_torch_function_unary(x):
            return handle_torch_function(halved, (x,), x)
        return x / 2

    assert not has_torch_function((X,))
    with Log() as log:
        assert has_torch_function((X,))
        assert norch.Tensor.sum(halved(X)).item() == 33
    assert log.asked == [halved, Tensor.sum, Tensor.item]


def test_errors_leave_no_mode_behind():
    class Bad(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match="Bad gives nothing for exp"), Bad():
        norch.exp(X)
    with (
        pytest.raises(NotImplementedError, match="TorchFunctionMode defines no __torch_function__"),
        TorchFunctionMode(),
    ):
        norch.exp(X)
    assert norch.exp(norch.zeros(1)).item() == 1
    with pytest.raises(norch.ShapeError), Log():
        norch.matmul(X, X)


def test_other_threads_are_left_alone():
    with Log() as log:
        thread = threading.Thread(target=lambda: norch.ones(2).exp())
        thread.start()
        thread.join()
        norch.zeros(1)
    assert log.asked == [norch.zeros]


def test_gradients_under_a_mode():
    x = X.clone().requires_grad_()
    with Log():
        (x.exp() * 2).sum().backward()
    assert norch.equal(x.grad, 2 * X.exp())


def test_autocast_under_a_mode_is_autocast():
    half, other = X.bfloat16(), norch.ones(4, 4)
    calls = (
        lambda: X @ other,
        lambda: norch.exp(X),
        lambda: norch.einsum("ij,jk->ik", X, other),
        lambda: norch.cdist(half, half),
        lambda: norch.softmax(half, 0),
        lambda: norch.linalg.multi_dot([X, other, other]),
        lambda: norch.nn.functional.mse_loss(half, half) if hasattr(norch, "nn") else X,
    )
    with norch.autocast("cpu", dtype=norch.bfloat16):
        expected = [call().dtype for call in calls]
        with Log():
            assert [call().dtype for call in calls] == expected
