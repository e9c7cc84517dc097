"""The gradient that `sum` gives repeats one element: kernels that want it dense are given a copy, and no op is
decomposed for its sake, which would round differently."""

import pytest

import norch


def group_norm(x):
    return norch.group_norm(x, 4)


def attention(x):
    return norch.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("op", [group_norm, attention])
def test_they_give_the_bits_of_dense_ones(op):
    norch.manual_seed(0)
    x = norch.randn(2, 8, 6, 6, requires_grad=True)
    y = op(x)
    grads = norch.ones(()).expand(y.shape), norch.ones(y.shape)
    assert norch.equal(*[norch.autograd.grad(y, x, grad, retain_graph=True)[0] for grad in grads])
