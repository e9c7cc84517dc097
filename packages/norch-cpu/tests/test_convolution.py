"""conv2d, its gradients and its transpose, tap by tap in NumPy and in the decomposition."""

import math

import ml_dtypes
import numpy as np
import pytest
from convolution_harness import close, conv2d, draw, gradients, tensor

import norch
from norch.autograd import grad
from norch.testing.gradcheck import gradcheck, gradgradcheck
from norch_cpu.native import native

ONE, NONE = (1, 1), (0, 0, 0, 0)
AROUND = (1, 1, 1, 1)
# input, weight, stride, pads, dilation, groups
CASES = {
    "patches": ((3, 3, 16, 20), (24, 3, 4, 4), (4, 4), NONE, ONE, 1),
    "patches apart, dilated": ((2, 5, 23, 19), (10, 5, 2, 3), (4, 5), (1, 0, 2, 1), (3, 2), 1),
    "first layer": ((3, 1, 28, 28), (32, 1, 3, 3), ONE, AROUND, ONE, 1),
    "second layer": ((5, 32, 14, 14), (64, 32, 3, 3), ONE, AROUND, ONE, 1),
    "more channels than a panel": ((1, 70, 4, 5), (130, 70, 2, 2), ONE, NONE, ONE, 1),
    "few windows": ((2, 3, 3, 4), (5, 3, 2, 3), ONE, NONE, ONE, 1),
    "few windows of many numbers": ((1, 33, 4, 9), (70, 33, 3, 2), (2, 3), (1, 1, 0, 2), (1, 2), 1),
    "few windows along a line": ((1, 1, 1, 700), (37, 1, 1, 256), (1, 100), (0, 0, 3, 5), ONE, 1),
    "few windows of a large weight": ((2, 130, 3, 4), (260, 130, 3, 3), ONE, AROUND, ONE, 1),
    "few windows of a large weight, strided": ((3, 70, 7, 5), (270, 70, 4, 4), (2, 3), AROUND, ONE, 1),
    "few strided windows": ((2, 30, 5, 9), (20, 30, 3, 2), (2, 3), AROUND, (1, 2), 1),
    "few pointwise windows": ((2, 300, 2, 3), (900, 300, 1, 1), ONE, NONE, ONE, 1),
    "few pixels an image, pointwise": ((5, 70, 3, 2), (65, 70, 1, 1), ONE, NONE, ONE, 1),
    "few pixels an image, strided and padded": ((3, 70, 4, 5), (65, 70, 1, 1), (2, 2), AROUND, ONE, 1),
    "depthwise, small images": ((3, 80, 4, 5), (80, 1, 3, 3), ONE, AROUND, ONE, 80),
    "depthwise, small images, large taps": ((2, 48, 7, 7), (48, 1, 7, 5), ONE, (3, 3, 2, 2), ONE, 48),
    "depthwise, small images, unevenly padded": ((2, 48, 3, 6), (48, 1, 2, 3), ONE, (0, 0, 4, 4), (1, 2), 48),
    "strided": ((2, 4, 17, 19), (6, 4, 3, 3), (2, 3), (1, 1, 2, 2), ONE, 1),
    "stride larger than kernel": ((2, 2, 11, 12), (4, 2, 2, 1), (3, 4), NONE, ONE, 1),
    "dilated": ((2, 3, 14, 15), (5, 3, 3, 2), ONE, (2, 2, 3, 3), (2, 5), 1),
    "strided and dilated": ((2, 3, 20, 21), (4, 3, 3, 3), (2, 3), (1, 1, 1, 1), (3, 2), 1),
    "stride and dilation with a common factor": ((1, 2, 12, 13), (3, 2, 2, 3), (2, 2), NONE, (2, 4), 1),
    "few channels, strided and dilated": ((2, 3, 20, 21), (10, 3, 3, 3), (2, 3), (1, 1, 2, 2), (3, 2), 1),
    "few channels a group, long rows": ((2, 4, 3, 700), (34, 2, 2, 5), (1, 3), (1, 1, 2, 2), (1, 2), 2),
    "few channels, steps over elements": ((1, 2, 7, 5000), (8, 2, 2, 3), (3, 5), (0, 0, 2, 2), ONE, 1),
    "a signal": ((3, 1, 1, 9001), (24, 1, 1, 16), (1, 8), NONE, ONE, 1),
    "groups": ((3, 6, 9, 9), (9, 2, 3, 3), ONE, AROUND, ONE, 3),
    "groups of a vector": ((2, 36, 9, 17), (34, 18, 3, 3), ONE, AROUND, ONE, 2),
    "groups of a vector, rows apart": ((1, 32, 30, 23), (48, 16, 2, 3), (2, 1), (1, 1, 3, 3), (3, 1), 2),
    "depthwise": ((2, 20, 10, 11), (20, 1, 3, 3), ONE, AROUND, ONE, 20),
    "depthwise, several each": ((2, 3, 10, 11), (12, 1, 2, 2), (2, 1), NONE, ONE, 3),
    "depthwise, strided": ((2, 18, 15, 37), (18, 1, 5, 3), (2, 3), (2, 2, 1, 1), ONE, 18),
    "depthwise, dilated": ((1, 70, 23, 24), (70, 1, 3, 3), (1, 2), (2, 2, 3, 3), (2, 3), 70),
    "depthwise, few channels": ((2, 3, 6, 40), (3, 1, 3, 5), ONE, (1, 1, 2, 2), ONE, 3),
    "depthwise, few channels, dilated": ((2, 2, 9, 31), (2, 1, 2, 3), (2, 1), (1, 1, 3, 3), (2, 3), 2),
    "depthwise, padded by more than its taps": ((2, 16, 6, 5), (16, 1, 2, 3), (2, 1), (3, 3, 4, 4), ONE, 16),
    "depthwise, rows of many places": ((2, 20, 9, 37), (20, 1, 7, 7), ONE, (3, 3, 3, 3), ONE, 20),
    "depthwise, strips of rows": ((1, 40, 70, 45), (40, 1, 7, 5), ONE, (9, 9, 5, 5), ONE, 40),
    "depthwise, every second place": ((2, 33, 21, 50), (33, 1, 5, 5), (1, 2), (2, 2, 2, 2), ONE, 33),
    "depthwise, every second place of three taps": ((1, 24, 30, 41), (24, 1, 2, 3), (3, 2), (0, 0, 1, 1), ONE, 24),
    "few channels a group": ((2, 24, 9, 30), (36, 4, 3, 3), (2, 1), AROUND, ONE, 6),
    "few channels": ((3, 3, 21, 37), (22, 3, 3, 3), ONE, AROUND, ONE, 1),
    "few results": ((2, 40, 18, 19), (3, 40, 3, 5), ONE, (1, 1, 2, 2), ONE, 1),
    "few results, strided and dilated": ((2, 20, 41, 42), (5, 20, 3, 3), (1, 2), (1, 1, 2, 2), (2, 1), 1),
    "few results, tiles of rows": ((1, 70, 64, 45), (2, 70, 3, 3), (2, 1), (4, 4, 0, 0), ONE, 1),
    "pointwise": ((4, 20, 7, 7), (33, 20, 1, 1), ONE, NONE, ONE, 1),
    "strided pointwise": ((2, 3, 8, 9), (4, 3, 1, 1), (2, 2), NONE, ONE, 1),
    "pointwise with padding": ((1, 2, 3, 3), (4, 2, 1, 1), ONE, AROUND, ONE, 1),
    "many tiles": ((15, 33, 13, 14), (61, 33, 3, 3), ONE, AROUND, ONE, 1),
    "many tiles, unevenly padded": ((2, 30, 18, 11), (30, 30, 3, 3), ONE, (0, 0, 2, 2), ONE, 1),
    "many tiles, more padding than taps": ((2, 30, 16, 16), (64, 30, 3, 3), ONE, (3, 3, 4, 4), ONE, 1),
    "many small images": ((40, 27, 4, 4), (32, 27, 3, 3), ONE, AROUND, ONE, 1),
    "tiles of many channels": ((7, 140, 8, 8), (60, 140, 3, 3), ONE, AROUND, ONE, 1),
    "as large as the input": ((3, 4, 6, 7), (5, 4, 6, 7), ONE, NONE, ONE, 1),
    "wider than the input": ((1, 2, 3, 2), (3, 2, 5, 6), ONE, (2, 2, 2, 2), ONE, 1),
    "one row": ((2, 3, 1, 5000), (4, 3, 1, 5), (1, 2), (0, 0, 2, 2), ONE, 1),
    "tall": ((1, 2, 700, 9), (3, 2, 3, 3), ONE, AROUND, ONE, 1),
    "one sample": ((1, 8, 40, 40), (16, 8, 3, 3), ONE, AROUND, ONE, 1),
    "no samples": ((0, 3, 5, 5), (4, 3, 3, 3), ONE, AROUND, ONE, 1),
    "no channels in": ((2, 0, 4, 4), (3, 0, 2, 2), ONE, NONE, ONE, 1),
    "no channels out": ((2, 3, 4, 4), (0, 3, 2, 2), ONE, NONE, ONE, 1),
}


