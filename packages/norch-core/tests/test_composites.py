"""Each composite's derivative rule against autodiff of its decomposition."""

from __future__ import annotations

import numpy as np
import pytest
from composite_harness import assert_close, check, const, draw, leaf, pair_for

import norch
import norch.ops.elementwise.complex_products
import norch.ops.matrix.complex_matmul
import norch.ops.matrix.dft  # which, as the next, is loaded late
import norch.ops.nn.folding
import norch.ops.nn.margins
import norch.ops.nn.pixels
import norch.ops.nn.recurrence
import norch.ops.nn.resampling
import norch.ops.nn.sampling
import norch.ops.nn.volumes
import norch.special_functions.bessel
from norch import ops
from norch.ops.families import by_name


def windows(kernel, stride=(1, 1), dilation=(1, 1)):
    from norch.ops.nn.windows import Windows

    return Windows(kernel, stride, dilation)


def conv_args():
    return ((2, 1), (1, 0, 1, 1), (1, 2), 2)


def volume_args():
    return ((2, 1, 1), (1, 1, 0, 1, 0, 0), (1, 1, 1), 2)


def quantized(*shape):
    return norch.quantize_weight(norch.tensor(draw(*shape)), "q8_0").weight.numpy()


def near():
    """Each of three elements as a sum of up to three of five."""
    places = np.array([[0, 0, 1], [1, 2, 3], [4, 5, 6]])
    weights = np.array([[0.3, 0.2, 0.5], [-0.1, 0.7, 0.4], [1.0, 0, 0]])
    return norch.ops.nn.resampling.neighbours(places, weights, 5, norch.float64, const(0.0).device)


