"""What scripts name beside layers and losses: DataParallel, nn.modules, extra state, old names."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import norch
from norch import nn
from norch.compat import lacks
from norch.compat.paths import FUNCTIONS, PLACES


def test_data_parallel_on_one_device() -> None:
    inner = nn.Linear(2, 3)
    model = nn.DataParallel(inner)
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    x = norch.ones(1, 2)
    assert model(x).tolist() == model.module(x).tolist()
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        nn.DataParallel(inner, device_ids=[0, 1])
    with pytest.raises(norch.DTypeError, match="int is not a Module"):
        nn.DataParallel(3, [0])  # type: ignore[arg-type]


def test_places_of_classes() -> None:
    import norch.nn.modules.conv as conv
    from norch.nn.modules.batchnorm import _BatchNorm

    assert conv.Conv2d is nn.Conv2d is nn.modules.Conv2d is nn.modules.conv.Conv2d
    assert isinstance(nn.BatchNorm2d(1), _BatchNorm)
    assert nn.modules.module.Module is nn.Module
    assert nn.modules.activation.MultiheadAttention is nn.MultiheadAttention
    with pytest.raises(AttributeError, match="Nothing"):
        _ = nn.modules.Nothing


@pytest.mark.parametrize("path", [p for p in PLACES if p.startswith(("multiprocessing", "nn", "optim", "utils"))])
def test_every_path_is_a_module(path: str) -> None:
    parent, _, name = f"norch.{path}".rpartition(".")
    if path in FUNCTIONS:
        found = getattr(import_module(f"norch.{path}"), name)
        assert not isinstance(found, ModuleType)
        assert getattr(import_module(parent), name) is found
        return
    assert isinstance(vars(import_module(parent)).get(name), ModuleType | None)  # it hides nothing
    assert getattr(import_module(parent), name) is import_module(f"norch.{path}")


def test_what_scripts_take_from_paths() -> None:
    from norch.nn.modules.utils import _pair
    from norch.nn.parallel import DataParallel, DistributedDataParallel
    from norch.optim.adamw import AdamW
    from norch.utils.data.dataloader import DataLoader, default_collate
    from norch.utils.data.distributed import DistributedSampler

    assert (_pair(3), _pair([1, 2])) == ((3, 3), (1, 2))
    assert AdamW is norch.optim.AdamW
    assert DataParallel is nn.DataParallel
    assert (DataLoader, default_collate) == (norch.utils.data.DataLoader, norch.utils.data.default_collate)
    assert not isinstance(nn.ReLU(), DistributedDataParallel)
    assert DistributedSampler is norch.utils.data.DistributedSampler


class Counting(nn.Linear):
    count = 3

    def get_extra_state(self) -> dict[str, int]:
        return {"count": self.count}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def test_extra_state() -> None:
    model, other = nn.Sequential(Counting(1, 1)), nn.Sequential(Counting(1, 1))
    model[0].count = 8
    state = model.state_dict()
    assert list(state) == ["0.weight", "0.bias", "0._extra_state"]
    other.load_state_dict(state)
    assert other[0].count == 8
    del state["0._extra_state"]
    with pytest.raises(RuntimeError, match=r"Missing.*_extra_state"):
        other.load_state_dict(state)
    assert nn.Linear(1, 1).compile(mode="default") is None


def test_old_names_of_init_warn() -> None:
    weight = norch.zeros(3, 3)
    with pytest.warns(FutureWarning, match="nn.init.constant_"):
        assert nn.init.constant(weight, 2.0) is weight
    assert weight.tolist() == [[2.0] * 3] * 3
    with pytest.warns(FutureWarning):
        nn.init.xavier_uniform(weight, gain=2.0)


def test_packed_sequences_say_whether_they_are_pinned() -> None:
    assert not nn.utils.rnn.pack_sequence([norch.ones(3)]).is_pinned()


def test_torchvisions_paths_are_ours() -> None:
    code = """
