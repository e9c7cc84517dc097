"""Memory of a GPU shared with other libraries, by DLPack and CUDA's array interface; norch.Stream."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import norch


class Given:
    """What has a tensor's memory and is none."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "int64", "int8", "uint8", "bool"])
def test_a_capsule_shares_memory(cuda, dtype):
    x = norch.arange(24, device=cuda).reshape(4, 6).to(getattr(norch, dtype))
    for view in (x, x.t(), x[1:, ::2], x[:0]):
        found = norch.from_dlpack(Given(view))
        assert (found.shape, found.stride(), found.dtype, found.device) == (
            view.shape,
            view.stride(),
            view.dtype,
            x.device,
        )
        assert found.cpu().tolist() == view.cpu().tolist()
    found = norch.from_dlpack(x.__dlpack__())
    found.zero_()
    assert not x.any()
    del x
    gc.collect()
    assert not found.any()


def test_the_memory_is_kept_and_given_back(cuda):
    gc.collect()
    before = norch.cuda.memory_allocated()
    x = norch.ones(1 << 20, device=cuda)
    capsule = x.__dlpack__()
    y = norch.from_dlpack(capsule)
    with pytest.raises(norch.DeviceError, match="taken already"):
        norch.from_dlpack(capsule)
    del x
    assert y.sum().item() == 1 << 20
    assert norch.cuda.memory_allocated() >= before + (4 << 20)
    side = norch.cuda.Stream()
    with side:
        z = y * 2
    side.synchronize()
    del y, capsule
    gc.collect()
    assert z.sum().item() == 2 << 20
    unused = norch.ones(1 << 20, device=cuda).__dlpack__()
    del unused, z
    gc.collect()
    assert norch.cuda.memory_allocated() <= before + 4096


def test_what_cannot_be_shared(cuda):
    x = norch.ones(3, device=cuda, requires_grad=True)
    with pytest.raises(norch.AutogradError, match="detach"):
        x.__dlpack__()
    assert not hasattr(norch.ones(3), "__cuda_array_interface__")
    assert not hasattr(norch.ones(3, device=cuda).bfloat16(), "__cuda_array_interface__")


def test_the_array_interface(cuda):
    x = norch.arange(12.0, device=cuda).reshape(3, 4)
    told = x.t().__cuda_array_interface__
    assert (told["shape"], told["typestr"], told["strides"]) == ((4, 3), "<f4", (4, 16))
    assert told["data"] == (x.data_ptr(), False)

    class Array:
        __cuda_array_interface__ = told
        kept = x

    y = norch.as_tensor(Array(), device=cuda)
    assert y.data_ptr() == x.data_ptr()
    assert y.cpu().tolist() == x.t().cpu().tolist()
    y[0, 0] = 7.0
    assert x[0, 0].item() == 7.0
    assert norch.tensor(Array(), dtype=norch.float64).device.type == "cuda"


def test_arrays_of_cupy(cuda):
    cupy = pytest.importorskip("cupy")
    x = norch.arange(6.0, device=cuda)
    array = cupy.asarray(x)
    array += 1
    assert x.cpu().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert float(cupy.from_dlpack(x).sum()) == 21.0
    made = norch.as_tensor(cupy.arange(4, dtype=cupy.float32), device=cuda)
    assert made.cpu().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert norch.from_dlpack(cupy.ones((2, 3), dtype=cupy.int32)).sum().item() == 6


def test_streams_and_events_by_one_name(cuda):
    stream = norch.Stream()
    assert isinstance(stream, norch.Stream)
    assert isinstance(stream, norch.cuda.Stream)
    assert not isinstance(norch.ones(1), norch.Stream)
    with stream, stream:
        assert norch.cuda.current_stream() == stream
        x = norch.ones(1000, device=cuda) * 2
        done = stream.record_event(norch.Event(cuda, enable_timing=True, blocking=True))
    assert norch.cuda.current_stream() == norch.cuda.default_stream()
    norch.cuda.current_stream().wait_event(done)
    assert isinstance(done, norch.Event)
    assert x.sum().item() == 2000.0
    assert norch.Stream(device="cuda:0", priority=-1).device == norch.device("cuda", 0)


def test_batches_of_a_loader_are_pinned(cuda):
    data = pytest.importorskip("norch.utils.data")
    loader = data.DataLoader([(np.ones(3, np.float32), i) for i in range(8)], batch_size=4, pin_memory=True)
    for x, y in loader:
        assert x.is_pinned()
        assert y.is_pinned()
