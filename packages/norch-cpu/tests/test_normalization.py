"""layer_norm, rms_norm and batch_norm with their gradients, native, against NumPy in float64."""

import numpy as np
import pytest

import norch
from norch.ops.nn import batch_normalization, normalization
from norch_cpu.native import native

BOUNDS = {"float64": 1e-10, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
OPS = [
    *("layer_norm", "layer_norm_grad", "rms_norm", "rms_norm_grad", "batch_norm", "batch_norm_grad"),
    *("batch_norm_running", "batch_norm_running_grad", "group_norm", "group_norm_grad"),
]
ROWS = [(1, 1), (3, 1), (2, 7), (5, 16), (4, 33), (17, 64), (40, 129), (300, 100), (3, 5000), (2, 3, 4, 5)]
IMAGES = [(2, 1), (5, 3), (130, 200), (4, 3, 2), (3, 70, 2, 3), (2, 3, 8), (3, 5, 7, 7), (2, 2, 40, 30), (300, 2, 9)]
IMAGES += [(3, 45, 7, 8), (2, 150, 6, 9)]  # with odd columns behind whole vectors where channels are last


def test_the_kernels_are_there():
    assert set(OPS) <= set(native.ops())


@pytest.fixture(autouse=True)
def only_native(monkeypatch):
    """Fails a test in which one of these ops is computed from its parts, unless it asks for `parts`."""
    backend = type(norch.ones(1).device.backend)
    compile_kernel = backend.compile
    from norch.dispatch.plan import forget_plans

    forget_plans()
    missing = []

    def checked(self, op, operands, attrs):
        kernel = compile_kernel(self, op, operands, attrs)
        if op in OPS and kernel is None:
            missing.append(op)
        return kernel

    monkeypatch.setattr(backend, "compile", checked)
    yield missing
    assert not missing


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def tensor(array, dtype="float64"):
    return norch.tensor(array, dtype=getattr(norch, dtype))


def close(got, expected, bound):
    got = got.double().numpy()
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, bound, bound * max(1.0, np.abs(expected).max(initial=0)))


def standard(x, axes, eps, centred=True):
    """What x is normalised to, and the factor."""
    centre = x.mean(axes, keepdims=True) if centred else 0.0
    factor = 1 / np.sqrt(((x - centre) ** 2).mean(axes, keepdims=True) + eps)
    return (x - centre) * factor, factor


def gradient(g, normal, factor, axes, centred=True):
    """The gradient of what was normalised, from that of the result before the affine map."""
    shift = g.mean(axes, keepdims=True) if centred else 0.0
    return (g - shift - normal * (g * normal).mean(axes, keepdims=True)) * factor


