"""Copies between a few lines and one in which their elements take turns: images in another layout, pixel_shuffle."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(6)
DTYPES = ["float64", "float32", "float16", "uint8", "bool", "int64"]


def array(shape, dtype):
    return (RNG.standard_normal(shape) * 50).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lines", [2, 3, 4, 5])
@pytest.mark.parametrize("length", [16, 48, 33, 1, 2, 4096], ids=str)
def test_images_in_another_layout(cuda, length, lines, dtype):
    for shape in ((lines, length), (3, lines, 2, length)):
        given = array(shape, dtype)
        order = (*range(len(shape) - 3), -1, -2) if len(shape) == 2 else (0, 2, 3, 1)
        last = np.ascontiguousarray(given.transpose(order))
        x, y = norch.tensor(given, device=cuda), norch.tensor(last, device=cuda)
        np.testing.assert_array_equal(x.permute(*order).contiguous().cpu().numpy(), last)
        back = np.argsort([d % len(shape) for d in order]).tolist()
        np.testing.assert_array_equal(y.permute(*back).contiguous().cpu().numpy(), given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("r", "height", "width"), [(2, 3, 16), (2, 5, 7), (3, 4, 32), (4, 2, 8), (5, 2, 4)], ids=str)
def test_pixel_shuffle(cuda, r, height, width, dtype):
    given = array((2, 3, r, r, height, width), dtype)
    expected = np.ascontiguousarray(given.transpose(0, 1, 4, 2, 5, 3)).reshape(2, 3, height * r, width * r)
    x = norch.tensor(given.reshape(2, 3 * r * r, height, width), device=cuda)
    found = norch.pixel_shuffle(x, r)
    np.testing.assert_array_equal(found.cpu().numpy(), expected)
    np.testing.assert_array_equal(norch.pixel_unshuffle(found, r).cpu().numpy(), x.cpu().numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("times", [2, 3, 4])
def test_elements_that_are_repeated(cuda, times, dtype):
    given = array((3, 4, 32), dtype)
    found = norch.tensor(given, device=cuda)[..., None].expand(3, 4, 32, times).contiguous()
    np.testing.assert_array_equal(found.cpu().numpy(), np.repeat(given[..., None], times, -1))
    found = norch.tensor(given, device=cuda)[:, :, None, :, None].expand(3, 4, times, 32, times).contiguous()
    expected = np.repeat(np.repeat(given, times, 1), times, 2)
    np.testing.assert_array_equal(found.cpu().numpy().reshape(expected.shape), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_that_start_anywhere(cuda, dtype):
    given = array((5, 3, 7, 40), dtype)
    x = norch.tensor(given, device=cuda)
    for view in (
        lambda t: t[1:, :, :, 1:33], lambda t: t[:, 1:, 1:], lambda t: t[..., 8:], lambda t: t[:, :2, :, ::2],
        lambda t: t[1], lambda t: t[:, :, 3:4],
    ):  # fmt: skip
        expected, dims = np.moveaxis(view(given), -3, -1), view(x).movedim(-3, -1)
        np.testing.assert_array_equal(dims.contiguous().cpu().numpy(), expected)
        into = norch.zeros(expected.shape, dtype=x.dtype, device=cuda).movedim(-1, -3)
        into.copy_(view(x))
        np.testing.assert_array_equal(into.cpu().numpy(), view(given))
    flipped = x.flip(1)
    np.testing.assert_array_equal(flipped.movedim(1, -1).contiguous().cpu().numpy(), np.moveaxis(given[:, ::-1], 1, -1))
