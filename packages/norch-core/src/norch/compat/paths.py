"""PyTorch's module paths under which norch has something: `norch.nn.modules.conv`, `norch.cuda.amp.grad_scaler`.

They are not files: a finder, asked after Python's own, makes such a module from the table below when a script imports
it. A name that norch lacks, and that scripts import without using it, is there too: it raises when it is called.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import ContextDecorator, nullcontext
from datetime import timedelta
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple

from ..backend import registry
from ..device import Device
from ..dtype import DType
from ..errors import AutogradError
from ..submodules import PARTS_OF_DEVICES
from ..tensor import Tensor, printing
from ..tensor.storage import Storage
from ..tensor_base import TensorBase
from . import lacks
from .aten import Overload, Packet
from .compiling import compile, eager, is_compiling, set_stance
from .more_functions import _shape_as_tensor
from .path_functions import (
    _addindent,
    _environment,
    _Forked,
    _generate_state,
    _is_instance,
    _list_with_default,
    _ntuple,
    _reshaped,
    _script,
    _tqdm,
    _vmap,
    unchanged,
)
from .queries import _get_device_index

ROOT = __name__.partition(".")[0]


class Asked(NamedTuple):
    """A name whose value changes: `function` gives it, anew each time."""

    function: Callable[[], Any]


class Place(NamedTuple):
    """What a path has: the public and private names of `homes`, the first that has one, and `names`.

    homes: modules of norch, or, where they begin with "/", others.
    """

    homes: tuple[str, ...] = ()
    names: Mapping[str, Any] = MappingProxyType({})


_DECORATORS = (
    "ignore export unused script_method script_if_tracing _script_if_tracing _overload _overload_method interface"
)
_JIT: dict[str, Any] = dict.fromkeys(_DECORATORS.split(), unchanged)
_JIT |= {"annotate": lambda the_type, the_value: the_value, "Attribute": lambda value, type: value}
_JIT |= {"Final": Final, "strict_fusion": nullcontext, "isinstance": _is_instance}
_JIT |= {"fork": _Forked, "Future": _Forked, "wait": lambda future: future.wait()}
_JIT |= {"set_fusion_strategy": lambda strategy: []}
_JIT |= dict.fromkeys(("fuser", "optimized_execution"), lambda *args: _Unchanged())
_JIT["script"] = _script
_JIT |= dict.fromkeys(("freeze", "optimize_for_inference"), lambda mod, *args, **kwargs: mod)
_JIT |= {"TracerWarning": type("TracerWarning", (Warning,), {}), "Error": type("Error", (Exception,), {})}
_TYPES = ("Any", "Dict", "List", "Optional", "Tuple", "Union")
_NOT_SCRIPTING: dict[str, Any] = dict.fromkeys(("is_scripting", "is_tracing", "is_exporting"), lambda: False)
_COMPILING: dict[str, Any] = dict.fromkeys(("is_compiling", "is_dynamo_compiling"), is_compiling)
_COMPILER = dict.fromkeys(("disable", "allow_in_graph", "assume_constant_result"), unchanged)
_COMPILER |= _NOT_SCRIPTING | _COMPILING
_COMPILER["list_backends"] = lambda *tags, **more: ["cudagraphs", "inductor"]
_COMPILER |= dict.fromkeys(
    ("reset", "graph_break", "mark_dynamic", "mark_static", "mark_static_address", "cudagraph_mark_step_begin"),
    lambda *args, **kwargs: None,
)


class _Unchanged(ContextDecorator, nullcontext[None]):
    """Settings for a `with` block, or for a function that it decorates."""


_SETTINGS = {"patch": lambda *args, **kwargs: _Unchanged()}
"""Of compilers, which scripts set: nothing reads them."""
_OFF = "capture_dynamic_output_shape_ops capture_scalar_outputs compiled_autograd disable error_on_recompile verbose"
_DYNAMO_SETTINGS: dict[str, Any] = _SETTINGS | dict.fromkeys([*_OFF.split(), "suppress_errors"], False)
_DYNAMO_SETTINGS |= dict.fromkeys(("cache_size_limit", "recompile_limit"), 8)
_DYNAMO_SETTINGS |= {"optimize_ddp": True, "assume_static_by_default": True, "automatic_dynamic_shapes": True}
_FUNCTORCH_SETTINGS = _SETTINGS | {"donated_buffer": True, "functionalize_rng_ops": False}
_ANNOTATIONS = [f"_size_{n}_t" for n in ("any", 1, 2, 3, 4, 5, 6)] + [
    f"_{kind}_{n}_t" for kind in ("scalar_or_tuple", "ratio") for n in ("any", 1, 2, 3, 4, 5, 6)
]
_ANNOTATIONS += [f"_size_{n}_opt_t" for n in ("any", 2, 3)] + ["_maybe_indices_t"]
_MODULE_UTILS: dict[str, Any] = {
    name: _ntuple(i) for i, name in enumerate(("_single", "_pair", "_triple", "_quadruple"), 1)
}
_MODULE_UTILS |= {"_ntuple": _ntuple, "_list_with_default": _list_with_default}
_MODULE_UTILS["_reverse_repeat_tuple"] = lambda t, n: tuple(x for x in reversed(t) for _ in range(n))
_JIT_SWITCHES = "profiling_executor profiling_mode texpr_fuser_enabled nvfuser_enabled bailout_depth autocast_mode"
_SIGNALS = [f"_set_{name}" for name in ("SIGCHLD_handler", "worker_pids", "worker_signal_handlers")]
_SIGNALS += ["_error_if_any_worker_fails", "_remove_worker_pids"]
_TIMEOUTS = ("default_pg_timeout", "default_pg_nccl_timeout")

_EMPTY = (
    "_functorch _dynamo.backends ao ao.nn _higher_order_ops _inductor _inductor.codecache distributed.elastic "
    "distributed.elastic.multiprocessing distributed.algorithms.model_averaging"
)

PLACES: dict[str, Place] = {
    **dict.fromkeys(_EMPTY.split(), Place()),
    "__config__": Place(names={"show": lambda: "", "parallel_info": lambda: ""}),
    "_C": Place(
        ("compat.c_functions",),
        dict.fromkeys((f"_jit_set_{n}" for n in _JIT_SWITCHES.split()), lambda value: None)
        | {"_get_graph_executor_optimize": lambda new_settings=None: True}
        | {"_set_graph_executor_optimize": lambda optimize: None},
    ),
    "_VF": Place(("nn.flat_recurrence", "nn.functional.cells", "nn.functional", "")),
    "_tensor": Place(("compat.plain_pickles", "")),
    "_tensor_str": Place(
        names={
            "PRINT_OPTS": printing._options,
            "_tensor_str": lambda self, indent: printing.format_array(self.detach().cpu().numpy(), indent),
            "_add_suffixes": lambda tensor_str, suffixes, indent, force_newline: printing.with_notes(
                tensor_str, suffixes, indent, force_newline
            ),
        }
    ),
    "_C._functorch": Place(("compat.batched_tensors",)),
    "_functorch.apis": Place(("func",)),
    "_functorch.eager_transforms": Place(("func", "compat.batched_tensors")),
    "_functorch.functional_call": Place(("func",)),
    "_functorch.make_functional": Place(("nn.utils.functional_modules",)),
    "_functorch.vmap": Place(("compat.batched_tensors", "utils._pytree")),
    "_C._nn": Place(("nn.functional", "nn.transfer")),
    "_subclasses.fake_tensor": Place(names={"is_fake": lambda value: False, "unset_fake_temporarily": nullcontext}),
    "_utils": Place(("compat.flattening", "compat.plain_pickles", "compat.queries", "compat.raised_elsewhere")),
    "ao.quantization": Place(("nn.quantizing",)),
    "ao.quantization.quantize": Place(("nn.quantizing",)),
    "ao.nn.quantized": Place(("nn.quantized",)),
    "quantization": Place(("nn.quantizing",)),
    "autograd.forward_ad": Place(
        ("func.dual_numbers",),
        {"_current_level": Asked(lambda: import_module(f"{ROOT}.func.dual_numbers").current_level())},
    ),
    "autograd.anomaly_mode": Place(("autograd.anomaly",)),
    "autograd.gradcheck": Place(("autograd",), {"GradcheckError": AutogradError}),
    "autograd.grad_mode": Place(("",)),
    "autograd.profiler": Place(("profiler.legacy",)),
    "profiler.profiler": Place(("profiler.session", "profiler")),
    "_jit_internal": Place(("nn.traced",), names=_JIT | {"_copy_to_script_wrapper": unchanged}),
    "autograd.variable": Place(("autograd",)),
    "compiler": Place(names=_COMPILER | {"compile": compile, "set_stance": set_stance}),
    "func.experimental": Place(("func",)),
    "_higher_order_ops.associative_scan": Place(("compat.scanning",)),
    "_dynamo.backends.debugging": Place(names=dict.fromkeys(("eager", "eager_noexcept", "aot_eager"), eager)),
    "_dynamo.exc": Place(names={"TorchDynamoException": type("TorchDynamoException", (RuntimeError,), {})}),
    "_dynamo.eval_frame": Place(("nn.compiled",), names={"is_dynamo_supported": lambda: True}),
    "_dynamo": Place(("nn.compiled",), names=_COMPILER),
    "_dynamo.config": Place(names=_DYNAMO_SETTINGS),
    "_functorch.config": Place(names=_FUNCTORCH_SETTINGS),
    "_inductor.config": Place(names=_SETTINGS | {"triton": SimpleNamespace()}),
    "_dynamo.utils": Place(
        names={"is_compile_supported": lambda device_type: False, "disable_cache_limit": nullcontext}
    ),
    "_dynamo._trace_wrapped_higher_order_op": Place(names={"TransformGetItemToIndex": nullcontext}),
    "distributed.distributed_c10d": Place(("distributed", "distributed.world")),
    "distributed.constants": Place(names=dict.fromkeys(_TIMEOUTS, timedelta(minutes=10))),
    "distributed.autograd": Place(names={"is_available": lambda: False}),
    "distributed.rpc": Place(names={"is_available": lambda: False}),
    "distributed.elastic.multiprocessing.errors": Place(names={"record": unchanged}),
    "functional": Place(("",), {"F": Asked(lambda: import_module(f"{ROOT}.nn.functional"))}),
    "futures": Place(("distributed.futures",)),
    "fx.experimental.symbolic_shapes": Place(("compat.symbolic_numbers",)),
    "distributed._composable": Place(("distributed.fsdp",)),
    "distributed._composable.fsdp": Place(("distributed.fsdp",)),
    "distributed.fsdp.api": Place(("distributed.fsdp",)),
    "distributed.fsdp.fully_sharded_data_parallel": Place(("distributed.fsdp",)),
    "distributed._tensor": Place(("distributed.tensor",)),
    "distributed._tensor.placement_types": Place(("distributed.tensor",)),
    "distributed.tensor.placement_types": Place(("distributed.tensor",)),
    "distributed._tensor.device_mesh": Place(("distributed.device_mesh",)),
    "quasirandom": Place(("compat.quasirandom",)),
    "random": Place(("ops.random",)),
    "jit": Place(("nn.traced",), names=_JIT | _NOT_SCRIPTING),
    "jit._state": Place(names={"_enabled": True, "_script_classes": {}}),
    "jit.annotations": Place(
        names={name: getattr(typing, name) for name in _TYPES} | {f"BroadcastingList{n}": list for n in range(1, 7)}
    ),
    "multiprocessing": Place(
        ("distributed.spawning", "/multiprocessing"),
        names={
            "get_all_sharing_strategies": lambda: {"file_descriptor", "file_system"},
            "get_sharing_strategy": lambda: "file_descriptor",
            "set_sharing_strategy": lambda new_strategy: None,
        },
    ),
    "multiprocessing.spawn": Place(("distributed.spawning",)),
    "nn._reduction": Place(names={"get_enum": {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}.__getitem__}),
    "nn.common_types": Place(names=dict.fromkeys(_ANNOTATIONS, Any)),
    "nn.modules.utils": Place(("nn.state",), names=_MODULE_UTILS),
    "nn.parallel.distributed": Place(("distributed.data_parallel",)),
    "onnx": Place(names={"is_in_onnx_export": lambda: False}),
    "onnx.operators": Place(names={"shape_as_tensor": _shape_as_tensor, "reshape_from_tensor_shape": _reshaped}),
    "overrides": Place(("compat.overrides",)),
    "optim._functional": Place(("optim.functional_steps",)),
    "optim._multi_tensor": Place(("optim",)),
    "optim.adamw": Place(("optim",)),
    "storage": Place(("tensor.storage", "compat.plain_pickles")),
    "torch_version": Place(("compat.torch_version",)),
    "types": Place(
        names={"Number": int | float | bool, "Device": Any, "_device": Device, "_dtype": DType, "_size": Sequence}
        | {"_int": int, "_float": float, "_bool": bool, "Storage": Storage}
    ),
    "utils.data._utils": Place(
        ("utils.data",), {"HAS_NUMPY": True, "MP_STATUS_CHECK_INTERVAL": 5.0, "python_exit_status": False}
    ),
    "utils.data._utils.signal_handling": Place(names=dict.fromkeys(_SIGNALS, lambda *pids: None)),
    "utils._foreach_utils": Place(("compat.flattening",)),
    "utils.data._utils.worker": Place(
        ("utils.data", "utils.data.base_iterators"), {"_generate_state": _generate_state, "_worker_info": None}
    ),
    "utils._contextlib": Place(("compat.context_managers",)),
    "utils.weak": Place(("compat.weak_keys",)),
    "utils.deterministic": Place(names={"fill_uninitialized_memory": True}),
    "return_types": Place(("compat.return_types",)),
    "utils.data.graph_settings": Place(("utils.data.datapipes.graph",)),
    "utils.data._utils.pin_memory": Place(("utils.data.pinning",)),
    "utils.data._utils.collate": Place(("utils.data.collate",), {"np_str_obj_array_pattern": re.compile("[SaUO]")}),
    "utils.data.dataloader": Place(
        ("utils.data", *[f"utils.data.{name}" for name in ("loader", "collate", "iterators", "base_iterators")]),
        {
            "_T_co": typing.TypeVar("_T_co", covariant=True),
            "_collate_fn_t": Callable[[list[Any]], Any],
            "_worker_init_fn_t": Callable[[int], None],
        },
    ),
    "utils.collect_env": Place(
        names={"get_pretty_env_info": _environment, "main": lambda: print(_environment(), file=sys.stdout)}
    ),
    "utils.flop_counter": Place(("inspection.flop_counter",)),
    "utils._python_dispatch": Place(
        ("compat.dispatch_modes",),
        {
            "return_and_correct_aliasing": lambda func, args, kwargs, out: (
                args[0] if func.overloadpacket.__name__.endswith("_") else out
            ),
            "is_traceable_wrapper_subclass": lambda t: hasattr(t, "__tensor_flatten__") and isinstance(t, TensorBase),
        },
    ),
    "_guards": Place(names=dict.fromkeys(("active_fake_mode", "detect_fake_mode"), lambda *inputs: None)),
    "_ops": Place(
        ("",),  # for torch.ops
        {
            "OpOverload": Overload,
            "OpOverloadPacket": Packet,
            "HigherOrderOperator": type("HigherOrderOperator", (), {"__doc__": "Of which no op of norch is one."}),
        },
    ),
    "utils.hooks": Place(("autograd.hooks",)),
    "utils.dlpack": Place(("",)),
    "utils.model_zoo": Place(("hub",), {"tqdm": _tqdm}),
    "_vmap_internals": Place(names={"_vmap": _vmap, "vmap": _vmap}),
    "vision.models.mobilenet": Place(("vision.models",)),
    "vision.models.utils": Place(("hub",)),
}
"""By path under `norch`, as PyTorch has it under `torch`."""

FUNCTIONS = {
    "autograd.gradcheck",
    "multiprocessing.spawn",
    "nn.parallel.parallel_apply",
    "nn.parallel.replicate",
}
"""Paths that are functions of their package too, which the package's attribute then is."""

