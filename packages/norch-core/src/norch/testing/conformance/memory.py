"""Level 1: memory, copies and views."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ... import ops
from ...device import Device
from ...dtype import DTYPES, float32
from ..samples import SAMPLES, checks
from .case import Case, rerunning
from .place import Array, get, put


def cases() -> Iterator[Case]:
    def of(name: str, check: Callable[[Device], None], size: int = 10, op: str = "memory", dtype: str = "-") -> Case:
        return Case(1, op, dtype, name, size, check, rerunning(f"1: {name}"))

    for nbytes in (0, 1, 7, 4096, 1_000_003):
        yield of(f"{nbytes} bytes go to the device and back", _round_trip(nbytes), nbytes)
    yield of("part of a buffer is written and read", _parts)
    yield of("bytes go from buffer to buffer", _between)
    yield of("buffers do not share memory", _apart, 1000)
    yield of("memory given back is used again", _given_back, 1000)
    yield of("nbytes and modified of a buffer are core's", _attributes)
    for dtype in DTYPES:
        check = _tensors(dtype)
        yield of(f"tensors of {dtype.name} go to the device and back", check, 6, "to", dtype.name)
    for sample in SAMPLES.values():
        if sample.view and float32 in sample.dtypes:
            check = _view(sample)
            yield of(f"{sample.name} is a view of the right elements", check, 24, sample.name, "float32")


def _bytes(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


def _same(got: Array, want: Array, what: str) -> None:
    if got.shape != want.shape or not (got == want).all():
        raise AssertionError(f"{what}: {int((got != want).sum())} of {want.size} bytes differ")


def _round_trip(nbytes: int) -> Callable[[Device], None]:
    def check(device: Device) -> None:
        data = _bytes(nbytes)
        _same(get(device, put(device, data), nbytes), data, f"{nbytes} bytes")

    return check


def _parts(device: Device) -> None:
    data, part = _bytes(100), _bytes(9, 1)
    buffer = put(device, data)
    device.backend.copy_in(buffer, 33, part.data)
    data[33:42] = part
    _same(get(device, buffer, 100), data, "after 9 bytes were written at 33")
    found = np.zeros(5, np.uint8)
    device.backend.copy_out(buffer, 40, found.data)
    _same(found, data[40:45], "5 bytes at 40")


def _between(device: Device) -> None:
    a, b = _bytes(50), _bytes(60, 1)
    source, to = put(device, a), put(device, b)
    device.backend.copy(to, 7, source, 3, 40)
    b[7:47] = a[3:43]
    _same(get(device, to, 60), b, "the buffer that was copied to")
    _same(get(device, source, 50), a, "the buffer that was copied from")


def _apart(device: Device) -> None:
    data = [_bytes(1 + i % 70, i) for i in range(300)]
    buffers = [put(device, d) for d in data]
    for i, (buffer, want) in enumerate(zip(buffers, data)):
        _same(get(device, buffer, want.size), want, f"buffer {i} of 300")


def _given_back(device: Device) -> None:
    for i in range(200):
        data = _bytes(1 << 16, i)
        buffer = put(device, data)
        if i % 20 == 0:
            _same(get(device, buffer, data.size), data, f"buffer {i}")
        del buffer


def _attributes(device: Device) -> None:
    buffer = device.backend.allocate(12, device.index or 0)
    if buffer.nbytes != 12 or buffer.modified is not None:
        raise AssertionError(f"a new buffer has nbytes {buffer.nbytes} and modified {buffer.modified}, not 12 and None")
    buffer.modified = (1, "add_")
    if buffer.modified != (1, "add_"):
        raise AssertionError("a buffer does not keep what core sets as modified")


def _tensors(dtype: object) -> Callable[[Device], None]:
    def check(device: Device) -> None:
        values = np.array([[0, 1, 2], [1, 0, 3]]).astype(dtype.numpy)  # type: ignore[attr-defined]
        there = ops.tensor(values, device=device)
        if there.device.type != device.type or there.dtype is not dtype:
            raise AssertionError(f"the tensor is {there.dtype} on {there.device}")
        _same(there.cpu().numpy().view(np.uint8), values.view(np.uint8), "the tensor")
        for i, row in enumerate(values.tolist()):
            if there[i].tolist() != row or there[i, 2].item() != row[2]:
                raise AssertionError(f"row {i}: got {there[i].tolist()}, expected {row}")
        if there.T.tolist() != values.T.tolist():
            raise AssertionError(f"transposed: got {there.T.tolist()}, expected {values.T.tolist()}")

    return check


def _view(sample: object) -> Callable[[Device], None]:
    def check(device: Device) -> None:
        checks.check_values(sample, device, dtypes=(float32,))  # type: ignore[arg-type]
        checks.check_shares_memory(sample, device, float32)  # type: ignore[arg-type]

    return check
