"""one_hot on each device, and nonzero of many elements."""

from __future__ import annotations

import numpy as np
import pytest

import norch


@pytest.mark.parametrize("shape", [(), (5,), (0,), (3, 4)])
def test_one_hot_rows(shape: tuple[int, ...], device: str) -> None:
    target = np.random.default_rng(0).integers(0, 7, shape)
    for dtype in (norch.int64, norch.uint8):
        found = norch.one_hot(norch.tensor(target, dtype=dtype).to(device), 7)
        assert (found.dtype, found.device.type) == (norch.int64, norch.device(device).type)
        np.testing.assert_array_equal(found.cpu().numpy(), np.eye(7)[target])
    with pytest.raises(norch.IndexError):
        norch.one_hot(norch.tensor([1, 7], device=device), 7).cpu()


def test_nonzero_of_many_elements() -> None:
    draw = np.random.default_rng(0).integers(0, 3, (50, 30, 40))
    for values in (draw, draw.transpose(2, 0, 1), draw.reshape(-1)):
        x = norch.from_numpy(values)
        np.testing.assert_array_equal(norch.nonzero(x).numpy(), np.argwhere(values))
        for found, expected in zip(norch.nonzero(x, as_tuple=True), np.nonzero(values), strict=True):
            assert found.is_contiguous()
            np.testing.assert_array_equal(found.numpy(), expected)


def test_where_takes_bytes_for_bools():
    """As PyTorch still does, with a warning; MRI's sampling masks are of bytes."""
    mask, x = norch.tensor([[1, 0], [0, 2]], dtype=norch.uint8), norch.arange(4.0).reshape(2, 2).requires_grad_()
    for found, expected in (
        (lambda: norch.where(mask, x, -x), [[0, -1], [-2, 3]]),
        (lambda: x.where(mask, 0.0), [[0, 0], [0, 3]]),
        (lambda: norch.where(mask[0], 1.0, 2.0), [1, 2]),
        (lambda: norch.where(mask, x.detach(), 0.0, out=norch.empty(2, 2)), [[0, 0], [0, 3]]),
        (lambda: norch.vmap(lambda m: norch.where(m, 1, 2))(mask), [[1, 2], [2, 1]]),
        (lambda: norch.where(mask, norch.complex(x, x), 1j), [[0, 1j], [1j, 3 + 3j]]),
    ):
        with pytest.warns(UserWarning, match="uint8"):
            assert found().tolist() == expected
    with pytest.warns(UserWarning, match="uint8"):
        norch.where(mask, x, -x).sum().backward()
    assert x.grad.tolist() == [[1, -1], [-1, 1]]
    for wrong in (mask.int(), x):
        with pytest.raises(norch.DTypeError, match="condition must be bool"):
            norch.where(wrong, x, x)
