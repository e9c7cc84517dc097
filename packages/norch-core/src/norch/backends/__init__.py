"""Switches that PyTorch scripts set: `norch.backends.cudnn.benchmark = True` and the like. Loaded when first used.

norch has none of the libraries that they are named for. A switch that norch has an equivalent of sets it; one that
could only change speed is kept and has no effect; one that asks for what norch does not do raises. Not to be confused
with `norch.backend`, the contract of norch's own backends.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ..backend import registry
from ..settings import get_float32_matmul_precision, set_float32_matmul_precision


class _Tf32:
    """`allow_tf32`, which is norch's float32 precision of matrix products and convolutions: one switch for both."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 factors may be rounded to tf32: `get_float32_matmul_precision() != "highest"`."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        set_float32_matmul_precision("high" if value else "highest")


class _CuDNN(_Tf32):
    """norch-cuda has kernels of its own in place of cuDNN."""

    benchmark = False
    """Kept, without effect: norch-cuda tries out no algorithms at run time."""
    benchmark_limit: int | None = 10
    enabled = True
    """Kept, without effect: there is no cuDNN to turn off."""
    deterministic = True
    """Kept, without effect: norch's kernels give the same result in every run anyway."""

    def is_available(self) -> bool:
        """False: norch has no cuDNN."""
        return False

    def version(self) -> None:
        """None: norch has no cuDNN."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name):
            raise AttributeError(f"norch.backends.cudnn has no switch {name!r}")
        object.__setattr__(self, name, value)


class _CUDA:
    """The switches of `torch.backends.cuda`."""

    matmul = _Tf32()

    def is_built(self) -> bool:
        """Whether device "cuda" can be used."""
        return registry.is_usable("cuda")

    def sdp_kernel(self, *kernels: Any, **enabled: Any) -> nullcontext[None]:
        """Accepted: backends choose among kernels of attention themselves."""
        return nullcontext()

    def enable_flash_sdp(self, enabled: bool) -> None:
        """Accepted, as `sdp_kernel`."""

    enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp


class _Device:
    """A device type of which scripts ask whether it is there."""

    def __init__(self, device_type: str) -> None:
        self._type = device_type

    def is_available(self) -> bool:
        """Whether a backend for the device type is installed and can be used."""
        return registry.is_usable(self._type)

    is_built = is_available


class _Absent:
    """A library of PyTorch's that norch does not have."""

    enabled = False

    def is_available(self) -> bool:
        """False."""
        return False


cudnn, cuda, mps = _CuDNN(), _CUDA(), _Device("mps")
mkl = mkldnn = openmp = _Absent()
