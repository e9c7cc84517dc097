"""Switches that PyTorch scripts set: `norch.backends.cudnn.benchmark = True` and the like. Loaded when first used.

A switch that norch has an equivalent of sets it; one that could only change speed is kept and has no effect; one that
asks for what norch does not do raises. Not to be confused with `norch.backend`, the contract of norch's own backends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ..backend import registry
from ..settings import allows_tf32, at_once, set_float32_matmul_precision, set_switch, show_switch


class _Float32:
    """What float32 is computed in, of one kind of ops or of several."""

    _kinds: tuple[str, ...]

    def __init__(self, *kinds: str) -> None:
        object.__setattr__(self, "_kinds", kinds)

    @property
    def allow_tf32(self) -> bool:
        """Whether factors may be rounded to tf32."""
        return all(map(allows_tf32, self._kinds))

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        self.fp32_precision = "tf32" if value else "ieee"

    @property
    def fp32_precision(self) -> str:
        """ "ieee" or "tf32". "none" as well can be set: "ieee" of products; of others, that they do as products."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        if value not in _CHOICES:
            raise ValueError(f"fp32_precision: expected one of {', '.join(_CHOICES)}, got {value!r}")
        for kind in self._kinds:
            if kind == "matmul":
                set_float32_matmul_precision("high" if value == "tf32" else "highest")
            else:
                set_switch(f"{kind}.tf32", _CHOICES[value])


_CHOICES = {"ieee": False, "tf32": True, "none": None}


def _switch(key: str, default: bool, doc: str) -> Any:
    """A property that backends see as the switch `key`."""

    def put(self: object, value: bool) -> None:
        set_switch(key, bool(value))

    return property(lambda self: show_switch(key, default), put, doc=doc)


class _Matmul(_Float32):
    """Matrix products: in tf32 or not as `norch.set_float32_matmul_precision` says, which this is another name of."""

    allow_fp16_reduced_precision_reduction = _switch(
        "matmul.float16_sums", False, "Whether partial sums of float16 products may be float16: norch-cuda's cuBLASLt."
    )
    allow_bf16_reduced_precision_reduction = _switch(
        "matmul.bfloat16_sums", False, "Whether partial sums of bfloat16 products may be bfloat16."
    )
    allow_fp16_accumulation = _switch(
        "matmul.float16_accumulation", False, "Whether products of float16 may be summed in float16 throughout."
    )

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name):
            raise AttributeError(f"norch.backends.cuda.matmul has no switch {name!r}")
        object.__setattr__(self, name, value)


class _CuDNN(_Float32):
    """cuDNN, which norch-cuda uses where it is installed: `pip install norch-cuda[cudnn]`. Its `allow_tf32` is that of
    convolutions and recurrent layers, by whatever kernels; unless set, they do as matrix products."""

    conv, rnn = _Float32("conv"), _Float32("rnn")
    enabled = _switch("cudnn.enabled", True, "Whether norch-cuda uses cuDNN where it is installed.")
    deterministic = _switch(
        "cudnn.deterministic", True, "Whether each run gives the same bits. norch's own kernels do so in any case."
    )
    benchmark = _switch(
        "cudnn.benchmark",
        False,
        "Whether convolutions and large matrix products try algorithms out and take the fastest, once a shape.",
    )
    benchmark_limit: int | None = 10
    """Kept, without effect."""

    def is_available(self) -> bool:
        """Whether device "cuda" can be used, and cuDNN with it."""
        return self.version() is not None

    def version(self) -> int | None:
        """Such as 91900 for 9.19.0; None where there is none that can be used."""
        module = getattr(registry.find("cuda"), "module", None) if registry.is_usable("cuda") else None
        found = module.versions().get("cudnn") if hasattr(module, "versions") else None  # type: ignore[union-attr]
        if found is None:
            return None
        major, minor, patch = map(int, found.split("."))
        return major * 10000 + minor * 100 + patch

    def is_acceptable(self, tensor: Any) -> bool:
        """Whether ops on the tensor may use cuDNN: a floating one on device "cuda", where cuDNN is there and enabled.

        tensor: any shape and dtype.
        """
        return bool(
            tensor.device.type == "cuda" and tensor.is_floating_point() and self.enabled and self.is_available()
        )

    @contextmanager
    def flags(
        self,
        enabled: bool = False,
        benchmark: bool = False,
        benchmark_limit: int | None = 10,
        deterministic: bool = False,
        allow_tf32: bool | None = None,
        fp32_precision: str | None = None,
    ) -> Iterator[None]:
        """`with cudnn.flags(enabled=False):` sets the switches, within it, to what it is given.

        allow_tf32, fp32_precision: unlike in PyTorch as they are, unless given: no result loses digits unasked.
        """
        names = ("cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic", "conv.tf32", "rnn.tf32")
        before = {name: show_switch(name) for name in names}
        limit = self.benchmark_limit
        with at_once():
            self.enabled, self.benchmark, self.deterministic = enabled, benchmark, deterministic
            self.benchmark_limit = benchmark_limit
            if fp32_precision is not None:
                self.fp32_precision = fp32_precision
            elif allow_tf32 is not None:
                self.allow_tf32 = allow_tf32
        try:
            yield
        finally:
            self.benchmark_limit = limit
            with at_once():
                for name, value in before.items():
                    set_switch(name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name):
            raise AttributeError(f"norch.backends.cudnn has no switch {name!r}")
        object.__setattr__(self, name, value)


