"""The gradient that `sum` gives repeats one element: kernels that want it dense are given a copy, and no op is
decomposed for its sake."""

import pytest

import norch


def group_norm(x):
    return norch.group_norm(x, 4)


def attention(x):
    return norch.scaled_dot_product_attention(x, x, x)


def reflection(x):
    return norch.pad(x, (1, 1, 1, 1), mode="reflect")


@pytest.mark.parametrize("op", [group_norm, attention, reflection])
def test_they_give_the_bits_and_the_ops_of_dense_ones(op):
    x = norch.randn(2, 8, 6, 6, requires_grad=True)
    y = op(x)
    found, counts = [], []
    for grad in (norch.ones(()).expand(y.shape), norch.ones(y.shape)):
        with norch.profiler.profile() as p:
            found += norch.autograd.grad(y, x, grad, retain_graph=True)
        counts.append(sum(event.count for event in p.key_averages()))
    assert norch.equal(*found)
    assert counts[0] == counts[1]
