"""pad_edges and its gradient beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.shape.edges import pad_edges, pad_edges_grad
from norch.testing import assert_close

RNG = np.random.default_rng(0)
MODES = {"circular": "wrap", "replicate": "edge", "reflect": "reflect"}
CASES = [
    ((2, 3, 6, 5), (0, 0, 1, 2), (0, 0, 2, 1)),
    ((2, 3, 6, 5), (0, 0, 5, 0), (0, 0, 0, 4)),
    ((4, 7), (0, 6), (0, 6)),
    ((3, 2, 4, 5, 6), (0, 0, 1, 2, 3), (0, 0, 3, 2, 0)),
    ((5, 1, 4), (4, 0, 0), (3, 0, 0)),
    ((1, 3, 9), (0, 0, 0), (0, 0, 8)),
    ((0, 3, 9), (0, 0, 1), (0, 0, 8)),
]


def layouts(x, device, dtype):
    """The same elements row by row, the other way round, and with channels last."""
    given = norch.tensor(x, dtype=dtype, device=device)
    dims = tuple(range(x.ndim))
    yield given
    yield given.permute(dims[::-1]).contiguous().permute(dims[::-1])
    yield given.movedim(1, -1).contiguous().movedim(-1, 1)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.float16, norch.int64, norch.uint8])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("shape", "before", "after"), CASES)
def test_elements_around_a_tensor(cuda, dtype, mode, shape, before, after):
    x = RNG.integers(0, 100, shape)
    wanted = x if 0 in shape else np.pad(x, list(zip(before, after, strict=True)), MODES[mode])
    for given in layouts(x, cuda, dtype):
        found = pad_edges(given, before, after, mode).cpu()
        if 0 not in shape:
            assert np.array_equal(found.long().numpy(), wanted)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.float16, norch.bfloat16])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("shape", "before", "after"), CASES)
def test_the_gradient_is_the_sum_over_places(cuda, dtype, mode, shape, before, after):
    size = [n + a + b for n, a, b in zip(shape, before, after, strict=True)]
    grad = RNG.integers(-2, 3, size)
    wanted = np.zeros(shape)
    if 0 not in shape:
        pairs = list(zip(before, after, strict=True))
        places = np.pad(np.arange(wanted.size).reshape(shape), pairs, MODES[mode])
        np.add.at(wanted.reshape(-1), places.reshape(-1), grad.reshape(-1))
    for given in layouts(grad, cuda, dtype):
        assert np.array_equal(pad_edges_grad(given, before, after, mode).cpu().double().numpy(), wanted)


@pytest.mark.parametrize(("shifts", "dims"), [((2, -1), (0, 2)), ((3,), (1,)), ((1, 1, 1), (0, 1, 2))])
def test_roll(cuda, shifts, dims):
    x = RNG.standard_normal((3, 4, 5))
    given = norch.tensor(x, device=cuda, requires_grad=True)
    out = given.roll(shifts, dims)
    assert np.array_equal(out.detach().cpu().numpy(), np.roll(x, shifts, dims))
    out.backward(norch.tensor(x, device=cuda))
    assert np.array_equal(given.grad.cpu().numpy(), np.roll(x, [-s for s in shifts], dims))


def test_a_part_may_be_cut_off_where_others_are_put_on(cuda):
    given = norch.tensor(RNG.standard_normal((2, 6)), device=cuda)
    found = pad_edges(given, (0, -2), (0, 5), "circular")
    assert found.cpu().numpy()[:, :4].tolist() == given.cpu().numpy()[:, 2:].tolist()
    back = pad_edges_grad(norch.ones(2, 9, device=cuda), (0, -2), (0, 5), "circular").cpu()
    assert_close(back, norch.tensor([[1, 1, 2, 2, 2, 1]] * 2).to(back.dtype))


@pytest.mark.parametrize("dtype", [norch.float64, norch.float16, norch.int32, norch.bool])
@pytest.mark.parametrize(
    ("shape", "dims"), [((3, 4, 5), (2,)), ((3, 4, 5), (0, 1)), ((2, 1, 3, 4), (0, 1, 3)), ((0, 3), (1,))]
)
def test_flip(cuda, dtype, shape, dims):
    x = RNG.integers(0, 2, shape)
    for given in layouts(x, cuda, dtype):
        assert np.array_equal(given.flip(dims).cpu().long().numpy(), np.flip(x, dims))
