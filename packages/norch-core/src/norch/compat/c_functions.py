"""What programs ask of PyTorch's compiled part, `torch._C`: its state, and functions that Python has elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import backends
from ..backend import registry
from ..device import Device, get_default_device
from ..library.op import below_autograd
from ..library.schema import Tag as Tag
from ..linalg import LinAlgError
from ..ops.generator import Generator as Generator
from ..ops.generator import default_generator as default_generator
from ..overriding import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from ..overriding import disabled, is_enabled
from ..tensor_base import TensorBase
from .batched_tensors import are_transforms_active
from .function_modes import is_mode_on

if TYPE_CHECKING:
    from ..tensor import Tensor

_AutoDispatchBelowAutograd = below_autograd
_TensorMeta, _TensorBase = type, TensorBase
_disabled_torch_function_impl = disabled
_is_torch_function_enabled, _is_torch_function_mode_enabled = is_enabled, is_mode_on
_are_functorch_transforms_active = are_transforms_active
_has_xpu = _has_mps = False
_LinAlgError = LinAlgError


def _get_accelerator() -> Device:
    """The device other than the CPU that there is, or the CPU."""
    return Device(registry.accelerator() or "cpu")


def _get_cudnn_enabled() -> bool:
    return bool(backends.cudnn.enabled)


def _get_default_device() -> str:
    return get_default_device().type


def _get_tracing_state() -> None:
    """None: nothing is traced."""


def _is_tracing() -> bool:
    return False


def _is_alias_of(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors are on the same memory."""
    return tensor.untyped_storage()._cdata == other.untyped_storage()._cdata


def _cuda_getCurrentRawStream(device: int) -> int:
    """The cudaStream_t of the stream that is current there, as a number: kernels of others are launched on it. Raises
    DeviceError where there is no GPU."""
    backend: Any = registry.find("cuda")
    return int(backend.module.current_stream(device).cuda_stream)


def _jit_override_can_fuse_on_cpu(value: bool) -> None:
    """Accepted, without effect."""


_jit_override_can_fuse_on_gpu = _jit_override_can_fuse_on_cpu


def _log_api_usage_once(*event: Any) -> None:
    """Nothing is logged."""
