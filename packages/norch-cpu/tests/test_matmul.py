"""matmul and linear against sums in float64 or exact integers: every path of the product kernels, layout and dtype."""

import math

import numpy as np
import pytest

import norch
from norch.testing.gradcheck import gradcheck, gradgradcheck

RNG = np.random.default_rng(11)
FLOATS = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
# m, n, k: vectors, tiles and their tails, panels and their tails, several blocks of k, several pieces.
SIZES = [
    (1, 1, 1), (1, 1, 300), (2, 3, 4), (4, 4, 4), (3, 40, 3), (5, 2, 70), (40, 3, 65), (1, 33, 7), (33, 1, 9),
    (1, 130, 600), (130, 1, 600), (4, 19, 100), (12, 16, 5), (13, 21, 6), (7, 300, 40), (16, 64, 64), (26, 35, 260),
    (70, 100, 33), (64, 8, 130), (64, 9, 530), (300, 70, 19), (260, 150, 270), (2, 513, 1030), (9, 1100, 64),
    (95, 130, 300), (9, 1, 3), (66, 1, 16), (65, 1, 30), (6, 2, 6), (3, 3, 16), (2050, 3, 3), (7, 4, 4),
    (33, 18, 4100), (70, 40, 9001), (3, 64, 5000),
]  # fmt: skip


@pytest.fixture(params=[1, 3])
def threads(request):
    before = norch.get_num_threads()
    norch.set_num_threads(request.param)
    yield request.param
    norch.set_num_threads(before)


def numbers(*shape):
    return RNG.standard_normal(shape)


def tensor(array, dtype="float64"):
    return norch.tensor(array, dtype=getattr(norch, dtype))


def layouts(t):
    """The same matrices, differently in memory."""
    yield t
    yield t.mT.contiguous().mT
    yield norch.cat([t[..., :1, :], t], -2)[..., 1:, :]
    yield norch.stack([t, t], -1)[..., 0]


def exact(a, b):
    """Products summed without rounding in between, as far as float64 goes."""
    return a @ b


def expected(a, b, bound):
    """The product, and how far from it one in the other precision may be."""
    return exact(a, b), exact(np.abs(a), np.abs(b)) * bound + bound


def assert_product(got, want, room):
    assert tuple(got.shape) == want.shape
    difference = np.abs(got.double().numpy() - want)
    assert np.all(difference <= room), float((difference - room).max())


def test_rows_that_lie_whole_pages_apart(threads):
    a, b = numbers(300, 1024), numbers(1024, 1040)
    for columns in (1024, 1000):
        found = tensor(a, "float32")[:, :columns] @ tensor(b, "float32")[:columns]
        assert_product(found, *expected(a[:, :columns], b[:columns], 2e-6))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes_and_layouts(size, threads):
    m, n, k = size
    a, b = tensor(numbers(m, k), "float32"), tensor(numbers(k, n), "float32")
    want, room = expected(a.double().numpy(), b.double().numpy(), 2e-6)
    for x in layouts(a):
        for y in layouts(b):
            assert_product(x @ y, want, room)


@pytest.mark.parametrize(
    ("size", "bound"),
    [((64, 64, 4608), 1.6e-6), ((128, 16, 2048), 1.6e-6), ((3, 70, 4608), 1.6e-6), ((2, 1, 4_000_000), 5e-6),
     ((1, 4, 4_000_000), 5e-6), ((2, 3, 4_000_000), 5e-6)],
    ids=str,
)  # fmt: skip
def test_long_sums_are_made_of_short_ones(size, bound):
    m, n, k = size
    a, b = (RNG.random(shape, np.float32) for shape in ((m, k), (n, k)))
    want = a.astype(np.float64) @ b.T.astype(np.float64)
    rows, columns = norch.from_numpy(a), norch.from_numpy(b)
    for product in (rows @ columns.mT, rows @ columns.mT.contiguous()):
        np.testing.assert_allclose(product.numpy(), want, bound)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES[2::4], ids=str)
def test_floating_dtypes(dtype, size):
    m, n, k = size
    a, b = tensor(numbers(m, k), dtype), tensor(numbers(k, n), dtype)
    want, room = expected(a.double().numpy(), b.double().numpy(), FLOATS[dtype])
    for x in layouts(a):
        for y in layouts(b):
            assert_product(x @ y, want, room)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("size", SIZES[::3], ids=str)
