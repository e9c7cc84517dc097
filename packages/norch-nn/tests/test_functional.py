"""Functions of norch.nn.functional that no layer shows whole, against values computed here or known."""

import math

import numpy as np
import pytest

import norch
import norch.nn.functional as F
from norch import nn


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def array(tensor):
    return tensor.detach().cpu().numpy()


# --- Activations ----------------------------------------------------------------------------------------------------

IN_PLACE = [
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "silu",
    "mish",
]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_is_the_same_with_its_gradient(name):
    values = norch.tensor(rand(3, 4))
    gradients = []
    for inplace in (False, True):
        leaf = values.clone().requires_grad_()
        x = leaf * 1.5
        y = getattr(F, name)(x, inplace=inplace)
        assert (y is x) == inplace
        (y * y).sum().backward()
        gradients.append(array(leaf.grad))
    np.testing.assert_allclose(*gradients)


def test_names_with_an_underscore_write_in_place():
    for function in (F.relu_, F.leaky_relu_, F.elu_, F.selu_, F.celu_, F.hardtanh_, F.rrelu_):
        x = norch.tensor([-1.0, 2.0])
        expected = getattr(F, function.__name__[:-1])(x.clone())
        assert function(x) is x
        assert x.tolist() == expected.tolist()
    x = norch.tensor([-1.0, 2.0])
    assert F.threshold_(x, 0.5, 7.0) is x
    assert x.tolist() == [7.0, 2.0]


def test_in_place_on_a_leaf_raises():
    with pytest.raises(norch.AutogradError, match="leaf"):
        F.elu(norch.ones(2, requires_grad=True), inplace=True)


def test_rrelu_draws_slopes_in_training():
    x = norch.full((1000,), -1.0)
    slopes = -array(F.rrelu(x, 0.1, 0.3, training=True))
    assert 0.1 <= slopes.min() < 0.12
    assert 0.28 < slopes.max() <= 0.3
    assert slopes.std() > 0.04
    assert F.rrelu(norch.tensor([-1.0, 2.0]), 0.1, 0.3).tolist() == pytest.approx([-0.2, 2.0])
    assert nn.RReLU().eval()(x).tolist() == pytest.approx([-(1 / 8 + 1 / 3) / 2] * 1000)
    with pytest.raises(ValueError, match="lower"):
        F.rrelu(x, 0.3, 0.1)


def test_gumbel_softmax_samples_the_distribution():
    norch.manual_seed(0)
    logits = norch.tensor([0.1, 0.6, 0.3]).log().expand(4000, 3)
    hard = F.gumbel_softmax(logits, hard=True)
    assert set(np.unique(array(hard))) <= {0.0, 1.0}
    np.testing.assert_allclose(array(hard).mean(0), [0.1, 0.6, 0.3], atol=0.03)
    soft = F.gumbel_softmax(norch.zeros(2, 3, requires_grad=True), tau=0.5, dim=0)
    np.testing.assert_allclose(array(soft).sum(0), 1, rtol=1e-6)
    F.gumbel_softmax(leaf := norch.zeros(2, 3, requires_grad=True), hard=True)[0, 0].backward()
    assert leaf.grad is not None


def test_softmax_without_a_dim_warns_and_chooses():
    for shape, dim in (((3,), 0), ((2, 3), 1), ((2, 3, 4), 0), ((2, 3, 1, 1), 1)):
        x = norch.tensor(rand(*shape))
        for name in ("softmax", "log_softmax", "softmin"):
            with pytest.warns(UserWarning, match="dim"):
                found = getattr(F, name)(x)
            assert found.tolist() == getattr(F, name)(x, dim).tolist()


def test_shrinking_keeps_nan_and_infinity():
    x = norch.tensor([math.nan, math.inf, -math.inf])
    for function in (F.hardshrink, F.softshrink):
        assert str(function(x).tolist()) == "[nan, inf, -inf]"
    assert str(F.threshold(x, 0.0, 1.0).tolist()) == "[nan, inf, 1.0]"