def arrays(name):
    x_shape, w_shape, *how = CASES[name]
    return draw(*x_shape, seed=1), draw(*w_shape, seed=2), draw(w_shape[0], seed=3), how


def call(x, w, b, how):
    stride, pads, dilation, groups = how
    return norch.conv2d(x, w, b, stride, (pads[0], pads[2]), dilation, groups)


def check(name, dtype):
    x, w, b, how = arrays(name)
    leaves = [tensor(v, dtype, requires_grad=True) for v in (x, w, b)]
    y = call(*leaves, how)
    close(y, conv2d(x, w, b, *how), dtype)
    g = draw(*y.shape, seed=4)
    for got, expected in zip(grad(y, leaves, tensor(g, dtype)), gradients(g, x, w, *how), strict=True):
        close(got, expected, dtype)


def test_is_native():
    assert {"conv2d", "conv2d_input_grad", "conv2d_weight_grad"} <= set(native.ops())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_against_taps(name, dtype):
    check(name, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "name",
    [
        *("second layer", "strided", "groups", "depthwise", "depthwise, strided", "pointwise", "no channels in"),
        *("few channels, strided and dilated", "depthwise, few channels", "depthwise, small images, large taps"),
        *("depthwise, strips of rows", "depthwise, every second place", "groups of a vector, rows apart"),
    ],
)
def test_halves_are_summed_in_float32(name, dtype):
    x, w, b, how = arrays(name)
    y = call(*[tensor(v, dtype) for v in (x, w, b)], how)
    # All numbers here are small multiples of 1/16: float32 sums are exact, and the result is rounded once.
    exact = conv2d(x, w, b, *how)
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.double().numpy(), exact.astype(kind).astype(np.float64))
    check(name, dtype)


