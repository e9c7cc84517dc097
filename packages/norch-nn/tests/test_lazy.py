"""Layers that learn the size of their input from the first one."""

import pytest

import norch
from norch import nn, optim

CASES = [
    (lambda nn: nn.LazyLinear(3), lambda nn: nn.Linear(4, 3), (2, 4)),
    (lambda nn: nn.LazyLinear(3, bias=False), lambda nn: nn.Linear(4, 3, bias=False), (2, 5, 4)),
    (lambda nn: nn.LazyConv1d(6, 3, 2, 1), lambda nn: nn.Conv1d(4, 6, 3, 2, 1), (2, 4, 7)),
    (
        lambda nn: nn.LazyConv2d(6, 3, padding="same", groups=2, padding_mode="reflect"),
        lambda nn: nn.Conv2d(4, 6, 3, padding="same", groups=2, padding_mode="reflect"),
        (2, 4, 5, 5),
    ),
    (lambda nn: nn.LazyConvTranspose1d(6, 3), lambda nn: nn.ConvTranspose1d(4, 6, 3), (4, 7)),
    (
        lambda nn: nn.LazyConvTranspose2d(6, 3, 2, 1, 1, 2, False),
        lambda nn: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2, False),
        (2, 4, 5, 5),
    ),
    (lambda nn: nn.LazyBatchNorm1d(), lambda nn: nn.BatchNorm1d(4), (3, 4)),
    (lambda nn: nn.LazyBatchNorm2d(affine=False), lambda nn: nn.BatchNorm2d(4, affine=False), (3, 4, 2, 2)),
    (
        lambda nn: nn.LazyBatchNorm3d(track_running_stats=False),
        lambda nn: nn.BatchNorm3d(4, track_running_stats=False),
        (3, 4, 2, 2, 2),
    ),
    (lambda nn: nn.LazyInstanceNorm1d(), lambda nn: nn.InstanceNorm1d(4, 1e-5, 0.1, True, True), (3, 4, 5)),
    (
        lambda nn: nn.LazyInstanceNorm2d(affine=True, track_running_stats=True),
        lambda nn: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        (3, 4, 2, 3),
    ),
    (
        lambda nn: nn.LazyInstanceNorm3d(track_running_stats=False),
        lambda nn: nn.InstanceNorm3d(4, affine=True),
        (3, 4, 2, 2, 3),
    ),
]


@pytest.mark.parametrize(("make", "same", "shape"), CASES)
def test_the_first_input_makes_the_layer(make, same, shape):
    norch.manual_seed(0)
    layer, other = make(nn), same(nn)
    parameters = list(layer.parameters())
    assert all(isinstance(p, nn.UninitializedParameter) for p in parameters)
    assert layer.has_uninitialized_params()
    assert "Lazy" in repr(layer)
    layer = layer.double()
    x = norch.randn(*shape, dtype=norch.float64)
    norch.manual_seed(1)
    out = layer(x)
    assert type(layer) is type(other)
    assert repr(layer) == repr(other)
    assert [a is b and type(a) is nn.Parameter for a, b in zip(layer.parameters(), parameters)] == [True] * len(
        parameters
    )
    own, theirs = layer.state_dict(), other.state_dict()
    assert {k: (v.shape, v.dtype.is_floating_point) for k, v in own.items()} == {
        k: (v.shape, v.dtype.is_floating_point) for k, v in theirs.items()
    }
    other.double().load_state_dict(own | {k: v for k, v in theirs.items() if "running" in k or "tracked" in k})
    assert out.tolist() == other(x).tolist()


@pytest.mark.parametrize(("make", "same", "shape"), CASES)
def test_lazy_layers_print_as_pytorchs(make, same, shape):
    torch = pytest.importorskip("torch", minversion="2.13")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert repr(make(nn)) == repr(make(torch.nn))


def test_an_optimiser_may_have_them_before():
    net = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(1))
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    x = norch.randn(5, 3)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (net(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert [tuple(p.shape) for p in net.parameters()] == [(8, 3), (8,), (1, 8), (1,)]


def test_first_inputs_that_do_not_fit():
    assert repr(nn.UninitializedParameter()) == "<UninitializedParameter>"
    with pytest.raises(norch.ShapeError, match="LazyConv2d"):
        nn.LazyConv2d(1, 1)(norch.ones(2, 2))
    with pytest.raises(ValueError, match="groups"):
        nn.LazyConv2d(2, 1, groups=2)(norch.ones(1, 3, 2, 2))
    with pytest.raises(ValueError, match="dims"):
        nn.LazyBatchNorm2d()(norch.ones(2, 2))


def test_a_lazy_module_of_ones_own():
    from norch.nn.modules.lazy import LazyModuleMixin

    class Scale(nn.Module):
        def forward(self, x):
            return x * self.weight

    class LazyScale(LazyModuleMixin, Scale):
        cls_to_become = Scale

        def __init__(self):
            super().__init__()
            self.weight = nn.UninitializedParameter()

        def initialize_parameters(self, x):
            self.weight.materialize(x.shape[1:])
            nn.init.constant_(self.weight, 2.0)

    class Kept(LazyScale):
        cls_to_become = None

    class Careless(Kept):
        def initialize_parameters(self, x):
            pass

    x = norch.ones(2, 3)
    for kind in (LazyScale, Kept):
        layer = kind()
        assert isinstance(nn.LazyLinear(2), LazyModuleMixin)
        assert layer.has_uninitialized_params()
        assert layer(x).tolist() == layer(x).tolist() == [[2.0] * 3] * 2
        assert type(layer) is (Kept if kind is Kept else Scale)
    with pytest.raises(RuntimeError, match=r"Careless: initialize_parameters\(\) left parameters without a shape"):
        Careless()(x)
    with pytest.raises(NotImplementedError, match="Bare has no initialize_parameters"):
        type("Bare", (LazyModuleMixin,), {})().initialize_parameters()


def test_lazy_instance_norm_of_one_sample_and_without_parameters():
    x = norch.randn(4, 6)
    layer = nn.LazyInstanceNorm1d(affine=True)
    assert norch.equal(layer(x), nn.InstanceNorm1d(4, affine=True)(x))
    assert type(layer) is nn.InstanceNorm1d
    assert layer.num_features == 4
    plain = nn.LazyInstanceNorm1d()
    assert norch.equal(plain(x), nn.InstanceNorm1d(4)(x))


@pytest.mark.parametrize(("make", "same", "shape"), CASES)
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_brings_the_parameters_before_the_first_input(make, same, shape, assign):
    filled, empty = make(nn), make(nn)
    x = norch.randn(*shape)
    filled(x)
    parameters = list(empty.parameters())
    assert not empty.load_state_dict(filled.state_dict(), assign=assign).missing_keys
    assert not empty.has_uninitialized_params()
    assert assign or all(a is b for a, b in zip(empty.parameters(), parameters, strict=True))
    assert empty.eval()(x).tolist() == filled.eval()(x).tolist()
    assert repr(empty) == repr(filled)
    late = make(nn)
    late.load_state_dict(make(nn).state_dict())
    assert late.has_uninitialized_params()
    assert late(x).shape == filled(x).shape
    with pytest.raises(RuntimeError, match="size mismatch"):
        filled.load_state_dict({k: v[:0] if v.ndim else v for k, v in filled.state_dict().items()})
