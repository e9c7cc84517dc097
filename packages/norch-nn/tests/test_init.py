"""How weights start: the distributions, and how layers use them."""

import math

import numpy as np
import pytest

import norch
from norch import nn
from norch.nn import init


def array(tensor):
    return tensor.detach().cpu().numpy()


@pytest.mark.parametrize(
    ("layer", "fan"),
    [
        (nn.Conv1d(8, 64, 5), 40),
        (nn.Conv2d(16, 64, 3), 144),
        (nn.Conv2d(16, 64, 3, groups=4), 36),
        (nn.ConvTranspose1d(64, 8, 5), 40),
        (nn.ConvTranspose2d(16, 32, 3, groups=2), 144),
        (nn.Linear(50, 200), 50),
        (nn.Bilinear(20, 10, 40), 20),
    ],
    ids=repr,
)
def test_layers_start_uniform(layer, fan):
    bound = 1 / math.sqrt(fan)
    for p in (layer.weight, layer.bias):
        values = array(p)
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.6 * bound
    assert array(layer.weight).std() == pytest.approx(bound / math.sqrt(3), rel=0.06)
    again = array(layer.weight).copy()
    layer.reset_parameters()
    assert (array(layer.weight) != again).any()


def test_truncated_normal():
    norch.manual_seed(0)
    t = norch.empty(300, 300)
    assert init.trunc_normal_(t, 1.0, 2.0, 0.0, 2.0) is t
    values = array(t)
    assert values.min() >= 0
    assert values.max() <= 2
    assert values.mean() == pytest.approx(1, abs=0.01)
    # Of a normal held to mean +- std / 2.
    density = math.exp(-1 / 8) / math.sqrt(2 * math.pi)
    expected = 2 * math.sqrt(1 - density / math.erf(0.5 / math.sqrt(2)))
    assert values.std() == pytest.approx(expected, rel=0.01)
    wide = array(init.trunc_normal_(norch.empty(300, 300), std=0.02))
    assert wide.std() == pytest.approx(0.02, rel=0.01)
    tail = array(init.trunc_normal_(norch.empty(1000), 0.0, 1.0, 2.0, 9.0))
    assert tail.min() >= 2
    assert tail.mean() == pytest.approx(2.37, abs=0.05)


def test_truncated_normals_are_finite_without_an_end():
    t = init.trunc_normal_(norch.empty(4096, dtype=norch.float16), 0.0, 1.0, -math.inf, math.inf)
    assert bool(norch.isfinite(t).all())
    assert array(t.float()).std() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (4, 2, 3), (1, 1), (40, 40)])
def test_orthogonal(shape):
    weight = init.orthogonal_(norch.empty(*shape, dtype=norch.float64), gain=2.0)
    flat = array(weight).reshape(shape[0], -1)
    product = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(product, 4 * np.eye(min(flat.shape)), atol=1e-12)
    with pytest.raises(norch.ShapeError):
        init.orthogonal_(norch.empty(3))


@pytest.mark.parametrize("groups", [1, 2])
def test_dirac_keeps_channels(groups):
    layer = nn.Conv2d(4, 4, 3, padding=1, groups=groups, bias=False)
    init.dirac_(layer.weight, groups)
    x = norch.randn(2, 4, 5, 5)
    np.testing.assert_allclose(array(layer(x)), array(x), atol=1e-6)
    assert init.dirac_(norch.empty(2, 3, 4)).sum().item() == 2
    with pytest.raises(ValueError, match="dirac_"):
        init.dirac_(norch.empty(3, 3))


def test_sparse():
    weight = array(init.sparse_(norch.empty(10, 50), 0.35, std=2.0))
    assert ((weight == 0).sum(0) == 4).all()
    assert len({tuple(column) for column in (weight == 0).T}) > 20
    assert weight[weight != 0].std() == pytest.approx(2, rel=0.2)
    with pytest.raises(ValueError, match="sparse_"):
        init.sparse_(norch.empty(3), 0.1)


def test_generators_decide():
    for fill in (init.trunc_normal_, init.orthogonal_, lambda t, generator: init.sparse_(t, 0.5, generator=generator)):
        a, b = (fill(norch.empty(4, 4), generator=norch.Generator().manual_seed(3)) for _ in range(2))
        assert a.tolist() == b.tolist()


def test_values_and_gains():
    assert init.eye_(norch.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert init.ones_(norch.empty(2)).tolist() == [1, 1]
    assert init.constant_(norch.empty(2), 0.5).tolist() == [0.5, 0.5]
    assert [init.calculate_gain(n) for n in ("conv2d", "sigmoid", "tanh", "relu", "selu")] == [
        1,
        1,
        5 / 3,
        2**0.5,
        0.75,
    ]
    assert init.calculate_gain("leaky_relu", 1.0) == 1.0
    with pytest.raises(ValueError, match="gelu"):
        init.calculate_gain("gelu")
    values = array(init.kaiming_normal_(norch.empty(64, 32, 3, 3), mode="fan_out", nonlinearity="relu"))
    assert values.std() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.05)
    assert array(init.xavier_uniform_(norch.empty(64, 32))).std() == pytest.approx(math.sqrt(2 / 96), rel=0.06)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Embedding(20_000, 50, padding_idx=3),
        lambda: nn.Linear(1000, 1000),
        lambda: norch.empty(1_000_000).normal_(1, 2),
        lambda: norch.empty(1_000_000).uniform_(1, 2),
    ],
    ids=["embedding", "linear", "normal_", "uniform_"],
)
def test_a_million_weights_start_with_one_draw_beside_them(make):
    if not hasattr(norch.cpu, "reset_peak_memory_stats"):
        pytest.skip("the backend counts no memory")
    norch.cpu.reset_peak_memory_stats()
    before = norch.cpu.memory_stats()["allocated_bytes"]
    make()
    assert norch.cpu.memory_stats()["peak_allocated_bytes"] - before < 2.3 * 4_000_000