def test_random_shapes():
    rng = np.random.default_rng(5)
    for _ in range(60):
        groups, c, o = (int(rng.integers(1, m)) for m in (4, 6, 24))
        stride, dilation = (tuple(int(v) for v in rng.integers(1, 4, 2)) for _ in range(2))
        kernel = tuple(int(v) for v in rng.integers(1, 5, 2))
        pad = tuple(int(v) for v in rng.integers(0, 4, 2))
        size = [max(int(rng.integers(1, 20)), d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, pad)]
        how = (stride, (pad[0], pad[0], pad[1], pad[1]), dilation, groups)
        CASES["random"] = ((int(rng.integers(1, 4)), groups * c, *size), (groups * o, c, *kernel), *how)
        check("random", "float64")


def layouts(array, dtype):
    """The same values in other memory: channels last, transposed planes, offset, stepped over, broadcast."""
    x = tensor(array, dtype)
    yield x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    yield x.transpose(2, 3).contiguous().transpose(2, 3)
    yield norch.cat([x, x])[x.shape[0] :]
    yield norch.stack([x, x + 1], -1)[..., 0]
    yield norch.cat([x[..., :1], x, x], -1)[..., 1 : x.shape[3] + 1]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "name",
    [
        *("second layer", "strided", "groups", "depthwise, strided", "pointwise", "many tiles", "many small images"),
        *("few windows of a large weight, strided", "few strided windows", "few pointwise windows"),
        *("groups of a vector", "groups of a vector, rows apart", "first layer", "few channels"),
        *("depthwise, few channels", "depthwise, few channels, dilated", "depthwise, rows of many places"),
        *("depthwise, strips of rows", "depthwise, every second place", "depthwise, every second place of three taps"),
    ],
)
def test_layouts(name, dtype):
    x, w, b, how = arrays(name)
    plain = call(*[tensor(v, dtype) for v in (x, w, b)], how)
    g = draw(*plain.shape, seed=4)
    _, *leaves = [tensor(v, dtype, requires_grad=True) for v in (x, w, b)]
    whole = tensor(x, dtype, requires_grad=True)
    expected = grad(call(whole, *leaves, how), [whole, *leaves], tensor(g, dtype))
    for vx, vw, vg in zip(layouts(x, dtype), layouts(w, dtype), layouts(g, dtype)):
        vx, vw = vx.detach().requires_grad_(), vw.detach().requires_grad_()
        y = call(vx, vw, leaves[1], how)
        for got, want in zip([y, *grad(y, [vx, vw, leaves[1]], vg)], [plain, *expected]):
            np.testing.assert_array_equal(got.detach().numpy(), want.numpy())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["second layer", "more channels than a panel", "few windows of a large weight", "strided", "groups"]
)
def test_gradients_of_a_channels_last_weight(name, dtype):
    x, w, b, how = arrays(name)
    first, weight, bias = (tensor(v, dtype) for v in (x, w, b))
    g = tensor(draw(*call(first, weight, bias, how).shape, seed=4), dtype)
    expected = weight.clone().requires_grad_()
    grads = grad(call(first, expected, bias, how), [expected], g)
    last = weight.contiguous(memory_format=norch.channels_last).requires_grad_()
    y = call(first.contiguous(memory_format=norch.channels_last), last, bias, how)
    (found,) = grad(y, [last], g.contiguous(memory_format=norch.channels_last))
    bound = 2.0**-7 if dtype == "bfloat16" else 1e-4
    np.testing.assert_allclose(
        found.double().numpy(), grads[0].double().numpy(), bound, bound * float(grads[0].abs().max())
    )


