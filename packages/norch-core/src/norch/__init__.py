"""norch: a deep-learning framework whose hardware is a wheel.

`import norch` loads no backend. A device's backend is found when the device is first used (see `norch.backend`).

Arguments that mean the same in every function:

    input, other: what is computed with, of any shape unless the function says which. Where one is a tensor, others may
        be numbers and NumPy arrays. Raises DTypeError, which names the argument, for what it cannot be.
    dim, keepdim, axis, keepdims: the dims along which it is computed, from -ndim to ndim - 1 (several are a tuple), and
        whether they stay in the result, of size 1. Raises IndexError for others.
    dtype, device: of the result; unless given the input's, or get_default_dtype() and get_default_device().
    requires_grad: whether the result, a leaf of the graph, gets a gradient. Raises DTypeError unless it is floating.
    out: a tensor, or as many as there are results, that the result is written into, and that is returned. Raises
        DTypeError where its dtype cannot hold the result, AutogradError where a gradient is wanted.
    generator: the Generator to draw from, in place of the one that manual_seed seeds.
    memory_format: how the result lies in memory: as input, contiguous_format, channels_last or channels_last_3d.
    non_blocking: whether a copy between the host and a device may still be under way when it is returned.
    pin_memory: whether the result lies in memory of the host from which a GPU copies without waiting.
"""

from __future__ import annotations

import builtins
import math
import sys as _sys
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

# Here rather than from the modules below: imported from deep inside them it takes 15 ms more.
import numpy as _numpy

__path__ = extend_path(__path__, __name__)  # norch-nn adds nn, optim and utils here

from . import importing as _importing  # isort: skip  (before all that it imports)

# `norch.tensor` is a package and a function; imported first, the package leaves the name to the function below.
from .tensor import Tensor  # isort: skip

from . import autograd, plugins
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
from .dispatch import failure as _failure
from .dispatch.arguments import checked
from .dispatch.fallback import is_cpu_fallback_allowed, set_cpu_fallback
from .dtype import (
    DType,
    bfloat16,
    can_cast,
    cdouble,
    cfloat,
    chalf,
    complex32,
    complex64,
    complex128,
    finfo,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
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
    uint16,
    uint32,
    uint64,
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
    CaptureError,
    CheckpointError,
    DeviceError,
    DTypeError,
    EmptyFileError,
    IndexError,
    LackingError,
    MetaError,
    MissingDTypeError,
    NorchError,
    NotFiniteError,
    OutOfMemoryError,
    RefusedPickleError,
    ShapeError,
    WeightsError,
)
from .ops import *  # noqa: F403
from .ops import LATE as _LATE_OPS
from .ops import random
from .ops.registry import LOOKUPS
from .settings import (
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    set_float32_matmul_precision,
    set_num_interop_threads,
    set_num_threads,
)
from .spec import Size
from .submodules import LateFinder as _LateFinder
from .submodules import join_einops as _join_einops
from .submodules import missing_names as _missing_names
from .tensor.assignment import index_put
from .tensor.dlpack import from_dlpack
from .version import __version__

if TYPE_CHECKING:
    from .device_module import DeviceModule
    from .func import vmap
    from .inspection.explaining import explain
    from .inspection.summary import summary
    from .serialization import load, load_safetensors, safe_open, save, save_safetensors

    cpu: DeviceModule
    cuda: DeviceModule

can_cast, promote_types = checked(can_cast), checked(promote_types)
e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None


def is_tensor(obj: object) -> builtins.bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


