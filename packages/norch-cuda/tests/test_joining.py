"""cat and stack, whose parts are copied in one launch where they lie in rows."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(5)
DTYPES = ["float32", "float64", "float16", "int8", "bool", "int64"]


def arrays(shapes, dtype):
    return [(RNG.standard_normal(s) * 50).astype(dtype) for s in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shapes", "dim"),
    [
        ([(4, 4), (4, 4)], 0), ([(4, 4), (4, 4)], 1), ([(3, 5), (3, 1), (3, 0), (3, 2)], 1), ([(7,)] * 40, 0),
        ([(2, 3, 8), (2, 5, 8)], 1), ([(2, 3, 4, 7), (2, 3, 4, 9)], 3), ([(1, 1000), (3, 1000)], 0),
        ([(64, 513), (64, 511)], 1), ([(5,)], 0),
    ],
    ids=str,
)  # fmt: skip
def test_cat(cuda, shapes, dim, dtype):
    given = arrays(shapes, dtype)
    found = norch.cat([norch.tensor(a, device=cuda) for a in given], dim)
    np.testing.assert_array_equal(found.cpu().numpy(), np.concatenate(given, dim))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "count"), [((), 3), ((4,), 20), ((3, 5), 2), ((2, 3, 8), 5)], ids=str)
def test_stack(cuda, shape, count, dtype):
    given = arrays([shape] * count, dtype)
    for dim in range(len(shape) + 1):
        found = norch.stack([norch.tensor(a, device=cuda) for a in given], dim)
        np.testing.assert_array_equal(found.cpu().numpy(), np.stack(given, dim))


def test_parts_that_are_views(cuda):
    a, b = arrays([(6, 10, 8), (6, 10, 8)], "float32")
    x, y = norch.tensor(a, device=cuda), norch.tensor(b, device=cuda)
    for view in (
        lambda t: t[1:, :, 2:7], lambda t: t[:, 3:9], lambda t: t[..., 1], lambda t: t[:, 0], lambda t: t[2],
        lambda t: t[:, ::2], lambda t: t.swapaxes(0, 1), lambda t: t[:1],
    ):  # fmt: skip
        expected = [view(a), view(b)]
        for dim in range(expected[0].ndim):
            found = norch.cat([view(x), view(y)], dim).cpu().numpy()
            np.testing.assert_array_equal(found, np.concatenate(expected, dim))
            np.testing.assert_array_equal(norch.stack([view(x), view(y)], dim).cpu().numpy(), np.stack(expected, dim))
    broadcast = norch.cat([x, y[:1].expand(6, 10, 8)], 1).cpu().numpy()
    np.testing.assert_array_equal(broadcast, np.concatenate([a, np.repeat(b[:1], 6, 0)], 1))
    mixed = norch.cat([x, y.double(), norch.zeros(0, device=cuda)], 2).cpu().numpy()
    np.testing.assert_array_equal(mixed, np.concatenate([a, b.astype(np.float64)], 2))


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_images_with_channels_last(cuda, dim):
    shapes = [[2, 3, 4, 5], [2, 3, 4, 5]]
    shapes[1][dim] = 7
    given = arrays(shapes, "float32")
    x, y = (norch.tensor(a, device=cuda).contiguous(memory_format=norch.channels_last) for a in given)
    found = norch.cat([x, y], dim)
    assert found.is_contiguous(memory_format=norch.channels_last)
    np.testing.assert_array_equal(found.cpu().numpy(), np.concatenate(given, dim))


def test_gradients_and_large_parts(cuda):
    given = arrays([(1000, 700), (1000, 324)], "float32")
    x, y = (norch.tensor(a, device=cuda, requires_grad=True) for a in given)
    found = norch.cat([x, y], 1)
    np.testing.assert_array_equal(found.detach().cpu().numpy(), np.concatenate(given, 1))
    (found * found).sum().backward()
    np.testing.assert_allclose(y.grad.cpu().numpy(), 2 * given[1], 1e-6)
