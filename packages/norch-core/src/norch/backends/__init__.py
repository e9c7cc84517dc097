"""Switches that PyTorch scripts set: `norch.backends.cudnn.benchmark = True` and the like. Loaded when first used.

A switch that norch has an equivalent of sets it; one that could only change speed is kept and has no effect; one that
asks for what norch does not do raises. Not to be confused with `norch.backend`, the contract of norch's own backends.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ..backend import registry
from ..settings import get_float32_matmul_precision, get_switch, set_float32_matmul_precision, set_switch


class _Tf32:
    """`allow_tf32`, which is norch's float32 precision of matrix products and convolutions: one switch for both."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 factors may be rounded to tf32: `get_float32_matmul_precision() != "highest"`."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        set_float32_matmul_precision("high" if value else "highest")


def _switch(name: str, default: bool, doc: str) -> Any:
    """A property that backends see as the switch "cudnn." + name."""
    key = f"cudnn.{name}"

    def put(self: _CuDNN, value: bool) -> None:
        set_switch(key, bool(value))

    return property(lambda self: get_switch(key, default), put, doc=doc)


class _CuDNN(_Tf32):
    """cuDNN, which norch-cuda uses where it is installed: `pip install norch-cuda[cudnn]`."""

    enabled = _switch("enabled", True, "Whether norch-cuda uses cuDNN where it is installed.")
    deterministic = _switch(
        "deterministic", True, "Whether each run gives the same bits. norch's own kernels do so in any case."
    )
    benchmark = _switch(
        "benchmark", False, "Whether convolutions try cuDNN's algorithms out and take the fastest, once for each shape."
    )
    benchmark_limit: int | None = 10
    """Kept, without effect."""

    def is_available(self) -> bool:
        """Whether device "cuda" can be used, and cuDNN with it."""
        return self.version() is not None

    def version(self) -> int | None:
        """Such as 91900 for 9.19.0; None where there is none that can be used."""
        versions = getattr(registry.find("cuda").module, "versions", None) if registry.is_usable("cuda") else None
        found = versions().get("cudnn") if versions else None
        if found is None:
            return None
        major, minor, patch = map(int, found.split("."))
        return major * 10000 + minor * 100 + patch

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