_LATER = {
    "accelerator": (),
    "amp": ("GradScaler",),
    "amp.autocast_mode": (
        "autocast", "clear_autocast_cache", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
        "is_autocast_available", "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled",
        "keep_autocast", "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_dtype",
        "set_autocast_enabled", "set_autocast_gpu_dtype",
    ),
    "autograd.anomaly": ("is_anomaly_enabled", "set_anomaly_enabled=set_detect_anomaly"),
    "capturing": ("capture",),
    "compat.assertions": (
        "_assert", "_assert_async", "_check", "_check_index", "_check_is_size", "_check_not_implemented",
        "_check_tensor_all", "_check_tensor_all_with", "_check_type", "_check_value", "_check_with",
    ),
    "compat.compiling": ("compile",),
    "compat.determinism": (
        "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode",
        "is_deterministic_algorithms_warn_only_enabled", "set_deterministic_debug_mode", "use_deterministic_algorithms",
    ),
    "memory_formats": (
        "channels_last", "channels_last_3d", "contiguous_format", "layout",
        "legacy_contiguous_format=contiguous_format", "memory_format", "preserve_format",
        "sparse_bsc", "sparse_bsr", "sparse_coo", "sparse_csc", "sparse_csr", "strided",
    ),
    "compat.complex_parts": (
        "angle", "complex", "conj", "conj_physical", "imag", "is_complex", "is_conj", "is_neg", "polar", "real",
        "resolve_conj", "resolve_neg", "view_as_complex", "view_as_real",
    ),
    "compat.csr_indices": ("_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo"),
    "compat.differences": ("frobenius_norm", "gradient", "norm_except_dim"),
    "compat.distances": ("pairwise_distance",),
    "compat.draws": ("_standard_gamma", "binomial", "poisson"),
    "compat.fake_quantization": ("fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine"),
    "compat.histograms": ("histogram", "histogramdd"),
    "compat.grouped": ("_grouped_mm=grouped_mm", "grouped_mm"),
    "compat.integer_products": ("_int_mm", "_weight_int8pack_mm"),
    "compat.legacy": (
        "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
        *[f"{kind}Storage" for kind in "BFloat16 Bool Byte Char Double Float Half Int Long Short".split()],
        "IntTensor", "LongTensor", "ShortTensor", "cholesky", "qr", "range", "set_default_tensor_type", "svd",
    ),
    "device": ("DeviceObjType=Device",),
    "detecting": ("detect_nan",),
    "dispatch.arguments": ("check_arguments", "check_functions"),
    "func": ("vmap",),
    "inspection.autograd_graph": ("graph",),
    "inspection.explaining": ("explain",),
    "inspection.summary": ("summary",),
    "compat.linear_algebra": (
        "geqrf", "lobpcg", "lu", "lu_solve", "lu_unpack", "ormqr", "pinverse", "triangular_solve",
    ),
    "linalg": ("det", "inverse=inv", "logdet", "matrix_exp", "orgqr=householder_product", "slogdet"),
    "linalg.cholesky_factor": ("cholesky_inverse", "cholesky_solve"),
    "linalg.low_rank": ("pca_lowrank", "svd_lowrank"),
    "compat.lacks": (
        "Future", "PyTorchFileReader", "ScriptModule", "SymBool", "SymFloat", "SymInt", "TensorType",
    ),
    "tensor": ("StorageBase=Storage", "TypedStorage", "UntypedStorage"),
    "compat.queries": (
        "detach", "get_device", "get_device_module", "is_floating_point", "is_nonzero", "is_same_size", "is_signed",
        "is_inference", "is_storage", "numel", "set_flush_denormal", "set_vital", "typename",
    ),
    "library.schema": ("Tag",),
    "memory.fitting": ("fits",),
    "serialization": ("load", "load_safetensors", "safe_open", "save", "save_safetensors"),
    "sparse": (
        "dsmm=mm", "smm=mm", "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor",
        "spmm=mm",
    ),
    "submodules": ("late_submodules",),
    "tensor.printing": ("set_printoptions",),
    "special": ("i0", "igamma=gammainc", "igammac=gammaincc", "mvlgamma=multigammaln"),
    "spectral": ("istft", "stft"),
    "compat.more_functions": (
        "adjoint", "as_strided_scatter", "constant_pad_nd", "empty_permuted", "fill", "frexp", "from_file",
        "narrow_copy", "native_channel_shuffle", "nonzero_static", "cond", "while_loop", "conv_tbc",
        "_softmax_backward_data", "_log_softmax_backward_data", "_shape_as_tensor",
    ),
    "compat.native_functions": (
        "_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_", "_unique", "_unique2", "grid_sampler",
        "grid_sampler_2d=grid_sampler", "grid_sampler_3d=grid_sampler", "gru", "gru_cell", "lstm", "lstm_cell",
        "native_dropout", "native_group_norm", "native_layer_norm", "nuclear_norm", "rnn_relu", "rnn_relu_cell",
        "rnn_tanh", "rnn_tanh_cell", "to_dlpack",
    ),
    "ops": ("unsafe_chunk=chunk", "unsafe_split=split", "unsafe_split_with_sizes=split_with_sizes"),
    "compat.quantized_dtypes": (
        "qint32", "qint8", "quint2x4", "quint4x2", "quint8",
        "per_channel_affine", "per_channel_affine_float_qparams", "per_channel_symmetric", "per_tensor_affine",
        "per_tensor_symmetric", "qscheme",
        *[f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)],
    ),
    "compat.streams": ("Event", "Stream"),
    "compat.symbolic_numbers": (
        "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum",
    ),
    "compat.segments": ("_segment_reduce=segment_reduce", "segment_reduce"),
    "compat.window_functions": (
        "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window",
    ),
}  # fmt: skip
"""By module: the names that norch gets from it when they are first used, so that they cost no time at import."""