def rounded(array, dtype):
    """The values that a tensor of a dtype holds."""
    return tensor(array, dtype).double().numpy().copy()


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_layer_norm(shape, dtype):
    lead, inner = (1, shape[1:]) if len(shape) == 2 else (2, shape[2:])
    axes, over = tuple(range(lead, len(shape))), tuple(range(lead))
    x, w, b, g = (rounded(drawn(*s, seed=i), dtype) for i, s in enumerate((shape, inner, inner, shape)))
    t, u, v = (tensor(a, dtype).requires_grad_() for a in (x, w, b))
    y = norch.layer_norm(t, inner, u, v, 0.01)
    normal, factor = standard(x, axes, 0.01)
    close(y.detach(), normal * w + b, BOUNDS[dtype])
    y.backward(tensor(g, dtype))
    close(t.grad, gradient(g * w, normal, factor, axes), BOUNDS[dtype])
    close(u.grad, (g * normal).sum(over), BOUNDS[dtype])
    close(v.grad, g.sum(over), BOUNDS[dtype])
    assert y.dtype is t.dtype
    assert u.grad.dtype is t.dtype


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_rms_norm(shape, dtype):
    lead, inner = (1, shape[1:]) if len(shape) == 2 else (2, shape[2:])
    axes, over = tuple(range(lead, len(shape))), tuple(range(lead))
    x, w, g = (rounded(drawn(*s, seed=i), dtype) for i, s in enumerate((shape, inner, shape)))
    t, u = (tensor(a, dtype).requires_grad_() for a in (x, w))
    y = norch.rms_norm(t, inner, u, 0.01)
    normal, factor = standard(x, axes, 0.01, False)
    close(y.detach(), normal * w, BOUNDS[dtype])
    y.backward(tensor(g, dtype))
    close(t.grad, gradient(g * w, normal, factor, axes, False), BOUNDS[dtype])
    close(u.grad, (g * normal).sum(over), BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_batch_norm(shape, dtype):
    axes, c = (0, *range(2, len(shape))), shape[1]
    x, w, b, g = (rounded(drawn(*s, seed=i), dtype) for i, s in enumerate((shape, (c,), (c,), shape)))
    across = (-1, *(1,) * (len(shape) - 2))
    normal, factor = standard(x, axes, 0.01)
    last = [norch.channels_last] if len(shape) == 4 else []
    for layout in (norch.contiguous_format, *last):
        u, v = (tensor(a, dtype).requires_grad_() for a in (w, b))
        t, up = (tensor(a, dtype).contiguous(memory_format=layout) for a in (x, g))
        t.requires_grad_()
        running_mean, running_var = norch.ones(c), norch.ones(c)
        y = norch.batch_norm(t, running_mean, running_var, u, v, training=True, momentum=0.25, eps=0.01)
        close(y.detach(), normal * w.reshape(across) + b.reshape(across), BOUNDS[dtype])
        close(running_mean, 0.75 + 0.25 * x.mean(axes), 1e-5)
        close(running_var, 0.75 + 0.25 * x.var(axes, ddof=1), 1e-5)
        y.backward(up)
        close(t.grad, gradient(g * w.reshape(across), normal, factor, axes), BOUNDS[dtype])
        close(u.grad, (g * normal).sum(axes), BOUNDS[dtype])
        close(v.grad, g.sum(axes), BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_batch_norm_of_running_statistics(shape, dtype):
    axes, c = (0, *range(2, len(shape))), shape[1]
    across = (-1, *(1,) * (len(shape) - 2))
    x, w, b, m, g = (rounded(drawn(*s, seed=i), dtype) for i, s in enumerate((shape, (c,), (c,), (c,), shape)))
    v = rounded(0.5 + drawn(c, seed=9) ** 2, dtype)
    last = norch.channels_last if len(shape) == 4 else norch.contiguous_format
    for layout in (norch.contiguous_format, last):
        leaves = [tensor(a, dtype).requires_grad_() for a in (w, b, m, v)]
        t = tensor(x, dtype).contiguous(memory_format=layout).requires_grad_()
        y = norch.batch_norm(t, leaves[2], leaves[3], *leaves[:2], eps=0.01)
        assert y.dtype is t.dtype
        assert y.stride() == t.stride()
        factor = 1 / np.sqrt(v + 0.01)
        normal = (x - m.reshape(across)) * factor.reshape(across)
        close(y.detach(), normal * w.reshape(across) + b.reshape(across), BOUNDS[dtype])
        y.backward(tensor(g, dtype).contiguous(memory_format=layout), retain_graph=True)
        of_factor = (g * (x - m.reshape(across))).sum(axes) * w
        for leaf, expected in zip(
            (t, *leaves),
            (
                g * (factor * w).reshape(across),
                (g * normal).sum(axes),
                g.sum(axes),
                -g.sum(axes) * factor * w,
                -0.5 * of_factor * factor**3,
            ),
            strict=True,
        ):
            close(leaf.grad, expected, BOUNDS[dtype])
        (alone,) = norch.autograd.grad(y, t, tensor(g, dtype).contiguous(memory_format=layout))
        close(alone, g * (factor * w).reshape(across), BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 6, 5, 7), 3), ((3, 4), 2), ((1, 8, 40, 30), 1), ((2, 5, 9), 5)], ids=str
)
def test_group_norm(shape, groups, dtype):
    axes, c = (0, *range(2, len(shape))), shape[1]
    across = (-1, *(1,) * (len(shape) - 2))
    x, w, b, g = (rounded(drawn(*s, seed=i), dtype) for i, s in enumerate((shape, (c,), (c,), shape)))
    t, u, v = (tensor(a, dtype).requires_grad_() for a in (x, w, b))
    y = norch.group_norm(t, groups, u, v, 0.01)
    normal, factor = standard(x.reshape(shape[0], groups, -1), 2, 0.01)
    close(y.detach(), normal.reshape(shape) * w.reshape(across) + b.reshape(across), BOUNDS[dtype])
    y.backward(tensor(g, dtype))
    expected = gradient((g * w.reshape(across)).reshape(normal.shape), normal, factor, 2).reshape(shape)
    close(t.grad, expected, BOUNDS[dtype])
    close(u.grad, (g * normal.reshape(shape)).sum(axes), BOUNDS[dtype])
    close(v.grad, g.sum(axes), BOUNDS[dtype])
    plain = norch.group_norm(tensor(x, dtype), groups, eps=0.01)
    close(plain, normal.reshape(shape), BOUNDS[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 6, 5, 7), 3), ((1, 70, 20, 30), 10), ((3, 64, 1, 300), 32), ((2, 40, 33, 9), 1), ((1, 3, 1, 1), 3)],
    ids=str,
)
def test_group_norm_channels_last(shape, groups, dtype):
    x, w, b, g = (rounded(drawn(*s, seed=i), dtype) for i, s in enumerate((shape, shape[1:2], shape[1:2], shape)))

    def last(a):
        return tensor(a, dtype).contiguous(memory_format=norch.channels_last)

    t, u, v = last(x).requires_grad_(), *(tensor(a, dtype).requires_grad_() for a in (w, b))
    y = norch.group_norm(t, groups, u, v, 0.01)
    normal, factor = standard(x.reshape(shape[0], groups, -1), 2, 0.01)
    across = (-1, 1, 1)
    close(y.detach(), normal.reshape(shape) * w.reshape(across) + b.reshape(across), BOUNDS[dtype])
    y.backward(last(g))
    assert y.stride() == t.grad.stride() == t.stride()
    expected = gradient((g * w.reshape(across)).reshape(normal.shape), normal, factor, 2).reshape(shape)
    close(t.grad, expected, BOUNDS[dtype])
    close(u.grad, (g * normal.reshape(shape)).sum((0, 2, 3)), BOUNDS[dtype])
    close(v.grad, g.sum((0, 2, 3)), BOUNDS[dtype])
    t.grad = None
    plain = norch.group_norm(t, groups, eps=0.01)
    close(plain.detach(), normal.reshape(shape), BOUNDS[dtype])
    plain.backward(last(g))
    close(t.grad, gradient(g.reshape(normal.shape), normal, factor, 2).reshape(shape), BOUNDS[dtype])