NEAR = near()
CLASSES = np.array([2, 0, -100])
# Arguments for each composite with a rule: arrays of floats are operands that want a gradient.
SAMPLES = {
    **{
        name: [draw(3, 4, low=-4, high=4)]
        for name in (
            "relu", "silu", "mish", "softsign", "logsigmoid", "hardsigmoid", "hardswish", "sinc",
            "median_of_all", "nanmedian_of_all",
        )
    },
    "leaky_relu": [draw(3, 4), 0.2],
    "elu": [draw(3, 4), 0.7, 1.1, 1.3],
    "hardshrink": [draw(3, 4), 0.7],
    "softshrink": [draw(3, 4), 0.7],
    "hardtanh": [draw(3, 4), -1.5, 0.5],
    "clamp": [draw(3, 4), -1.5, 0.5],
    "axpy": [draw(3, 4), draw(4), -0.7],
    "lerp": [draw(3, 4), draw(4), 0.3, 0.7, True],
    "lerp_by_tensor": [draw(3, 4), draw(4), draw(3, 1)],
    "addcmul": [draw(3, 4), draw(4), draw(3, 1), -0.7],
    "addcdiv": [draw(3, 4), draw(4), draw(3, 1, low=0.2, high=3), -0.7],
    "prelu": [draw(3, 4), draw(4)],
    "xlogy": [draw(3, 4), draw(4, low=0.2, high=3)],
    "xlog1py": [draw(3, 4), draw(4, low=-0.8, high=2)],
    "gated_halves": [draw(3, 4), 1],
    "pairwise_distances": [draw(4, 3), 2.0],
    "logcumsumexp": [draw(3, 4), 1],
    "clamp_between": [draw(3, 4), draw(4), draw(3, 1)],
    "entr": [draw(3, 4, low=0.2, high=3)],
    "rsqrt": [draw(3, 4, low=0.2, high=3)],
    "copysign": [draw(3, 4), np.array([1, -1, 1, -1])],
    "fmod": [draw(3, 4), draw(4, low=0.3, high=0.9)],
    "hypot": [draw(3, 4), draw(4)],
    "logaddexp": [draw(3, 4), draw(4)],
    "logaddexp2": [draw(3, 4), draw(4)],
    "logit": [draw(3, 4, low=-0.1, high=1.1), 0.1],
    "gelu": [draw(3, 4), "tanh"],
    "softplus": [draw(3, 4), 2.0, 1.3],
    "softmax": [draw(3, 4), 0],
    "log_softmax": [draw(3, 4), 1],
    "linear": [draw(2, 3, 4), draw(5, 4), draw(5)],
    "quantized_linear": [draw(2, 3, 32), quantized(5, 32), None, draw(5)],
    "linear_activation": [draw(2, 3, 4), draw(5, 4), draw(5), "tanh"],
    "embedding": [np.array([0, 2, 2]), draw(3, 2), None],
    "embedding_sum": [np.array([0, 2, 1, 2, 1, 0]), draw(3, 2), np.array([1, 1, 3, 5]), 2],
    "embedding_weighted_sum": [np.array([0, 2, 1, 2, 1, 0]), draw(3, 2), draw(6), np.array([1, 1, 3, 5]), 2],
    "embedding_grad": [draw(3, 2), np.array([0, 2, 2]), 4, 2],
    "dropout": [draw(3, 4), 0.5, 11, 12],
    "mse_loss": [*pair_for(2, 3), "mean"],
    "l1_loss": [*pair_for(2, 3), "none"],
    "huber_loss": [*pair_for(2, 3), "sum", 0.3],
    "smooth_l1_loss": [*pair_for(2, 3), "mean", 0.3],
    "binary_cross_entropy": [*pair_for(2, 3)],
    "binary_cross_entropy_with_logits": [*pair_for(2, 3), draw(3, low=1.1, high=1.9)],
    "kl_div": [*pair_for(2, 3), False],
    "nll_loss": [draw(3, 4), CLASSES, None, -100, "mean"],
    "cross_entropy": [draw(3, 4), CLASSES, -100, "mean"],
    "cross_entropy_rows": [draw(3, 4), CLASSES, -100, "mean", True],
    "layer_norm": [draw(3, 4), (4,), draw(4), draw(4), 1e-5],
    "rms_norm": [draw(3, 4), (4,), draw(4), 1e-5],
    "group_norm": [draw(2, 4, 3), 2, draw(4), draw(4), 1e-5],
    "batch_norm": [draw(3, 4, 2), draw(4), draw(4), 1e-5],
    "batch_norm_running": [draw(3, 4, 2), draw(4), draw(4, low=0.5), draw(4), draw(4), 1e-5],
    "conv2d": [draw(2, 4, 5, 6), draw(2, 2, 2, 3), draw(2), *conv_args()],
    "conv2d_input_grad": [draw(2, 2, 3, 4), draw(2, 2, 2, 3), (2, 4, 5, 6), *conv_args()],
    "conv2d_weight_grad": [draw(2, 2, 3, 4), draw(2, 4, 5, 6), (2, 2, 2, 3), *conv_args()],
    "conv3d": [draw(2, 4, 4, 3, 4), draw(2, 2, 2, 2, 3), draw(2), *volume_args()],
    "conv3d_input_grad": [draw(2, 2, 3, 3, 2), draw(2, 2, 2, 2, 3), (2, 4, 4, 3, 4), *volume_args()],
    "conv3d_weight_grad": [draw(2, 2, 3, 3, 2), draw(2, 4, 4, 3, 4), (2, 2, 2, 2, 3), *volume_args()],
    "max_pool2d": [draw(1, 2, 5, 6), windows((3, 2), (2, 1)), (1, 1, 0, 1)],
    "max_pool2d_grad": [
        draw(1, 2, 3, 6), np.arange(60).reshape(1, 2, 5, 6) * 7 % 61, windows((3, 2), (2, 1)), (1, 1, 0, 1)
    ],
    "sum_pool2d": [draw(1, 2, 5, 6), windows((3, 2), (2, 1)), (1, 1, 0, 1)],
    "sum_pool2d_grad": [draw(1, 2, 3, 6), (1, 2, 5, 6), windows((3, 2), (2, 1)), (1, 1, 0, 1)],
    "grid_sample2d": [draw(2, 3, 4, 5), draw(2, 3, 2, 2), "bilinear", "reflection", False],
    "grid_sample2d_input_grad": [draw(2, 3, 3, 2), draw(2, 3, 2, 2), (2, 3, 4, 5), "bilinear", "reflection", False],
    "grid_sample2d_bicubic": [draw(2, 3, 4, 5), draw(2, 3, 2, 2), "bicubic", "reflection", False],
    "grid_sample2d_bicubic_input_grad": [
        draw(2, 3, 3, 2), draw(2, 3, 2, 2), (2, 3, 4, 5), "bicubic", "reflection", False
    ],
    "grid_sample3d": [draw(2, 3, 4, 2, 5), draw(2, 3, 1, 2, 3), "bilinear", "reflection", False],
    "grid_sample3d_input_grad": [
        draw(2, 3, 3, 1, 2), draw(2, 3, 1, 2, 3), (2, 3, 4, 2, 5), "bilinear", "reflection", False
    ],
    "distances": [draw(2, 3, 4), draw(2, 5, 4), 2.0],
    "resample": [draw(2, 5, 3), 1, *NEAR],
    "complex_mul": [draw(3, 4, 2), draw(4, 2), True],
    "complex_abs": [draw(3, 4, 2)],
    "complex_matmul": [draw(2, 3, 4, 2), draw(2, 5, 4, 2), False, True],
    "dft": [draw(3, 1, 7), draw(7), 8, -1, 2, 5, 0.5, False],
    "dft2": [draw(2, 3, 2, 5), (4, 8), 1, 1, (4, 8), 0.5, 0.25, True, False],
    "pad_edges": [draw(2, 3, 4), (0, 2, 1), (1, 1, 3), "reflect"],
    "pad_edges_grad": [draw(2, 6, 8), (0, 2, 1), (0, 1, 3), "replicate"],
    "flip": [draw(3, 4), (0, 1)],
    "triangle": [draw(3, 4), 1, True],
    "topk": [draw(3, 4), 2, 1, True],
    "select_along": [draw(3, 5), 1, "median", 0, False],
    "sum_of_squares": [draw(3, 4), 1, True],
    "im2col": [draw(2, 3, 5, 6), (3, 2), (1, 2), (1, 0), (2, 1)],
    "col2im": [draw(2, 18, 12), (5, 6), (3, 2), (1, 2), (1, 0), (2, 1)],
    "sum_windows": [draw(2, 3, 2, 4), 1, 2, 9],
    "variance": [draw(3, 4), 1, True, 3.0],
    "cross_product": [draw(5, 3), draw(5, 3), -1],
    "cumsum_back": [draw(3, 6), 1],
    "cumprod": [draw(3, 6), 1],
    "cummax": [draw(3, 4), 1],
    "cummin": [draw(3, 4), 0],
    "pixel_shuffle": [draw(2, 8, 3, 2), 2],
    "running_extreme_grad": [draw(2, 4), np.array([[0, 0, 2, 2], [0, 1, 2, 3]]), 1],
    "multi_margin_rows": [draw(3, 4), np.array([1, 3, 0]), 1, 0.5],
    "multi_margin_rows_grad": [draw(3), draw(3, 4), np.array([1, 3, 0]), 2, 0.5],
    "pixel_unshuffle": [draw(2, 2, 6, 4), 2],
    "erfc": [draw(3, 4)],
    **{name: [draw(3, 4)] for name in ("i0", "i0e", "i1", "i1e")},
    "exp2": [draw(3, 4)],
    "frac": [draw(3, 4)],
    "nan_to_num": [draw(3, 4), 0.5, 2.0, -2.0],
    "threshold": [draw(3, 4), 0.1, 0.2],
    "trigamma": [draw(3, 4, low=0.6, high=12)],
    "lgamma": [draw(3, 4, low=0.6, high=30)],
    "digamma": [draw(3, 4, low=0.6, high=12)],
    "erfinv": [draw(3, 4, low=-0.9, high=0.85)],
    "functional_scatter_extreme": [draw(3, 4), draw(2, 4), np.array([[0, 2, 0, 1], [0, 1, 1, 1]]), 0, "amax", True],
    "scaled_dot_product_attention": [draw(2, 3, 4), draw(2, 5, 4), draw(2, 5, 2), draw(3, 5), False, 0.5],
    "scaled_dot_product_attention_sums": [draw(2, 3, 4), draw(2, 5, 4), draw(2, 5, 2), None, False, 0.5],
    "recurrence": [
        draw(3, 2, 3), draw(2, 2), draw(2, 2), draw(8, 3), draw(8, 2), draw(8), draw(8), None, None, "LSTM", False, True
    ],
}  # fmt: skip
# Written in place on detached memory, or constant: there is no autodiff of their decomposition.
OPAQUE = {
    "nextafter",
    "flat_index",
    "functional_scatter",
    "functional_scatter_add",
    "chosen_grad",
    "gather_grad",
    "deform_columns",  # these have files of their own
    "roi_align",
    "roi_align_grad",
    "embedding_grad",
    "trunc_divide",
    "count_nonzero",
}
RULED = sorted(n for n, op in by_name().items() if op.kind == "composite" and op.rules is not None)


