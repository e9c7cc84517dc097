"""What in-place arithmetic allocates and shares: counted by a backend, and on expanded tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from inplace_cases import LAYOUTS, OPERATORS, call, each_op, matrix

import norch
from norch import ShapeError
from norch.backend import Kernel, Operand
from norch.backend.registry import register, unregister
from norch.numpy_backend.backend import NumpyBackend
from norch.numpy_backend.views import bind


def _hardtanh(x: Any, out: Any, min_val: float, max_val: float) -> None:
    np.clip(x, min_val, max_val, out=out)


def _silu(x: Any, out: Any) -> None:
    np.copyto(out, x / (1 + np.exp(-x)))


ACTIVATIONS: dict[str, Any] = {"hardtanh": _hardtanh, "silu": _silu}
"""Composites that have kernels here."""


class CountingBackend(NumpyBackend):
    """The reference on a device of its own, which counts the buffers that are asked for."""

    device_type = "counting"
    allocations = 0

    def allocate(self, nbytes: int, index: int) -> Any:
        self.allocations += 1
        return super().allocate(nbytes, index)

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        if op in ACTIVATIONS and operands[0].dtype.is_floating_point:
            limits = {name: attrs[name] for name in ("min_val", "max_val") if name in attrs}
            return bind(partial(ACTIVATIONS[op], **limits), operands)
        if op != "axpy" or not operands[0].dtype.is_floating_point:
            return super().compile(op, operands, attrs)
        return bind(lambda a, b, alpha, out: np.copyto(out, a + b * alpha), operands)


@pytest.fixture
def counting() -> Iterator[CountingBackend]:
    backend = CountingBackend()
    register(backend)
    yield backend
    unregister("counting")


def test_a_view_that_was_made_a_leaf_is_a_leaf():
    x = norch.arange(6.0).reshape(2, 3).requires_grad_()
    for change in (lambda: x.add_(1), lambda: x.mul_(x), lambda: x.clamp_(0, 1), lambda: x.zero_()):
        with pytest.raises(norch.AutogradError, match="leaf"):
            change()
    with norch.no_grad():
        x.add_(1)
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]


@each_op
@pytest.mark.parametrize("layout", LAYOUTS)
def test_arithmetic_in_place_allocates_nothing(name: str, layout: str, counting: CountingBackend) -> None:
    x = LAYOUTS[layout](matrix(device="counting"))
    other = norch.ones(x.shape, device="counting")
    wide = other[..., :1].expand(x.shape) if x.ndim else other
    element = norch.ones((), device="counting")
    counting.allocations = 0
    for right in (other, wide, element, 2, 0.5, x):
        call(x, name, right)
        with norch.no_grad():
            OPERATORS[name](x, right)
    assert counting.allocations == 0


@pytest.mark.parametrize("name", ["add_", "sub_"])
def test_alpha_in_place_allocates_nothing_where_there_is_a_kernel(name: str, counting: CountingBackend) -> None:
    x, y = matrix(device="counting"), norch.ones(3, device="counting")
    counting.allocations = 0
    getattr(x, name)(y, alpha=0.25)
    getattr(x, name)(x, alpha=-1)
    assert counting.allocations == 0
    sign = 1 if name == "add_" else -1
    expected = np.arange(1, 7).reshape(2, 3) + sign * 0.25
    np.testing.assert_array_equal(x.cpu().numpy(), expected - sign * expected)
    whole = matrix(norch.int64, "counting")  # no kernel: by its parts
    assert getattr(whole, name)(whole, alpha=2).tolist() == (np.arange(1, 7).reshape(2, 3) * (1 + 2 * sign)).tolist()


def test_gradients_accumulate_in_place(counting: CountingBackend) -> None:
    x = norch.ones(3, device="counting", requires_grad=True)
    seed = norch.ones(3, device="counting")
    x.backward(seed)
    memory = x.grad.data_ptr()
    counting.allocations = 0
    for _ in range(3):
        x.backward(seed)
    assert counting.allocations == 0
    assert x.grad.data_ptr() == memory
    assert x.grad.tolist() == [4, 4, 4]
    assert seed.tolist() == [1, 1, 1]


def test_the_bounds_of_clamp_are_not_taken_for_each_other() -> None:
    assert norch.tensor([0.0, 2.0]).clamp_(max=1).tolist() == [0.0, 1.0]
    assert norch.tensor([0.0, 2.0]).clamp_(min=1).tolist() == [1.0, 2.0]
    with pytest.raises(norch.ShapeError, match="clamp_"):
        norch.zeros(1).expand(3).clamp_(max=1)
    x = norch.zeros(3, requires_grad=True)
    y = x * 2
    y[1:].clamp_(max=-1.0)
    y.sum().backward()
    assert y.tolist() == [0.0, -1.0, -1.0]
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 0.0, 0.0]


def test_expanded_tensors_are_filled() -> None:
    base = norch.tensor([1.0, 2.0])
    expanded = base.expand(3, 2)
    assert expanded.fill_(5).tolist() == [[5.0, 5.0]] * 3
    assert base.tolist() == [5.0, 5.0]
    expanded.zero_()
    assert base.tolist() == [0.0, 0.0]
    for change in (lambda: expanded.add_(1), lambda: expanded.fill_(norch.tensor(1.0)), lambda: expanded.copy_(base)):
        with pytest.raises(ShapeError, match="clone"):
            change()


def test_the_gradient_of_what_was_filled_through_an_expanded_view_is_0() -> None:
    leaf = norch.tensor([1.0, 2.0], requires_grad=True)
    made = leaf * 3
    made.expand(3, 2).zero_()
    (made * made + leaf).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("name", "options"), [("silu", ()), ("hardtanh", (-0.5, 0.5))])
def test_activations_in_place_allocate_nothing_where_there_is_a_kernel(
    name: str, options: tuple[float, ...], counting: CountingBackend
) -> None:
    """A network's activations in place were made beside their input, and copied."""
    function, change = getattr(norch, name), getattr(norch, f"{name}_")
    x = matrix(device="counting")
    rows, expected = x[1:, ::2], function(x.clone(), *options)
    before, of_rows = x.tolist(), function(rows, *options).tolist()
    leaf = x.clone().requires_grad_()
    counting.allocations = 0
    assert change(rows, *options) is rows
    with norch.no_grad():
        change(leaf, *options)
    assert counting.allocations == 0
    assert leaf.tolist() == expected.tolist()
    assert rows.tolist() == of_rows
    assert (x[0].tolist(), x[1:, 1::2].tolist()) == (before[0], [row[1::2] for row in before[1:]])
    recorded = norch.tensor(before, device="counting").requires_grad_()
    once = recorded * 1.0
    counting.allocations = 0
    change(once, *options)
    assert counting.allocations == 1  # of what the gradient needs
    once.sum().backward()
    again = norch.tensor(before, device="counting").requires_grad_()
    function(again, *options).sum().backward()
    assert recorded.grad.tolist() == again.grad.tolist()