_HOMES = {
    "batchnorm": "normalization", "conv": "convolution", "flatten": "linear", "fold": "pixels",
    "instancenorm": "normalization", "pixelshuffle": "pixels", "channelshuffle": "pixels", "rnn": "recurrent",
    "sparse": "embedding", "upsampling": "pixels",
}  # fmt: skip
_SAME = (
    "activation adaptive container distance dropout lazy linear loss module normalization padding pooling transformer"
)
for _name in [*_SAME.split(), *_HOMES]:
    PLACES[f"nn.modules.{_name}"] = Place((f"nn.{_HOMES.get(_name, _name)}", "nn"))
_PARTS = _MODULE_UTILS | dict.fromkeys(_ANNOTATIONS, Any)
PLACES["nn.modules.conv"] = Place(("nn.convolution", "nn"), _PARTS | {"Tensor": Tensor})
PLACES["nn.modules.module"] = Place(
    ("nn.module", "nn.state", "nn.registry", "nn.global_hooks", "nn"), {"_addindent": _addindent}
)
for _name, _also in (
    ("activation", "multihead_attention"), ("batchnorm", "sync_batchnorm lazy"), ("container", "parameter_container"),
    ("conv", "lazy"), ("instancenorm", "lazy"), ("linear", "multihead_attention lazy"), ("loss", "margin_loss"),
    ("rnn", "recurrent_cells"),
):  # fmt: skip
    _place = PLACES[f"nn.modules.{_name}"]
    _homes = (_place.homes[0], *(f"nn.{also}" for also in _also.split()), "nn")
    PLACES[f"nn.modules.{_name}"] = _place._replace(homes=_homes)
