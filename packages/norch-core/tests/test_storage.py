"""The memory behind tensors: `Tensor.storage()`, and files as memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import norch


def test_the_memory_of_a_view_is_its_bases() -> None:
    x = norch.arange(6).reshape(2, 3)
    storage = x[1].untyped_storage()
    assert (storage.nbytes(), storage.size(), len(storage)) == (48, 6, 6)
    assert storage.data_ptr() == x.data_ptr()
    assert storage.untyped() is storage
    assert isinstance(storage, norch.UntypedStorage)


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
