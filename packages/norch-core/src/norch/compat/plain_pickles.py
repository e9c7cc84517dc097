"""What `pickle.load` calls for tensors that PyTorch pickled by pickle itself, not by `torch.save`: of `torch._utils`
and `torch.storage`."""

from __future__ import annotations

import io
from typing import Any

from ..serialization import load
from ..serialization.pytorch.names import parameter_class
from ..serialization.pytorch.tensors import rebuild


def _load_from_bytes(b: bytes) -> Any:
    """The storage that is in these bytes, a flat tensor. They are read as a file is: nothing in them is run."""
    return load(io.BytesIO(b))


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    backward_hooks: Any,
    metadata: Any = None,
) -> Any:
    return rebuild(storage, storage_offset, size, stride, requires_grad)


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    kind = parameter_class()
    return data.detach().requires_grad_(requires_grad) if kind is None else kind(data, requires_grad)
