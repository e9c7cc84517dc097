"""Hooks of a recorded op: `grad_fn.register_prehook` and `grad_fn.register_hook`."""

from __future__ import annotations

import norch
from norch.autograd import Function


def leaf(*values: float) -> norch.Tensor:
    return norch.tensor(values, requires_grad=True)


def test_a_hook_is_given_the_gradients_and_may_replace_them() -> None:
    x, y, seen = leaf(1.0, 2.0), leaf(3.0, 4.0), []
    product = x * y

    def keep(*grads):
        seen.append([g.tolist() for given in grads for g in given])

    def triple(grads, of_result):
        return grads[0] * 3, grads[1]

    product.grad_fn.register_hook(keep)
    product.grad_fn.register_hook(triple)
    product.sum().backward()
    assert seen == [[[3.0, 4.0], [1.0, 2.0], [1.0, 1.0]]]
    assert x.grad.tolist() == [9.0, 12.0]
    assert y.grad.tolist() == [1.0, 2.0]


def test_a_prehook_replaces_the_gradient_of_the_result() -> None:
    x = leaf(1.0, 2.0)
    square = x * x
    handle = square.grad_fn.register_prehook(lambda grads: (grads[0] * 10,))
    square.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [20.0, 40.0]
    handle.remove()
    assert norch.autograd.grad(square.sum(), x)[0].tolist() == [2.0, 4.0]


def test_operands_without_a_gradient_have_none() -> None:
    x, seen = leaf(1.0, 2.0), []
    y = norch.tensor([3.0, 4.0]) * x
    y.grad_fn.register_hook(lambda grads, of_result: seen.extend(grads))
    y.sum().backward()
    assert seen[0] is None
    assert seen[1].tolist() == [3.0, 4.0] == x.grad.tolist()


def test_hooks_of_one_result_of_several_are_those_of_the_op() -> None:
    x, seen = norch.arange(6.0).reshape(2, 3).requires_grad_(), []
    largest = norch.max(x, 1)[0]
    largest.grad_fn.register_hook(lambda grads, of_result: seen.append((len(grads), len(of_result))) or (grads[0] * 2,))
    largest.sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0, 2.0], [0.0, 0.0, 2.0]]
    assert seen[0][0] == 1


class Same(Function):
    @staticmethod
    def forward(ctx, *inputs):
        return inputs

    @staticmethod
    def backward(ctx, *grads):
        return grads


def test_hooks_of_a_function_with_gradients_that_are_differentiated() -> None:
    x = leaf(2.0)
    a, b = Same.apply(x * 1, x * 2)
    handle = a.grad_fn.register_hook(lambda grads, of_result: tuple(g * 10 for g in grads))
    (grad,) = norch.autograd.grad(a**3 + b, x, create_graph=True)
    assert grad.item() == 10 * 12 + 20  # 10 * 3 x ** 2 + 10 * 2
    handle.remove()
    grad.backward()
    assert x.grad.item() == 120  # 10 * 6 x


def test_hooks_of_a_view() -> None:
    x = leaf(1.0, 2.0)
    whole = x * 1
    part = whole[1]
    part.grad_fn.register_hook(lambda grads, of_result: (grads[0] * 5,))
    (part + whole.sum()).backward()
    assert x.grad.tolist() == [1.0, 6.0]
