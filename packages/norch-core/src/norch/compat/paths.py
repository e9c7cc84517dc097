"""PyTorch's module paths under which norch has something: `norch.nn.modules.conv`, `norch.cuda.amp.grad_scaler`.

They are not files: a finder, asked after Python's own, makes such a module from the table below when a script imports
it. A name that norch lacks, and that scripts import without using it, is there too: it raises when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from enum import Enum
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, NoReturn

from ..backend import registry

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


_JIT = {"script": unchanged, "ignore": unchanged, "export": unchanged, "unused": unchanged, "script_method": unchanged}
_NOT_COMPILING = dict.fromkeys(("is_scripting", "is_tracing", "is_compiling", "is_dynamo_compiling"), lambda: False)
_CHECKPOINT = "norch.save(model.state_dict(), path) keeps a model, and norch.load reads it"
_SCRIPT = "norch.load gives the state_dict of a TorchScript archive, to load into a model"
_DOWNLOAD = "download the file and read it with norch.load or norch.load_safetensors"

PLACES: dict[str, Place] = {
    "_C": Place(),
    "_C._nn": Place(("nn.functional",)),
    "autograd.grad_mode": Place(("",)),
    "autograd.profiler": Place(("profiler.legacy",)),
    "autograd.variable": Place(("autograd",)),
    "compiler": Place(names={"disable": unchanged, "allow_in_graph": unchanged, **_NOT_COMPILING}),
    "_dynamo": Place(names={"disable": unchanged, "allow_in_graph": unchanged, "reset": lambda: None}),
    "distributed.distributed_c10d": Place(("distributed", "distributed.world")),
    "distributed.elastic": Place(),
    "distributed.elastic.multiprocessing": Place(),
    "distributed.elastic.multiprocessing.errors": Place(names={"record": unchanged}),
    "futures": Place(("distributed.futures",)),
    "distributed._composable": Place(("distributed.fsdp",)),
    "distributed._composable.fsdp": Place(("distributed.fsdp",)),
    "distributed.fsdp.api": Place(("distributed.fsdp",)),
    "distributed.fsdp.fully_sharded_data_parallel": Place(("distributed.fsdp",)),
    "distributed._tensor": Place(("distributed.tensor",)),
    "distributed._tensor.device_mesh": Place(("distributed.device_mesh",)),
    "random": Place(("ops.random",)),
    "hub": Place(lacks=dict.fromkeys(("load", "load_state_dict_from_url", "download_url_to_file"), _DOWNLOAD)),
    "jit": Place(
        names=_JIT | _NOT_COMPILING,
        lacks=dict.fromkeys(("trace", "save", "ScriptModule"), _CHECKPOINT) | {"load": _SCRIPT},
    ),
    "multiprocessing": Place(("distributed.spawning", "/multiprocessing")),
    "nn.attention": Place(names={"SDPBackend": SDPBackend, "sdpa_kernel": lambda *kernels, **more: nullcontext()}),
    "nn.common_types": Place(names={f"_size_{n}_t": Any for n in ("any", 1, 2, 3, 4, 5, 6)}),
    "nn.modules.utils": Place(
        names={"_ntuple": _ntuple, "_single": _ntuple(1), "_pair": _ntuple(2), "_triple": _ntuple(3)}
    ),
    "nn.parallel.distributed": Place(("distributed.data_parallel",)),
    "nn.utils.parametrizations": Place(("nn.utils",)),
    "onnx": Place(lacks={"export": _CHECKPOINT}),
    "optim.adamw": Place(("optim",)),
    "types": Place(names={"Number": int | float | bool, "Device": Any}),
    "utils.data._utils": Place(("utils.data",)),
    "utils.data._utils.collate": Place(("utils.data.collate",)),
    "utils.data.dataloader": Place(("utils.data", "utils.data.loader", "utils.data.collate")),
    "utils.dlpack": Place(("",), {"to_dlpack": lambda tensor: tensor.__dlpack__(max_version=(1, 0))}),
    "utils.model_zoo": Place(lacks={"load_url": _DOWNLOAD}),
    "vision.models.mobilenet": Place(("vision.models",)),
    "vision.models.utils": Place(lacks={"load_state_dict_from_url": _DOWNLOAD}),
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
