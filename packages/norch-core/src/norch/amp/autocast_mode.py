"""Regions in which ops run in the dtype that suits them: `autocast`, and what PyTorch has beside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from ..backend import registry
from ..dtype import DType, as_dtype, bfloat16, float16, float64
from ..errors import DTypeError
from ..tensor_base import TensorBase
from .hooks import hook, unhook
from .state import clear_cache, dtype_of, refresh, state


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows `device_type`: "cpu", "cuda" and those of installed plug-ins."""
    return device_type in ("cpu", "cuda") or registry.is_device_type(device_type)


def _check(device_type: str) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"autocast: device_type must be a string, got {type(device_type).__name__}")
    if not is_autocast_available(device_type):
        raise RuntimeError(f"autocast: unsupported device type {device_type!r}")


def _changed() -> None:
    """What is enabled changed: whether this thread needs hooked ops follows."""
    refresh()
    needed = state.active is not None
    if needed != state.counted:
        state.counted = needed
        (hook if needed else unhook)()


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether this thread is in a region for `device_type`."""
    return state.enabled.get(device_type, False)


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Turns autocast on or off in this thread; `autocast` does it for a region. Of "cuda" unless `device_type` is
    given. Raises DTypeError unless `enabled` is a bool, RuntimeError for a type that there is not.
    """
    kind, on = ("cuda", device_type) if enabled is None else (device_type, enabled)
    if not isinstance(on, bool):
        raise DTypeError(f"set_autocast_enabled(): enabled must be a bool, got {on!r:.80}")
    _check(kind)  # type: ignore[arg-type]
    state.enabled = {**state.enabled, kind: on}  # type: ignore[misc, dict-item]
    _changed()


def get_autocast_dtype(device_type: str) -> DType:
    """What is computed in 16 bits on `device_type`: bfloat16 on the CPU, float16 elsewhere, unless another was set.

    Raises RuntimeError for a type that there is not.
    """
    _check(device_type)
    return dtype_of(device_type)


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Sets the dtype that `get_autocast_dtype` gives for `device_type`, in this thread. Raises RuntimeError for a type
    that there is not, DTypeError for what is no dtype.
    """
    _check(device_type)
    state.dtypes = {**state.dtypes, device_type: as_dtype(dtype)}  # type: ignore[misc]
    refresh()


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("cuda", dtype)`."""
    set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("cpu", dtype)`."""
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype("cuda")`."""
    return dtype_of("cuda")


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype("cpu")`."""
    return dtype_of("cpu")


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept until the outermost region ends."""
    return state.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Sets whether casts of weights are kept (`enabled`), in this thread."""
    state.cache_enabled = bool(enabled)


clear_autocast_cache = clear_cache


class autocast:
    """A region, or a decorator, in which ops on tensors of `device_type` run in the dtype that suits them.

    Matrix products and convolutions run in `dtype` (bfloat16 on the CPU and float16 elsewhere unless given), losses and
    what 16 bits are too few for in float32, as PyTorch's lists say. Parameters stay as they are: a float32 leaf that
    requires grad is cast once a region and gets its gradient in float32; `cache_enabled=False` casts it each time. In
    float64 nothing changes; in-place ops are left alone. Regions nest, and `enabled=False` turns it off inside one. It
    holds in this thread alone.

    Raises RuntimeError for a device type that there is not. For "cuda" without a GPU, or a dtype that is none of 16
    bits, it warns and does nothing.
    """

    def __init__(
        self, device_type: str, dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        _check(device_type)
        self.device, self.fast_dtype = device_type, dtype or dtype_of(device_type)
        self._cache_enabled = cache_enabled
        if enabled and device_type == "cuda" and not registry.is_usable("cuda"):
            warnings.warn("autocast: CUDA is not available; it is turned off here", stacklevel=2)
            enabled = False
        elif enabled and device_type != "cuda" and self.fast_dtype not in (bfloat16, float16):
            warnings.warn(
                f"autocast: on {device_type!r} only bfloat16 and float16 are supported, not {self.fast_dtype}; it is "
                "turned off here",
                stacklevel=2,
            )
            enabled = False
        self._enabled = bool(enabled)
        self._before: list[Any] = []

    def __enter__(self) -> autocast:
        self._before.append((state.enabled, state.dtypes, state.cache_enabled))
        state.enabled = {**state.enabled, self.device: self._enabled}  # type: ignore[misc]
        state.dtypes = {**state.dtypes, self.device: self.fast_dtype}  # type: ignore[misc]
        if self._cache_enabled is not None:
            state.cache_enabled = self._cache_enabled
        state.nesting += 1
        _changed()
        return self

    def __exit__(self, *exception: object) -> None:
        state.enabled, state.dtypes, state.cache_enabled = self._before.pop()  # type: ignore[misc]
        state.nesting -= 1
        if not state.nesting:
            clear_cache()
        _changed()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise TypeError(f"autocast()(function): needs a callable, got {type(function).__name__}")

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return call


class keep_autocast:
    """Remembers what autocast is when it is made; a `with` block runs so again, in any thread."""

    def __init__(self) -> None:
        self._kept = state.enabled, state.dtypes, state.cache_enabled
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before.append((state.enabled, state.dtypes, state.cache_enabled))
        state.enabled, state.dtypes, state.cache_enabled = self._kept  # type: ignore[misc]
        state.nesting += 1
        _changed()

    __exit__ = autocast.__exit__


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
    if isinstance(value, TensorBase):
        found: Any = value
        spec = found.spec
        eligible = spec.dtype.is_floating_point and spec.dtype is not float64 and spec.device.type == device_type
        return found.to(dtype) if eligible else found
    if isinstance(value, Mapping):
        return {k: _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_cast(v, device_type, dtype) for v in value])
    return value


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: DType | None = None) -> Any:
    """For `forward` of a Function: it runs as autocast is or, with `cast_inputs`, without, on inputs of that dtype.

    fwd: the method; without it, a decorator for `device_type`. Raises ValueError unless that is a string.
    """
    if not isinstance(device_type, str):
        raise ValueError(f"custom_fwd(): device_type must be a string, got {type(device_type).__name__}")
    if fwd is None:
        return partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def call(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._dtype, on = get_autocast_dtype(device_type), is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = on and cast_inputs is None
        if not on or cast_inputs is None:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return call


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """For `backward` of a Function whose `forward` has `custom_fwd`: it runs with autocast as that did.

    bwd: the method; without it, a decorator for `device_type`. Raises ValueError unless that is a string.
    """
    if not isinstance(device_type, str):
        raise ValueError(f"custom_bwd(): device_type must be a string, got {type(device_type).__name__}")
    if bwd is None:
        return partial(custom_bwd, device_type=device_type)

    @wraps(bwd)
    def call(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, args[0]._dtype, args[0]._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return call


__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available", "keep_autocast"]