def _op_of_plugin(name: str) -> Any:
    from .plugin_ops import lookup

    return lookup(name)


def _who_holds(place: Device) -> str:
    try:
        from .memory.out_of_memory import report
    except MemoryError:
        return ""
    return report(place)


_failure.who_holds = _who_holds
LOOKUPS.append(_op_of_plugin)
_sys.meta_path.append(_LateFinder())
_join_einops()


def __dir__() -> list[str]:
    late = {title.partition("=")[0] for titles in _LATER.values() for title in titles}
    in_place = {name for name in dir(Tensor) if name.endswith("_") and not name.startswith("_")}
    return sorted({*globals(), *_LATE_OPS, *late, *in_place})


plugins.reserved_names = __dir__


def _in_place(name: str) -> Any:
    """A method that works in place as a function: of a sample that `vmap` shows the sample's own."""
    from functools import wraps

    method = checked(getattr(Tensor, name), name)

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        sample = args and getattr(type(args[0]), "apply_function", None) is not None
        return getattr(type(args[0]), name)(*args, **kwargs) if sample else method(*args, **kwargs)

    return call


def __getattr__(name: str) -> Any:
    """What is loaded late, subpackages of other distributions (`norch.nn`), modules of devices, ops of plug-ins."""
    from importlib import import_module
    from importlib.util import find_spec

    if name == "__all__":  # what `from norch import *` gives, as PyTorch's: no modules, and no exceptions of Python's
        shown = {title for title in __dir__() if not title.startswith("_")}
        skipped = {title for title in shown & set(vars(builtins)) if title.endswith("Error")}
        return sorted(title for title in shown - skipped if not isinstance(globals().get(title), type(builtins)))
    if name in _LATE_OPS:
        found = globals()[name] = getattr(import_module("norch.ops"), name)
        return found
    for module, titles in _LATER.items():
        for title in titles:
            known, _, original = title.partition("=")
            if known == name:
                found = globals()[name] = getattr(import_module(f"norch.{module}"), original or known)
                return found
    if (name == "__config__" or not name.startswith("__")) and name.startswith("_"):
        if name in import_module("norch.compat.paths").PLACES:
            return import_module(f"norch.{name}")
    if name.startswith("_foreach_") and (each := import_module("norch.compat.foreach").find(name)) is not None:
        globals()[name] = each
        return each
    if name.endswith("_copy") and (copied := import_module("norch.compat.native_functions").find(name)) is not None:
        return copied
    if name.startswith("has_") and (built := import_module("norch.compat.built_with").find(name)) is not None:
        return built
    if not name.startswith("_"):
        if name.endswith("_") and hasattr(Tensor, name):  # methods that work in place are functions too
            found = globals()[name] = _in_place(name)
            return found
        from .device_module import ALWAYS, lookup

        device_module = lookup(name)
        if device_module is not None:
            if name in ALWAYS:  # which no change of plug-ins takes away
                globals()[name] = device_module
            return device_module
        if find_spec(f"norch.{name}") is not None:
            return import_module(f"norch.{name}")
        op = _op_of_plugin(name)
        if op is not None:
            globals()[name] = op
            return op
        _missing_names[f"norch.{name}"] = None
    raise AttributeError(
        f"module 'norch' has no attribute {name!r}"
        + ("; it comes with norch-nn: pip install norch-nn" if name in ("fx", "nn", "optim", "utils", "vision") else "")
    )