def test_broadcast_operands():
    x, w = draw(1, 3, 1, 6), draw(1, 3, 2, 2)
    wide_x, wide_w = np.broadcast_to(x, (4, 3, 5, 6)), np.broadcast_to(w, (7, 3, 2, 2))
    y = norch.conv2d(tensor(x).expand(4, 3, 5, 6), tensor(w).expand(7, 3, 2, 2), tensor([2.0]).expand(7))
    close(y, conv2d(wide_x, wide_w, np.full(7, 2.0), ONE, NONE, ONE, 1))
    leaf = tensor(w, requires_grad=True)
    norch.conv2d(tensor(wide_x), leaf.expand(7, 3, 2, 2)).sum().backward()  # the gradient is one number, broadcast
    ones = np.ones((4, 7, 4, 5))
    close(leaf.grad, gradients(ones, wide_x, wide_w, ONE, NONE, ONE, 1)[1].sum(0, keepdims=True))


def test_same_padding_puts_the_odd_element_behind():
    x, w, b = draw(2, 3, 6, 7), draw(4, 3, 4, 2), draw(4)
    y = norch.conv2d(tensor(x), tensor(w), tensor(b), padding="same", dilation=(1, 3))
    close(y, conv2d(x, w, b, ONE, (1, 2, 1, 2), (1, 3), 1))