from norch.compat import standin
standin.PathFinder = type("NoTorchvision", (), {"find_spec": staticmethod(lambda name: None)})
standin.install()
import torch, torchvision
import torch.backends.cudnn as cudnn
import torch.nn.utils.parametrize as parametrize
import torchvision.transforms.functional as TF
from torch.utils._pytree import tree_map
from torch.utils.dlpack import from_dlpack, to_dlpack
from torch.utils.tensorboard import SummaryWriter
from torchvision.datasets.folder import IMG_EXTENSIONS
from torchvision.models import ResNet18_Weights, resnet18
from torchvision.models.mobilenet import MobileNetV2
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.models.utils import load_state_dict_from_url
from torchvision.ops import boxes as box_ops
from torchvision.ops._utils import _upcast
from torchvision.ops.boxes import _box_inter_union, box_area, nms
from torchvision.ops.ciou_loss import complete_box_iou_loss
from torchvision.ops.diou_loss import distance_box_iou_loss
from torchvision.ops.focal_loss import sigmoid_focal_loss
from torchvision.ops.giou_loss import generalized_box_iou_loss
from torchvision.ops.deform_conv import DeformConv2d, deform_conv2d
from torchvision.ops.drop_block import DropBlock2d
from torchvision.ops.feature_pyramid_network import ExtraFPNBlock, FeaturePyramidNetwork, LastLevelMaxPool
from torchvision.ops.misc import Conv2dNormActivation, ConvNormActivation, FrozenBatchNorm2d, interpolate
from torchvision.ops.poolers import LevelMapper, MultiScaleRoIAlign
from torchvision.ops.ps_roi_align import PSRoIAlign
from torchvision.ops.ps_roi_pool import PSRoIPool
from torchvision.ops.roi_align import RoIAlign
from torchvision.ops.roi_pool import RoIPool
from torchvision.ops.stochastic_depth import StochasticDepth
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.alexnet import AlexNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.segmentation import FCN_ResNet50_Weights, fcn_resnet50
from torchvision.models.segmentation.deeplabv3 import ASPP, DeepLabHead
from torchvision.models.segmentation.fcn import FCNHead
from torchvision.models.segmentation.lraspp import LRASPPHead
for function in (torchvision.ops.roi_align, torchvision.ops.stochastic_depth, torchvision.models.alexnet):
    assert not isinstance(function, type(torch)), function
assert torchvision.models.resnet.BasicBlock is BasicBlock
assert isinstance(resnet18(num_classes=2), ResNet)
assert torchvision.ops.focal_loss.sigmoid_focal_loss is torchvision.ops.sigmoid_focal_loss is sigmoid_focal_loss
assert torchvision.models.__dict__["resnet18"] is resnet18
assert from_dlpack(to_dlpack(torch.ones(2))).tolist() == [1, 1]
assert load_state_dict_from_url is torch.hub.load_state_dict_from_url
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.stdout, made.stderr) == ("", "")


@pytest.mark.parametrize(
    "path", [p for p in lacks.LACKS if p.startswith(("distributed", "fx", "hub", "nn", "utils", "vision"))]
)
def test_what_is_lacking_can_be_named(path: str) -> None:
    module = import_module(f"norch.{path}")
    for names, _ in lacks.LACKS[path]:
        for name in names.split():
            with pytest.raises(NotImplementedError, match=f"norch has no .*{name}; "):
                getattr(module, name)()
    with pytest.raises(AttributeError, match="no attribute 'neither'"):
        module.neither


def test_classes_are_in_vars_of_their_paths() -> None:
    activations = vars(import_module("norch.nn.modules.activation"))
    assert activations["ReLU"] is nn.ReLU


def test_losses_of_ones_own() -> None:
    class Own(nn.modules.loss._Loss):
        def forward(self, x: norch.Tensor) -> norch.Tensor:
            return x.mean() if self.reduction == "mean" else x

    class Weighted(nn.modules.loss._WeightedLoss):
        pass

    assert Own()(norch.ones(2)).item() == 1
    assert Own(reduction="none")(norch.ones(2)).shape == (2,)
    assert list(Weighted(norch.ones(3)).state_dict()) == ["weight"]
    assert list(Weighted().state_dict()) == []
    assert Own(reduction="most")(norch.ones(2)).shape == (2,)  # a reduction of its own


def test_what_trainers_import() -> None:
    code = """
from norch.compat.standin import install
install()
import torch, torch._dynamo.config, torch._functorch.config, torch._inductor.config, torch.utils._device
from torch._subclasses.fake_tensor import FakeTensorConverter
from torch._utils import _take_tensors
from torch.distributed._tensor.placement_types import DTensorSpec, Shard
from torch.distributed.fsdp.api import FullStateDictConfig, LocalStateDictConfig, StateDictSettings
from torch.serialization import normalize_storage_type
torch._inductor.config.coordinate_descent_tuning = torch._inductor.config.triton.unique_kernel_names = True
torch._dynamo.config.cache_size_limit = max(32, torch._dynamo.config.cache_size_limit)
with torch._dynamo.config.patch(verbose=True):
    assert torch._dynamo.config.cache_size_limit == 32
    torch._dynamo.config.capture_scalar_outputs |= not torch._dynamo.config.suppress_errors
torch._functorch.config.donated_buffer = False
assert torch._inductor.config.patch("graph_partition", True)(lambda: 3)() == 3
floats = [torch.ones(n) for n in (3, 5, 100, 2)]
given = [floats[0], torch.ones(2).double(), *floats[1:], torch.eye(3).to_sparse()]
for limit, groups in (10, [3, 5, 100, 2, 2, 3]), (40, [8, 100, 2, 2, 3]), (1000, [110, 2, 3]):
    assert [sum(len(x.values() if x.is_sparse else x) for x in g) for g in _take_tensors(given, limit)] == groups

class Doubled(torch.autograd.function.InplaceFunction):
    @classmethod
    def forward(cls, ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

x = torch.ones(2, requires_grad=True)
Doubled.apply(x.clone()).sum().backward()
assert x.grad.tolist() == [2, 2]
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.stdout, made.stderr) == ("", "")


def test_what_packages_of_models_import() -> None:
    code = """
