"""norch: a deep-learning framework whose hardware is a wheel.

`import norch` loads no backend. A device's backend is found when the device is first used (see `norch.backend`).
"""

from __future__ import annotations

import builtins
import math
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

# Here rather than from the modules below: imported from deep inside them it takes 15 ms more.
import numpy as _numpy

__path__ = extend_path(__path__, __name__)  # norch-nn adds nn, optim and utils here
__version__ = "0.1.0"

# `norch.tensor` is a package and a function; imported first, the package leaves the name to the function below.
from .tensor import Tensor  # isort: skip

from . import autograd
from .autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .device import Device, get_default_device, set_default_device
from .device import Device as device
from .dtype import (
    DType,
    bfloat16,
    finfo,
    float16,
    float32,
    float64,
    get_default_dtype,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
)
from .dtype import DType as dtype
from .dtype import bool_ as bool
from .dtype import float16 as half
from .dtype import float32 as float
from .dtype import float64 as double
from .dtype import int16 as short
from .dtype import int32 as int
from .dtype import int64 as long
from .errors import (
    AutogradError,
    BackendError,
    CheckpointError,
    DeviceError,
    DTypeError,
    IndexError,
    NorchError,
    OutOfMemoryError,
    ShapeError,
)
from .fallback import is_cpu_fallback_allowed, set_cpu_fallback
from .matmul_precision import get_float32_matmul_precision, set_float32_matmul_precision
from .ops import *  # noqa: F403
from .spec import Size
from .tensor.interop import from_dlpack
from .tensor.printing import set_printoptions
from .threads import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from .backend.device_module import DeviceModule
    from .serialization import load, load_safetensors, safe_open, save, save_safetensors

    cpu: DeviceModule
    cuda: DeviceModule

_SERIALIZATION = ("load", "load_safetensors", "safe_open", "save", "save_safetensors")  # loaded when first asked for

e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None


def is_tensor(obj: object) -> builtins.bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def __dir__() -> list[str]:
    return sorted({*globals(), *_SERIALIZATION})


def __getattr__(name: str) -> Any:
    """Subpackages of other distributions (`norch.nn`), the modules of devices (`norch.cuda`), ops of plug-ins."""
    from importlib import import_module

    if name in _SERIALIZATION:
        found = globals()[name] = getattr(import_module("norch.serialization"), name)
        return found
    from importlib.util import find_spec

    if not name.startswith("_"):
        if find_spec(f"norch.{name}") is not None:
            return import_module(f"norch.{name}")
        from .backend.device_module import lookup

        found = lookup(name)
        if found is not None:
            return found
        from .plugin_ops import lookup as op_of_plugin

        found = op_of_plugin(name)
        if found is not None:
            globals()[name] = found
            return found
    raise AttributeError(
        f"module 'norch' has no attribute {name!r}"
        + ("; it comes with norch-nn: pip install norch-nn" if name in ("nn", "optim", "utils", "vision") else "")
    )
