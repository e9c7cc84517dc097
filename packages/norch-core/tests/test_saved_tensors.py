"""What the graph saved and a program then changes in place: found, named, and let be where no gradient needs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import norch
from norch import AutogradError

Tensor = norch.Tensor


def square() -> Tensor:
    return norch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


VERSIONED: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], object], str, str]] = {
    "operand": (lambda y: y * y, lambda y, z: y.add_(1), "mul", "add_"),
    "through a view": (lambda y: y.sin(), lambda y, z: y[0].zero_(), "sin", "zero_"),
    "base of a view": (lambda y: y[0].cos(), lambda y, z: y.neg_(), "cos", "neg_"),
    "assignment": (lambda y: y * y, lambda y, z: y.__setitem__(0, 1.0), "mul", "__setitem__"),
    "mask": (lambda y: y.log(), lambda y, z: y.__setitem__(y > 1, 0.5), "log", "__setitem__"),
    "under no_grad": (lambda y: y.pow(3), lambda y, z: y.detach().copy_(y.detach() + 1), "pow", "copy_"),
    "fill": (lambda y: y / (y + 1), lambda y, z: y.fill_(2), "div", "fill_"),
    "matmul": (lambda y: y @ y, lambda y, z: y.uniform_(), "matmul", ""),
}


@pytest.mark.parametrize("name", VERSIONED)
def test_a_saved_tensor_that_changed(name: str) -> None:
    function, change, saver, changer = VERSIONED[name]
    y = square() * 2
    z = function(y)
    change(y, z)
    with pytest.raises(AutogradError, match=f"{saver} needs") as caught:
        z.sum().backward()
    assert f"{changer} has changed it" in str(caught.value) or not changer


def test_a_saved_result_that_changed() -> None:
    z = (square() * 2).exp()
    with norch.no_grad():
        z.mul_(2)
    with pytest.raises(AutogradError, match=r"exp needs its result of shape \(2, 2\).*mul_ has changed it"):
        z.sum().backward()


@pytest.mark.parametrize("name", ["cross_entropy", "sort", "erfinv", "mean", "var", "logsumexp", "sum_to_size"])
def test_results_that_no_gradient_needs_may_change(name: str) -> None:
    results: dict[str, Callable[[Tensor], Tensor]] = {
        "cross_entropy": lambda x: norch.cross_entropy(x.reshape(1, 2), norch.tensor([1])),
        "sort": lambda x: x.sort()[0],
        "erfinv": lambda x: x.erfinv(),
        "mean": lambda x: x.mean(),
        "var": lambda x: x.var(),
        "logsumexp": lambda x: x.logsumexp(0),
        "sum_to_size": lambda x: x[0].sum_to_size(()),
    }
    x = norch.tensor([0.5, 0.25], requires_grad=True)
    results[name](x).sum().backward()
    expected, x.grad = x.grad, None
    results[name](x).add_(1).sum().backward()
    assert x.grad.tolist() == expected.tolist()


def test_what_was_not_saved_may_change() -> None:
    x = square()
    y = x * 2
    z = y + 1
    y.zero_()  # add keeps nothing
    w = z.relu()
    z.fill_(9)  # relu keeps its result only
    w.sum().backward()
    assert x.grad.tolist() == [[2, 2], [2, 2]]


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "element": lambda x: x.__setitem__((0, 1), 5.0),
    "row": lambda x: x.__setitem__(0, norch.ones(2)),
    "slice": lambda x: x.__setitem__((slice(None), slice(1, None)), 5.0),
    "list": lambda x: x.__setitem__([1], 5.0),
    "index tensor": lambda x: x.__setitem__(norch.tensor([1, 0]), norch.zeros(2, 2)),
    "mask": lambda x: x.__setitem__(x > 1, 5.0),
    "reversed": lambda x: x.__setitem__(slice(None, None, -1), norch.ones(2, 2)),
    "index_put_": lambda x: x.index_put_((norch.tensor([0]),), norch.ones(2)),
    "index_put_ accumulate": lambda x: x.index_put_((norch.tensor([0, 0]),), norch.ones(2), accumulate=True),
    "index_add_": lambda x: x.index_add_(0, norch.tensor([0]), norch.ones(1, 2)),
    "index_fill_": lambda x: x.index_fill_(0, norch.tensor([0]), 3.0),
    "index_copy_": lambda x: x.index_copy_(0, norch.tensor([0]), norch.ones(1, 2)),
    "scatter_": lambda x: x.scatter_(0, norch.tensor([[0, 1]]), 3.0),
    "scatter_add_": lambda x: x.scatter_add_(0, norch.tensor([[0, 1]]), norch.ones(1, 2)),
    "masked_fill_": lambda x: x.masked_fill_(x > 1, 0.0),
    "fill_diagonal_": lambda x: x.fill_diagonal_(0),
    "copy_": lambda x: x.copy_(norch.ones(2, 2)),
    "fill_": lambda x: x.fill_(3),
    "zero_": lambda x: x.zero_(),
    "normal_": lambda x: x.normal_(),
    "uniform_": lambda x: x.uniform_(),
    "bernoulli_": lambda x: x.bernoulli_(),
    "apply_": lambda x: x.apply_(lambda v: v + 1),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("through", ["itself", "detached", "a view"])
def test_every_change_is_noted(name: str, through: str) -> None:
    """On the fast path of constants too: what saved the memory before notices, whichever tensor wrote to it."""
    x = square().detach() if through == "itself" else square() * 1
    target = {"itself": x, "detached": x.detach(), "a view": x.detach().t().t()}[through]
    w = norch.ones(2, 2, requires_grad=True)
    z = w * x  # saves x
    version = x._version
    CHANGES[name](target)
    assert x._version == target._version > version
    with pytest.raises(AutogradError, match="mul needs its .* has changed it in place"):
        z.sum().backward()


def test_versions_grow() -> None:
    x = norch.zeros(3)
    assert x._version == 0
    x.add_(1)
    first = x._version
    x[0] = 2
    assert x._version > first > 0
    assert x[1:]._version == x.detach()._version == x._version
    assert x.clone()._version == 0