# --- Dropout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Dropout1d(0.3), (200, 50, 3)), (nn.Dropout2d(0.3), (200, 50, 2, 2)), (nn.Dropout3d(0.3), (50, 50, 2, 1, 2))],
    ids=repr,
)
def test_dropout_of_channels(layer, shape):
    norch.manual_seed(1)
    out = array(layer(norch.ones(shape))).reshape(shape[0] * shape[1], -1)
    assert (out == out[:, :1]).all()
    np.testing.assert_allclose(np.unique(out), [0, 1 / 0.7], rtol=1e-6)
    assert abs((out[:, 0] == 0).mean() - 0.3) < 0.03
    assert layer.eval()(x := norch.ones(shape)) is x


def test_dropout_of_channels_without_a_batch():
    out = array(F.dropout1d(norch.ones(100, 3)))
    assert (out == out[:, :1]).all()
    with pytest.warns(UserWarning, match="3 dims"):
        assert F.dropout2d(norch.ones(2, 3, 4), 0.0).shape == (2, 3, 4)
    with pytest.warns(UserWarning, match="2 dims"):
        out = F.dropout2d(norch.ones(100, 3), 0.25)
    assert set(out.flatten().tolist()) == {0.0, norch.tensor(1 / 0.75).item()}
    with pytest.warns(UserWarning, match="3 dims"):
        out = array(F.dropout3d(norch.ones(50, 4, 3)))  # without a batch, as PyTorch reads all but 5 dims
    assert (out == out[:, :1, :1]).all()
    assert set(out.flatten()) == {0.0, 2.0}
    with pytest.raises(norch.ShapeError, match="dropout2d"):
        F.dropout2d(norch.ones(2))


def test_dropout_in_place():
    x = norch.ones(100)
    assert F.dropout(x, 0.5, inplace=True) is x
    assert set(x.tolist()) == {0.0, 2.0}
    assert F.dropout2d(y := norch.ones(1, 40, 1, 1), inplace=True) is y
    assert set(y.reshape(-1).tolist()) == {0.0, 2.0}
    assert nn.Dropout(0.5, inplace=True)(z := norch.ones(3)) is z


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)], ids=repr)
def test_alpha_dropout_keeps_mean_and_variance(layer):
    norch.manual_seed(2)
    x = norch.randn(200, 100, 3)
    out = array(layer(x))
    assert abs(out.mean()) < 0.03
    assert abs(out.std() - 1) < 0.03
    # selu's least value, scaled and shifted, is what a fifth of the elements become.
    values, counts = np.unique(np.round(out, 4), return_counts=True)
    assert abs(counts.max() / out.size - 0.2) < 0.02
    q, least = 0.8, -1.7580993408473766
    a = (q + least**2 * q * (1 - q)) ** -0.5
    assert values[counts.argmax()] == pytest.approx(a * least - a * 0.2 * least, abs=1e-3)


def test_alpha_dropout_of_everything_is_zeros():
    assert F.alpha_dropout(norch.ones(3), 1.0, True).tolist() == [0.0] * 3


# --- Windows and sizes ----------------------------------------------------------------------------------------------


def test_unfold_and_fold_are_each_others_gradient():
    x = norch.tensor(rand(1, 2, 4, 5), requires_grad=True)
    columns = F.unfold(x, (2, 3), 1, 1, (1, 2))
    weight = norch.tensor(rand(*columns.shape, seed=1), requires_grad=True)
    (grad,) = norch.autograd.grad((columns * weight).sum(), x, create_graph=True)
    np.testing.assert_allclose(array(grad), array(F.fold(weight, (4, 5), (2, 3), 1, 1, (1, 2))))
    (second,) = norch.autograd.grad(grad.square().sum(), weight)
    np.testing.assert_allclose(array(second), 2 * array(F.unfold(grad, (2, 3), 1, 1, (1, 2))), rtol=1e-12)
    assert F.unfold(x[0], 2).shape == (8, 12)
    assert F.fold(F.unfold(x[0], 2), (4, 5), 2).shape == (2, 4, 5)


def test_unfold_is_the_windows():
    x = rand(1, 2, 4, 4)
    found = array(F.unfold(norch.tensor(x), 2, stride=2)).reshape(2, 2, 2, 2, 2)
    for y in range(2):
        for z in range(2):
            np.testing.assert_array_equal(found[:, :, :, y, z], x[0, :, 2 * y : 2 * y + 2, 2 * z : 2 * z + 2])