def test_group_norm_channels_last_of_numbers_far_from_0():
    x = (drawn(2, 32, 20, 20) * 0.01 + 1000).astype(np.float32)
    t = tensor(x, "float32").contiguous(memory_format=norch.channels_last)
    far = x.astype(np.float64)
    found = standard(far.reshape(2, 8, -1), 2, 1e-5)[0].reshape(x.shape)
    close(norch.group_norm(t, 8), found, 1e-3)


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n", [6, 700])
def test_weight_and_bias_may_be_left_out(weight, bias, n):
    x, w, b, g = (drawn(*s, seed=i) for i, s in enumerate(((4, n), (n,), (n,), (4, n))))
    scale, shift = w if weight else 1.0, b if bias else 0.0
    for op, axes in (
        (lambda t, *rest: norch.layer_norm(t, n, *rest), 1),
        (lambda t, *rest: norch.batch_norm(t, None, None, *rest, training=True), 0),
    ):
        t = tensor(x).requires_grad_()
        given = [tensor(a).requires_grad_() if there else None for a, there in ((w, weight), (b, bias))]
        y = op(t, *given)
        normal, factor = standard(x, axes, 1e-5)
        close(y.detach(), normal * scale + shift, 1e-10)
        y.backward(tensor(g))
        close(t.grad, gradient(g * scale, normal, factor, axes), 1e-10)
        if weight:
            close(given[0].grad, (g * normal).sum(0), 1e-10)
        if bias:
            close(given[1].grad, g.sum(0), 1e-10)


