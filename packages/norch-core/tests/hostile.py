"""Calls with arguments that make no sense, for tests: what comes of them is a result or an error of a user's."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import norch

ALLOWED = (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError, norch.OutOfMemoryError)
UNCHECKED = frozenset(
    # They change how norch works, read or write files, or wrap a function of the user's.
    """set_default_device set_default_dtype set_default_tensor_type set_num_threads set_num_interop_threads
    set_cpu_fallback set_printoptions manual_seed seed set_rng_state fork_rng use_generator load save load_safetensors
    save_safetensors safe_open compile use_deterministic_algorithms set_deterministic_debug_mode set_grad_enabled
    set_float32_matmul_precision set_flush_denormal set_anomaly_enabled set_autocast_enabled set_autocast_dtype
    set_autocast_cpu_dtype set_autocast_gpu_dtype set_autocast_cache_enabled enable_grad inference_mode no_grad
    check_functions""".split()
)


def values() -> list[Any]:
    """What no argument should be, or few: of wrong types, out of range, tensors of odd shapes and dtypes."""
    numbers = [2**64, -1, 1e300, float("nan"), 1j, np.float32(1), np.bool_(True), np.datetime64(1, "s")]
    sequences = [[], [[1.0], [2.0]], (None,), (2**64,), np.array(1), np.ones(2), {}]
    tensors = [
        norch.tensor(1),
        norch.tensor(1.5),
        norch.ones(2, 1, 3, dtype=norch.int64),
        norch.ones(0),
        [norch.ones(2)],
    ]
    return [None, "x", object(), int, slice(None), norch.float32, *numbers, *sequences, *tensors]


def arguments(function: Callable[..., Any], lead: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """A hostile value in each place: behind as many arguments that suit most functions, or by a keyword."""
    x = norch.tensor([[0.5, 1.0, 2.0], [3.0, 0.25, 1.5]])
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        parameters = []
    starts = [(x,), (x, x), (x, 0)] if not lead else [(*lead, x), (*lead, 0)]
    for value in values():
        for start in [lead, *starts]:
            yield (*start, value), {}
        for parameter in parameters[1:]:
            if parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty:
                yield lead or (x,), {parameter.name: value}


def faults(function: Callable[..., Any], lead: tuple[Any, ...] = ()) -> list[str]:
    """What came of calls that a user should not see: an AttributeError, a backend's name."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args, kwargs in arguments(function, lead):
            try:
                function(*args, **kwargs)
            except Exception as error:
                if not isinstance(error, ALLOWED) or isinstance(error, norch.BackendError):
                    given = ", ".join([*map(_short, args), *(f"{k}={_short(v)}" for k, v in kwargs.items())])
                    found.append(f"({given}): {type(error).__name__}: {error}")
    return found


def _short(value: Any) -> str:
    return f"<{value.dtype} {tuple(value.shape)}>" if isinstance(value, norch.Tensor) else f"{value!r:.40}"
