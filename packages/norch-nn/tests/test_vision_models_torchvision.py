"""norch.vision.models beside torchvision's: the same weights, then results, and gradients in training."""

import pytest
from importing_torchvision import import_torchvision

import norch
from norch import nn
from norch.vision import models
from norch.vision.ops import StochasticDepth

torch = pytest.importorskip("torch")
torchvision = import_torchvision()
pytestmark = pytest.mark.usefixtures("on_host")

FAMILIES = {
    "alexnet": 64, "vgg11_bn": 32, "resnet18": 64, "resnext50_32x4d": 64, "squeezenet1_0": 64, "densenet121": 64,
    "googlenet": 64, "mobilenet_v2": 64, "mobilenet_v3_large": 64, "efficientnet_b0": 64, "efficientnet_v2_s": 64,
    "vit_b_32": 64, "convnext_tiny": 64,
}  # fmt: skip


def beside(name, size, dtype):
    """The two models with the same weights, and an image for each."""
    torch.manual_seed(0)
    options = {"num_classes": 5, **({"image_size": size} if name.startswith("vit") else {})}
    options |= {"init_weights": False} if name == "googlenet" else {}
    theirs, ours = getattr(torchvision.models, name)(**options).to(dtype), getattr(models, name)(**options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    with torch.no_grad():
        for key, value in theirs.state_dict().items():
            if key.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif key.endswith("layer_scale") or (name.startswith("vit") and key == "heads.head.weight"):
                value.normal_()
    ours = ours.to(getattr(norch, str(dtype).removeprefix("torch.")))
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    x = torch.randn(2, 3, size, size, dtype=dtype)
    return theirs, ours, x, norch.tensor(x.numpy())


@pytest.mark.parametrize("name", FAMILIES)
def test_results_are_torchvisions(name):
    theirs, ours, x, y = beside(name, FAMILIES[name], torch.float32)
    with torch.no_grad():
        expected = theirs.eval()(x).numpy()
    out = ours.eval()(y)
    assert abs(out.detach().numpy() - expected).max() <= 2e-5 * abs(expected).max()


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_in_training_are_torchvisions(name):
    theirs, ours, x, y = beside(name, FAMILIES[name], torch.float64)
    for model, kinds in ((theirs, (torch.nn.Dropout,)), (ours, (nn.Dropout, StochasticDepth))):
        model.train()
        for module in model.modules():
            if isinstance(module, kinds) or type(module).__name__ == "StochasticDepth":
                module.p = 0.0  # the two do not draw the same numbers
    outs = theirs(x), ours(y)
    for out in outs:
        (sum(part.square().sum() for part in out) if isinstance(out, tuple) else out.square().sum()).backward()
    mine, expected = dict(ours.named_parameters()), dict(theirs.named_parameters())
    largest = max(float(p.grad.abs().max()) for p in expected.values())
    for key, value in expected.items():
        close = 1e-6 * float(value.grad.abs().max()) + 1e-12 * largest  # those of a bias before a norm are 0
        assert abs(mine[key].grad.numpy() - value.grad.numpy()).max() <= close, key


def test_a_file_that_pytorch_wrote_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    theirs = torchvision.models.mobilenet_v2().eval()
    torch.save(theirs.state_dict(), folder / "mobilenet_v2-b0353104.pth")
    ours = models.mobilenet_v2(weights=models.MobileNet_V2_Weights.DEFAULT).eval()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = theirs(x).numpy()
    assert abs(ours(norch.tensor(x.numpy())).detach().numpy() - expected).max() <= 2e-5 * abs(expected).max()


SEGMENTATION = ["fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"]


@pytest.mark.parametrize("name", SEGMENTATION)
def test_segmentations_are_torchvisions(name):
    torch.manual_seed(0)
    options = {"num_classes": 4, "weights_backbone": None} | ({} if name.startswith("lraspp") else {"aux_loss": True})
    theirs = getattr(torchvision.models.segmentation, name)(**options).double()
    ours = getattr(models.segmentation, name)(**options).double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    x = torch.randn(2, 3, 48, 57, dtype=torch.float64)
    for training in (True, False):
        for model, kind in ((theirs, torch.nn.Dropout), (ours, nn.Dropout)):
            model.train(training)
            for module in model.modules():
                if isinstance(module, kind):
                    module.p = 0.0
        with torch.no_grad(), norch.no_grad():
            expected, out = theirs(x), ours(norch.tensor(x.numpy()))
        assert list(out) == list(expected)
        for key, value in expected.items():
            assert abs(out[key].numpy() - value.numpy()).max() <= 1e-9 * abs(value.numpy()).max(), (key, training)


def test_anchors_are_torchvisions():
    from torchvision.models.detection import anchor_utils, image_list

    arrays = [torch.zeros(2, 3, 75, 100), *(torch.zeros(2, 4, s, s + 1) for s in (19, 10, 5))]
    sizes, ratios = ((8, 12), (16, 20), (32, 50)), ((0.5, 1.0, 2.0),) * 3
    for kind, options in (
        ("AnchorGenerator", {"sizes": sizes, "aspect_ratios": ratios}),
        ("DefaultBoxGenerator", {"aspect_ratios": [[2], [2, 3], []]}),
        ("DefaultBoxGenerator", {"aspect_ratios": [[2], [2, 3], []], "steps": [8, 16, 32], "clip": False}),
    ):
        left, right = (getattr(m, kind)(**options) for m in (anchor_utils, models.detection))
        theirs = left(image_list.ImageList(arrays[0], [(70, 80)] * 2), arrays[1:])
        mine = [norch.tensor(a.numpy()) for a in arrays]
        ours = right(models.detection.ImageList(mine[0], [(70, 80)] * 2), mine[1:])
        assert left.num_anchors_per_location() == right.num_anchors_per_location()
        for a, b in zip(theirs, ours, strict=True):
            assert a.shape == tuple(b.shape)
            assert abs(a.numpy() - b.numpy()).max() <= 1e-5
        if kind == "DefaultBoxGenerator":
            assert repr(left) == repr(right)