for _name in filter(None, lacks.LACKS):  # of those that are files Python's own finder is asked first
    PLACES.setdefault(_name, Place())
for _name in ("focal", "giou", "diou", "ciou"):
    PLACES[f"vision.ops.{_name}_loss"] = Place(("vision.ops.losses",))
for _name in ("autocast_mode", "grad_scaler"):
    PLACES[f"cuda.amp.{_name}"] = Place(("cuda.amp",))
_NO_AMP = {"amp_definitely_not_available": lambda: not registry.is_usable("cuda")}
PLACES["cuda.amp.common"] = Place(("cuda.amp",), _NO_AMP)
PLACES["cuda.nccl"] = Place(("compat.nccl",))
PLACES["cuda._utils"] = Place((), {"_get_device_index": _get_device_index})


class _Package(ModuleType):
    """A package that stays with its functions where Python would give it the module of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and f"{self.__name__}.{name}".partition(".")[2] in FUNCTIONS):
            super().__setattr__(name, value)


class _PathModule(_Package):
    """A module of PyTorch's path, whose names are looked up when they are first used."""

    def __getattr__(self, name: str) -> Any:
        path = self.__name__.partition(".")[2]
        found = _find(path, name)
        if isinstance(found, Asked):
            return found.function()
        self.__dict__[name] = found
        return found