def first(result):
    return result[0] if isinstance(result, tuple) else result


def test_every_composite_with_a_rule_has_a_sample():
    assert set(RULED) - set(SAMPLES) <= OPAQUE


@pytest.mark.parametrize("name", [n for n in RULED if n not in OPAQUE])
@pytest.mark.parametrize("layout", ["plain", "transposed"])
def test_rule_agrees_with_autodiff_of_the_decomposition(name, layout):
    from norch.dispatch.call import run

    op = by_name()[name]
    leaves, made = [], []
    for value in SAMPLES[name]:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            if layout == "transposed" and value.ndim > 1:
                leaves.append(leaf(np.ascontiguousarray(value.swapaxes(0, -1))))
                made.append(lambda x=leaves[-1]: x.transpose(0, -1))
            else:
                leaves.append(leaf(value))
                made.append(lambda x=leaves[-1]: x)
        else:
            made.append(lambda v=value: const(v) if isinstance(v, np.ndarray) else v)

    def gradients(call):
        y = first(call(*[m() for m in made]))
        seed = const(np.random.default_rng(1).uniform(-1, 1, tuple(y.shape))).requires_grad_()
        found = norch.autograd.grad(y, leaves, seed, create_graph=True)
        total = sum((g * g).sum() for g in found)
        return y, found, norch.autograd.grad(total, [*leaves, seed], materialize_grads=True, allow_unused=True)

    y, ruled, ruled_twice = gradients(lambda *args: run(op, *args))
    z, parts, parts_twice = gradients(op.decompose)
    assert y.spec.shape == z.spec.shape
    assert y.spec.dtype is z.spec.dtype
    for got, expected in zip((y, *ruled, *ruled_twice), (z, *parts, *parts_twice), strict=True):
        assert_close(got, expected.detach().numpy(), 1e-9)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_composite_runs_with_gradients_off(name):
    from norch.dispatch.call import run

    args = [const(v) if isinstance(v, np.ndarray) else v for v in SAMPLES[name]]
    result = run(by_name()[name], *args)
    for out in result if isinstance(result, tuple) else (result,):
        assert out.grad_fn is None
        assert out.base is None