from norch.compat.standin import install
install()
import torch, torch.distributed.tensor
from torch import _assert
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._higher_order_ops.associative_scan import associative_scan
from torch.autograd.graph import save_on_cpu
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed._functional_collectives import all_to_all_single_autograd, wait_tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard
from torch.hub import HASH_REGEX, download_url_to_file, urlparse
from torch.jit import Final
from torch.jit.annotations import List
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.init import _calculate_fan_in_and_fan_out
from torch.overrides import TorchFunctionMode, is_tensor_like
from torchvision import io
from torchvision.transforms.v2 import functional as F
assert _calculate_fan_in_and_fan_out(torch.empty(2, 3, 5, 5)) == (75, 50)
assert torch.nn.init._no_grad_normal_(torch.zeros(2), 3.0, 0.0).tolist() == [3.0, 3.0]
assert torch.nn.init._no_grad_trunc_normal_(torch.zeros(2), 0.0, 1.0, -0.5, 0.5).abs().max() <= 0.5
assert torch.nn.init._no_grad_fill_(torch.nn.Parameter(torch.zeros(2)), 2.0).tolist() == [2.0, 2.0]
assert torch.multiprocessing.connection is __import__("multiprocessing").connection
assert torch.nn.init._calculate_correct_fan(torch.empty(2, 3, 5, 5), "FAN_OUT") == 50
assert Partial() == Partial("sum") and Partial() != Replicate() and Shard(1).dim == 1
assert is_tensor_like(torch.ones(1)) and not is_tensor_like(1)
assert torch.jit.annotate(List, [1]) == [1] and torch.fx.wrap(len) is len
assert not torch.compiler.is_exporting() and torch._dynamo.mark_static_address(torch.ones(1)) is None
assert set(torch._dynamo.list_backends()) <= set(torch.compiler.list_backends())
assert torch._dynamo.eval_frame.is_dynamo_supported()
torch.multiprocessing.set_sharing_strategy("file_system")
from torch.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe
assert ShufflerIterDataPipe([1, 2])._shuffle_enabled
assert torch.multiprocessing.get_sharing_strategy() in torch.multiprocessing.get_all_sharing_strategies()
assert torch.nn.Linear(1, 1)._version == 1
def annotated(a: torch.Stream, b: torch.Event, c: Final[int], d: torch.cuda.Stream, e: torch.cuda.CUDAGraph): pass
assert annotated.__annotations__["a"] is torch.Stream
assert flex_attention(*[torch.ones(1, 1, 2, 3)] * 3).shape == (1, 1, 2, 3)
assert associative_scan(lambda a, b: a + b, torch.ones(3), 0).tolist() == [1, 2, 3]
assert torch.nn.functional.grouped_mm is torch._grouped_mm
with save_on_cpu():
    assert torch.ones(1, requires_grad=True).exp().grad_fn is not None
for lacking in (DTensor, CPUOffloadPolicy):
    try:
        lacking(torch.ones(1))
    except NotImplementedError as error:
        assert "norch has no " in str(error)
    else:
        raise AssertionError(lacking)
try:
    _assert(torch.zeros(1), "the message")
except AssertionError as error:
    assert str(error) == "the message"
for check, kind in (torch._check_value, ValueError), (torch._check_tensor_all, RuntimeError):
    check(torch.ones(1), None)
    try:
        check(torch.zeros(1), lambda: "reason")
    except kind as error:
        assert str(error) == "reason"
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.stdout, made.stderr) == ("", "")


