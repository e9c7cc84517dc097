"""The norm of many tensors and many tensors scaled: what clips gradients."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.dtype import bfloat16, float16, float32, float64

SIZES = ((), (1,), (0,), (3, 5), (257,), (16385,), (130, 300))


def drawn(dtype, device, sizes=SIZES):
    rng = np.random.default_rng(3)
    return [norch.tensor(rng.integers(-64, 64, size) / 64, dtype=dtype).to(device) for size in sizes]


def wide(tensors):
    return [t.cpu().double().numpy().copy() for t in tensors]


@pytest.mark.parametrize("dtype", [float64, float32, float16, bfloat16])
def test_the_norm_is_that_of_all_elements(dtype, device):
    tensors = drawn(dtype, device)
    found = norch.total_norm(tensors)
    assert (found.shape, found.dtype) == ((), float64 if dtype is float64 else float32)
    assert found.device == tensors[0].device
    expected = np.sqrt(sum((a**2).sum() for a in wide(tensors)))
    np.testing.assert_allclose(found.item(), expected, rtol=1e-13 if dtype is float64 else 2e-6)


def test_of_several_dtypes_and_layouts(device):
    a, b, c = drawn(float32, device, [(4, 6), (8,), (5, 3)])
    tensors = [a.T, b[::2], c.double(), a[:0]]
    expected = np.sqrt(sum((x**2).sum() for x in wide(tensors)))
    np.testing.assert_allclose(norch.total_norm(tensors).item(), expected, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_seen(value, device):
    tensors = drawn(float32, device)
    tensors[4][100] = value
    np.testing.assert_equal(norch.total_norm(tensors).item(), value)


@pytest.mark.parametrize("dtype", [float64, float32, float16, bfloat16])
@pytest.mark.parametrize("factor", [0.3, 1.0])
def test_all_are_scaled(dtype, factor, device):
    tensors = drawn(dtype, device)
    views = [t[...] for t in tensors]
    before = wide(tensors)
    norch.scale_(tensors, norch.tensor(factor, device=device))
    bound = {float64: 1e-7, float32: 1e-6, float16: 1e-3, bfloat16: 1e-2}[dtype]
    for t, view, a in zip(tensors, views, before, strict=True):
        np.testing.assert_allclose(t.cpu().double().numpy(), a * factor, rtol=bound)
        assert norch.equal(t, view)


def test_layouts_and_memory_that_is_shared_are_scaled():
    a = norch.arange(12.0).reshape(3, 4)
    b = norch.arange(8.0)
    half = norch.ones(3, dtype=bfloat16)
    norch.scale_([a.T, b[::2], half, b[:2], b[1:3]], norch.tensor([0.5]))
    assert a.tolist() == (np.arange(12.0).reshape(3, 4) / 2).tolist()
    assert b.tolist() == [0.0, 0.25, 0.5, 3.0, 2.0, 5.0, 3.0, 7.0]
    assert half.tolist() == [0.5] * 3


def test_a_change_is_noticed_but_not_recorded():
    p = norch.ones(3, requires_grad=True)
    loss = (p * p).sum()
    norch.scale_([p], norch.tensor(2.0, requires_grad=True))
    assert p.is_leaf
    assert not norch.total_norm([p]).requires_grad
    with pytest.raises(norch.AutogradError, match="scale_|mul_"):
        loss.backward()


def test_what_is_refused():
    for tensors in ([], [norch.ones(2).long()]):
        with pytest.raises(norch.DTypeError, match=r"total_norm\(\)"):
            norch.total_norm(tensors)
        with pytest.raises(norch.DTypeError, match=r"scale_\(\)"):
            norch.scale_(tensors, norch.tensor(1.0))
    with pytest.raises(norch.ShapeError):
        norch.scale_([norch.ones(2)], norch.ones(3))
