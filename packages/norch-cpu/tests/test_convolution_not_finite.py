"""conv2d and its gradients of infinities and NaN: they stay in what sees them, however it is computed."""

import math

import numpy as np
import pytest
from convolution_harness import draw, gradients, tensor

import norch
from norch.autograd import grad

ONE, NONE = (1, 1), (0, 0, 0, 0)


@pytest.mark.parametrize(("c", "o", "batch"), [(3, 20, 2), (30, 32, 5)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_in_its_windows(value, c, o, batch):
    x, w = np.ones((batch, c, 9, 9)), np.ones((o, c, 3, 3))
    x[1, 2, 4, 5] = value
    leaves = [tensor(v, "float32", requires_grad=True) for v in (x, w)]
    y = norch.conv2d(*leaves, padding=1)
    touched = np.zeros((batch, o, 9, 9), bool)
    touched[1, :, 3:6, 4:7] = True
    assert (np.isfinite(y.detach().numpy()) == ~touched).all()
    np.testing.assert_array_equal(y.detach().numpy()[touched], np.full(touched.sum(), value, np.float32))
    of_input, of_weight = grad(y, leaves, norch.ones_like(y))
    assert np.isfinite(of_input.numpy()).all()
    assert not np.isfinite(of_weight.numpy()[:, 2]).any()
    assert np.isfinite(np.delete(of_weight.numpy(), 2, 1)).all()


@pytest.mark.parametrize("place", [(4, 0), (4, 8), (0, 4), (8, 8)])
def test_what_is_not_finite_at_an_edge_of_a_plane(place):
    x, w = np.ones((2, 20, 9, 9)), np.ones((20, 1, 3, 3))
    x[1, 5, *place] = math.inf
    leaves = [tensor(v, "float32", requires_grad=True) for v in (x, w)]
    y = norch.conv2d(*leaves, padding=1, groups=20)
    seen = [[place[d] - (i - 1) in range(9) for i in range(3)] for d in range(2)]
    of_input, of_weight = grad(y, leaves, norch.ones_like(y))
    expected = np.ones((20, 3, 3), bool)
    expected[5] = ~np.outer(*seen)
    assert (np.isfinite(of_weight.numpy()[:, 0]) == expected).all()
    assert np.isfinite(of_input.numpy()).all()
    assert (~np.isfinite(y.detach().numpy())).sum() == np.outer(*seen).sum()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("layout", "stride"), [(norch.channels_last, 1), (norch.channels_last, 2), (norch.contiguous_format, 2)]
)
def test_a_tap_that_is_not_finite_stays_in_what_it_sees(layout, dtype, stride):
    x, w = tensor(np.ones((2, 20, 9, 11)), dtype).to(memory_format=layout), np.ones((20, 1, 3, 3))
    w[5, 0, 0, 2] = math.inf
    leaf = x.detach().requires_grad_()
    y = norch.conv2d(leaf, tensor(w, dtype), stride=stride, padding=1, groups=20)
    (found,) = grad(y, [leaf], norch.ones_like(y))
    touched = np.zeros((2, 20, 9, 11), bool)
    for i, j in np.ndindex(y.shape[2:]):
        if i * stride >= 1 and j * stride + 1 < 11:
            touched[:, 5, i * stride - 1, j * stride + 1] = True
    assert (np.isfinite(found.float().numpy()) == ~touched).all()


@pytest.mark.parametrize("where", ["image", "gradient"])
@pytest.mark.parametrize("groups", [1, 5])
def test_what_is_not_finite_stays_in_the_weights_whose_taps_see_it(where, groups):
    x, w, g = draw(2, 20, 12, 18), draw(groups * 3, 20 // groups, 3, 3), draw(2, groups * 3, 10, 16)
    if where == "image":  # at the end of a row and at the beginning of one, where a row of the gradient has ended
        x[0, 1, 4, 17], x[1, 7, 11, 0] = np.inf, np.nan
    else:
        g[1, 2, 3, 15] = -np.inf
    leaves = [tensor(v, "float32", requires_grad=True) for v in (x, w)]
    found = grad(norch.conv2d(*leaves, groups=groups), leaves[1], tensor(g, "float32"))[0].numpy()
    with np.errstate(invalid="ignore"):
        expected = gradients(g, x, w, ONE, NONE, ONE, groups)[1]
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    kept = np.isfinite(expected)
    assert 0 < kept.sum() < kept.size
    np.testing.assert_allclose(found[kept], expected[kept], atol=1e-3)
