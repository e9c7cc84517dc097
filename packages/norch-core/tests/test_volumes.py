"""Convolution and pooling of volumes: what the sample records do not show."""

from __future__ import annotations

import numpy as np
import pytest

import norch


def draw(*shape):
    return norch.tensor(np.random.default_rng(0).standard_normal(shape))


def test_a_convolution_is_a_sum_over_planes():
    x, w = draw(2, 3, 5, 6, 4), draw(4, 3, 3, 2, 2)
    out = norch.conv3d(x, w)
    planes = [sum(norch.conv2d(x[:, :, z + i], w[:, :, i]) for i in range(3)) for z in range(3)]
    norch.testing.assert_close(out, norch.stack(planes, 2))
    assert out.is_contiguous()


def test_the_transpose_is_the_gradient_of_the_convolution():
    x = draw(2, 3, 6, 5, 4).requires_grad_()
    w = draw(4, 3, 3, 2, 2)
    out = norch.conv3d(x, w, stride=(2, 1, 2), padding=(1, 0, 1), dilation=(1, 2, 1))
    g = draw(*out.shape)
    (expected,) = norch.autograd.grad(out, x, g)
    found = norch.conv_transpose3d(
        g, w, stride=(2, 1, 2), padding=(1, 0, 1), output_padding=(1, 0, 0), dilation=(1, 2, 1)
    )
    norch.testing.assert_close(found, expected)


def test_the_first_of_the_largest_gets_the_gradient():
    x = norch.zeros(1, 1, 4, 2, 4, requires_grad=True)
    values, indices = norch.max_pool3d(x, 2, return_indices=True)
    values.sum().backward()
    assert indices.flatten().tolist() == [0, 2, 16, 18]
    assert x.grad.flatten().nonzero().flatten().tolist() == [0, 2, 16, 18]


def test_indices_are_those_of_the_largest():
    x = draw(2, 3, 5, 6, 7)
    values, indices = norch.max_pool3d(x, 3, 2, 1, return_indices=True)
    flat = x.flatten(2).gather(2, indices.flatten(2)).reshape(tuple(values.shape))
    assert flat.tolist() == values.tolist()
    assert norch.max_pool3d(x, 3, 2, 1).tolist() == values.tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: norch.conv3d(x, norch.zeros(4, 2, 2, 2, 2)),
        lambda x: norch.conv_transpose3d(x, norch.zeros(2, 4, 2, 2, 2), stride=2),
        lambda x: norch.max_pool3d(x, 2),
        lambda x: norch.max_pool3d(x, 2, return_indices=True)[1],
        lambda x: norch.avg_pool3d(x, 2),
    ],
)
def test_an_empty_batch_has_the_shape_of_another(call):
    assert call(norch.zeros(0, 2, 4, 4, 4)).shape == (0, *call(norch.zeros(3, 2, 4, 4, 4)).shape[1:])


def test_averages_of_integers_are_cut_off():
    x = norch.arange(-32, 32).reshape(1, 1, 4, 4, 4)
    assert norch.avg_pool3d(x, 2).flatten().tolist() == [-21, -19, -13, -11, 10, 12, 18, 20]
    padded = norch.avg_pool3d(x, 2, 2, 1, count_include_pad=False)
    assert padded.flatten().tolist()[:3] == [-32, -30, -29]
    assert padded.dtype is norch.int64


def test_half_precision_sums_are_float32():
    x = norch.full((1, 1, 8, 8, 8), 1000.0, dtype=norch.float16)
    assert norch.avg_pool3d(x, 8).item() == 1000
    assert norch.conv_transpose3d(x, norch.ones(1, 1, 3, 1, 1, dtype=norch.float16)).amax().item() == 3000


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: norch.conv3d(x, norch.zeros(1, 2, 1, 1, 1)), norch.ShapeError, "1 channels of input"),
        (lambda x: norch.conv3d(x[0, 0], norch.zeros(1, 1, 1, 1, 1)), norch.ShapeError, "4 or 5 dims"),
        (lambda x: norch.conv3d(x, norch.zeros(1, 1, 5, 1, 1)), norch.ShapeError, "do not fit"),
        (lambda x: norch.conv3d(x, norch.zeros(1, 1, 1, 1, 1), stride=(1, 2)), norch.ShapeError, "one int or three"),
        (lambda x: norch.conv3d(x, norch.zeros(1, 1, 2, 1, 1), stride=2, padding="same"), norch.ShapeError, "stride 1"),
        (lambda x: norch.conv3d(x, norch.zeros(1, 1, 2, 1, 1), padding="full"), ValueError, "'same' or 'valid'"),
        (lambda x: norch.conv3d(x, norch.zeros(1, 1, 2, 1, 1).double()), norch.DTypeError, "float64"),
        (
            lambda x: norch.conv_transpose3d(x, norch.zeros(1, 1, 2, 1, 1), output_padding=1),
            norch.ShapeError,
            "definite",
        ),
        (lambda x: norch.max_pool3d(x, 2, padding=2), norch.ShapeError, "half"),
        (lambda x: norch.max_pool3d(x[0, 0], 2), norch.ShapeError, "4 or 5 dims"),
        (lambda x: norch.avg_pool3d(x.bool(), 2), norch.DTypeError, "bool"),
        (lambda x: norch.avg_pool3d(x, 2, divisor_override=0), norch.ShapeError, "divisor_override"),
        (lambda x: norch.adaptive_avg_pool3d(x, (1, 2)), norch.ShapeError, "an int or 3"),
    ],
)
def test_what_does_not_fit_is_named(call, error, match):
    with pytest.raises(error, match=match):
        call(norch.zeros(1, 1, 3, 3, 3))


def test_largest_elements_lie_as_the_input_does():
    x = norch.rand(2, 3, 4, 4, 4)
    last = x.to(memory_format=norch.channels_last_3d)
    for found, plain in zip(
        norch.max_pool3d(last, 2, return_indices=True), norch.max_pool3d(x, 2, return_indices=True), strict=True
    ):
        assert found.stride() == (24, 1, 12, 6, 3)
        assert found.tolist() == plain.tolist()
    assert norch.max_pool3d(last, 2).is_contiguous(memory_format=norch.channels_last_3d)
    assert norch.max_pool3d(x, 2).is_contiguous()