BASES = {
    "loss._Loss": ["L1Loss", "CrossEntropyLoss", "TripletMarginLoss"],
    "loss._WeightedLoss": ["NLLLoss", "CrossEntropyLoss", "BCELoss", "MultiMarginLoss", "MultiLabelSoftMarginLoss"],
    "batchnorm._NormBase": ["BatchNorm2d", "InstanceNorm2d", "LazyBatchNorm1d"],
    "batchnorm._BatchNorm": ["BatchNorm1d", "SyncBatchNorm", "LazyBatchNorm2d"],
    "instancenorm._InstanceNorm": ["InstanceNorm1d", "LazyInstanceNorm3d"],
    "conv._ConvNd": ["Conv1d", "ConvTranspose3d", "LazyConv2d"],
    "conv._ConvTransposeNd": ["ConvTranspose2d"],
    "conv._ConvTransposeMixin": ["ConvTranspose2d"],
    "dropout._DropoutNd": ["Dropout", "AlphaDropout"],
    "pooling._MaxPoolNd": ["MaxPool2d"],
    "pooling._AvgPoolNd": ["AvgPool1d", "AvgPool3d"],
    "pooling._AdaptiveAvgPoolNd": ["AdaptiveAvgPool2d"],
    "pooling._AdaptiveMaxPoolNd": ["AdaptiveMaxPool3d"],
    "pooling._LPPoolNd": ["LPPool1d"],
    "padding._ConstantPadNd": ["ConstantPad2d", "ZeroPad1d"],
    "padding._ReflectionPadNd": ["ReflectionPad3d"],
    "padding._ReplicationPadNd": ["ReplicationPad1d"],
}


@pytest.mark.parametrize("path", BASES)
def test_modules_have_the_bases_that_programs_ask_for(path: str) -> None:
    module, _, name = path.partition(".")
    base = getattr(import_module(f"norch.nn.modules.{module}"), name)
    assert [kind for kind in BASES[path] if not issubclass(getattr(nn, kind), base)] == []


def test_instance_norms_are_not_over_the_batch() -> None:
    from norch.nn.modules.batchnorm import _BatchNorm

    assert not issubclass(nn.InstanceNorm2d, _BatchNorm)


def test_convolutions_of_ones_own_are_made_as_pytorchs() -> None:
    from norch.nn.modules.conv import _ConvNd

    class Scaled(_ConvNd):
        def forward(self, input: norch.Tensor) -> norch.Tensor:
            return nn.functional.conv2d(input, self.weight * 2, self.bias, self.stride, self.padding)

    layer = Scaled(3, 4, (3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, True, "zeros")
    assert layer.weight.shape == (4, 3, 3, 3)
    assert layer(norch.ones(1, 3, 5, 5)).shape == (1, 4, 5, 5)
    assert repr(layer).startswith("Scaled(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)")


def test_the_lists_of_copies_that_transformers_are_made_of() -> None:
    from norch.nn.modules.transformer import _get_activation_fn, _get_clones

    first, second = _get_clones(nn.Linear(2, 2), 2)
    assert first is not second
    assert first.weight.tolist() == second.weight.tolist()
    assert _get_activation_fn("relu") is nn.functional.relu


def test_names_that_libraries_import_and_seldom_call() -> None:
    from norch._jit_internal import _copy_to_script_wrapper
    from norch.distributed import rpc
    from norch.multiprocessing.spawn import ProcessRaisedException, spawn
    from norch.nn.parameter import is_lazy
    from norch.optim.optimizer import ParamsT
    from norch.utils.data.dataloader import _collate_fn_t

    assert _copy_to_script_wrapper(len) is len
    assert not rpc.is_available()
    assert issubclass(ProcessRaisedException, Exception)
    assert norch.multiprocessing.spawn is spawn
    assert ParamsT is not None
    assert _collate_fn_t is not None
    assert is_lazy(nn.LazyLinear(2).weight)
    assert not is_lazy(nn.Linear(2, 2).weight)


def test_the_parts_of_a_module_are_gone_through_backwards() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert [name for name, _ in reversed(model._modules.items())] == list(reversed(model._modules)) == ["1", "0"]
    assert next(reversed(model._modules.values())) is model[1]
    assert not norch.backends.opt_einsum.is_available()


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("nn.modules", "Module Conv2d LSTMCell TripletMarginLoss ParameterList"),
        ("nn.modules.activation", "ReLU MultiheadAttention"),
        ("nn.modules.batchnorm", "BatchNorm2d SyncBatchNorm LazyBatchNorm1d"),
        ("nn.modules.container", "Sequential ParameterList"),
        ("nn.modules.conv", "Conv2d LazyConv2d"),
        ("nn.modules.linear", "Linear LazyLinear"),
        ("nn.modules.loss", "MSELoss TripletMarginLoss MarginRankingLoss"),
        ("nn.modules.rnn", "LSTM LSTMCell"),
    ],
)
def test_star_imports(path: str, names: str) -> None:
    found: dict[str, object] = {}
    exec(f"from norch.{path} import *", found)
    assert {name: found.get(name) for name in names.split()} == {name: getattr(nn, name) for name in names.split()}


def test_functional_has_grad_and_conv_tbc() -> None:
    from norch.nn import functional as F

    assert F.grad is nn.grad
    x, weight = norch.arange(6.0).reshape(3, 1, 2), norch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    found = F.conv_tbc(x, weight, norch.tensor([0.5]))
    assert found.flatten().tolist() == [20.5, 40.5]  # 0 1 2 3 and 2 3 4 5 by 1 2 3 4
