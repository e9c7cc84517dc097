"""PyTorch's module paths under which norch has something: `norch.nn.modules.conv`, `norch.cuda.amp.grad_scaler`.

They are not files: a finder, asked after Python's own, makes such a module from the table below when a script imports
it. A name that norch lacks, and that scripts import without using it, is there too: it raises when it is called.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from enum import Enum
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple, NoReturn

from ..backend import registry
from ..tensor_base import TensorBase

ROOT = __name__.partition(".")[0]


class Place(NamedTuple):
    """What a path has: the public and private names of `homes`, the first that has one, and `names`.

    homes: modules of norch, or, where they begin with "/", others. lacks: by name, what there is instead.
    """

    homes: tuple[str, ...] = ()
    names: Mapping[str, Any] = MappingProxyType({})
    lacks: Mapping[str, str] = MappingProxyType({})


def lacking(path: str, name: str, instead: str) -> type:
    """A class of that name that cannot be made: it can be imported, inherited from and asked for with isinstance."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"norch has no {f'{path}.{name}'.lstrip('.')}; {instead}")

    return type(
        name,
        (),
        {
            "__init__": __init__,
            "__module__": f"{ROOT}.{path}".rstrip("."),
            "__doc__": f"Not there: {instead}.",
            "_instead": instead,
        },
    )


Stream, Event = (
    lacking("", name, f"a device's module has its own, such as norch.cuda.{name}") for name in ("Stream", "Event")
)