@pytest.mark.parametrize("dims", [1, 2])
def test_unpooling_puts_values_back(dims):
    shape = (2, 3, 6, 8)[: dims + 2]
    x = norch.tensor(rand(*shape), requires_grad=True)
    pool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)
    unpool = getattr(nn, f"MaxUnpool{dims}d")(2)
    values, indices = pool(x)
    back = unpool(values, indices)
    assert back.shape == shape
    np.testing.assert_array_equal(array(back), np.where(array(back) != 0, array(x), 0))
    assert (array(back) != 0).sum() == values.numel()
    assert unpool(values, indices, output_size=shape).shape == shape
    with pytest.raises(ValueError, match="output_size"):
        unpool(values, indices, output_size=[n + 9 for n in shape])
    assert repr(unpool).startswith(f"MaxUnpool{dims}d(kernel_size=({'2, 2' if dims == 2 else '2,'}), stride=")


def test_adaptive_max_pool_has_indices():
    x = rand(2, 3, 5, 7)
    values, indices = F.adaptive_max_pool2d(norch.tensor(x), (3, 4), return_indices=True)
    np.testing.assert_array_equal(
        np.take_along_axis(x.reshape(2, 3, 35), array(indices).reshape(2, 3, 12), 2).reshape(2, 3, 3, 4), array(values)
    )
    for i in range(3):
        for j in range(4):
            part = x[:, :, i * 5 // 3 : -(-(i + 1) * 5 // 3), j * 7 // 4 : -(-(j + 1) * 7 // 4)]
            np.testing.assert_array_equal(part.max((2, 3)), array(values)[:, :, i, j])
    assert F.adaptive_max_pool1d(norch.tensor(x[0]), 3).shape == (3, 5, 3)
    assert len(F.adaptive_max_pool1d_with_indices(norch.tensor(x[0]), 7)) == 2


@pytest.mark.parametrize(
    ("dtype", "lambd", "values", "expected", "slopes"),
    [
        (norch.float32, 0.5, [0.5, -0.5, 0.75, -0.75, 0], [0, 0, 0.25, -0.25, 0], [0, 0, 1, 1, 0]),
        (norch.float32, 0.0, [0.0, 1, -1], [0, 1, -1], [0, 1, 1]),
        (norch.bfloat16, 0.1, [0.099609375, 1, -1], [0, 0.8984375, -0.8984375], [0, 1, 1]),
        (norch.float16, 0.3, [0.25, 1, -1], [0, 0.7001953125, -0.7001953125], [0, 1, 1]),
        (norch.float32, 0.5, [math.inf, math.nan], [math.inf, math.nan], [1, 1]),
    ],
)
def test_softshrink(dtype, lambd, values, expected, slopes):
    x = norch.tensor(values, dtype=dtype, requires_grad=True)
    y = F.softshrink(x, lambd)
    y.sum().backward()
    np.testing.assert_array_equal(y.detach().tolist(), expected)
    assert x.grad.tolist() == slopes


def test_pdist():
    x = rand(5, 3)
    for p in (1.0, 2.0, 3.0, math.inf):
        expected = [np.linalg.norm(x[i] - x[j], p) for i in range(5) for j in range(i + 1, 5)]
        np.testing.assert_allclose(array(F.pdist(norch.tensor(x), p)), expected, rtol=1e-12)
        assert F.pdist(norch.zeros(4, 0), p).tolist() == [0] * 6
        assert norch.cdist(norch.zeros(2, 0), norch.zeros(1, 0), p).tolist() == [[0], [0]]


def test_instance_norm_moves_running_statistics():
    x = rand(3, 2, 10)
    mean, var = norch.zeros(2, dtype=norch.float64), norch.ones(2, dtype=norch.float64)
    F.instance_norm(norch.tensor(x), mean, var, momentum=0.2)
    np.testing.assert_allclose(array(mean), 0.2 * x.mean(2).mean(0), rtol=1e-12)
    np.testing.assert_allclose(array(var), 0.8 + 0.2 * x.var(2, ddof=1).mean(0), rtol=1e-12)
    with pytest.raises(ValueError, match="more than 1 value"):
        nn.InstanceNorm1d(2)(norch.ones(3, 2, 1))
    with pytest.raises(ValueError, match="channels"):
        nn.InstanceNorm1d(3, affine=True)(norch.ones(3, 2, 4))


def test_instance_norm_keeps_the_dtype_under_autocast():
    x, weight = norch.tensor(rand(2, 3, 8)).bfloat16(), norch.ones(3)
    with norch.autocast(x.device.type, norch.bfloat16):
        assert F.instance_norm(x, weight=weight, bias=weight).dtype is norch.bfloat16
        assert F.instance_norm(x.float()).dtype is norch.float32


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_of_no_values_leaves_its_averages(momentum):
    layer = nn.BatchNorm1d(2, momentum=momentum)
    assert tuple(layer(norch.zeros(0, 2)).shape) == (0, 2)
    assert layer.running_mean.tolist() == [0.0, 0.0]
    assert layer.running_var.tolist() == [1.0, 1.0]
    assert layer.num_batches_tracked.item() == 1


def test_batch_norm_averages_without_momentum():
    layer = nn.BatchNorm1d(2, momentum=None).double()
    batches = [rand(5, 2, seed=s) for s in range(3)]
    for batch in batches:
        layer(norch.tensor(batch))
    np.testing.assert_allclose(array(layer.running_mean), np.mean([b.mean(0) for b in batches], 0), rtol=1e-12)
    np.testing.assert_allclose(array(layer.running_var), np.mean([b.var(0, ddof=1) for b in batches], 0), rtol=1e-12)
    assert layer.num_batches_tracked.item() == 3
    layer.reset_running_stats()
    assert layer.num_batches_tracked.item() == 0
    assert layer.running_var.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda: nn.BatchNorm2d(2)(norch.ones(2, 2, 2))),
        (ValueError, lambda: nn.BatchNorm1d(2)(norch.ones(2, 2, 2, 2))),
        (norch.ShapeError, lambda: nn.BatchNorm2d(3)(norch.ones(2, 2, 2, 2))),
        (norch.ShapeError, lambda: nn.BatchNorm1d(2)(norch.ones(1, 2))),
        (norch.ShapeError, lambda: nn.LayerNorm(3)(norch.ones(2, 2))),
        (ValueError, lambda: nn.GroupNorm(3, 4)),
        (ValueError, lambda: nn.Conv2d(3, 4, 1, groups=2)),
        (ValueError, lambda: nn.Conv2d(3, 4, 1, padding_mode="mirror")),
        (ValueError, lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same")),
        (ValueError, lambda: nn.Conv2d(3, 4, 3, padding="full")),
        (ValueError, lambda: nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect")),
        (ValueError, lambda: nn.ConvTranspose1d(1, 1, 3, 2)(norch.ones(1, 1, 4), output_size=[20])),
        (norch.ShapeError, lambda: nn.Conv2d(3, 4, (1, 2, 3))),
        (norch.ShapeError, lambda: nn.Conv2d(3, 4, 1)(norch.ones(1, 2, 3, 3))),
        (norch.DTypeError, lambda: nn.Unflatten("features", (1, 2))),
        (ValueError, lambda: nn.Dropout(1.5)),
        (ValueError, lambda: nn.Hardtanh(1, -1)),
        (ValueError, lambda: F.softshrink(norch.ones(1), -1)),
        (ValueError, lambda: nn.Softmax2d()(norch.ones(2, 2))),
        (norch.ShapeError, lambda: nn.ZeroPad2d((1, 2))),
        (norch.ShapeError, lambda: nn.ReflectionPad1d(4)(norch.ones(1, 3))),
        (norch.ShapeError, lambda: nn.Bilinear(2, 3, 4)(norch.ones(5, 2), norch.ones(4, 3))),
        (ValueError, lambda: nn.Bilinear(0, 3, 4)),
        (norch.ShapeError, lambda: nn.PixelShuffle(2)(norch.ones(1, 3, 2, 2))),
        (norch.ShapeError, lambda: F.fold(norch.ones(1, 3, 4), 4, 2)),
        (norch.ShapeError, lambda: F.unfold(norch.ones(1, 1, 2, 2), 3)),
        (norch.ShapeError, lambda: F.local_response_norm(norch.ones(2, 2), 2)),
    ],
)
def test_layers_refuse(error, call):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16, norch.float32], ids=str)
def test_layers_keep_the_dtype(dtype):
    net = nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2), nn.GroupNorm(2, 4)),
        *(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Dropout2d(), nn.AvgPool2d(2), nn.InstanceNorm2d(4)),
        *(nn.Flatten(), nn.Linear(16, 8), nn.LayerNorm(8), nn.RMSNorm(8), nn.PReLU()),
    ).to(dtype)
    out = net(norch.randn(3, 2, 4, 4).to(dtype))
    assert out.dtype is dtype
    out.sum().backward()
    assert {p.grad.dtype for p in net.parameters()} == {dtype}
    assert net[1].num_batches_tracked.dtype is norch.int64


