"""Copies between layouts: pixels of a few channels, short rows, transposed matrices."""

from __future__ import annotations

import numpy as np
import pytest

import norch

DTYPES = [np.uint8, np.int16, np.float32, np.float64]


def numbered(dtype, *shape):
    return (np.arange(np.prod(shape)) % 251).astype(dtype).reshape(shape)


def check(array, change):
    out = change(norch.tensor(array)).contiguous()
    np.testing.assert_array_equal(out.numpy(), change(array))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", range(1, 10))
@pytest.mark.parametrize("pixels", [1, 15, 16, 33, 700, 3000])
def test_pixels_become_planes_and_planes_pixels(dtype, channels, pixels):
    check(numbered(dtype, 2, pixels, channels), lambda x: x.swapaxes(1, 2))
    check(numbered(dtype, 2, channels, pixels), lambda x: x.swapaxes(1, 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 15, 16, 17, 40, 63, 65, 300])
def test_rows_of_any_length_go_between_longer_ones(dtype, columns):
    check(numbered(dtype, 9, columns + 2), lambda x: x[:, 1:-1])
    check(numbered(dtype, 9, 5, columns + 1), lambda x: x.swapaxes(0, 1)[..., 1:])
    parts = [numbered(dtype, 9, columns), numbered(dtype, 9, 3)]
    out = norch.cat([norch.tensor(p) for p in parts], -1)
    np.testing.assert_array_equal(out.numpy(), np.concatenate(parts, -1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_second_element_and_several_dims(dtype):
    check(numbered(dtype, 5, 4101), lambda x: x[:, ::2])
    check(
        numbered(dtype, 70, 67, 5), lambda x: x.transpose(2, 1, 0) if isinstance(x, np.ndarray) else x.permute(2, 1, 0)
    )
    check(numbered(dtype, 130, 3, 70), lambda x: x[:, 1].swapaxes(0, 1)[::2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(8, 8), (9, 15), (64, 65), (131, 77), (3, 200, 12), (2, 37, 40)])
def test_transposed_matrices(dtype, shape):
    check(numbered(dtype, *shape), lambda x: x.swapaxes(-1, -2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(256, 1024), (1024, 300), (520, 2048), (2050, 1100), (1100, 2048)])
def test_large_transposed_matrices(dtype, shape):
    """Of rows whose lines fall upon few places of the cache, and so large that they are written past it."""
    array = numbered(dtype, *shape)
    check(array, lambda x: x.swapaxes(0, 1))
    check(array[1:, 3:], lambda x: x.swapaxes(0, 1))
    into = norch.zeros(shape[1], shape[0] + 1).to(norch.tensor(array[:1]).dtype)
    into[:, 1:].copy_(norch.tensor(array).mT)
    np.testing.assert_array_equal(into.numpy()[:, 1:], array.T)
    assert not into.numpy()[:, 0].any()


@pytest.mark.parametrize("dtype", [*DTYPES, np.bool_])
@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (1, 9), (9, 1), (2, 3, 300, 40), (0, 4), (4, 0), (2, 0, 3, 3)])
def test_triangles(dtype, shape):
    array = numbered(dtype, *shape)
    for diagonal in (-400, -3, -1, 0, 1, 2, 400):
        for norchs, numpys in ((norch.tril, np.tril), (norch.triu, np.triu)):
            want = numpys(array, diagonal)
            x = norch.tensor(array)
            np.testing.assert_array_equal(norchs(x, diagonal).numpy(), want)
            np.testing.assert_array_equal(norchs(x.mT.contiguous().mT, diagonal).numpy(), want)
            np.testing.assert_array_equal(norchs(x[..., :1], diagonal).numpy(), numpys(array[..., :1], diagonal))
            wide = norch.tensor(np.concatenate([array, array], -1))[..., : shape[-1]]
            np.testing.assert_array_equal(norchs(wide, diagonal).numpy(), want)
            one_row = norch.tensor(array[..., :1, :]).expand(shape) if shape[-2] else x
            np.testing.assert_array_equal(norchs(one_row, diagonal).numpy(), numpys(one_row.numpy(), diagonal))
            getattr(x, norchs.__name__ + "_")(diagonal)
            np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.parametrize("dtype", [*DTYPES, np.bool_])
@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_flips_of_any_layout(dtype, dims, order):
    array = numbered(dtype, 9, 33, 70)
    for part in (array, array[::2, :, 3:], array[:, ::-1].copy()[:, :, ::2], array[:, :, :3]):
        got = norch.tensor(part).permute(order).flip(dims)
        np.testing.assert_array_equal(got.numpy(), np.flip(part.transpose(order), dims))
    expanded = norch.tensor(array[:, :1]).expand(9, 33, 70).permute(order).flip(dims)
    np.testing.assert_array_equal(
        expanded.numpy(), np.flip(np.broadcast_to(array[:, :1], array.shape).transpose(order), dims)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("together", [2, 3, 4, 8])
def test_elements_that_stay_together(dtype, together):
    x = numbered(dtype, 33, 20, together + 1)
    check(x[..., :together].copy(), lambda x: x.swapaxes(0, 1))
    check(x[..., :together].copy(), lambda x: x[::3, 1:])
    check(x, lambda x: x[..., 1:].swapaxes(0, 1))  # from an odd place on
    check(numbered(dtype, 5, 6, 2, together), lambda x: x.swapaxes(0, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_that_are_repeated(dtype):
    x = numbered(dtype, 70, 1)
    np.testing.assert_array_equal(norch.tensor(x).expand(70, 65).contiguous().numpy(), np.repeat(x, 65, 1))
    got = (norch.tensor(x).expand(70, 65) + 1).numpy()
    np.testing.assert_array_equal(got, np.repeat(x + np.array(1, dtype), 65, 1))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32], ids=str)
@pytest.mark.parametrize(
    ("shape", "dim"), [((3, 5, 40), 0), ((3, 5, 40), 1), ((3, 5, 40), 2), ((70000, 16), 1), ((2, 300000), 0)]
)
def test_parts_are_joined_row_by_row(shape, dim, dtype):
    """Whole ones, rows of longer ones, one row for all, and what lies in no rows."""
    plain = numbered(dtype, *shape)
    wide = numbered(dtype, *shape[:-1], shape[-1] + 3)[..., 2:-1]
    turned = numbered(dtype, *shape[::-1]).transpose()
    repeated = np.broadcast_to(plain[:1], shape)
    for parts in ([plain], [plain, wide], [wide, plain, wide], [plain, repeated], [plain, turned, wide]):
        tensors = [norch.tensor(np.ascontiguousarray(p)) for p in parts]
        for i, part in enumerate(parts):
            if part is wide:
                tensors[i] = norch.tensor(numbered(dtype, *shape[:-1], shape[-1] + 3))[..., 2:-1]
            elif part is turned:
                tensors[i] = norch.tensor(numbered(dtype, *shape[::-1])).permute(*range(len(shape))[::-1])
            elif part is repeated:
                tensors[i] = norch.tensor(plain)[:1].expand(shape)
        np.testing.assert_array_equal(norch.cat(tensors, dim).numpy(), np.concatenate(parts, dim))
        np.testing.assert_array_equal(norch.stack(tensors, dim).numpy(), np.stack(parts, dim))
    empty = norch.tensor(np.zeros((0,), dtype))
    np.testing.assert_array_equal(norch.cat([empty, norch.tensor(plain)], dim).numpy(), plain)
