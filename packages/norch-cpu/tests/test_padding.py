"""Tensors padded with their own elements, and rolled, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch_cpu.native import native

DTYPES = [np.uint8, np.float16, np.float32, np.int64]
MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
PADS = [[2, 1], [0, 3], [1, 0, 2, 2], [0, 0, 1, 2], [1, 2, 0, 1, 1, 1]]
LAYOUTS = {
    "rows": lambda x: x,
    "channels last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1),
    "strided": lambda x: norch.stack([x, x], -1)[..., 0],
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
}


def numbered(dtype, *shape):
    return (np.arange(np.prod(shape)) % 251).astype(dtype).reshape(shape)


def padded(array, pad, mode):
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    return np.pad(array, [(0, 0)] * (array.ndim - len(pairs)) + pairs, MODES[mode])


def test_the_kernels_are_native():
    assert {"pad_edges", "pad_edges_grad"} <= set(native.ops())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pads_are_numpys(dtype, mode, pad, layout):
    array = numbered(dtype, 2, 3, 4, 7, 5)
    found = norch.ops.pad(LAYOUTS[layout](norch.tensor(array)), pad, mode)
    np.testing.assert_array_equal(found.numpy(), padded(array, pad, mode))


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.float16])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_element_gets_the_gradients_of_all_its_places(dtype, mode, pad, layout):
    x = LAYOUTS[layout](norch.zeros(2, 3, 4, 7, 5, dtype=dtype)).detach().requires_grad_()
    out = norch.ops.pad(x, pad, mode)
    grad = np.random.default_rng(0).integers(0, 4, out.shape).astype(np.float64)
    out.backward(LAYOUTS[layout](norch.tensor(grad).to(dtype)))
    expected = np.zeros(x.numel())
    np.add.at(expected, padded(np.arange(x.numel()).reshape(x.shape), pad, mode), grad)
    np.testing.assert_array_equal(x.grad.to(norch.float64).numpy(), expected.reshape(x.shape))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("shifts", "dims"), [(2, 3), (-1, 4), ((3, -2), (2, 3)), ((1, 1, 5), (0, 4, 3)), ((1, 1), (3, 3)), (0, 1)]
)
def test_rolls_are_numpys(dtype, layout, shifts, dims):
    array = numbered(dtype, 2, 3, 4, 7, 5)
    found = norch.roll(LAYOUTS[layout](norch.tensor(array)), shifts, dims)
    np.testing.assert_array_equal(found.numpy(), np.roll(array, shifts, dims))


def test_the_gradient_of_a_roll_rolls_back():
    x = norch.randn(3, 4, 5, requires_grad=True)
    grad = norch.randn(3, 4, 5)
    x.roll((1, -3), (0, 2)).backward(grad)
    np.testing.assert_array_equal(x.grad.numpy(), np.roll(grad.numpy(), (-1, 3), (0, 2)))
