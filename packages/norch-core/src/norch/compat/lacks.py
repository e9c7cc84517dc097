"""What scripts import of PyTorch and norch lacks: by path, the names and what there is instead.

Each is a class that can be imported, inherited from, named in annotations and asked for with isinstance, and that
raises NotImplementedError when it is called.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

from ..errors import LackingError

ROOT = __name__.partition(".")[0]


def lacking(path: str, name: str, instead: str, kind: type[type] = type) -> type:
    """The class of such a name, made by `kind`."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise LackingError(f"norch has no {f'{path}.{name}'.lstrip('.')}; {instead}")

    return kind(
        name,
        (),
        {
            "__init__": __init__,
            "__module__": f"{ROOT}.{path}".rstrip("."),
            "__doc__": f"Not there: {instead}.",
            "_instead": instead,
        },
    )


_RECORDS = "norch.compile(model) records what a model computes"
_ONE_DEVICE = "norch does not split batches over devices; each process has its own"

KEPT = "norch.save(model.state_dict(), path) keeps a model, and norch.load reads it"

LACKS: dict[str, list[tuple[str, str]]] = {
    "": [
        ("PyTorchFileReader", "norch.load reads PyTorch's files"),
        ("ScriptModule", _RECORDS),
        ("SymBool SymFloat SymInt", "sizes are Python's ints: each shape is recorded by itself"),
        ("TensorType", "norch.Tensor is the type of tensors"),
    ],
    "_C": [
        ("ScriptObject Argument Block ErrorReport Graph Node ScriptFunction ScriptMethod TracingState Value", _RECORDS)
    ],
    "_decomp": [("core_aten_decompositions", _RECORDS)],
    "_subclasses": [("FakeTensor FakeTensorMode", "tensors on the device 'meta' have shapes and no values")],
    "_subclasses.fake_tensor": [
        ("FakeTensor FakeTensorConverter FakeTensorMode", "tensors on the device 'meta' have shapes and no values")
    ],
    "distributed._functional_collectives": [
        (
            "all_gather_tensor all_reduce all_to_all_single all_to_all_single_autograd reduce_scatter_tensor "
            "wait_tensor",
            "norch.distributed.nn.functional has collectives with gradients",
        )
    ],
    "ao.quantization": [
        (
            "FakeQuantize FakeQuantizeBase ObserverBase QConfig convert default_observer "
            "default_per_channel_weight_observer default_weight_observer fuse_modules fuse_modules_qat "
            "get_default_qat_qconfig get_default_qat_qconfig_mapping get_default_qconfig get_default_qconfig_mapping "
            "get_default_qconfig_propagation_list prepare prepare_qat QConfigMapping QuantWrapper",
            "norch.nn.quantize_ makes the weights of a model's linear layers int8",
        )
    ],
    "distributed.checkpoint._consolidate_hf_safetensors": [
        ("consolidate_safetensors_files", "norch.save_safetensors writes such files")
    ],
    "distributed.checkpoint.hf_storage": [
        ("HuggingFaceStorageReader HuggingFaceStorageWriter", "norch.load_safetensors reads such files")
    ],
    "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook": [
        ("PostLocalSGDState post_localSGD_hook", "distributed.algorithms.ddp_comm_hooks has default_hooks")
    ],
    "distributed.algorithms.ddp_comm_hooks.powerSGD_hook": [
        ("PowerSGDState batched_powerSGD_hook powerSGD_hook", "distributed.algorithms.ddp_comm_hooks has default_hooks")
    ],
    "distributed.algorithms.model_averaging.averagers": [
        ("ModelAverager PeriodicModelAverager", "DistributedDataParallel averages gradients in every step")
    ],
    "distributed.autograd": [
        ("DistAutogradContext backward context get_gradients", "norch.distributed.nn.functional has collectives")
    ],
    "distributed.checkpoint.default_planner": [
        ("DefaultLoadPlanner DefaultSavePlanner", "norch.distributed.checkpoint plans by itself")
    ],
    "distributed.fsdp": [
        ("CPUOffloadPolicy", "parameters stay on their device; FullyShardedDataParallel takes CPUOffload()"),
        (
            "FullOptimStateDictConfig LocalOptimStateDictConfig LocalStateDictConfig OptimStateDictConfig "
            "ShardedOptimStateDictConfig ShardedStateDictConfig StateDictConfig StateDictSettings",
            "a FullStateDictConfig says how a state_dict is gathered",
        ),
    ],
    "distributed.fsdp._runtime_utils": [("_lazy_init _reshard", "norch.distributed.fsdp gathers and frees by itself")],
    "distributed.rpc": [
        ("RRef init_rpc rpc_async rpc_sync shutdown", "processes talk by norch.distributed's collectives")
    ],
    "distributed.tensor.experimental": [("implicit_replication local_map", "norch.distributed's tensors are whole")],
    "distributed._tensor.experimental": [("implicit_replication local_map", "norch.distributed's tensors are whole")],
    "distributed.tensor": [
        (
            "DTensor distribute_module distribute_tensor",
            "fully_shard cuts a model's parameters, and each process computes with tensors",
        )
    ],
    "distributed.tensor._utils": [("compute_local_shape_and_global_offset", "norch.distributed.shard cuts tensors")],
    "distributed.tensor.placement_types": [("_StridedShard", "norch.distributed.tensor.Shard cuts a dim in one piece")],
    "distributed._tensor.placement_types": [("DTensorSpec TensorMeta", "norch.distributed's tensors are whole")],
    "fx.operator_schemas": [
        (
            "get_signature_for_torch_op normalize_function normalize_module",
            "calls keep the arguments that they are given",
        )
    ],
    "jit": [
        ("_get_trace_graph", "norch.utils.flop_counter counts a model's operations"),
        ("ScriptFunction", _RECORDS),
    ],
    "jit._script": [("RecursiveScriptModule", _RECORDS)],
    "library": [("get_ctx", "results whose sizes depend on values are not there on the device 'meta'")],
    "nn.quantized": [
        (
            "BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d QFunctional ReLU6",
            "norch.nn.quantize_ makes the weights of a model's linear layers int8",
        )
    ],
    "nested": [("as_nested_tensor nested_tensor", "nn.utils.rnn.pad_sequence makes one tensor of several")],
    "cuda.comm": [("broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter", _ONE_DEVICE)],
    "nn.parallel": [("gather parallel_apply replicate scatter", _ONE_DEVICE)],
    "nn.parallel._functions": [("Broadcast Gather ReduceAddCoalesced Scatter", _ONE_DEVICE)],
    "nn.parallel.parallel_apply": [("get_a_var parallel_apply", _ONE_DEVICE)],
    "nn.parallel.replicate": [("replicate", _ONE_DEVICE)],
    "nn.parallel.scatter_gather": [("gather scatter scatter_kwargs", _ONE_DEVICE)],
    "onnx": [("export", KEPT)],
    "serialization": [("normalize_storage_type", "norch.load reads PyTorch's files")],
    "utils.cpp_extension": [
        (
            "BuildExtension CUDAExtension CUDA_HOME CppExtension include_paths load load_inline",
            "norch.library.custom_op takes Python, and a backend brings compiled kernels",
        )
    ],
    "utils.checkpoint": [("SelectiveCheckpointContext", "checkpoint() computes all of a part again")],
    "utils.data.graph_settings": [
        ("apply_random_seed apply_sharding get_all_graph_pipes", "a data pipe is iterated as it is")
    ],
    "utils._device": [("DeviceContext", "a norch.device is itself what `with` takes")],
    "utils.file_baton": [("FileBaton", "it lets one process compile an extension, and norch compiles none")],
    "vision.io": [
        (
            "VideoReader read_video read_video_timestamps write_video",
            "vision.io.decode_image reads images, of a GIF all",
        ),
        ("decode_avif decode_heic", "PIL.Image reads such files with a plug-in of Pillow"),
    ],
}
OF_DEVICES: dict[str, list[tuple[str, str]]] = {
    "cuda": [
        (
            "CUDAPluggableAllocator MemPool change_current_allocator use_mem_pool",
            "its allocator keeps memory for reuse, and empty_cache() gives that back",
        ),
        (
            "_dump_snapshot _record_memory_history _snapshot memory_snapshot",
            "norch.memory.record() and norch.memory.snapshot() say who holds memory, of any device",
        ),
        ("jiterator", "norch.capture compiles chains of elementwise ops"),
    ],
}
"""The same of modules of device types, which are no paths."""
_QUANTIZING = LACKS["ao.quantization"][0][1]
LACKS["ao.quantization.observer"] = [
    (
        "HistogramObserver MinMaxObserver MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver "
        "NoopObserver ObserverBase PerChannelMinMaxObserver PlaceholderObserver default_observer",
        _QUANTIZING,
    )
]
LACKS["ao.quantization.qconfig"] = [
    ("QConfig default_dynamic_qconfig default_qconfig get_default_qconfig", _QUANTIZING)
]
LACKS["ao.quantization.quantize_fx"] = [("convert_fx fuse_fx _fuse_fx prepare_fx prepare_qat_fx", _QUANTIZING)]
LACKS["ao.quantization.fake_quantize"] = [("FakeQuantize FakeQuantizeBase default_fake_quant", _QUANTIZING)]
for _name in [path for path in LACKS if path.startswith("ao.quantization")]:
    LACKS[_name.removeprefix("ao.")] = LACKS[_name]


@cache
def find(path: str, name: str) -> type | None:
    """The class of a name that is lacking, or None."""
    for names, instead in [*LACKS.get(path, []), *OF_DEVICES.get(path, [])]:
        if name in names.split():
            return lacking(path, name, instead)
    return None


def __getattr__(name: str) -> Any:
    if name == "Future":
        if find_spec(f"{ROOT}.distributed") is None:
            return lacking("", name, "norch-nn has it")
        return import_module(f"{ROOT}.distributed.futures").Future
    found = find("", name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
