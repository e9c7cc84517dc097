"""The memory behind tensors: `Tensor.storage()`, and files as memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import norch


def test_the_memory_of_a_view_is_its_bases() -> None:
    x = norch.arange(6).reshape(2, 3)
    storage = x[1].untyped_storage()
    assert (storage.nbytes(), storage.size(), len(storage), storage.element_size()) == (48, 48, 48, 1)
    assert storage.data_ptr() == x.data_ptr()
    assert storage.untyped() is storage
    assert isinstance(storage, norch.UntypedStorage)
    typed = x[1].storage()
    assert (typed.nbytes(), typed.size(), len(typed), typed.element_size()) == (48, 6, 6, 8)
    assert (typed.dtype, typed.device, typed.is_cuda) == (x.dtype, x.device, False)
    assert isinstance(typed, norch.TypedStorage)
    assert norch.is_storage(typed)
    assert norch.is_storage(storage)


def test_elements_of_the_memory() -> None:
    x = norch.arange(6.0)
    storage = x[2:].storage()
    assert (storage[2], storage.tolist(), list(storage)) == (2.0, list(range(6)), list(range(6)))
    storage[2] = 9
    assert x[2].item() == 9
    copy = storage.clone()
    storage.fill_(1)
    assert x.tolist() == [1] * 6
    assert storage.copy_(copy) is storage
    assert x.tolist() == [0, 1, 9, 3, 4, 5]
    assert storage.cpu().tolist() == x.tolist()
    assert norch.ones(2, dtype=norch.uint8).untyped_storage().tolist() == [1, 1]
    assert norch.zeros(0).set_(storage, 1, (2,), (2,)).tolist() == [1, 3]


@pytest.mark.parametrize("shared", [False, True])
def test_a_file_is_memory(tmp_path: Path, shared: bool) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(np.arange(4, dtype="<f4").tobytes())
    storage = norch.UntypedStorage.from_file(file, shared=shared, nbytes=16)
    assert storage.nbytes() == 16
    part = norch.asarray(storage[4:12], dtype=norch.uint8).view(dtype=norch.float32)
    assert part.tolist() == [1, 2]
    part.fill_(7)
    del part, storage
    assert np.frombuffer(file.read_bytes(), "<f4").tolist() == ([0, 7, 7, 3] if shared else [0, 1, 2, 3])
    with pytest.raises(FileNotFoundError):
        norch.UntypedStorage.from_file(tmp_path / "none")


def test_a_shared_file_is_made_and_made_longer(tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    x = norch.from_file(str(file), shared=True, size=3, device="cpu", requires_grad=False)
    x.fill_(2)
    del x
    longer = norch.from_file(str(file), shared=True, size=5)
    assert (longer.tolist(), file.stat().st_size) == ([2, 2, 2, 0, 0], 20)
    with pytest.raises(norch.DeviceError, match="not of 'meta'"):
        norch.from_file(str(file), size=1, device="meta")


def test_what_tells_tensors_and_memory_apart() -> None:
    x = norch.arange(6.0)
    view = x[2:]
    assert x._cdata == x._cdata != view._cdata
    assert x.untyped_storage()._cdata == view.storage()._cdata != x.clone().untyped_storage()._cdata


def test_new_memory():
    assert (norch.UntypedStorage(5).nbytes(), len(norch.FloatStorage(3)), norch.TypedStorage().size()) == (5, 3, 0)
    assert norch.LongStorage([1, 2]).tolist() == [1, 2]
    assert norch.IntStorage(2).dtype is norch.int32
    x = norch.ones(2)
    assert x.storage()._untyped_storage.data_ptr() == x.data_ptr()
    assert not x.untyped_storage().is_shared()
