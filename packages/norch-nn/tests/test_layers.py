"""Layers, activations, losses and initialisation, against NumPy."""

import copy
import math
import types

import numpy as np
import pytest

import norch
import norch.nn.functional as F
from norch import nn
from norch.nn import init

X = np.array([[-3.0, -0.5, 0.0], [0.25, 2.0, 30.0]], np.float32)


# --- Linear and shapes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (0, 3)])
def test_linear(shape):
    layer = nn.Linear(3, 4)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = x @ layer.weight.detach().cpu().numpy().T + layer.bias.detach().cpu().numpy()
    np.testing.assert_allclose(layer(norch.tensor(x)).detach().cpu().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_linear_without_bias():
    layer = nn.Linear(3, 4, bias=False)
    assert layer.bias is None
    assert [n for n, _ in layer.named_parameters()] == ["weight"]
    assert layer(norch.zeros(2, 3)).tolist() == [[0.0] * 4] * 2


def test_linear_starts_as_pytorchs():
    norch.manual_seed(0)
    layer = nn.Linear(100, 50)
    for p in (layer.weight, layer.bias):
        values = p.detach().cpu().numpy()
        assert np.abs(values).max() <= 0.1
        assert np.abs(values).max() > 0.08
        assert abs(values.mean()) < 0.02
        assert values.std() == pytest.approx(0.1 / math.sqrt(3), rel=0.2)


def test_linear_takes_dtype_and_seed():
    assert nn.Linear(2, 2, dtype=norch.float64, device="cpu").weight.dtype is norch.float64
    norch.manual_seed(3)
    a = nn.Linear(2, 2).weight.tolist()
    norch.manual_seed(3)
    assert nn.Linear(2, 2).weight.tolist() == a
    assert nn.Linear(0, 2)(norch.ones(3, 0)).shape == (3, 2)


def test_linear_refuses_other_widths():
    with pytest.raises(norch.ShapeError, match="linear"):
        nn.Linear(3, 4)(norch.zeros(2, 2))


def test_flatten_and_identity():
    x = norch.zeros(2, 3, 4)
    assert nn.Flatten()(x).shape == (2, 12)
    assert nn.Flatten(0, 1)(x).shape == (6, 4)
    assert nn.Identity(1, extra=2)(x) is x


# --- Activations ----------------------------------------------------------------------------------------------------

SOFTMAX = np.exp(X - X.max(1, keepdims=True)) / np.exp(X - X.max(1, keepdims=True)).sum(1, keepdims=True)
ACTIVATIONS = [
    (nn.Sigmoid(), 1 / (1 + np.exp(-X))),
    (nn.Tanh(), np.tanh(X)),
    (nn.ReLU(), np.maximum(X, 0)),
    (nn.LeakyReLU(0.1), np.where(X > 0, X, 0.1 * X)),
    (nn.ELU(2.0), np.where(X > 0, X, 2 * np.expm1(np.minimum(X, 0)))),
    (nn.GELU(), X * (1 + np.vectorize(math.erf)(X / math.sqrt(2))) / 2),
    (nn.GELU("tanh"), X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))) / 2),
    (nn.SiLU(), X / (1 + np.exp(-X))),
    (nn.Softplus(), np.log1p(np.exp(X))),
    (nn.Softplus(2.0, 1.0), np.where(2 * X > 1, X, np.log1p(np.exp(np.minimum(2 * X, 1))) / 2)),
    (nn.Softmax(1), SOFTMAX),
    (nn.LogSoftmax(1), X - X.max(1, keepdims=True) - np.log(np.exp(X - X.max(1, keepdims=True)).sum(1, keepdims=True))),
]