def unchanged(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator, with or without arguments, that leaves what it decorates as it is."""
    return function if callable(function) else unchanged


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    return lambda x: tuple(x) if isinstance(x, list | tuple) else (x,) * n


class SDPBackend(Enum):
    """The kernels of attention that `sdpa_kernel` chooses from; norch's backends choose themselves."""

    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3


_JIT = dict.fromkeys(("script", "ignore", "export", "unused", "script_method"), unchanged)
_JIT |= {"annotate": lambda the_type, the_value: the_value, "Attribute": lambda value, type: value}
_JIT |= {"Final": Final, "strict_fusion": nullcontext}
_TYPES = ("Any", "Dict", "List", "Optional", "Tuple", "Union")
_NOT_COMPILING: dict[str, Any] = dict.fromkeys(
    ("is_scripting", "is_tracing", "is_compiling", "is_dynamo_compiling", "is_exporting"), lambda: False
)
_COMPILER = dict.fromkeys(("disable", "allow_in_graph", "assume_constant_result"), unchanged) | _NOT_COMPILING
_COMPILER |= dict.fromkeys(
    ("reset", "graph_break", "mark_dynamic", "mark_static", "mark_static_address", "cudagraph_mark_step_begin"),
    lambda *args, **kwargs: None,
)
_CHECKPOINT = "norch.save(model.state_dict(), path) keeps a model, and norch.load reads it"
_ATTENTION = "nn.functional.scaled_dot_product_attention takes a mask"
_SAFETENSORS = "norch.save_safetensors writes such files, norch.load_safetensors reads them"
_COLLECTIVES = "norch.distributed.nn.functional has collectives with gradients"
_FUNCTIONAL = (
    "all_gather_tensor all_reduce all_to_all_single all_to_all_single_autograd reduce_scatter_tensor wait_tensor"
)
_IMAGE = "PIL.Image reads and writes images, vision.transforms.functional.pil_to_tensor makes tensors of them"
_IO = "ImageReadMode VideoReader decode_image read_image read_video write_jpeg write_png write_video"
_SHARDED = "norch.distributed.fsdp.fully_shard cuts a model's parameters"
_TRACE = "norch.compile(model) records what a model computes"
_SCRIPT = "norch.load gives the state_dict of a TorchScript archive, to load into a model"

PLACES: dict[str, Place] = {
    "_C": Place(),
    "_C._nn": Place(("nn.functional",)),
    "autograd.grad_mode": Place(("",)),
    "autograd.profiler": Place(("profiler.legacy",)),
    "autograd.variable": Place(("autograd",)),
    "compiler": Place(names=_COMPILER),
    "_higher_order_ops": Place(),
    "_higher_order_ops.associative_scan": Place(lacks={"associative_scan": "cumsum and cumprod are such scans"}),
    "_dynamo": Place(names=_COMPILER | {"config": SimpleNamespace()}),
    "_dynamo._trace_wrapped_higher_order_op": Place(names={"TransformGetItemToIndex": nullcontext}),
    "distributed.distributed_c10d": Place(("distributed", "distributed.world")),
    "distributed.elastic": Place(),
    "distributed.elastic.multiprocessing": Place(),
    "distributed.elastic.multiprocessing.errors": Place(names={"record": unchanged}),
    "futures": Place(("distributed.futures",)),
    "fx": Place(names={"wrap": unchanged}, lacks=dict.fromkeys(("symbolic_trace", "Tracer", "GraphModule"), _TRACE)),
    "distributed._composable": Place(("distributed.fsdp",)),
    "distributed._composable.fsdp": Place(("distributed.fsdp",)),
    "distributed.checkpoint.hf_storage": Place(
        lacks=dict.fromkeys(("HuggingFaceStorageReader", "HuggingFaceStorageWriter"), _SAFETENSORS)
    ),
    "distributed.checkpoint._consolidate_hf_safetensors": Place(lacks={"consolidate_safetensors_files": _SAFETENSORS}),
    "distributed.fsdp.api": Place(("distributed.fsdp",)),
    "distributed.fsdp.fully_sharded_data_parallel": Place(("distributed.fsdp",)),
    "distributed._tensor": Place(("distributed.tensor",)),
    "distributed.tensor.placement_types": Place(("distributed.tensor",), lacks={"_StridedShard": _SHARDED}),
    "distributed._functional_collectives": Place(lacks=dict.fromkeys(_FUNCTIONAL.split(), _COLLECTIVES)),
    "distributed.tensor._utils": Place(lacks={"compute_local_shape_and_global_offset": _SHARDED}),
    "distributed._tensor.device_mesh": Place(("distributed.device_mesh",)),
    "random": Place(("ops.random",)),
    "jit": Place(
        names=_JIT | _NOT_COMPILING,
        lacks=dict.fromkeys(("trace", "save", "ScriptModule"), _CHECKPOINT) | {"load": _SCRIPT},
    ),
    "jit.annotations": Place(names={name: getattr(typing, name) for name in _TYPES}),
    "multiprocessing": Place(("distributed.spawning", "/multiprocessing")),
    "nn.attention": Place(names={"SDPBackend": SDPBackend, "sdpa_kernel": lambda *kernels, **more: nullcontext()}),
    "nn.attention.flex_attention": Place(
        names={"_DEFAULT_SPARSE_BLOCK_SIZE": 128},
        lacks=dict.fromkeys(("AuxRequest", "BlockMask", "create_block_mask", "flex_attention"), _ATTENTION),
    ),
    "nn.common_types": Place(names={f"_size_{n}_t": Any for n in ("any", 1, 2, 3, 4, 5, 6)}),
    "nn.modules.utils": Place(
        names={"_ntuple": _ntuple, "_single": _ntuple(1), "_pair": _ntuple(2), "_triple": _ntuple(3)}
    ),
    "nn.parallel.distributed": Place(("distributed.data_parallel",)),
    "nn.utils.parametrizations": Place(("nn.utils",)),
    "onnx": Place(lacks={"export": _CHECKPOINT}),
    "overrides": Place(
        names={
            "has_torch_function": lambda tensors: False,
            "is_tensor_like": lambda value: isinstance(value, TensorBase),
        },
        lacks={"TorchFunctionMode": "norch calls no __torch_function__"},
    ),
    "optim.adamw": Place(("optim",)),
    "types": Place(names={"Number": int | float | bool, "Device": Any}),
    "utils.data._utils": Place(("utils.data",)),
    "utils.data._utils.collate": Place(("utils.data.collate",)),
    "utils.data.dataloader": Place(("utils.data", "utils.data.loader", "utils.data.collate")),
    "utils.dlpack": Place(("",), {"to_dlpack": lambda tensor: tensor.__dlpack__(max_version=(1, 0))}),
    "utils.model_zoo": Place(("hub",)),
    "vision.transforms.v2": Place(("vision.transforms",)),
    "vision.transforms.v2.functional": Place(("vision.transforms.functional",)),
    "vision.io": Place(lacks=dict.fromkeys(_IO.split(), _IMAGE)),
    "vision.models.mobilenet": Place(("vision.models",)),
    "vision.models.utils": Place(("hub",)),
}
"""By path under `norch`, as PyTorch has it under `torch`."""

_HOMES = {
    "batchnorm": "normalization", "conv": "convolution", "flatten": "linear", "fold": "pixels",
    "instancenorm": "normalization", "pixelshuffle": "pixels", "channelshuffle": "pixels", "rnn": "recurrent",
    "sparse": "embedding", "upsampling": "pixels", "adaptive": "linear",
}  # fmt: skip
_SAME = "activation container distance dropout lazy linear loss module normalization padding pooling transformer"
for _name in [*_SAME.split(), *_HOMES]:
    PLACES[f"nn.modules.{_name}"] = Place((f"nn.{_HOMES.get(_name, _name)}", "nn"))
PLACES["nn.modules.linear"] = Place(("nn.linear", "nn.multihead_attention", "nn"))
_DISTRIBUTIONS = """bernoulli beta binomial categorical constraints dirichlet distribution exponential gamma gumbel
    half_normal independent kl laplace log_normal multivariate_normal normal one_hot_categorical poisson studentT
    transforms uniform utils"""
for _name in _DISTRIBUTIONS.split():
    PLACES[f"distributions.{_name}"] = Place(("distributions",))
for _name in ("autocast_mode", "grad_scaler", "common"):
    PLACES[f"cuda.amp.{_name}"] = Place(("cuda.amp",))


class _PathModule(ModuleType):
    """A module of PyTorch's path, whose names are looked up when they are first used."""

    def __getattr__(self, name: str) -> Any:
        path = self.__name__.partition(".")[2]
        found = _find(path, name)
        self.__dict__[name] = found
        return found


def _find(path: str, name: str) -> Any:
    place = PLACES[path]
    if name in place.names:
        return place.names[name]
    if f"{path}.{name}" in PLACES:
        return import_module(f"{ROOT}.{path}.{name}")
    if not (name.startswith("__") and name.endswith("__")):
        for home in place.homes:
            try:
                module = import_module(home[1:] if home.startswith("/") else f"{ROOT}.{home}".rstrip("."))
            except ImportError:
                continue
            if hasattr(module, name):
                return getattr(module, name)
        if name in place.lacks:
            return lacking(path, name, place.lacks[name])
    raise AttributeError(f"module '{ROOT}.{path}' has no attribute {name!r}")


class _Made(Loader):
    """Makes the module of a path, or finds the module of a device type."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return _PathModule(spec.name) if spec.name.partition(".")[2] in PLACES else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.partition(".")[2]
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
    device = path.removesuffix(".amp").removesuffix(".nvtx")
    if path in PLACES or (device.isidentifier() and registry.is_device_type(device)):
        return ModuleSpec(fullname, _Made(), is_package=True)
    return None