def test_integers_wrap_around(dtype, size):
    m, n, k = size
    limits = np.iinfo(dtype)
    a, b = (RNG.integers(limits.min, limits.max, s, dtype, endpoint=True) for s in ((m, k), (k, n)))
    want = np.einsum("ik,kj->ij", a.astype(np.int64), b.astype(np.int64)).astype(dtype)  # modulo 2 ** 64, then less
    for x in layouts(norch.from_numpy(a)):
        for y in layouts(norch.from_numpy(b)):
            np.testing.assert_array_equal((x @ y).numpy(), want)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5, 4, 6), (5, 6, 3)), ((5, 4, 6), (6, 3)), ((4, 6), (5, 6, 3)), ((2, 1, 4, 6), (3, 6, 70)),
        ((3, 1, 6), (6, 40)), ((7, 33, 20), (7, 20, 40)), ((2, 3, 40, 8), (2, 3, 8, 40)), ((6,), (5, 6, 3)),
        ((5, 4, 6), (6,)), ((2, 300, 30), (30, 90)), ((1, 3, 1, 5), (4, 1, 5, 2)), ((0, 4, 6), (6, 3)),
        ((40, 4, 4), (40, 4, 4)),
    ],
)  # fmt: skip
def test_batches(left, right, threads):
    a, b = numbers(*left), numbers(*right)
    got = tensor(a) @ tensor(b)
    want = np.matmul(a, b)
    np.testing.assert_allclose(got.numpy(), want, 1e-12, 1e-12)
    if len(left) > 2 and len(right) > 2:
        x, y = tensor(a).transpose(0, -3).contiguous().transpose(0, -3), tensor(b).mT.contiguous().mT
        np.testing.assert_allclose((x @ y).numpy(), want, 1e-12, 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batches_of_small_matrices(dtype, threads):
    for m, n, k in [
        (1, 1, 1),
        (2, 1, 1),
        (1, 2, 1),
        (2, 2, 2),
        (3, 3, 3),
        (3, 1, 3),
        (4, 4, 4),
        (8, 1, 8),
        (6, 2, 5),
        (3, 3, 20),
        (1, 1, 30),
    ]:
        a, b = (tensor(numbers(3, 700, *shape), dtype) for shape in ((m, k), (k, n)))
        want, room = expected(a.double().numpy(), b.double().numpy(), FLOATS[dtype])
        for x in (*layouts(a), a.transpose(0, 1).contiguous().transpose(0, 1)):
            for y in layouts(b):
                assert_product(x @ y, want, room)
        one, room = expected(a[:1].double().numpy(), b[:, :1].double().numpy(), FLOATS[dtype])
        assert_product(a[:1] @ b[:, :1], one, room)


def test_expanded_operands():
    a, b = numbers(3, 1), numbers(1, 40)
    x, y = tensor(a).expand(3, 50), tensor(b).expand(50, 40)
    np.testing.assert_allclose((x @ y).numpy(), a @ b * 50, 1e-12)
    one = tensor(numbers(1)).expand(2, 20, 30)
    np.testing.assert_allclose((one @ one.mT).numpy(), np.full((2, 20, 20), one[0, 0, 0].item() ** 2 * 30), 1e-12)
    half = one.half()
    np.testing.assert_allclose((half @ half.mT).double().numpy(), (one @ one.mT).numpy(), 2e-3)


def test_no_inner_elements_and_no_rows():
    assert (norch.ones(3, 0) @ norch.ones(0, 5)).tolist() == [[0.0] * 5] * 3
    assert (norch.ones(2, 3, 0).half() @ norch.ones(0, 5).half()).tolist() == [[[0.0] * 5] * 3] * 2
    assert tuple((norch.ones(0, 3) @ norch.ones(3, 5)).shape) == (0, 5)
    assert norch.linear(norch.ones(2, 0), norch.ones(3, 0), norch.ones(3)).tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("size", [(2, 5, 3), (1, 40, 64), (40, 40, 40), (70, 100, 300)], ids=str)
def test_old_memory_does_not_shine_through(size):
    m, n, k = size
    for _ in range(3):
        norch.full((m, n), math.nan)  # the next result gets this block from the cache
        assert (norch.ones(m, k) @ norch.ones(k, n) == k).all().item()


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("size", [(2, 3, 3), (1, 40, 64), (20, 40, 33), (70, 65, 300)], ids=str)
def test_nan_and_infinity(value, size):
    m, n, k = size
    a, b = np.ones((m, k)), np.ones((k, n))
    a[m - 1, k - 1] = value
    for dtype in ("float32", "float64", "bfloat16"):
        got = (tensor(a, dtype) @ tensor(b, dtype)).double().numpy()
        np.testing.assert_array_equal(got[: m - 1], np.full((m - 1, n), float(k) if dtype != "bfloat16" else got[0, 0]))
        np.testing.assert_array_equal(got[m - 1], np.full(n, value))
        zeros = tensor(np.zeros((k, n)), dtype)
        assert (tensor(a, dtype) @ zeros)[m - 1].isnan().all().item()


def test_any_number_of_threads_gives_the_same_bits():
    before = norch.get_num_threads()
    shapes = [((300, 700), (700, 200)), ((1, 900), (900, 800)), ((3, 900), (800, 900)), ((60, 30, 40), (40, 50))]
    shapes.append(((70, 5000), (5000, 40)))
    pairs = [(tensor(numbers(*a), "float32"), tensor(numbers(*b), "float32")) for a, b in shapes]
    pairs = [(a, b if b.shape[-2] == a.shape[-1] else b.mT) for a, b in pairs]
    try:
        found = []
        for count in (1, 2, 5):
            norch.set_num_threads(count)
            found.append([(a @ b).numpy() for a, b in pairs])
    finally:
        norch.set_num_threads(before)
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


# --- linear -----------------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "relu": lambda v: max(v, 0.0),
    "gelu": lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))),
    "silu": lambda v: v / (1 + math.exp(-v)),
    "tanh": math.tanh,
    "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
}
LINEAR = [
    ((3,), 4),
    ((1, 5), 1),
    ((7, 1), 40),
    ((2, 3, 20), 33),
    ((1, 300), 70),
    ((65, 40), 90),
    ((64, 100), 200),  # from here on the weight lies along k and is the larger factor
    ((13, 40), 33),
    ((20, 2100), 70),
    ((130, 30), 1),
    ((66, 3), 1),
    ((9, 4), 3),
    ((0, 3), 2),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "features"), LINEAR, ids=str)
