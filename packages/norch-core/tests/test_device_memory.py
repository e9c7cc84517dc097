"""Memory of devices as DLPack capsules: here the CPU stands for a device, whose addresses are known too."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

import norch
from norch.tensor import device_memory


class Waits:
    """A module whose only stream notes that it was waited for."""

    cuda_stream = 0
    waited = 0

    def current_stream(self, device):
        return self

    def synchronize(self):
        self.waited += 1


@pytest.fixture
def module(monkeypatch):
    found = Waits()
    backend = norch.device("cpu").backend
    kept = []

    def adopt(address, nbytes, index, owner):
        kept.append(owner)
        return backend.from_host(memoryview((ctypes.c_char * max(nbytes, 1)).from_address(address)).cast("B"))

    monkeypatch.setitem(device_memory.TYPES, "cpu", 1)
    monkeypatch.setattr(device_memory, "_module", lambda device: found)
    monkeypatch.setattr(type(backend), "adopt", staticmethod(adopt), raising=False)
    found.kept = kept
    yield found
    kept.clear()
    gc.collect()


class Given:
    """What gives a capsule that is there already."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "uint8", "bool"])
def test_others_read_a_capsule(module, dtype):
    x = norch.arange(12).reshape(3, 4).to(getattr(norch, dtype))
    for view in (x, x.t(), x[1:, ::2]):
        array = np.from_dlpack(Given(device_memory.capsule_of(view)))
        assert array.tolist() == view.tolist()
        assert array.dtype.name == dtype
        del array
    assert module.waited == 3
    device_memory.capsule_of(x, -1)
    assert module.waited == 3, "who asks with -1 waits himself"
    gc.collect()
    assert not device_memory._exported, "of a capsule that nobody takes nothing is kept either"


def test_a_capsule_of_others_is_shared(module):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    here = norch.device("cpu")
    x = device_memory._on_memory_of(array.__dlpack__(), here)
    assert x.dtype is norch.int32
    array[0, 1] = 9
    assert x.tolist() == [[0, 9, 2], [3, 4, 5]]
    y = device_memory._on_memory_of(array.T.__dlpack__(), here)
    assert (y.stride(), y.tolist()) == ((1, 3), [[0, 3], [9, 4], [2, 5]])
    capsule = array.__dlpack__()
    device_memory._on_memory_of(capsule, here)
    with pytest.raises(norch.DeviceError, match="taken already"):
        device_memory._on_memory_of(capsule, here)
    with pytest.raises(norch.DeviceError, match="taken already"):
        norch.from_dlpack(capsule)
    with pytest.raises(norch.DTypeError, match="no dtype"):
        device_memory._on_memory_of(np.zeros(2, np.complex64).__dlpack__(), here)


def test_what_cannot_be_given_away(module):
    with pytest.raises(norch.AutogradError, match="detach"):
        device_memory.capsule_of(norch.ones(2, requires_grad=True))
    with pytest.raises(norch.DTypeError, match="uint8"):
        device_memory.capsule_of(norch.ones(2).to(norch.float8_e4m3fn))
    assert not hasattr(norch.ones(2), "__cuda_array_interface__")


def test_a_device_that_norch_does_not_know():
    given = Given(None)
    given.__class__ = type("Elsewhere", (Given,), {"__dlpack_device__": lambda self: (4, 0)})
    with pytest.raises(norch.DeviceError, match="type 4"):
        norch.from_dlpack(given)


def test_streams_where_no_device_has_any():
    assert not isinstance(norch.ones(1), norch.Stream)
    assert not isinstance(None, norch.Event)
    with pytest.raises(norch.DeviceError, match="cpu has none"):
        norch.Stream("cpu")
