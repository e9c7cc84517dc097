"""`Tensor.view(dtype)`: the same bytes read as another dtype, of the same size or of another."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import norch
from norch import DTypeError, ShapeError
from norch.dtype import ALL

LAYOUTS: dict[str, Any] = {
    "whole": lambda x: x, "rows": lambda x: x[1:], "columns": lambda x: x[:, 4:], "odd columns": lambda x: x[:, 1:],
    "transposed": lambda x: x.t(), "stepped": lambda x: x[:, ::2], "0-d": lambda x: x[0, 0], "no rows": lambda x: x[:0],
    "no columns": lambda x: x[:, :0], "one column": lambda x: x[:, 8:9], "3-d": lambda x: x.reshape(2, 2, 12),
    "expanded": lambda x: x[:1, :8].expand(2, 8), "reversed dims": lambda x: x.reshape(2, 2, 12).permute(1, 0, 2),
}  # fmt: skip


def test_sizes_strides_and_offset(device: str) -> None:
    x = norch.arange(12, device=device).reshape(3, 4)
    small = x[1:].view(norch.int16)
    assert (small.shape, small.stride(), small.storage_offset()) == ((2, 16), (16, 1), 16)
    assert small[0].tolist() == [4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0]
    large = x.view(norch.uint8)[:, 8:24].view(norch.int64)
    assert (large.shape, large.stride(), large.storage_offset()) == ((3, 2), (4, 1), 1)
    assert large.tolist() == [[1, 2], [5, 6], [9, 10]]
    assert norch.tensor([1.0, -2.0], device=device).view(norch.int32).tolist() == [0x3F800000, -0x40000000]
    assert norch.tensor([[1, 0]], dtype=norch.int32, device=device).view("int64").tolist() == [[1]]


def test_memory_is_shared_and_counted(device: str) -> None:
    x = norch.zeros(2, 4, device=device)
    halves = x.view(norch.int16)
    version = x._version
    halves[:, 1::2] = 0x3F80
    assert x.tolist() == [[1.0] * 4] * 2
    assert x._version == halves._version > version
    x.fill_(0)
    assert halves.view(norch.uint8).any().item() is False
    halves.copy_(halves.view(norch.uint8)[:, 8:].to(norch.int16) + 1)  # of the same memory
    assert halves.tolist() == [[1] * 8] * 2
    halves.copy_(halves.view(norch.uint8)[:, :8])  # overlaps, so that it is read first
    assert halves.tolist() == [[1, 0, 1, 0, 1, 0, 1, 0]] * 2


def test_what_the_layout_does_not_allow() -> None:
    x = norch.zeros(3, 6, dtype=norch.int16)
    for view, dtype, message in (
        (x[0, 0], norch.int32, "no last dim"),
        (x.t(), norch.uint8, r"not side by side; use contiguous\(\)"),
        (x[:, :5], norch.int32, "must be divisible by 2"),
        (x[:, 1:5], norch.int32, r"starts 1 elements into its memory .* use clone\(\)"),
        (norch.zeros(3, 5, dtype=norch.int16)[:, :4], norch.int32, "must be divisible by 2"),
    ):
        with pytest.raises(ShapeError, match=message):
            view.view(dtype)
    assert x[:, 1:5].clone().view(norch.int32).shape == (3, 2)
    with pytest.raises(DTypeError, match="no dtype for 'complex64'"):
        x.view("complex64")


def test_no_gradient_flows_through_it() -> None:
    x = norch.ones(4, requires_grad=True)
    for dtype in (norch.int32, norch.float16, norch.float64):
        assert not x.view(dtype).requires_grad
    with pytest.raises(norch.AutogradError):
        (x * 2).view(norch.float64).sum().backward()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_pairs_as_pytorch(layout: str) -> None:
    torch = pytest.importorskip("torch")
    raw = np.arange(4 * 96, dtype=np.uint8) % 2
    for a, b in product(ALL, ALL):
        found = []
        for module in (torch, norch):
            first, second = getattr(module, a.name), getattr(module, b.name)
            x = LAYOUTS[layout](module.from_numpy(raw[: 48 * a.itemsize].copy()).view(first).reshape(4, 12))
            try:
                y = x.view(second)
            except RuntimeError:
                found.append(None)
                continue
            values = [str(v) for v in y.reshape(-1).tolist()]
            found.append((tuple(y.shape), tuple(y.stride()), y.storage_offset(), values))
        assert found[0] == found[1], (a, b)