@pytest.mark.parametrize(("module", "expected"), ACTIVATIONS, ids=lambda v: repr(v) if isinstance(v, nn.Module) else "")
def test_activations(module, expected):
    np.testing.assert_allclose(module(norch.tensor(X)).cpu().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_relu_in_place():
    x = norch.tensor(X)
    assert nn.ReLU(inplace=True)(x) is x
    assert x.tolist() == np.maximum(X, 0).tolist()


def test_functional_is_norch():
    assert F.linear is norch.linear
    assert F.gelu is norch.gelu
    assert F.one_hot(norch.tensor([1]), 2).tolist() == [[0, 1]]
    assert F.pad(norch.ones(1), (1, 0)).tolist() == [0.0, 1.0]
    with pytest.raises(AttributeError):
        F.no_such_function


# --- Losses ---------------------------------------------------------------------------------------------------------


def test_mse_loss_on_the_articles_shapes():
    loss = nn.MSELoss()(norch.tensor([[3.0]]), norch.Tensor([[1.0]]).T)
    assert loss.shape == ()
    assert loss.item() == 4.0


@pytest.mark.parametrize(("reduction", "expected"), [("mean", 2.5), ("sum", 5.0), ("none", [1.0, 4.0])])
def test_mse_loss_reductions(reduction, expected):
    assert nn.MSELoss(reduction=reduction)(norch.tensor([1.0, 2.0]), norch.zeros(2)).tolist() == expected


@pytest.mark.parametrize(("a", "b"), [((3,), (3, 1)), ((3, 1), (3,)), ((2, 3), (1, 3)), ((3,), ()), ((3,), (4,))])
def test_mse_loss_does_not_broadcast(a, b):
    with pytest.raises(norch.ShapeError) as caught:
        nn.MSELoss()(norch.zeros(a), norch.zeros(b))
    assert str(a) in str(caught.value)
    assert str(b) in str(caught.value)


def cross_entropy(scores, target, weight=None, ignore=-100, smoothing=0.0):
    """Each row's loss and weight, for scores (n, c)."""
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    classes = scores.shape[1]
    weight = np.ones(classes) if weight is None else np.asarray(weight)
    losses, weights = [], []
    for row, t in zip(logs, target):
        if t == ignore:
            losses.append(0.0)
            weights.append(0.0)
            continue
        losses.append(-(1 - smoothing) * weight[t] * row[t] - smoothing / classes * (weight * row).sum())
        weights.append(weight[t])
    return np.array(losses), np.array(weights)


@pytest.mark.parametrize("weight", [None, [0.5, 1.0, 2.0]], ids=["even", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignore", [-100, 1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(weight, smoothing, ignore, reduction):
    scores = np.random.default_rng(0).standard_normal((6, 3))
    target = np.array([0, 1, 2, 1, 0, 2])
    losses, weights = cross_entropy(scores, target, weight, ignore, smoothing)
    expected = {"mean": losses.sum() / weights.sum(), "sum": losses.sum(), "none": losses}[reduction]
    tensor = None if weight is None else norch.tensor(weight, dtype=norch.float64)
    criterion = nn.CrossEntropyLoss(tensor, None, ignore, None, reduction, smoothing)
    np.testing.assert_allclose(criterion(norch.tensor(scores), norch.tensor(target)).cpu().numpy(), expected, rtol=1e-9)


def test_cross_entropy_takes_pixels_and_probabilities():
    scores = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    target = np.random.default_rng(1).integers(0, 3, (2, 4, 5))
    rows = scores.transpose(0, 2, 3, 1).reshape(-1, 3)
    expected = cross_entropy(rows, target.reshape(-1))[0].mean()
    criterion = nn.CrossEntropyLoss()
    assert criterion(norch.tensor(scores), norch.tensor(target)).item() == pytest.approx(expected)
    chances = F.one_hot(norch.tensor(target), 3).permute(0, 3, 1, 2).double()
    assert criterion(norch.tensor(scores), chances).item() == pytest.approx(expected)


@pytest.mark.parametrize("sizes", [(), (4, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_cross_entropy(sizes, bias):
    rng = np.random.default_rng(0)
    x, target = rng.standard_normal((5, 6)), rng.integers(0, 3, (5, *sizes))
    criterion = nn.LinearCrossEntropyLoss(6, 3, out_features=sizes, bias=bias, ignore_index=1).double()
    weight = criterion.linear.weight.detach().cpu().numpy()
    scores = x @ weight.T + (criterion.linear.bias.detach().cpu().numpy() if bias else 0)
    rows = np.moveaxis(scores.reshape(5, 3, *sizes), 1, -1).reshape(-1, 3)
    losses, weights = cross_entropy(rows, target.reshape(-1), None, 1, 0.0)
    found = criterion(norch.tensor(x), norch.tensor(target))
    assert found.item() == pytest.approx(losses.sum() / weights.sum())
    found.backward()
    assert criterion.linear.weight.grad.shape == weight.shape


def test_wrong_arguments_of_linear_cross_entropy():
    with pytest.raises(norch.ShapeError, match="expected"):
        F.linear_cross_entropy(norch.ones(2, 3, 4), norch.ones(5, 4), norch.zeros(2, 3, dtype=norch.int64))
    with pytest.raises(norch.ShapeError, match=r"\(3,\)"):
        nn.LinearCrossEntropyLoss(6, 3, weight=norch.ones(4))
    with pytest.raises(ValueError, match="label_smoothing"):
        nn.LinearCrossEntropyLoss(6, 3, label_smoothing=1.5)


def test_cross_entropy_weight_moves_with_the_module():
    criterion = nn.CrossEntropyLoss(norch.ones(3))
    assert [n for n, _ in criterion.named_buffers()] == ["weight"]
    assert criterion.double().weight.dtype is norch.float64


def test_losses_refuse_unknown_options():
    for kind in (nn.MSELoss, nn.CrossEntropyLoss):
        with pytest.raises(ValueError, match="reduction must be"):
            kind(reduction="average")
    with pytest.raises(ValueError, match="label_smoothing"):
        nn.CrossEntropyLoss(label_smoothing=2)


# --- Initialisation -------------------------------------------------------------------------------------------------

SHAPE = (200, 300)
VARIANCES = [
    (lambda t: init.uniform_(t, -2, 4), 1.0, 3.0),
    (lambda t: init.normal_(t, 1.0, 2.0), 1.0, 4.0),
    (lambda t: init.xavier_uniform_(t, 2.0), 0.0, 4 * 2 / 500),
    (lambda t: init.xavier_normal_(t), 0.0, 2 / 500),
    (lambda t: init.kaiming_uniform_(t, nonlinearity="relu"), 0.0, 2 / 300),
    (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"), 0.0, 2 / 200),
    (lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)), 0.0, 1 / 300 / 3),
]


@pytest.mark.parametrize(("fill", "mean", "variance"), VARIANCES)
def test_init_has_the_mean_and_variance_it_says(fill, mean, variance):
    norch.manual_seed(0)
    p = nn.Parameter(norch.empty(SHAPE))
    assert fill(p) is p
    values = p.detach().cpu().numpy()
    assert values.mean() == pytest.approx(mean, abs=5 * math.sqrt(variance / values.size))
    assert values.var() == pytest.approx(variance, rel=0.03)
    assert p.is_leaf
    assert p.requires_grad


def test_init_constants():
    p = nn.Parameter(norch.empty(2, 3))
    assert init.zeros_(p).tolist() == [[0.0] * 3] * 2
    assert init.ones_(p).tolist() == [[1.0] * 3] * 2
    assert init.constant_(p, 0.3)[0, 0].item() == pytest.approx(0.3)
    assert init.eye_(p).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_init_takes_a_generator():
    first = init.normal_(norch.empty(3), generator=norch.Generator().manual_seed(1)).tolist()
    assert init.normal_(norch.empty(3), generator=norch.Generator().manual_seed(1)).tolist() == first


def test_fans_count_the_kernel():
    assert init.kaiming_normal_(norch.empty(64, 8, 5, 5), nonlinearity="relu").cpu().numpy().var() == pytest.approx(
        2 / 200, rel=0.1
    )
    with pytest.raises(norch.ShapeError, match="at least 2 dims"):
        init.xavier_uniform_(norch.empty(3))
    with pytest.raises(norch.ShapeError, match="needs 2 dims"):
        init.eye_(norch.empty(3))
    with pytest.raises(ValueError, match="mode"):
        init.kaiming_uniform_(norch.empty(2, 2), mode="both")


def test_gains():
    assert init.calculate_gain("linear") == init.calculate_gain("conv2d") == 1
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 0.2) == pytest.approx(math.sqrt(2 / 1.04))
    with pytest.raises(ValueError, match="unsupported"):
        init.calculate_gain("maxout")


# --- Constructors from annotated names --------------------------------------------------------------------------------


def test_constructors_say_what_is_wrong():
    for make, message in (
        (lambda: nn.Threshold(1.0), r"Threshold.__init__\(\) missing 1 required positional argument: 'value'"),
        (lambda: nn.Conv2d(3), r"Conv2d.__init__\(\) missing 2 required positional arguments"),
        (lambda: nn.ReLU(True, 1), r"ReLU.__init__\(\) takes from 1 to 2"),
        (lambda: nn.LazyConv2d(), r"Conv2d.__init__\(\) missing 2 required"),
        (lambda: nn.LeakyReLU(slope=1.0), r"LeakyReLU.__init__\(\) got an unexpected keyword argument 'slope'"),
        (lambda: nn.ELU(1.0, alpha=2.0), r"multiple values for (keyword )?argument 'alpha'"),
        (
            lambda: nn.Linear(1, 2, True, None, None, None),
            r"Linear.__init__\(\) takes from 3 to 6 positional arguments",
        ),
        (lambda: nn.GroupNorm(1, 2, 1e-5, True, None, None, False), r"GroupNorm.__init__\(\) takes from 3 to 7"),
    ):
        with pytest.raises(TypeError, match=message):
            make()


def test_the_code_of_constructors_has_their_arguments():
    for kind, names in (
        (nn.Threshold, ("self", "threshold", "value", "inplace")),
        (nn.Softmax, ("self", "dim")),
        (norch.optim.Rprop, ("self", "params", "lr", "etas", "step_sizes")),
    ):
        code = kind.__init__.__code__
        assert code.co_varnames[: code.co_argcount] == names
    assert {"lr", "betas", "fused"} <= set(norch.optim.Adam.__init__.__code__.co_varnames)  # torchtuples looks there
    assert nn.Softmax.__init__.__defaults__ == (None,)
    assert norch.optim.Rprop.__init__.__kwdefaults__["maximize"] is False


def test_layers_can_be_subclassed_and_mixed():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(norch.ones(1))

    class ScaledLinear(nn.Linear, Scaled):
        note: str = "an annotation of a subclass is no option"

        def __init__(self, size, **options):
            super().__init__(size, size, **options)

        def forward(self, input):
            return super().forward(input) * self.scale

    layer = ScaledLinear(3, bias=False)
    assert [name for name, _ in layer.named_parameters()] == ["scale", "weight"]
    assert layer(norch.ones(2, 3)).shape == (2, 3)
    assert repr(layer) == "ScaledLinear(in_features=3, out_features=3, bias=False)"
    assert copy.deepcopy(layer).note == layer.note

    class Leaky(nn.LeakyReLU):
        kind: str = "leaky"

    assert repr(Leaky(0.5)) == "Leaky(negative_slope=0.5)"
    assert Leaky().kind == "leaky"


def test_a_sequence_of_one_counts_for_all_dims_of_a_convolution():
    given = {"stride": [2], "padding": (1,), "dilation": [3]}
    of_one, of_two = nn.Conv2d(2, 3, 3, **given), nn.Conv2d(2, 3, 3, **{name: v[0] for name, v in given.items()})
    assert repr(of_one) == repr(of_two)
    assert of_one(norch.zeros(1, 2, 9, 9)).shape == of_two(norch.zeros(1, 2, 9, 9)).shape
    assert nn.ConvTranspose2d(2, 3, 3, stride=[2], output_padding=(1,)).output_padding == (1, 1)
    with pytest.raises(norch.ShapeError, match="kernel_size must be an int or 2"):
        nn.Conv2d(2, 3, [3])


def test_sizes_are_integers_of_numpy_too():
    size, x = np.int64(4), norch.ones(2, 4)
    for layer in (nn.LayerNorm(size), nn.RMSNorm(size), nn.Linear(size, size), nn.BatchNorm1d(size)):
        assert layer(x).shape == (2, 4)
    assert nn.TransformerEncoderLayer(size, np.int64(2), np.int64(8), batch_first=True)(x[None]).shape == (1, 2, 4)


def test_forward_of_a_convolution_takes_what_has_its_attributes():
    """As programs make functions of modules, whose parameters are given in each call."""
    for layer in (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.ConvTranspose2d(2, 3, 3)):
        scope = types.SimpleNamespace(**{**vars(layer), "weight": layer.weight * 2, "bias": None})
        for name in ("_conv_forward", "_output_padding"):
            if hasattr(layer, name):
                setattr(scope, name, types.MethodType(getattr(type(layer), name), scope))
        x = norch.randn(1, 2, 5, 5)
        expected = 2 * (layer(x) - layer.bias.reshape(-1, 1, 1))
        norch.testing.assert_close(type(layer).forward(scope, x), expected, rtol=1e-4, atol=1e-5)
