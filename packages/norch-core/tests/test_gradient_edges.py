"""`GradientEdge`: places in the graph in place of tensors."""

from __future__ import annotations

import pytest

import norch
from norch.autograd import grad
from norch.autograd.graph import GradientEdge, get_gradient_edge


def test_a_pass_may_begin_and_end_at_edges() -> None:
    x = norch.tensor([1.0, 2.0], requires_grad=True)
    h = x * 3
    middle, end = get_gradient_edge(h), get_gradient_edge((h**2).sum())
    (by_h,) = grad(end, middle, retain_graph=True)
    assert by_h.tolist() == [6, 12]
    assert grad(middle, [get_gradient_edge(x)], by_h)[0].tolist() == [18, 36]
    with pytest.raises(RuntimeError, match=r"gradient of shape \(3,\) for a tensor of shape \(2,\)"):
        grad(middle, x, norch.ones(3))
    with pytest.raises(RuntimeError, match="does not require grad"):
        get_gradient_edge(norch.ones(1))


def test_the_two_parts_of_a_backward_pass() -> None:
    x, w = norch.ones(2, 3, requires_grad=True), norch.ones(3, 4, requires_grad=True)
    edge = get_gradient_edge(x @ w)
    norch.autograd.backward(edge, norch.ones(2, 4), inputs=[get_gradient_edge(x)], retain_graph=True)
    assert (x.grad.tolist(), w.grad) == ([[4, 4, 4]] * 2, None)
    norch.autograd.backward([edge], [norch.ones(2, 4)], inputs=[w])
    assert w.grad.tolist() == [[2] * 4] * 3


def test_edges_of_one_of_several_results() -> None:
    x = norch.tensor([[3.0, 1.0], [2.0, 5.0]], requires_grad=True)
    values, _ = x.sort(dim=1)

    class Both(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return 2 * a + 3 * b

    first, second = Both.apply(values)
    edge = get_gradient_edge(second)
    assert edge == get_gradient_edge(second)
    assert grad((first * second).sum(), edge, retain_graph=True)[0].tolist() == first.tolist()
    assert grad(edge, x, norch.ones(2, 2), retain_graph=True)[0].tolist() == [[3, 3], [3, 3]]
    parent = second.grad_fn.next_functions[0][0]
    assert grad(GradientEdge(parent, 0), x, norch.ones(2, 2))[0].tolist() == [[2, 2], [2, 2]]
