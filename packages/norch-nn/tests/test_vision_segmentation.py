"""norch.vision.models.segmentation and detection: what they are made of, and anchors that are known."""

from __future__ import annotations

import pytest

import norch
from norch import nn
from norch.vision import models
from norch.vision.models import segmentation
from norch.vision.models._utils import IntermediateLayerGetter
from norch.vision.models.detection import AnchorGenerator, DefaultBoxGenerator, ImageList


def test_children_of_a_model_are_a_model() -> None:
    resnet = models.resnet18(num_classes=2).eval()
    getter = IntermediateLayerGetter(resnet, {"layer1": "first", "layer3": "third"})
    assert list(getter) == ["conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3"]
    x = norch.rand(1, 3, 32, 32)
    out = getter(x)
    assert {name: tuple(value.shape) for name, value in out.items()} == {
        "first": (1, 64, 8, 8),
        "third": (1, 256, 2, 2),
    }
    first = resnet.layer1(resnet.maxpool(resnet.relu(resnet.bn1(resnet.conv1(x)))))
    assert norch.equal(out["first"], first)
    with pytest.raises(ValueError, match="ResNet has no child layer9"):
        IntermediateLayerGetter(resnet, {"layer9": "x"})


@pytest.mark.parametrize("name", ["lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"])
def test_each_pixel_gets_a_class_and_a_step_is_trained(name: str) -> None:
    norch.manual_seed(0)
    auxiliary = name.startswith("deeplab")
    model = getattr(segmentation, name)(num_classes=3, **({"aux_loss": True} if auxiliary else {}))
    x, target = norch.rand(2, 3, 40, 33), norch.randint(0, 3, (2, 40, 33))
    out = model(x)
    assert list(out) == (["out", "aux"] if auxiliary else ["out"])
    assert all(value.shape == (2, 3, 40, 33) for value in out.values())
    sum(nn.functional.cross_entropy(value, target) for value in out.values()).backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.fixture
def on_meta():
    """Models without numbers, which take seconds to draw."""
    with norch.device("meta"):
        yield


def test_the_last_stages_of_a_resnet_are_dilated(on_meta) -> None:
    model = segmentation.fcn_resnet50(num_classes=2, aux_loss=True)
    assert model.backbone.layer4[1].conv2.dilation == (4, 4)
    assert isinstance(model, segmentation.FCN)
    assert model.aux_classifier[4].out_channels == 2
    assert segmentation.fcn_resnet50().aux_classifier is None
    assert segmentation.deeplabv3_resnet50().classifier[4].out_channels == 21
    with pytest.raises(NotImplementedError, match="no auxiliary loss"):
        segmentation.lraspp_mobilenet_v3_large(aux_loss=True)


def test_weights_are_read_from_pytorchs_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    weights = segmentation.DeepLabV3_MobileNet_V3_Large_Weights.DEFAULT
    with pytest.raises(NotImplementedError, match="downloads no weights"):
        segmentation.deeplabv3_mobilenet_v3_large(weights=weights)
    state = segmentation.deeplabv3_mobilenet_v3_large(aux_loss=True).state_dict()
    norch.save(state, folder / "deeplabv3_mobilenet_v3_large-fc3c493d.pth")
    model = segmentation.deeplabv3_mobilenet_v3_large(weights=weights)
    assert all(norch.equal(value, state[key]) for key, value in model.state_dict().items())
    with pytest.raises(AttributeError, match="no attribute 'neither'"):
        segmentation.neither


def test_anchors_that_are_known() -> None:
    made = AnchorGenerator(((10,), (20, 40)), ((0.25, 1.0),) * 2)
    assert made.num_anchors_per_location() == [2, 4]
    assert made.cell_anchors[0].tolist() == [[-10, -2, 10, 2], [-5, -5, 5, 5]]
    images = ImageList(norch.zeros(2, 3, 12, 16), [(12, 16), (10, 9)])
    maps = [norch.zeros(2, 5, 2, 2), norch.zeros(2, 5, 1, 1)]
    first, second = made(images, maps)
    assert norch.equal(first, second)
    expected = [[x - w, y - h, x + w, y + h] for y in (0, 6) for x in (0, 8) for w, h in ((10, 2), (5, 5))]
    assert first[:8].tolist() == expected
    assert first.shape == (8 + 4, 4)
    with pytest.raises(ValueError, match="2 maps have sizes"):
        made.grid_anchors([(1, 1)], [(1, 1)])
    assert AnchorGenerator((8, 16), (1.0, 2.0)).num_anchors_per_location() == [2, 2]


def test_default_boxes_that_are_known() -> None:
    made = DefaultBoxGenerator([[4]], scales=[0.25, 1.0])
    assert made.num_anchors_per_location() == [4]
    (boxes,) = made(ImageList(norch.zeros(1, 3, 8, 16), [(8, 16)]), [norch.zeros(1, 1, 1, 2)])
    shapes = [(0.25, 0.25), (0.5, 0.5), (0.5, 0.125), (0.125, 0.5)]
    places = [(x, w, h) for x in (0.25, 0.75) for w, h in shapes]
    expected = [[16 * (x - w / 2), 8 * (0.5 - h / 2), 16 * (x + w / 2), 8 * (0.5 + h / 2)] for x, w, h in places]
    assert boxes.tolist() == expected
    with pytest.raises(ValueError, match="1 steps for 2 maps"):
        DefaultBoxGenerator([[2], [2]], steps=[8])
