"""Modules on the device "meta": built without memory or random numbers, then given both."""

import warnings

import pytest

import norch
from norch import nn
from norch.nn import functional as F
from norch.vision import models


def small():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(3))


def make(device):
    with norch.device(device):
        model = small()
        model(norch.ones(2, 1, 5, 5))
    return model


def described(tensors):
    return [(tuple(t.shape), t.stride(), t.dtype) for t in tensors]


def test_a_model_built_without_memory():
    norch.manual_seed(1)
    wanted = norch.rand(3)
    norch.manual_seed(1)
    with norch.device("meta"):
        model = nn.Transformer(4096, 32, 8, 8, 16384)
    assert all(t.is_meta for t in model.state_dict().values())
    assert sum(p.numel() for p in model.parameters()) > 2e9
    assert norch.equal(norch.rand(3), wanted)  # initialising drew none
    assert nn.Linear(3, 4, device="meta", dtype=norch.float64).weight.dtype is norch.float64
    assert "device='meta', size=(2, 3), requires_grad=True" in repr(nn.Parameter(norch.empty(2, 3, device="meta")))


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam"])
def test_a_step_of_training(optimizer):
    model, real = make("meta"), make("cpu")
    for m in (model, real):
        device = "meta" if m is model else "cpu"
        step = getattr(norch.optim, optimizer)(m.parameters(), lr=0.1)
        x, y = norch.ones(2, 1, 5, 5, device=device), norch.zeros(2, dtype=norch.int64, device=device)
        for _ in range(2):
            step.zero_grad()
            F.cross_entropy(m(x), y).backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0, foreach=False)
            step.step()
    assert all(p.grad.is_meta for p in model.parameters())
    assert described([p.grad for p in model.parameters()]) == described([p.grad for p in real.parameters()])
    assert described(model.state_dict().values()) == described(real.state_dict().values())


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit_b_32", "convnext_tiny", "vgg11"])
def test_vision_models(name):
    with norch.device("meta"):
        model = getattr(models, name)()
        out = model(norch.empty(2, 3, 224, 224))
        out.sum().backward()
    assert out.shape == (2, 1000)
    assert all(p.grad.is_meta and p.grad.shape == p.shape for p in model.parameters())


def test_to_empty_then_values():
    model, real = make("meta"), make("cpu")
    model[0].weight.requires_grad_(False)
    kept = list(model.parameters())
    assert model.to_empty(device="cpu") is model
    assert all(a is b for a, b in zip(model.parameters(), kept, strict=True))
    assert not model[0].weight.requires_grad
    model.load_state_dict(real.state_dict())
    for key, value in model.state_dict().items():
        assert norch.equal(value, real.state_dict()[key])


@pytest.mark.usefixtures("on_host")
def test_values_assigned():
    model, real = make("meta"), make("cpu")
    state = real.state_dict()
    assert str(model.load_state_dict(state, assign=True)) == "<All keys matched successfully>"
    assert model[0].weight.data_ptr() == real[0].weight.data_ptr()
    assert isinstance(model[0].weight, nn.Parameter)
    assert model[0].weight.requires_grad
    x = norch.rand(2, 1, 5, 5)
    assert norch.equal(model.eval()(x), real.eval()(x))


def test_values_of_a_file_assigned(tmp_path):
    real = make("cpu")
    norch.save(real.state_dict(), tmp_path / "model.norch")
    model = make("meta")
    model.load_state_dict(norch.load(tmp_path / "model.norch"), assign=True)
    assert norch.equal(model[3].weight, real[3].weight)


def test_copying_into_meta_warns_that_it_does_nothing():
    model, real = make("meta"), make("cpu")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.load_state_dict(real.state_dict())
    assert len(found) == len(model.state_dict())
    assert "0.weight is on the device 'meta', where copying does nothing; did you mean assign=True" in str(found[0])
    assert all(t.is_meta for t in model.state_dict().values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.load_state_dict(make("meta").state_dict())


def test_copying_from_meta_is_refused_whole():
    model, real = make("meta"), make("cpu")
    before = {k: v.clone() for k, v in real.state_dict().items()}
    with pytest.raises(RuntimeError, match=r"0\.weight is on the device 'meta' in the state_dict"):
        real.load_state_dict(model.state_dict())
    assert all(norch.equal(v, before[k]) for k, v in real.state_dict().items())


def test_moving_modules():
    model = make("cpu").to("meta")
    assert all(t.is_meta for t in model.state_dict().values())
    for move in (lambda: model.to("cpu"), model.cpu):
        with pytest.raises(norch.MetaError, match=r"Module.to\(\).*to_empty"):
            move()
    assert model.double()[0].weight.dtype is norch.float64
    assert model.to("meta") is model
