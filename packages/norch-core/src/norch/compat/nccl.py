"""What `torch.cuda.nccl` tells of NVIDIA's library; norch.distributed has its collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import DeviceError
from .queries import _get_device_module

if TYPE_CHECKING:
    from ..tensor import Tensor


def version() -> tuple[int, int, int]:
    """Such as (2, 28, 9). Raises DeviceError where there is no GPU, RuntimeError where there is no NCCL."""
    cuda = _get_device_module("cuda")
    module = cuda._module()
    if module is None:
        raise DeviceError(f"nccl.version(): {cuda.why_not()}")
    found: tuple[int, int, int] = module.nccl_version()
    return found


def is_available(tensors: Sequence[Tensor]) -> bool:
    """Whether these are tensors that NCCL could take: dense and contiguous, each on another GPU."""
    devices = {x.device for x in tensors}
    return len(devices) == len(tensors) and all(x.is_cuda and not x.is_sparse and x.is_contiguous() for x in tensors)
