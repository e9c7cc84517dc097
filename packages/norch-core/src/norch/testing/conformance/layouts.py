"""Level 4 beside the kernels': memory that overlaps, tensors without elements and without dims, as users have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import ops
from ...device import Device
from ...dtype import float32
from .case import Case, rerunning


def cases() -> Iterator[Case]:
    for name, op, check in (
        ("a tensor is shifted within its own memory", "copy", _shifted),
        ("a tensor takes its own transpose", "copy", _transposed),
        ("a sum of overlapping windows", "sum", _windows),
        ("ops on tensors without elements", "add", _nothing),
        ("ops on tensors without dims", "add", _without_dims),
    ):
        yield Case(4, op, "float32", name, 12, check, rerunning(f"4: {name}"))


def _expect(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise AssertionError(f"got {found}, expected {wanted}")


def _shifted(device: Device) -> None:
    for there, here in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
        x = ops.arange(2000, device=device, dtype=float32)
        values = list(range(2000))
        x[there] = x[here]
        values[there] = values[here]
        _expect(x.tolist(), values)


def _transposed(device: Device) -> None:
    x = ops.arange(9, device=device, dtype=float32).reshape(3, 3)
    x.copy_(x.T)
    _expect(x.tolist(), [[0, 3, 6], [1, 4, 7], [2, 5, 8]])
    x += x.T
    _expect(x.tolist(), [[0, 4, 8], [4, 8, 12], [8, 12, 16]])


def _windows(device: Device) -> None:
    x = ops.arange(6, device=device, dtype=float32)
    _expect(x.unfold(0, 3, 1).sum(1).tolist(), [3, 6, 9, 12])
    _expect((x.unfold(0, 3, 1) * 2).tolist(), [[0, 2, 4], [2, 4, 6], [4, 6, 8], [6, 8, 10]])


def _nothing(device: Device) -> None:
    x = ops.ones(0, 3, device=device)
    _expect(((x + 1).exp() @ ops.ones(3, 2, device=device)).shape, (0, 2))
    _expect(x.sum(0).tolist(), [0, 0, 0])
    _expect(x.sum().item(), 0)
    _expect(ops.cat([x, ops.ones(1, 3, device=device), x]).tolist(), [[1, 1, 1]])
    _expect(x[:, 1:].contiguous().T.tolist(), [[], []])


def _without_dims(device: Device) -> None:
    x: Any = ops.tensor(2.0, device=device)
    _expect((x * 3 + x.exp() * 0).item(), 6)
    _expect((ops.ones(2, device=device) * x).tolist(), [2, 2])
    _expect([x.sum().item(), x.amax().item(), x.cumsum(0).item(), x.argmax().item()], [2, 2, 2, 0])