# --- Shapes that PyTorch's own samples have --------------------------------------------------------------------------


def test_pads_that_cut_off_one_end_are_made_of_it_too():
    x = np.arange(8.0).reshape(1, 2, 4)
    for pads, mode in (((-4, 5), "replicate"), ((2, -4), "replicate"), ((-2, 3), "reflect"), ((2, -3), "reflect")):
        before, after = (max(p, 0) for p in pads)
        padded = np.pad(x, [(0, 0), (0, 0), (before, after)], {"replicate": "edge"}.get(mode, mode))
        expected = padded[..., max(-pads[0], 0) : padded.shape[-1] - max(-pads[1], 0)]
        assert F.pad(norch.tensor(x), pads, mode).tolist() == expected.tolist(), (pads, mode)


def test_what_there_is_none_of_is_kept():
    none = norch.zeros(0)
    for training in (True, False):
        assert F.batch_norm(none, norch.zeros(0), norch.ones(0), training=training).shape == (0,)
    x = norch.rand(5)
    assert F.feature_alpha_dropout(x, 0.5, training=False).tolist() == x.tolist()
    assert F.multi_margin_loss(norch.tensor(1.5), norch.tensor(0)).item() == 0
    assert F.multilabel_margin_loss(norch.tensor(1.5), norch.tensor(0)).item() == 0