def layouts(array, dtype="float32"):
    """The same values transposed, stepped over, and from an offset."""
    yield tensor(np.ascontiguousarray(array.swapaxes(0, -1)), dtype).transpose(0, -1)
    yield tensor(np.repeat(array, 2, -1), dtype)[..., ::2]
    yield norch.cat([tensor(array[:1], dtype), tensor(array, dtype)])[1:]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_operands_of_any_layout(dtype):
    x, g = rounded(drawn(6, 5, 4), dtype), rounded(drawn(6, 5, 4, seed=1), dtype)
    w = rounded(drawn(8, seed=2), dtype)
    rows, channels = standard(x, 2, 1e-5), standard(x, (0, 2), 1e-5)
    for t, h in zip(layouts(x, dtype), layouts(g, dtype), strict=True):
        scale = tensor(w, dtype)[::2]
        y = norch.layer_norm(t, 4, scale)
        close(y, rows[0] * w[::2], BOUNDS[dtype])
        assert y.is_contiguous()
        into, to_weight, to_bias = normalization.layer_norm_grad(h, t, (4,), scale, 1e-5, True)
        close(into, gradient(g * w[::2], *rows, 2), BOUNDS[dtype])
        close(to_weight, (g * rows[0]).sum((0, 1)), BOUNDS[dtype])
        close(to_bias, g.sum((0, 1)), BOUNDS[dtype])
        assert to_weight.dtype is (norch.float64 if dtype == "float64" else norch.float32)
        close(norch.batch_norm(t, None, None, training=True), channels[0], BOUNDS[dtype])
        into, *_ = batch_normalization.batch_norm_grad(h, t, None, 1e-5)
        close(into, gradient(g, *channels, (0, 2)), BOUNDS[dtype])


def test_a_gradient_that_is_the_same_everywhere():
    t = tensor(drawn(5, 8), "float32").requires_grad_()
    w = norch.ones(8, requires_grad=True)
    norch.layer_norm(t, 8, w).sum().backward()  # an expanded gradient
    np.testing.assert_allclose(t.grad.numpy(), np.zeros((5, 8)), atol=1e-6)


def test_weights_wider_than_a_16_bit_input():
    x, w = rounded(drawn(3, 8), "bfloat16"), drawn(8, seed=1)
    t, u = tensor(x, "bfloat16").requires_grad_(), tensor(w, "float32").requires_grad_()
    y = norch.layer_norm(t, 8, u)
    close(y.detach(), standard(x, 1, 1e-5)[0] * w, 1e-2)
    y.sum().backward()
    assert (t.grad.dtype, u.grad.dtype) == (norch.bfloat16, norch.float32)
    close(u.grad, standard(x, 1, 1e-5)[0].sum(0), 1e-5)


def test_weights_wider_than_the_input_are_left_to_the_parts(only_native):
    x, w = rounded(drawn(3, 8), "float32"), drawn(8, seed=1)
    close(norch.layer_norm(tensor(x, "float32"), 8, tensor(w)), standard(x, 1, 1e-5)[0] * w, 1e-6)
    assert only_native == ["layer_norm"]
    del only_native[:]