NAN_IN = np.array([[0.3, np.nan, 1.7], [np.nan, -0.4, 0.9]])
OF_ONE_OPERAND = {
    "quantile": (lambda x: norch.quantile(x, const([0.1, 0.65]), dim=1), draw(3, 4)),
    "quantile nearest": (lambda x: norch.quantile(x, 0.3, interpolation="nearest"), draw(3, 4)),
    "nanquantile": (lambda x: norch.nanquantile(norch.cat([x, const(NAN_IN)], 1), 0.4, 1), draw(2, 3)),
    "mode": (lambda x: norch.mode(norch.cat([x, x[:, :1]], 1), 1)[0], draw(3, 4)),
    "vander": (lambda x: norch.vander(x, 4), draw(3)),
    "view_as": (lambda x: x.view_as(norch.zeros(4, 3)) ** 2, draw(3, 4)),
    "reshape_as": (lambda x: x.t().reshape_as(norch.zeros(2, 6)) ** 2, draw(3, 4)),
    "expand_as": (lambda x: x.expand_as(norch.zeros(2, 3, 4)) ** 2, draw(3, 1)),
    "batch_norm": (lambda x: norch.batch_norm(x, None, None, training=True), draw(3, 4)),
    "nansum": (lambda x: norch.cat([x, const(NAN_IN)], 1).nansum(1) ** 2, draw(2, 3)),
    "nanmean": (lambda x: norch.cat([x, const(NAN_IN)], 1).nanmean(0) ** 2, draw(2, 3)),
    "nanmedian": (lambda x: norch.cat([x, const(NAN_IN)], 1).nanmedian(1)[0] ** 2, draw(2, 3)),
}


@pytest.mark.parametrize("name", OF_ONE_OPERAND)
def test_gradients_that_the_sample_records_leave_out(name):
    function, values = OF_ONE_OPERAND[name]
    check(function, values)


def test_ops_are_reachable_by_their_torch_names():
    for name in ("relu", "cross_entropy", "conv2d", "scaled_dot_product_attention", "layer_norm", "embedding"):
        assert getattr(norch, name) is getattr(ops, name)