def _find(path: str, name: str) -> Any:
    place = PLACES[path]
    if name in place.names:
        return place.names[name]
    if f"{path}.{name}" in PLACES and f"{path}.{name}" not in FUNCTIONS:
        return import_module(f"{ROOT}.{path}.{name}")
    if name == "__all__" or not (name.startswith("__") and name.endswith("__")):
        for home in place.homes:
            try:
                module = import_module(home[1:] if home.startswith("/") else f"{ROOT}.{home}".rstrip("."))
            except ImportError:
                continue
            if hasattr(module, name):
                return getattr(module, name)
        found = lacks.find(path, name)
        if found is not None:
            return found
    raise AttributeError(f"module '{ROOT}.{path}' has no attribute {name!r}")


class _Made(Loader):
    """Makes the module of a path, or finds the module of a device type."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return _PathModule(spec.name) if spec.name.partition(".")[2] in PLACES else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.partition(".")[2]
        if name in FUNCTIONS:
            parent = sys.modules[module.__name__.rpartition(".")[0]]
            parent.__class__ = type(parent) if isinstance(parent, _Package) else _Package
        if name.startswith("nn.modules.") and PLACES[name].homes:  # whose classes scripts look for in vars()
            for path in reversed([home for home in PLACES[name].homes if home != "nn"]):
                home = vars(import_module(f"{ROOT}.{path}"))
                vars(module).update((key, value) for key, value in home.items() if not key.startswith("_"))
        if name not in PLACES:
            first, _, part = name.partition(".")
            found: Any = getattr(sys.modules[ROOT], first)
            sys.modules[module.__name__] = getattr(found, part) if part else found


def find_spec(fullname: str) -> ModuleSpec | None:
    """Of a path of the table, of switches (`norch.backends.cudnn`), and of the module of a device type (`norch.cuda`,
    `norch.cuda.amp`)."""
    path = fullname.partition(".")[2]
    if path.startswith("backends.") and path[9:] in vars(import_module(f"{ROOT}.backends")):
        return ModuleSpec(fullname, _Made(), is_package=True)
    device, _, part = path.partition(".")
    device = device if part in ("", "amp", "nvtx", "profiler", *PARTS_OF_DEVICES) else path
    if path in PLACES or (device.isidentifier() and registry.is_device_type(device)):
        return ModuleSpec(fullname, _Made(), is_package=True)
    return None