@pytest.mark.parametrize("shape", [(8, 2000), (4, 30_000)], ids=str)
def test_a_mean_that_is_large_next_to_the_deviation(shape):
    x = rounded(1000 + drawn(*shape), "float32")
    close(norch.layer_norm(tensor(x, "float32"), shape[1:]), standard(x, 1, 1e-5)[0], 2e-4)
    close(norch.batch_norm(tensor(x.T, "float32"), None, None, training=True), standard(x.T, 0, 1e-5)[0], 2e-4)
    across = x.reshape(2, shape[0] // 2, -1)
    close(
        norch.batch_norm(tensor(across, "float32"), None, None, training=True), standard(across, (0, 2), 1e-5)[0], 2e-4
    )


def test_long_sums_stay_exact():
    x = rounded(drawn(2, 300_000), "float32")
    t = tensor(x, "float32").requires_grad_()
    g = rounded(drawn(2, 300_000, seed=1), "float32")
    y = norch.layer_norm(t, 300_000)
    y.backward(tensor(g, "float32"))
    normal, factor = standard(x, 1, 1e-5)
    close(y.detach(), normal, 1e-6)
    close(t.grad, gradient(g, normal, factor, 1), 1e-6)
    rows = rounded(drawn(60_000, 5), "float32")
    w, b = (norch.ones(5, requires_grad=True) for _ in range(2))
    norch.layer_norm(tensor(rows, "float32"), 5, w, b).backward(norch.full((60_000, 5), 0.1))
    np.testing.assert_allclose(b.grad.numpy(), np.full(5, 60_000 * np.float64(np.float32(0.1))), rtol=1e-5)


def test_not_a_number_stays_in_its_row():
    x = drawn(4, 20)
    x[1, 3], x[2, 4] = np.nan, np.inf
    got = norch.layer_norm(tensor(x, "float32"), 20).numpy()
    assert np.isnan(got[1:3]).all()
    close(norch.layer_norm(tensor(x, "float32"), 20)[::3], standard(x[::3], 1, 1e-5)[0], 1e-5)
    by_channel = norch.batch_norm(tensor(x.T.copy(), "float32"), None, None, training=True).numpy()
    assert np.isnan(by_channel[:, 1:3]).all()
    assert np.isfinite(by_channel[:, ::3]).all()


def test_a_constant_row_becomes_zero():
    assert norch.layer_norm(norch.full((2, 9), 3.0), 9).tolist() == [[0.0] * 9] * 2
    assert norch.batch_norm(norch.full((4, 9), 3.0), None, None, training=True).abs().max().item() == 0


def test_no_rows_and_no_elements():
    t, w, b = (
        norch.empty(0, 4, requires_grad=True),
        norch.ones(4, requires_grad=True),
        norch.ones(4, requires_grad=True),
    )
    norch.layer_norm(t, 4, w, b).sum().backward()
    assert t.grad.shape == (0, 4)
    assert w.grad.tolist() == b.grad.tolist() == [0.0] * 4
    assert norch.layer_norm(norch.empty(3, 0), 0).shape == (3, 0)
    w = norch.ones(4, requires_grad=True)
    norch.rms_norm(norch.empty(0, 4), 4, w, 0.1).sum().backward()
    assert w.grad.tolist() == [0.0] * 4


def test_batches_without_elements_are_left_to_the_parts(only_native):
    assert norch.batch_norm(norch.empty(0, 3), None, None, training=True).shape == (0, 3)
    assert only_native == ["batch_norm"]
    del only_native[:]


def test_the_number_of_threads_changes_nothing():
    def results():
        found = []
        t, w, b = (tensor(drawn(*s), "float32").requires_grad_() for s in ((1000, 65), (65,), (65,)))
        found.append(norch.layer_norm(t, 65, w, b))
        found[-1].backward(tensor(drawn(1000, 65, seed=1), "float32"))
        found += [t.grad, w.grad, b.grad]
        t = tensor(drawn(8, 16, 20, 20), "float32").requires_grad_()
        found.append(norch.batch_norm(t, None, None, w[:16], b[:16], training=True))
        found[-1].backward(tensor(drawn(8, 16, 20, 20, seed=1), "float32"))
        return [r.detach().numpy() for r in (*found, t.grad)]

    before = native.num_threads()
    try:
        native.set_num_threads(1)
        alone = results()
        native.set_num_threads(4)
        for a, b in zip(alone, results(), strict=True):
            np.testing.assert_array_equal(a, b)
    finally:
        native.set_num_threads(before)


def test_running_statistics_of_another_dtype_and_one_of_them():
    x = drawn(6, 3)
    mean, var = norch.zeros(3).double(), norch.ones(3, dtype=norch.bfloat16)
    norch.batch_norm(tensor(x, "float32"), mean, var, training=True, momentum=0.5)
    close(mean, 0.5 * x.mean(0), 1e-6)
    close(var, 0.5 + 0.5 * x.var(0, ddof=1), 1e-2)
    norch.batch_norm(tensor(x, "float32"), mean, None, training=True, momentum=1.0)
    close(mean, x.mean(0), 1e-6)


def test_second_derivatives():
    from norch.testing.gradcheck import gradgradcheck

    leaves = [tensor(drawn(*s, seed=i)).requires_grad_() for i, s in enumerate(((4, 3, 2), (3,), (3,)))]
    assert gradgradcheck(lambda x, w, b: norch.batch_norm(x, None, None, w, b, training=True), leaves, fast_mode=True)
    leaves = [tensor(drawn(*s, seed=i)).requires_grad_() for i, s in enumerate(((4, 6), (6,), (6,)))]
    assert gradgradcheck(lambda x, w, b: norch.layer_norm(x, 6, w, b), leaves, fast_mode=True)


def test_what_is_refused():
    with pytest.raises(norch.ShapeError, match="does not end in"):
        norch.layer_norm(norch.ones(2, 3), 4)
    with pytest.raises(norch.ShapeError, match="more than one value"):
        norch.batch_norm(norch.ones(1, 3), None, None, training=True)
    with pytest.raises(norch.ShapeError, match="running_var"):
        norch.batch_norm(norch.ones(2, 3), norch.ones(3), norch.ones(2), training=True)
    with pytest.raises(norch.DTypeError, match="floating"):
        norch.batch_norm(norch.ones(2, 3).long(), None, None, training=True)
