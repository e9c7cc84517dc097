"""norch.vision.models: torchvision's keys, shapes and numbers of parameters, and what they compute."""

import hashlib
import json
import pickle
from pathlib import Path

import pytest

import norch
from norch import nn
from norch.vision import models
from norch.vision.ops import SqueezeExcitation, StochasticDepth, stochastic_depth

EXPECTED = json.loads(Path(__file__).with_name("vision_models.json").read_text())


def digest(state):
    """Of the keys, in order, and their shapes."""
    lines = [f"{key} {tuple(value.shape)}" for key, value in state.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@pytest.fixture
def unfilled(monkeypatch):
    """Memory of parameters that nothing was drawn into, so that no system has to give it."""
    monkeypatch.setattr(nn.init, "_fill", lambda tensor, fill: tensor)


@pytest.mark.usefixtures("unfilled")
@pytest.mark.parametrize("name", list(EXPECTED))
def test_keys_shapes_and_numbers_of_parameters_are_torchvisions(name):
    model = models.get_model(name)
    assert [sum(p.numel() for p in model.parameters()), digest(model.state_dict())] == EXPECTED[name]


def test_published_numbers_of_parameters():
    published = {"resnet18": 11689512, "resnet50": 25557032, "vgg16": 138357544, "mobilenet_v3_large": 5483032}
    published |= {"efficientnet_b0": 5288548, "vit_b_16": 86567656, "convnext_tiny": 28589128, "alexnet": 61100840}
    assert {name: EXPECTED[name][0] for name in published} == published


SMALL = ["resnet18", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "squeezenet1_1", "densenet121"]


@pytest.mark.parametrize("name", SMALL)
def test_a_small_model_trains_a_step(name):
    norch.manual_seed(0)
    model = getattr(models, name)(num_classes=3)
    x, target = norch.randn(2, 3, 32, 32), norch.tensor([0, 2])
    loss = nn.functional.cross_entropy(model(x), target)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert model.eval()(x).shape == (2, 3)


def test_the_unet_keeps_any_size():
    model = models.UNet(in_channels=1, num_classes=2, widths=(4, 8, 16)).eval()
    assert model(norch.zeros(1, 1, 21, 34)).shape == (1, 2, 21, 34)
    assert sum(p.numel() for p in models.unet().parameters()) == 31_037_633


def test_googlenet_gives_its_other_classifiers_in_training():
    model = models.googlenet(num_classes=2, dropout=0.0, init_weights=False)
    out = model(norch.randn(2, 3, 64, 64))
    assert [tuple(part.shape) for part in out] == [(2, 2)] * 3
    assert out.aux_logits1 is out[2]
    assert models.googlenet(num_classes=2, aux_logits=False).aux1 is None
    assert model.eval()(norch.randn(1, 3, 64, 64)).shape == (1, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: models.resnet18(pretrained=True),
        lambda: models.resnet18(True),
        lambda: models.resnet18(weights="IMAGENET1K_V1"),
        lambda: models.resnet18(weights=models.ResNet18_Weights.IMAGENET1K_V1),
        lambda: models.VGG16_Weights.DEFAULT.transforms(),
    ],
)
def test_weights_that_are_not_there_are_refused_in_a_sentence(make, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(
        NotImplementedError, match=r"downloads no weights; .* or .* call model.load_state_dict"
    ) as error:
        make()
    assert str(tmp_path / "hub" / "checkpoints") in str(error.value)


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def test_weights_are_read_from_pytorchs_cache(checkpoints):
    state = {key: value + 1 for key, value in models.squeezenet1_1().state_dict().items()}
    norch.save(state, checkpoints / "squeezenet1_1-0123abcd.pth")
    for option in ({"pretrained": True}, {"weights": models.SqueezeNet1_1_Weights.DEFAULT}):
        model = models.squeezenet1_1(**option)
        assert all(norch.equal(value, state[key]) for key, value in model.state_dict().items())
    norch.save(state, checkpoints / "squeezenet1_1-4567abcd.pth")
    with pytest.raises(NotImplementedError, match=r"squeezenet1_1-0123abcd.pth, squeezenet1_1-4567abcd.pth; make"):
        models.squeezenet1_1(pretrained=True)


def test_googlenet_with_weights_has_one_classifier_and_takes_images_as_the_others(checkpoints):
    norch.save(models.googlenet(init_weights=False).state_dict(), checkpoints / "googlenet-1.pth")
    model = models.googlenet(pretrained=True)
    assert (model.aux1, model.transform_input) == (None, True)


def test_no_weights_are_none_or_false():
    for option in ({"weights": None}, {"pretrained": False}, {"progress": False}):
        assert isinstance(models.squeezenet1_1(**option), models.SqueezeNet)


def test_densenet_takes_the_keys_of_torchvisions_files():
    model = models.DenseNet(4, (2, 2), 8, num_classes=2)
    state = model.state_dict()
    old = {key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2."): value + 1 for key, value in state.items()}
    assert "features.denseblock1.denselayer2.norm.1.weight" in old
    assert str(model.load_state_dict(old)) == "<All keys matched successfully>"
    assert (model.features.denseblock1.denselayer2.norm1.weight == 2).all()


def test_memory_efficient_densenet_has_the_same_gradients():
    norch.manual_seed(0)
    plain, saving = (models.DenseNet(4, (2, 2), 8, num_classes=2, memory_efficient=m) for m in (False, True))
    saving.load_state_dict(plain.state_dict())
    x = norch.randn(2, 3, 32, 32)
    for model in (plain, saving):
        model(x).sum().backward()
    for a, b in zip(plain.parameters(), saving.parameters()):
        norch.testing.assert_close(a.grad, b.grad)


def test_models_are_found_by_name():
    assert models.list_models(models.vgg, include="*_bn") == ["vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"]
    assert "resnet18" not in models.list_models(exclude="resnet*")
    with norch.device("meta"):
        assert isinstance(models.get_model("AlexNet", num_classes=2), models.AlexNet)
    with pytest.raises(ValueError, match="Unknown model lenet"):
        models.get_model("lenet")
    names = [
        n for n in sorted(models.__dict__) if n.islower() and not n.startswith("_") and callable(models.__dict__[n])
    ]
    names += [n for n in models.segmentation.__dict__ if n.islower()]
    assert set(EXPECTED) < set(names)
    found = models.list_models(models.segmentation)
    assert found[0] == "deeplabv3_mobilenet_v3_large"
    assert not set(found) & set(models.list_models(models))
    assert set(found) | set(models.list_models(models)) == set(models.list_models())


def test_options_of_resnets():
    with norch.device("meta"):
        dilated = models.resnet50(replace_stride_with_dilation=[False, True, True], num_classes=2)
        grouped = models.resnet18(norm_layer=lambda channels: nn.GroupNorm(8, channels))
    assert dilated.layer4[1].conv2.dilation == (4, 4)
    with pytest.raises(ValueError, match="three bools"):
        models.resnet50(replace_stride_with_dilation=[True])
    with pytest.raises(ValueError, match="BasicBlock has groups=1"):
        models.resnet18(groups=2)
    zeros = models.resnet18(zero_init_residual=True)
    assert not zeros.layer1[0].bn2.weight.any()
    assert isinstance(grouped.bn1, nn.GroupNorm)


def test_mobilenet_v3_with_fewer_channels_and_dilation():
    model = models.mobilenet_v3_large(dilated=True, reduced_tail=True, width_mult=0.5, num_classes=2)
    assert model.classifier[0].out_features == 320
    assert model.features[14].block[1][0].dilation == (2, 2)


def test_a_transformer_refuses_other_sizes_and_takes_other_heads():
    model = models.VisionTransformer(32, 16, 1, 2, 8, 16, num_classes=3, representation_size=4).eval()
    assert model(norch.randn(2, 3, 32, 32)).shape == (2, 3)
    with pytest.raises(norch.ShapeError, match="expected images"):
        model(norch.randn(2, 3, 48, 48))
    with pytest.raises(ValueError, match="do not divide"):
        models.VisionTransformer(30, 16, 1, 2, 8, 16)


def test_stochastic_depth_leaves_out_samples():
    norch.manual_seed(0)
    x = norch.ones(200, 2, 3)
    out = stochastic_depth(x, 0.25, "row")
    assert set(out.flatten().tolist()) == {0.0, norch.tensor(1 / 0.75).item()}
    assert (out == out[:, :1, :1]).all()
    assert stochastic_depth(x, 0.5, "batch").unique().numel() == 1
    assert stochastic_depth(x, 1.0, "row").sum() == 0
    assert StochasticDepth(0.5, "row").eval()(x) is x
    with pytest.raises(ValueError, match="mode"):
        stochastic_depth(x, 0.5, "column")


def test_models_are_pickled():
    model = pickle.loads(pickle.dumps(models.mobilenet_v3_small(num_classes=2)))
    assert isinstance(model.features[1].block[1], SqueezeExcitation)