def test_linear(dtype, shape, features):
    x, w, b = (tensor(numbers(*s) / 2, dtype) for s in (shape, (features, shape[-1]), (features,)))
    xn, wn, bn = (t.double().numpy() for t in (x, w, b))
    want = exact(xn.reshape(-1, shape[-1]), wn.T).reshape(*shape[:-1], features)
    bound = FLOATS[dtype] * 8
    inputs = [x, norch.stack([x, x], -1)[..., 0]] + ([x.mT.contiguous().mT] if x.ndim > 1 else [])
    for given in inputs:
        for weight in (w, w.mT.contiguous().mT):
            np.testing.assert_allclose(norch.linear(given, weight).double().numpy(), want, bound, bound)
            got = norch.linear(given, weight, norch.stack([b, b], -1)[:, 1])
            np.testing.assert_allclose(got.double().numpy(), want + bn, bound, bound)
    for name, function in ACTIVATIONS.items():
        got = norch.linear(x, w, b, activation=name)
        np.testing.assert_allclose(
            got.double().numpy(), np.vectorize(function, otypes=[float])(want + bn), 2 * bound, 2 * bound
        )


def test_linear_of_permuted_input():
    x, w = np.abs(numbers(3, 4, 50)), np.abs(numbers(20, 50))  # nothing cancels: the bound is relative
    got = norch.linear(tensor(x).permute(1, 0, 2), tensor(w))
    np.testing.assert_allclose(got.numpy(), x.transpose(1, 0, 2) @ w.T, 1e-12)
    for features in (1, 20):
        b, repeated = np.abs(numbers(features)), tensor(x)[:1].expand(6, 4, 50)
        want = x[:1].repeat(6, 0) @ w[:features].T + b
        np.testing.assert_allclose(norch.linear(repeated, tensor(w[:features]), tensor(b)).numpy(), want, 1e-12)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)], ids=str)
def test_derivatives_of_linear(activation, shape):
    def leaves():
        return [tensor(numbers(*s)).requires_grad_() for s in (shape, (5, 4), (5,))]

    def function(*given):
        return norch.linear(*given, activation=activation)

    assert gradcheck(function, leaves())
    if activation != "relu":
        assert gradgradcheck(function, leaves(), fast_mode=True)
    assert gradcheck(lambda x, w: norch.linear(x, w, activation=activation), leaves()[:2])
    plain = leaves()
    fused = [t.detach().requires_grad_() for t in plain]
    apply = getattr(norch, activation) if activation else lambda t: t
    (apply(norch.linear(*plain)) ** 2).sum().backward()
    (norch.linear(*fused, activation=activation) ** 2).sum().backward()
    for p, f in zip(plain, fused, strict=True):
        np.testing.assert_allclose(f.grad.numpy(), p.grad.numpy(), 1e-12, 1e-12)


@pytest.mark.parametrize(("shape", "features"), LINEAR[:-1], ids=str)
def test_gradients_of_linear(shape, features):
    x, w, b = (tensor(numbers(*s), "float32").requires_grad_() for s in (shape, (features, shape[-1]), (features,)))
    g = numbers(*shape[:-1], features)
    norch.linear(x, w, b).backward(tensor(g, "float32"))
    rows, grads = x.detach().double().numpy().reshape(-1, shape[-1]), g.reshape(-1, features)
    np.testing.assert_allclose(x.grad.numpy().reshape(rows.shape), grads @ w.detach().double().numpy(), 1e-4, 1e-4)
    np.testing.assert_allclose(w.grad.numpy(), grads.T @ rows, 1e-4, 1e-4)
    np.testing.assert_allclose(b.grad.numpy(), grads.sum(0), 1e-4, 1e-4)
    for t in (x, w):
        t.grad = None
    norch.linear(x, w).sum().backward()  # the gradient is one number, repeated
    np.testing.assert_allclose(w.grad.numpy(), np.broadcast_to(rows.sum(0), w.shape), 1e-4, 1e-4)


def test_linear_refuses_another_activation():
    with pytest.raises(ValueError, match="relu"):
        norch.linear(norch.ones(2, 3), norch.ones(4, 3), activation="softmax")
