"""How gradients lie in memory: as their leaf does, so that programs may `view` them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import norch
from norch import Tensor

SHAPES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "a transpose": (lambda w: w.t().contiguous() * 2, (3, 4)),
    "of a product": (lambda w: norch.ones(2, 4) @ w.t(), (3, 4)),
    "left of a product": (lambda w: w.t() @ norch.ones(3, 2), (3, 4)),
    "of products": (lambda w: norch.bmm(norch.ones(2, 5, 4), w.transpose(1, 2)), (2, 3, 4)),
    "of rows": (lambda w: norch.ones(2, 5, 4) @ w.T, (3, 4)),
    "einsum": (lambda w: norch.einsum("bij,ikj->bk", norch.ones(2, 3, 4), w), (3, 5, 4)),
    "rows of a transpose": (lambda w: w.t()[norch.tensor([0, 1, 1])], (3, 4)),
    "stack": (lambda w: norch.stack([w.t(), w.t()]), (3, 4)),
    "channels-last images": (
        lambda w: norch.ops.conv2d(norch.ones(1, 3, 5, 5).contiguous(memory_format=norch.channels_last), w),
        (4, 3, 3, 3),
    ),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_gradient_lies_in_memory_as_its_leaf_does(name: str, create_graph: bool) -> None:
    function, shape = SHAPES[name]
    w = norch.arange(float(norch.Size(shape).numel())).reshape(shape).div_(9).requires_grad_()
    (function(w) ** 2).sum().backward(create_graph=create_graph)
    assert w.grad is not None
    assert w.grad.stride() == w.stride()
    assert w.grad.view(-1).shape == (w.numel(),)
    assert w.grad.requires_grad is create_graph
    copied = w.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    (function(copied) ** 2).sum().backward()
    assert copied.grad is not None
    assert copied.grad.stride() == copied.stride()
    assert norch.allclose(copied.grad, w.grad.detach())


def test_a_gradient_of_a_leaf_with_gaps_is_contiguous() -> None:
    x = norch.ones(4, 6)[:, ::2].requires_grad_()
    (x.t() * norch.arange(12.0).reshape(3, 4)).sum().backward()
    assert x.grad is not None
    assert x.grad.is_contiguous()
    assert x.grad.tolist() == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]


def test_gradients_of_products_with_a_transpose_are_row_major() -> None:
    w, x = norch.ones(3, 4), norch.ones(2, 4)

    def loss(w: Tensor, x: Tensor) -> Tensor:
        return (x @ w.t()).square().sum()

    assert norch.func.grad(loss)(w, x).stride() == (4, 1)
    each = norch.func.vmap(norch.func.grad(lambda w, x: norch.ops.linear(x, w).square().sum()), in_dims=(None, 0))
    assert each(w, x).view(2, -1).tolist() == [[8.0] * 12] * 2