class _PlanCache:
    """PyTorch's cache of plans of cuFFT, which norch does not use: always empty. What `max_size` is set to is kept."""

    max_size, size = 4096, 0

    def __getitem__(self, device: Any) -> _PlanCache:
        """That of `device`: itself."""
        return self

    def clear(self) -> None:
        """Accepted, without effect."""


class _CUDA:
    """The switches of `torch.backends.cuda`."""

    matmul = _Matmul("matmul")
    cufft_plan_cache = _PlanCache()

    def is_built(self) -> bool:
        """Whether device "cuda" can be used."""
        return registry.is_usable("cuda")

    @contextmanager
    def sdp_kernel(self, *kernels: Any, **enabled: Any) -> Iterator[None]:
        """Accepted: backends choose among kernels of attention themselves."""
        yield

    def preferred_linalg_library(self, backend: Any = None) -> str:
        """Which of PyTorch's libraries decomposes matrices, "default": `backend`, another one's name, is ignored."""
        return "default"

    preferred_blas_library = preferred_linalg_library

    def enable_flash_sdp(self, enabled: bool) -> None:
        """Accepted, as `sdp_kernel`."""

    enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp
    allow_fp16_bf16_reduction_math_sdp = enable_flash_sdp

    def fp16_bf16_reduction_math_sdp_allowed(self) -> bool:
        """False, as PyTorch answers by default: sums of attention are float32."""
        return False

    def is_flash_attention_available(self) -> bool:
        """Whether device "cuda" can be used: it has attention that keeps no scores."""
        return self.is_built()

    def flash_sdp_enabled(self) -> bool:
        """True, as PyTorch answers by default."""
        return True

    mem_efficient_sdp_enabled = math_sdp_enabled = cudnn_sdp_enabled = flash_sdp_enabled


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

    @contextmanager
    def flags(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """Accepted, without effect."""
        yield


class _OptEinsum(_Absent):
    """The planner of `einsum`'s order, which norch has of its own: what is set changes nothing."""

    strategy = None


class _Attention:
    """The switch of `torch.backends.mha`, PyTorch's fast path of attention in inference: what norch.nn does alike of it
    is that `TransformerEncoder` gives zeros at padded places."""

    _fastpath = _switch("mha.fastpath", True, "Whether results at padded places are zeros.")

    def get_fastpath_enabled(self) -> bool:
        """What `set_fastpath_enabled` was given, True at first."""
        return bool(self._fastpath)

    def set_fastpath_enabled(self, value: bool) -> None:
        """Sets the switch for all threads."""
        self._fastpath = value


class _CPU:
    """What scripts ask about the processor."""

    def get_cpu_capability(self) -> str:
        """ "AVX512", "AVX2" or "DEFAULT": the instructions that the backend of device "cpu" uses."""
        module = getattr(registry.find("cpu"), "module", None)
        used = module.instruction_set() if hasattr(module, "instruction_set") else ""  # type: ignore[union-attr]
        return used.upper() if used in ("avx512", "avx2") else "DEFAULT"


def flags_frozen() -> bool:
    """False: switches can be set at any time."""
    return False


cudnn, cuda, mps, cpu = _CuDNN("conv", "rnn"), _CUDA(), _Device("mps"), _CPU()
mha = _Attention()
mkl = mkldnn = openmp = _Absent()
opt_einsum = _OptEinsum()


class _Module(ModuleType):
    """This module, with a switch for all of it."""

    _all = _Float32("matmul", "conv", "rnn")
    fp32_precision = property(
        lambda self: self._all.fp32_precision,
        lambda self, value: setattr(self._all, "fp32_precision", value),
        doc="What matrix products, convolutions and recurrent layers compute float32 in.",
    )


sys.modules[__name__].__class__ = _Module
