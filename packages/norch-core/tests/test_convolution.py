"""Convolution and pooling, against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from composite_harness import RNG, assert_close, check, const, draw, layouts, leaf

import norch

# --- Convolution ------------------------------------------------------------------------------------------------------


def conv2d_loops(x, w, b, stride, pads, dilation, groups):
    x = np.pad(x, ((0, 0), (0, 0), pads[:2], pads[2:]))
    n, _, h, width = x.shape
    o, c, kh, kw = w.shape
    rows = (h - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    columns = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((n, o, rows, columns))
    for at in np.ndindex(out.shape):
        s, f, y, z = at
        first = f // (o // groups) * c
        top, left = y * stride[0], z * stride[1]
        patch = x[s, first : first + c, top:, left:][:, :: dilation[0], :: dilation[1]][:, :kh, :kw]
        out[at] = (patch * w[f]).sum() + b[f]
    return out


CONVOLUTIONS = {
    "plain": ((2, 2, 4, 5), (3, 2, 3, 2), {}, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "strided": ((1, 2, 7, 6), (2, 2, 3, 3), {"stride": (2, 3), "padding": (1, 2)}, (2, 3), (1, 1, 2, 2), (1, 1), 1),
    "dilated": ((2, 1, 6, 5), (2, 1, 2, 3), {"dilation": (3, 2)}, (1, 1), (0, 0, 0, 0), (3, 2), 1),
    "groups": ((1, 4, 4, 4), (6, 2, 2, 2), {"groups": 2, "stride": 2}, (2, 2), (0, 0, 0, 0), (1, 1), 2),
    "depthwise": ((1, 3, 4, 4), (3, 1, 3, 3), {"groups": 3, "padding": 1}, (1, 1), (1, 1, 1, 1), (1, 1), 3),
    "same": ((1, 1, 5, 4), (2, 1, 2, 4), {"padding": "same"}, (1, 1), (0, 1, 1, 2), (1, 1), 1),
    "valid": ((1, 1, 5, 4), (2, 1, 2, 2), {"padding": "valid"}, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "pointwise": ((2, 3, 2, 2), (4, 3, 1, 1), {}, (1, 1), (0, 0, 0, 0), (1, 1), 1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv2d(name):
    x_shape, w_shape, args, *how = CONVOLUTIONS[name]
    x, w, b = draw(*x_shape), draw(*w_shape), draw(w_shape[0])
    expected = conv2d_loops(x, w, b, *how)
    for v in layouts(x):
        assert_close(norch.conv2d(v, const(w), const(b), **args), expected)
    assert_close(norch.conv2d(const(x[0]), const(w), **args), expected[0] - b[:, None, None])

    def loss(x, w, b):
        return norch.conv2d(x, w, b, **args).sum((2, 3))

    check(loss, x, w, b)


@pytest.mark.parametrize("name", ["strided", "dilated", "groups"])
def test_transposed_convolution_is_the_gradient(name):
    x_shape, w_shape, args, stride, pads, dilation, groups = CONVOLUTIONS[name]
    x, w = leaf(draw(*x_shape)), draw(*w_shape)
    y = norch.conv2d(x, const(w), **args)
    g = draw(*y.shape)
    y.backward(const(g))
    extra = [
        n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
        for n, m, s, p, d, k in zip(x_shape[2:], g.shape[2:], stride, pads[::2], dilation, w_shape[2:])
    ]
    got = norch.conv_transpose2d(const(g), const(w), output_padding=tuple(extra), **args)
    assert_close(got, x.grad.numpy())
    b = draw(w_shape[1] * groups)
    check(lambda g, w, b: norch.conv_transpose2d(g, w, b, output_padding=tuple(extra), **args).sum((2,)), g, w, b)


def test_transposed_convolution_with_output_padding_that_holds_another_window():
    check(
        lambda x, w: norch.conv_transpose2d(x, w, padding=1, output_padding=1, dilation=2),
        draw(1, 1, 3, 2),
        draw(1, 1, 2, 2),
    )


def test_transposed_convolution_of_single_elements_with_output_padding():
    """Beyond the last element are zeros: rows are longer than the input's."""
    x, w, g = RNG.normal(size=(2, 3, 2, 4, 5)), RNG.normal(size=(3, 6, 2, 1, 1)), RNG.normal(size=(2, 6, 3, 5, 7))
    expected, grad_x, grad_w = np.zeros(g.shape), np.zeros(x.shape), np.zeros(w.shape)
    for i in range(2):
        expected[:, :, i : i + 2, :4, :5] += np.einsum("ncdhw,co->nodhw", x, w[:, :, i, 0, 0])
        seen = g[:, :, i : i + 2, :4, :5]
        grad_x += np.einsum("nodhw,co->ncdhw", seen, w[:, :, i, 0, 0])
        grad_w[:, :, i, 0, 0] = np.einsum("nodhw,ncdhw->co", seen, x)
    image, weight = leaf(x), leaf(w)
    found = norch.conv_transpose3d(image, weight, output_padding=(0, 1, 2), dilation=(1, 2, 3))
    found.backward(const(g))
    for actual, wanted in ((found.detach(), expected), (image.grad, grad_x), (weight.grad, grad_w)):
        np.testing.assert_allclose(actual.cpu().numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_a_transposed_convolution_may_have_no_elements():
    x, w, b = leaf(draw(2, 4, 1)), leaf(draw(4, 3, 2)), leaf(draw(3))
    y = norch.conv_transpose1d(x, w, b, padding=1)  # the one column of windows is cropped away
    assert tuple(y.shape) == (2, 3, 0)
    y.sum().backward()
    for got, shape in ((x, (2, 4, 1)), (w, (4, 3, 2)), (b, (3,))):
        assert_close(got.grad, np.zeros(shape))
    volumes = norch.conv_transpose3d(x[..., None, None], w[..., None, None], padding=(1, 0, 0))
    assert tuple(volumes.shape) == (2, 3, 0, 1, 1)
    with pytest.raises(norch.ShapeError, match="conv_transpose1d"):
        norch.conv_transpose1d(x, w[..., :1], padding=1)


def test_conv1d():
    x, w, b = draw(2, 4, 7), draw(6, 2, 3), draw(6)
    expected = conv2d_loops(x[:, :, None], w[:, :, None], b, (1, 2), (0, 0, 1, 1), (1, 2), 2)[:, :, 0]
    got = norch.conv1d(const(x), const(w), const(b), stride=2, padding=1, dilation=2, groups=2)
    assert_close(got, expected)
    assert tuple(norch.conv1d(const(x[0]), const(w), groups=2, padding="same").shape) == (6, 7)
    check(lambda x, w: norch.conv1d(x, w, stride=2, groups=2).sum(2), x[:1], w, second=False)
    y = norch.conv_transpose1d(const(draw(2, 4, 3)), const(draw(4, 2, 3)), stride=2, groups=2)
    assert tuple(y.shape) == (2, 4, 7)


@pytest.mark.parametrize("conv", ["conv1d", "conv_transpose1d"])
def test_a_gradient_of_permuted_rows_is_made_row_major(conv):
    """As of `y.transpose(1, 2)`: as images with channels last both gradients would be so, and slow."""
    x, weight = norch.randn(2, 4, 9).requires_grad_(), norch.randn(4, 4, 3).requires_grad_()
    y = getattr(norch, conv)(x, weight, stride=2)
    grad = norch.randn(2, y.shape[2], 4)
    y.transpose(1, 2).backward(grad)
    assert x.grad.is_contiguous()
    assert weight.grad.is_contiguous()
    expected = norch.autograd.grad(getattr(norch, conv)(x, weight, stride=2), (x, weight), grad.mT.contiguous())
    assert norch.allclose(x.grad, expected[0])
    assert norch.allclose(weight.grad, expected[1])


def test_conv2d_of_no_samples():
    w = leaf(draw(3, 2, 2, 2))
    y = norch.conv2d(norch.zeros(0, 2, 4, 4, dtype=norch.float64), w)
    assert tuple(y.shape) == (0, 3, 3, 3)
    y.sum().backward()
    assert_close(w.grad, np.zeros((3, 2, 2, 2)))


@pytest.mark.parametrize(
    ("x", "w", "args", "words"),
    [
        ((1, 2, 4, 4), (3, 3, 2, 2), {}, r"conv2d\(\).*\(1, 2, 4, 4\).*\(3, 3, 2, 2\)"),
        ((1, 2, 4, 4), (3, 1, 2, 2), {"groups": 2}, "groups 2"),
        ((1, 2, 2, 2), (3, 2, 3, 3), {}, "do not fit"),
        ((1, 2, 4, 4), (3, 2, 2, 2), {"stride": 0}, "stride"),
        ((1, 2, 4, 4), (3, 2, 2, 2), {"padding": "same", "stride": 2}, "stride 1"),
        ((2, 4), (3, 2, 2, 2), {}, "dims"),
    ],
)
def test_conv2d_refuses(x, w, args, words):
    with pytest.raises(norch.ShapeError, match=words):
        norch.conv2d(norch.zeros(x), norch.zeros(w), **args)


def test_conv2d_refuses_mixed_dtypes():
    with pytest.raises(norch.DTypeError, match="float64"):
        norch.conv2d(norch.zeros(1, 1, 2, 2), norch.zeros(1, 1, 1, 1, dtype=norch.float64))


# --- Pooling ----------------------------------------------------------------------------------------------------------


def pool_loops(x, kernel, stride, padding, dilation, ceil, average=None):
    """Largest, and where it is in the plane; or the averages, by `average(values, whole window's size)`."""
    n, c, h, w = x.shape
    counts = []
    for size, k, s, p, d in zip((h, w), kernel, stride, padding, dilation):
        room = size + 2 * p - d * (k - 1) - 1
        count = (math.ceil(room / s) if ceil else room // s) + 1
        counts.append(count - 1 if ceil and (count - 1) * s >= size + p else count)
    out, where = np.zeros((n, c, *counts)), np.zeros((n, c, *counts), int)
    for at in np.ndindex(out.shape):
        tops = [i * s - p for i, s, p in zip(at[2:], stride, padding)]
        seen = [
            (x[at[0], at[1], y, z], y * w + z)
            for y in range(tops[0], tops[0] + dilation[0] * kernel[0], dilation[0])
            for z in range(tops[1], tops[1] + dilation[1] * kernel[1], dilation[1])
            if 0 <= y < h and 0 <= z < w
        ]
        if average is None:
            out[at], where[at] = max(seen, key=lambda pair: pair[0])
        else:
            whole = math.prod(min(top + k, size + p) - top for top, k, size, p in zip(tops, kernel, (h, w), padding))
            out[at] = average([v for v, _ in seen], whole)
    return out, where


POOLS = [
    ((2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 2), (2, 1), (1, 1), (1, 1), False),
    ((3, 3), (2, 2), (1, 1), (1, 1), True),
    ((2, 3), (3, 2), (0, 1), (1, 1), True),
]


@pytest.mark.parametrize("how", [*POOLS, ((2, 2), (1, 2), (0, 0), (2, 3), False)])
def test_max_pool2d(how):
    kernel, stride, padding, dilation, ceil = how
    x = RNG.permutation(2 * 2 * 6 * 7).reshape(2, 2, 6, 7) / 7.0
    expected, where = pool_loops(x, *how)
    for v in layouts(x):
        got, indices = norch.max_pool2d(v, *how, return_indices=True)
        assert_close(got, expected)
        assert indices.dtype is norch.int64
        assert indices.tolist() == where.tolist()
    assert_close(norch.max_pool2d(const(x[0]), *how), expected[0])
    check(lambda x: norch.max_pool2d(x, *how), x[:1])


def test_max_pool2d_of_integers_nan_and_infinities():
    whole = norch.tensor([[[[-5, -3], [-9, -4]]]])
    assert norch.max_pool2d(whole, 2, padding=1).tolist() == [[[[-5, -3], [-9, -4]]]]
    x = norch.full((1, 1, 2, 2), -math.inf, requires_grad=True)
    out, indices = norch.max_pool2d(x, 2, 2, 1, return_indices=True)
    assert indices.tolist() == [[[[0, 1], [2, 3]]]]
    out.sum().backward()
    assert x.grad.tolist() == [[[[1, 1], [1, 1]]]]
    assert math.isnan(norch.max_pool2d(norch.tensor([[[1.0, math.nan]]]), (1, 2)).item())


@pytest.mark.parametrize("how", POOLS)
@pytest.mark.parametrize("count_include_pad", [True, False])
def test_avg_pool2d(how, count_include_pad):
    kernel, stride, padding, _, ceil = how
    x = draw(2, 2, 6, 7)
    expected, _ = pool_loops(x, *how, lambda seen, whole: sum(seen) / (whole if count_include_pad else len(seen)))

    def pool(x):
        return norch.avg_pool2d(x, kernel, stride, padding, ceil, count_include_pad)

    for v in layouts(x):
        assert_close(pool(v), expected)
    check(pool, x[:1])


def test_avg_pool2d_divisor_and_defaults():
    x = draw(1, 1, 4, 4)
    assert_close(norch.avg_pool2d(const(x), 2), x.reshape(1, 1, 2, 2, 2, 2).mean((3, 5)))
    assert_close(norch.avg_pool2d(const(x), 4, divisor_override=5), x.sum((2, 3), keepdims=True) / 5)


def test_pools_of_one_dim():
    x = draw(2, 3, 7)
    expected, where = pool_loops(x[:, :, None], (1, 3), (1, 2), (0, 1), (1, 1), False)
    got, indices = norch.max_pool1d(const(x), 3, 2, 1, return_indices=True)
    assert_close(got, expected[:, :, 0])
    assert indices.tolist() == where[:, :, 0].tolist()
    expected, _ = pool_loops(x[:, :, None], (1, 3), (1, 3), (0, 0), (1, 1), False, lambda seen, whole: sum(seen) / 3)
    assert_close(norch.avg_pool1d(const(x[0]), 3), expected[0, :, 0])
    check(lambda x: norch.avg_pool1d(x, 3, 2, 1, True), x, second=False)


@pytest.mark.parametrize("size", [1, 3, 5, (2, 4), (None, 6), (0, 2)])
def test_adaptive_avg_pool2d(size):
    x = draw(2, 2, 6, 4)
    asked = (size, size) if isinstance(size, int) else size
    rows, columns = (n if m is None else m for n, m in zip((6, 4), asked))
    expected = np.zeros((2, 2, rows, columns))
    for y, z in np.ndindex(rows, columns):
        top, bottom = y * 6 // rows, -(-(y + 1) * 6 // rows)
        left, right = z * 4 // columns, -(-(z + 1) * 4 // columns)
        expected[:, :, y, z] = x[:, :, top:bottom, left:right].mean((2, 3))
    assert_close(norch.adaptive_avg_pool2d(const(x), size), expected)
    assert_close(norch.adaptive_avg_pool2d(const(x[0]), size), expected[0])
    if expected.size:
        check(lambda x: norch.adaptive_avg_pool2d(x, size), x[:1])


def test_a_part_sees_its_own_elements_only():
    x = const(np.array([[[1.0, 2.0, 3.0, math.inf, math.nan]]]))
    assert_close(norch.adaptive_avg_pool1d(x, 4), np.array([[[1.5, 2.5, math.inf, math.nan]]]))
    assert_close(norch.adaptive_avg_pool2d(x.unsqueeze(2), (2, 2)), np.array([[[[2.0, math.nan]] * 2]]))


def test_pools_refuse():
    x = norch.zeros(1, 1, 4, 4)
    with pytest.raises(norch.ShapeError, match="half"):
        norch.max_pool2d(x, 2, padding=2)
    with pytest.raises(norch.ShapeError, match="do not fit"):
        norch.avg_pool2d(x, 5)
    with pytest.raises(norch.ShapeError, match="dims"):
        norch.max_pool2d(norch.zeros(4, 4), 2)
    with pytest.raises(norch.DTypeError):
        norch.avg_pool2d(norch.zeros(1, 1, 4, 4, dtype=norch.bool), 2)


@pytest.mark.parametrize("dtype", [norch.int64, norch.int32, norch.int16])
def test_of_integers_are_those_of_float64_cut_off(dtype):
    """PyTorch's too; averages are cut off towards 0."""
    numbers = np.random.default_rng(0).integers(-4, 5, (2, 4, 6, 5)).astype(np.float64)
    x, image, weight = (norch.tensor(v) for v in (numbers, numbers[:, :2], numbers[:, :, :2, :3]))
    for call in (
        lambda x, image, weight: norch.conv2d(x, weight, weight[:, 0, 0, 0], 2, 1),
        lambda x, image, weight: norch.conv_transpose2d(image, weight, x[0, :, 0, 0], 2, 1),
        lambda x, image, weight: norch.avg_pool2d(x, 2),
        lambda x, image, weight: norch.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x, image, weight: norch.linear(x, x[0, 0], x[0, 0, :, 0]),
        lambda x, image, weight: norch.bilinear(x[0, 0], x[0, 1], x[0, :, :5]),
    ):
        found = call(*(v.to(dtype) for v in (x, image, weight)))
        assert found.dtype is dtype
        assert found.tolist() == call(x, image, weight).trunc().tolist()


@pytest.mark.parametrize("count", [8, 9])  # sums of slices, and of what is gathered
def test_adaptive_avg_pool1d_of_many_parts(count):
    values = np.random.default_rng(5).normal(size=(2, 3, 23))
    values[0, 0, 4] = np.nan  # seen by its own parts only
    edges = [(i * 23 // count, -(-(i + 1) * 23 // count)) for i in range(count)]
    expected = np.stack([values[..., a:b].mean(-1) for a, b in edges], -1)
    assert_close(norch.adaptive_avg_pool1d(const(values), count), expected)
    check(lambda x: norch.adaptive_avg_pool1d(x, count), values[1:])
