"""With norch in place of PyTorch an installed torchvision is itself; its compiled ops are norch.vision's."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FILES = {
    "__init__.py": "from . import extension, _meta_registrations, ops, models\n__version__ = '0.99'\n",
    "extension.py": "raise RuntimeError('its library is not for norch')",
    "_meta_registrations.py": "raise RuntimeError('its library is not for norch')",
    "ops.py": "import torch\nfrom .extension import _HAS_OPS, _assert_has_ops\nnms = torch.ops.torchvision.nms\n",
    "models/__init__.py": "from . import feature_extraction\n",
    "models/feature_extraction.py": (
        "from torch import fx\n"
        "from torch.fx.graph_module import _CodeOnlyModule, _copy_attr, _USER_PRESERVED_ATTRIBUTES_KEY\n"
        "def get_graph_node_names(model): return [n.name for n in fx.symbolic_trace(model).graph.nodes]\n"
    ),
}


def install(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / "torchvision" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def run(code: str, folder: Path | None = None) -> str:
    program = f"import norch.compat.standin as standin\nstandin.install()\n{code}"
    done = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_its_own_python_runs(tmp_path: Path) -> None:
    code = """
import torch, torchvision
from torchvision.models.feature_extraction import get_graph_node_names
assert torchvision.__version__ == "0.99" and torchvision.extension._has_ops()
boxes = torch.tensor([[0., 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
print(torchvision.ops.nms(boxes, torch.tensor([.5, .9, .1]), .5).tolist(), get_graph_node_names(torch.nn.ReLU()))
standin.install()
standin.uninstall()
print("torchvision" in __import__("sys").modules)
"""
    assert run(code, install(tmp_path, FILES)) == "[1, 2] ['input_1', 'relu', 'output']\nFalse\n"


def test_what_does_not_run_is_norch_vision(tmp_path: Path) -> None:
    files = FILES | {"models/__init__.py": "from torch._inductor import nothing"}
    code = "import torchvision\nfrom torchvision.models import resnet18\nprint(torchvision.ops.__name__)"
    printed = run(code, install(tmp_path, files))
    assert "norch.vision.ops\n" in printed
    assert "the torchvision that is installed does not run on norch, norch.vision is used: " in printed


@pytest.mark.usefixtures("on_host")
def test_ops_of_the_compiled_library() -> None:
    import norch
    from norch.vision import compiled, io, ops

    there = norch.ops.torchvision
    assert compiled._has_ops()
    assert compiled._check_cuda_version() == -1
    norch.manual_seed(0)
    x = norch.randn(1, 4, 9, 9, requires_grad=True)
    rois = norch.tensor([[0, 0.5, 1, 7, 6]])
    found = there.roi_align(x, rois, 0.5, 2, 2, 2, True)
    assert norch.equal(found, ops.roi_align(x, rois, (2, 2), 0.5, 2, True))
    assert found.requires_grad
    assert norch.equal(there.roi_pool(x, rois, 1.0, 3, 3)[0], ops.roi_pool(x, rois, 3))
    assert norch.equal(there.ps_roi_align(x, rois, 1.0, 2, 2, 1)[0], ops.ps_roi_align(x, rois, 2, 1.0, 1))
    assert norch.equal(there.ps_roi_pool(x, rois, 1.0, 2, 2)[0], ops.ps_roi_pool(x, rois, 2))
    weight, offset, mask = norch.randn(2, 4, 3, 3), norch.randn(1, 18, 4, 4), norch.rand(1, 9, 4, 4)
    for masked in (True, False):
        found = there.deform_conv2d(x, weight, offset, mask, norch.ones(2), 2, 2, 0, 0, 1, 1, 1, 1, masked)
        wanted = ops.deform_conv2d(x, offset, weight, norch.ones(2), 2, 0, 1, mask if masked else None)
        assert norch.equal(found, wanted)
    image = norch.arange(48).to(norch.uint8).reshape(3, 4, 4)
    pytest.importorskip("PIL")
    data = norch.ops.image.encode_png(image, 6)
    for decode in (norch.ops.image.decode_png, norch.ops.image.decode_image):
        assert norch.equal(decode(data, 0, False), image)
        assert norch.equal(decode(data, io.ImageReadMode.GRAY.value, False), io.decode_png(data, io.ImageReadMode.GRAY))


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_a_detector_and_transforms_of_torchvision() -> None:
    code = """
import torch, torchvision
from torchvision import tv_tensors
from torchvision.transforms import v2
torch.manual_seed(0)
model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
    weights=None, weights_backbone=None, min_size=64, max_size=64)
target = {"boxes": torch.tensor([[1., 2, 30, 40]]), "labels": torch.tensor([3])}
losses = model([torch.rand(3, 64, 64)], [target])
sum(losses.values()).backward()
print(sorted(losses), all(p.grad is not None for p in model.roi_heads.parameters()))
boxes = tv_tensors.BoundingBoxes([[1., 2, 3, 4]], format="XYXY", canvas_size=(8, 8))
image, boxes = v2.RandomHorizontalFlip(1.0)(tv_tensors.Image(torch.arange(64).reshape(1, 8, 8)), boxes)
print(image[0, 0, 0].item(), boxes.tolist(), type(boxes).__name__)
"""
    assert run(code).splitlines()[-2:] == [
        "['loss_box_reg', 'loss_classifier', 'loss_objectness', 'loss_rpn_box_reg'] True",
        "7 [[5.0, 2.0, 7.0, 4.0]] BoundingBoxes",
    ]