@pytest.mark.parametrize("name", ["second layer", "strided", "dilated", "strided and dilated", "groups", "few windows"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_transposed(name, dtype):
    x, w, _, (stride, pads, dilation, groups) = arrays(name)
    counts = conv2d(x[:1], w, np.zeros(len(w)), stride, pads, dilation, groups).shape[2:]
    g = draw(x.shape[0], w.shape[0], *counts, seed=6)
    reaches = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilation)]
    spare = [
        n - ((m - 1) * s - p - q + r)
        for n, m, s, p, q, r in zip(x.shape[2:], counts, stride, pads[::2], pads[1::2], reaches)
    ]
    b = draw(x.shape[1], seed=7)
    how = {"stride": stride, "padding": (pads[0], pads[2]), "dilation": dilation, "groups": groups}
    got = norch.conv_transpose2d(tensor(g, dtype), tensor(w, dtype), tensor(b, dtype), output_padding=spare, **how)
    expected = gradients(g, x, w, stride, pads, dilation, groups)[0] + b[:, None, None]
    close(got, expected, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("last", [False, True], ids=["planes", "channels last"])
@pytest.mark.parametrize("spare", [(1, 0), (0, 1), (1, 1)], ids=str)
def test_transposed_with_one_tap_and_more_places_than_it_reaches(spare, last, dtype):
    size, w = (3, 4), draw(4, 2, 1, 1)
    g, x = draw(2, 4, *size, seed=6), np.zeros((2, 2, size[0] + spare[0], size[1] + spare[1]))
    wanted = gradients(np.pad(g, ((0, 0), (0, 0), (0, spare[0]), (0, spare[1]))), x, w, ONE, NONE, (2, 2), 1)[0]
    given, weight = tensor(g, dtype, requires_grad=True), tensor(w, dtype, requires_grad=True)
    lying = given.contiguous(memory_format=norch.channels_last) if last else given
    y = norch.conv_transpose2d(lying, weight, output_padding=spare, dilation=2)
    close(y, wanted, dtype)
    up = draw(*y.shape, seed=8)
    (y * tensor(up, dtype)).sum().backward()
    inner = up[:, :, : size[0], : size[1]]
    close(given.grad, conv2d(inner, w, np.zeros(4), ONE, NONE, ONE, 1), dtype)
    close(weight.grad, gradients(g, inner, w, ONE, NONE, ONE, 1)[1], dtype)


@pytest.mark.parametrize("name", ["strided", "dilated", "groups", "pointwise"])
def test_like_the_decomposition(name):
    from norch.testing.strict import strict_device

    device = strict_device()
    x, w, b, how = arrays(name)
    leaves = [tensor(v, "float32", requires_grad=True) for v in (x, w, b)]
    others = [v.detach().to(device).requires_grad_() for v in leaves]
    y, z = call(*leaves, how), call(*others, how)
    close(y, z.detach().to("cpu").double().numpy(), "float32")
    g = tensor(draw(*y.shape, seed=8), "float32")
    for got, expected in zip(grad(y, leaves, g), grad(z, others, g.to(device))):
        close(got, expected.to("cpu").double().numpy(), "float32")


@pytest.mark.parametrize("how", [((2, 1), (1, 0), (1, 2), 2), (ONE, ONE, ONE, 1)])
def test_derivatives(how):
    stride, padding, dilation, groups = how

    def function(x, w, b):
        return norch.conv2d(x, w, b, stride, padding, dilation, groups)

    leaves = [tensor(draw(*s), requires_grad=True) for s in ((2, 2, 4, 5), (2, 2 // groups, 2, 2), (2,))]
    assert gradcheck(function, leaves)
    assert gradgradcheck(function, leaves, fast_mode=True)


def uneven(*arrays):
    """Numbers whose sums round: another order of summation would be seen."""
    return [v + np.random.default_rng(9).random(v.shape) for v in arrays]


@pytest.mark.parametrize(
    "name",
    [
        *("second layer", "one row", "tall", "one sample", "strided", "depthwise", "pointwise"),
        *("many tiles", "many small images", "few windows of a large weight", "few strided windows"),
    ],
)
def test_results_do_not_depend_on_the_number_of_threads(name):
    x, w, b, how = arrays(name)
    values = uneven(x, w, b)
    before, found = norch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            norch.set_num_threads(threads)
            leaves = [tensor(v, "float32", requires_grad=True) for v in values]
            y = call(*leaves, how)
            found.append([y.tolist()] + [v.tolist() for v in grad((y * y).sum(), leaves)[:2]])
    finally:
        norch.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_what_was_in_scratch_memory_does_not_matter():
    x, w, b, how = arrays("many tiles")
    values, found = uneven(x, w, b), []
    for _ in range(2):
        leaves = [tensor(v, "float32", requires_grad=True) for v in values]
        loss = (call(*leaves, how) ** 2).sum()
        found.append([v.numpy().tobytes() for v in grad(loss, leaves)])
        for nbytes in range(1 << 12, 1 << 18, 1 << 12):
            norch.full((nbytes // 4,), math.nan)
    assert found[0] == found[1]


def test_one_dim():
    x, w, b = draw(3, 4, 50), draw(6, 2, 5), draw(6)
    y = norch.conv1d(*[tensor(v, "float32") for v in (x, w, b)], stride=2, padding=2, groups=2)
    close(y, conv2d(x[:, :, None], w[:, :, None], b, (1, 2), (0, 0, 2, 2), ONE, 2)[:, :, 0], "float32")


def test_long_sums_are_made_of_short_ones():
    rng = np.random.default_rng(0)
    x, w = rng.random((2, 512, 4, 4)), rng.random((16, 512, 3, 3))

    def found(dtype):
        leaves = [tensor(v.astype(np.float32), dtype).requires_grad_() for v in (x, w)]
        out = norch.conv2d(*leaves, padding=1)
        out.backward(norch.ones_like(out))
        return [t.double().numpy() for t in (out.detach(), *[leaf.grad for leaf in leaves])]

    for got, want in zip(found("float32"), found("float64"), strict=True):
        np.testing.assert_allclose(got, want, 1.2e-6)


def test_tiles_of_large_numbers_do_not_overflow_where_windows_do_not():
    x, w = np.full((3, 30, 14, 14), 3e38), np.zeros((32, 30, 3, 3))
    x[..., 1::2] *= -1
    w[:, 0, 1, 1] = 1
    leaves = [tensor(v, "float32", requires_grad=True) for v in (x, w)]
    y = norch.conv2d(*leaves, padding=1)
    np.testing.assert_array_equal(y.detach().numpy(), np.repeat(x[:, :1], 32, 1).astype(np.float32))
    g = np.zeros(y.shape)
    g[0, 0, 5, 6] = 1
    of_weight = grad(y, leaves, tensor(g, "float32"))[1].numpy()
    np.testing.assert_array_equal(of_weight[0], x[0, :, 4:7, 5:8].astype(np.float32))


@pytest.mark.parametrize(("channels", "size", "batch"), [(64, 16, 4), (256, 8, 8), (512, 4, 32)])
def test_sums_by_tiles_round_like_sums_by_windows(channels, size, batch):
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((2, batch, channels, size, size), np.float32)
    w = rng.standard_normal((channels, channels, 3, 3), np.float32)

    def found(dtype):
        leaves = [tensor(v, dtype).requires_grad_() for v in (x, w)]
        out = norch.conv2d(*leaves, padding=1)
        return [t.detach().double().numpy() for t in (out, *grad(out, leaves, tensor(g, dtype)))]

    for got, want in zip(found("float32"), found("float64"), strict=True):
        assert np.sqrt(np.mean((got - want) ** 2)) <= 6e-7 * np.std(want)