@pytest.mark.parametrize("masked", [False, True])
def test_attention_in_16_bits_is_float32s_rounded_once(masked):
    """Scores up to 40, where weights of 16 bits would be off by a third."""
    q, k, v = ((8 * rand(2, 3, 4, 8, seed=i)) for i in range(3))
    mask = [rand(4, 4)] if masked else []
    results = []
    for dtype in (norch.bfloat16, norch.float64):
        rounded = [norch.tensor(a).to(norch.bfloat16).to(dtype).requires_grad_() for a in (q, k, v, *mask)]
        out = F.scaled_dot_product_attention(*rounded)
        out.backward(norch.tensor(rand(2, 3, 4, 8, seed=9)).to(norch.bfloat16).to(dtype))
        results.append([array(out.double()), *(array(x.grad.double()) for x in rounded)])
    for found, expected in zip(*results):
        np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.01 * abs(expected).max())


def test_lp_pool_of_signs_and_zeros() -> None:
    x = norch.tensor([[1.0, 2.0, -3.0, 0.0, 0.0]], requires_grad=True)
    cubes = F.lp_pool1d(x, 3, 2, 1)
    assert cubes[0, 0].item() == pytest.approx(9 ** (1 / 3))
    assert [math.isnan(v) for v in cubes[0].tolist()] == [False, True, True, False]  # 8 - 27 has no real root
    squares = F.lp_pool1d(x, 2, 2, 1)
    assert squares[0].tolist() == pytest.approx([5**0.5, 13**0.5, 3.0, 0.0])
    squares[0, 3].backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0] * 5]
    assert F.lp_pool2d(x.detach()[None], math.inf, (1, 2), 1).tolist() == [[[2.0, 3.0, 3.0, 0.0]]]


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_largest_of_an_image(channels_last):
    x = norch.arange(120.0).reshape(2, 3, 4, 5).flip(2)
    x[0, 0, 1, 1] = x[0, 0, 2, 2] = 500.0
    x = x.contiguous(memory_format=norch.channels_last) if channels_last else x
    x.requires_grad_()
    values, at = F.adaptive_max_pool2d(x, 1, return_indices=True)
    assert values.shape == at.shape == (2, 3, 1, 1)
    assert values.flatten().tolist() == [500, 39, 59, 79, 99, 119]
    assert at.flatten().tolist() == [6, 4, 4, 4, 4, 4]
    F.adaptive_max_pool2d(x, 1).sum().backward()
    assert x.grad.nonzero()[:, 2:].tolist() == [[1, 1], *[[0, 4]] * 5]
    assert F.adaptive_max_pool1d(x[0], 1).shape == (3, 4, 1)
    assert F.adaptive_max_pool2d(x[:0], 1).shape == (0, 3, 1, 1)
