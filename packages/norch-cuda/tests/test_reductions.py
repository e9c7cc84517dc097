"""sum, prod, amax, amin, any, all, argmax, argmin, cumsum, sort and arange on the GPU against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import norch

DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
RNG = np.random.default_rng(5)


def host(t):
    """A tensor's elements as NumPy knows them (bfloat16 as float32)."""
    t = t.detach().to("cpu")
    return (t.float() if t.dtype == norch.bfloat16 else t).numpy()


def make(shape, dtype="float32", cuda="cuda"):
    """A tensor of random small numbers on the GPU, and the same numbers in NumPy."""
    if dtype == "bool":
        values = RNG.random(shape) < 0.5
    elif dtype == "uint8":
        values = RNG.integers(0, 256, shape)
    elif "int" in dtype:
        values = RNG.integers(-100, 100, shape)
    else:
        values = RNG.standard_normal(shape)
    base = np.asarray(values, dtype="float32" if dtype == "bfloat16" else dtype)
    t = norch.tensor(base, device=cuda).to(getattr(norch, dtype))
    return t, host(t)


def expect_sum(t, v, dims, dtype):
    got = host(t.sum(dims))
    if "float" not in dtype:
        np.testing.assert_array_equal(got, np.sum(v, axis=dims, dtype=np.int64))
        return
    exact = np.sum(v, axis=dims, dtype=np.float64)
    scale = np.sum(np.abs(v), axis=dims, dtype=np.float64) + 1e-30
    unit = {"float64": 1e-13, "float32": 4e-7, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    assert got.shape == exact.shape
    assert np.max(np.abs(got - exact) / scale, initial=0) < unit


SHAPES = [
    ((4, 2, 64, 1600), 1),
    ((2, 640001), 0),
    ((7, 300000), 0),
    ((19, 200000), 0),
    ((33, 100000), 0),
    ((30, 3, 9000), 1),
    ((5,), 0),
    ((1,), 0),
    ((300, 2), 1),
    ((300, 4), 1),
    ((300, 8), 1),
    ((300, 16), 1),
    ((4,), 0),
    ((2, 3, 2), 2),
    ((64, 300), 1),
    ((70001, 64), 1),
    ((513, 4099), 0),
    ((1000003,), 0),
    ((3, 7), 1),
    ((3, 7), 0),
    ((1000, 3), 1),
    ((1000, 3), 0),
    ((64, 10), 0),
    ((128, 768), 0),
    ((4099, 33), 0),
    ((4100, 32), 0),
    ((33, 4099), 1),
    ((7, 100001), 1),
    ((70001, 8), 0),
    ((2000, 1028), 1),
    ((8, 16, 7, 7), (0, 2, 3)),
    ((8, 16, 8, 8), (0, 2, 3)),
    ((8, 16, 8, 8), (1,)),
    ((5, 6, 7, 8), (0, 3)),
    ((9, 8, 64), (1,)),
    ((5, 6, 7, 8), (1, 2)),
    ((40, 50, 60), (0, 1, 2)),
    ((0, 3), 0),
    ((3, 0), 0),
    ((300, 1, 5), 1),
    ((2, 3, 2, 3, 2, 3, 2, 3, 2), (1, 3, 5, 7)),
]


@pytest.mark.parametrize(("shape", "dims"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "float64"])
def test_sum(cuda, shape, dims, dtype):
    t, v = make(shape, dtype)
    expect_sum(t, v, dims, dtype)
    assert t.sum(dims).to("cpu").numpy().tobytes() == t.sum(dims).to("cpu").numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_of_odd_layouts(cuda, dtype):
    t, v = make((37, 41, 24), dtype)
    cases = [
        (t[1:, 3:, 5:], v[1:, 3:, 5:]),
        (t[::2, ::3, ::5], v[::2, ::3, ::5]),
        (t.permute(2, 0, 1), v.transpose(2, 0, 1)),
        (t[:, :1].expand(37, 50, 24), np.broadcast_to(v[:, :1], (37, 50, 24))),
        (t[:1].expand(300, 41, 24), np.broadcast_to(v[:1], (300, 41, 24))),
        (t[:, :, 1:2].expand(37, 41, 9), np.broadcast_to(v[:, :, 1:2], (37, 41, 9))),
    ]
    for x, y in cases:
        for dims in (0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2)):
            expect_sum(x, y, dims, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "dims"), [((300, 70), 0), ((300, 70), 1), ((64, 4096), 1), ((4096, 64), 0), ((90001,), 0)]
)
def test_extremes(cuda, dtype, shape, dims):
    t, v = make(shape, dtype)
    np.testing.assert_array_equal(host(t.amax(dims)), v.max(dims))
    np.testing.assert_array_equal(host(t.amin(dims)), v.min(dims))
    np.testing.assert_array_equal(host(t.argmax(dims)), v.argmax(dims))
    np.testing.assert_array_equal(host(t.argmin(dims)), v.argmin(dims))
    strided = t.reshape(*shape)[::3]
    np.testing.assert_array_equal(host(strided.argmax(dims)), v[::3].argmax(dims))
    np.testing.assert_array_equal(host(strided.amin(dims)), v[::3].min(dims))


def test_nan_and_inf(cuda):
    v = RNG.standard_normal((50, 300)).astype(np.float32)
    v[3, 17] = v[3, 40] = np.nan
    v[5, :] = -np.inf
    v[6, :] = np.inf
    v[7, 7], v[7, 8] = np.inf, -np.inf
    t = norch.tensor(v, device=cuda)
    with np.errstate(invalid="ignore"):
        for dim in (0, 1):
            np.testing.assert_array_equal(host(t.amax(dim)), v.max(dim))
            np.testing.assert_array_equal(host(t.amin(dim)), v.min(dim))
            np.testing.assert_array_equal(host(t.argmax(dim)), v.argmax(dim))
            np.testing.assert_array_equal(host(t.argmin(dim)), v.argmin(dim))
            np.testing.assert_allclose(host(t.sum(dim)), v.sum(dim), rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(host(t.cumsum(dim)), v.cumsum(dim), rtol=1e-4, atol=1e-4)


def test_prod_and_wrapping(cuda):
    for dtype in ("int32", "int16", "uint8", "int64"):
        v = RNG.integers(1, 127, (40, 30)).astype(dtype)
        t = norch.tensor(v, device=cuda)
        for dim in (0, 1):
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(host(t.prod(dim, dtype=t.dtype)), v.prod(dim, dtype=dtype))
                np.testing.assert_array_equal(host(t.sum(dim, dtype=t.dtype)), v.sum(dim, dtype=dtype))
    v = RNG.uniform(0.5, 1.5, (40, 30))
    np.testing.assert_allclose(host(norch.tensor(v, device=cuda).prod(0)), v.prod(0), rtol=1e-12)
    np.testing.assert_allclose(host(norch.tensor(v, device=cuda).prod((0, 1))), v.prod(), rtol=1e-11)


def test_any_all_and_nothing(cuda):
    for p in (0.001, 0.5, 0.999):
        v = RNG.random((200, 300)) < p
        t = norch.tensor(v, device=cuda)
        for dims in (0, 1, (0, 1)):
            np.testing.assert_array_equal(host(t.any(dims)), v.any(dims))
            np.testing.assert_array_equal(host(t.all(dims)), v.all(dims))
    none = norch.zeros(0, 3, device=cuda)
    assert host(none.sum(0)).tolist() == [0, 0, 0]
    assert host(none.prod(0)).tolist() == [1, 1, 1]
    assert host(none.bool().any(0)).tolist() == [False] * 3
    assert host(none.bool().all(0)).tolist() == [True] * 3
    assert host(none.sum(1)).shape == (0,)
    assert host(none.cumsum(0)).shape == (0, 3)
    assert host(none.sort(0)[1]).shape == (0, 3)
    assert host(norch.tensor(2.0, device=cuda).argmax()).tolist() == 0


def test_misaligned(cuda):
    t, v = make((100003,), "float16")
    for start in (1, 3, 7, 8):
        expect_sum(t[start:], v[start:], 0, "float16")
        rows = (100003 - start) // 100
        expect_sum(
            t[start : start + rows * 100].reshape(100, rows),
            v[start : start + rows * 100].reshape(100, rows),
            0,
            "float16",
        )
        expect_sum(
            t[start : start + rows * 100].reshape(100, rows),
            v[start : start + rows * 100].reshape(100, rows),
            1,
            "float16",
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((5, 7), 0),
        ((5, 7), 1),
        ((3, 40001), 1),
        ((40001, 3), 0),
        ((700, 1000), 1),
        ((1000, 70), 0),
        ((4, 300, 5), 1),
        ((200000,), 0),
    ],
)
def test_cumsum(cuda, dtype, shape, dim):
    t, v = make(shape, dtype)
    if "float" in dtype:
        exact = np.cumsum(v.astype(np.float64), dim)
        unit = {"float64": 1e-13, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
        scale = np.cumsum(np.abs(v.astype(np.float64)), dim) + 1e-30
        assert np.max(np.abs(host(t.cumsum(dim)) - exact) / scale) < unit
        stepped = host(t[::2].cumsum(dim))
        exact = np.cumsum(v[::2].astype(np.float64), dim)
        assert np.max(np.abs(stepped - exact)) <= unit * scale.max()
    else:
        np.testing.assert_array_equal(host(t.cumsum(dim)), np.cumsum(v, dim, dtype=np.int64))
        np.testing.assert_array_equal(host(t[::2].cumsum(dim)), np.cumsum(v[::2], dim, dtype=np.int64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((1,), 0),
        ((5, 7), 0),
        ((5, 7), 1),
        ((100, 2), 1),
        ((3, 2049), 1),
        ((2500, 3), 0),
        ((1001, 64), 0),
        ((3, 2048), 1),
        ((3000, 9), 1),
        ((5000, 1), 1),
        ((2000, 200), 1),
        ((40, 513), 1),
        ((2, 4), 1),
        ((100003,), 0),
        ((2, 3, 1), 2),
        ((140, 2500), 1),
        ((150, 4096), 1),
        ((4097, 140), 0),
    ],
)
def test_sort(cuda, dtype, shape, dim):
    t, v = make(shape, dtype)
    if "float" in dtype and v.size > 100:
        v = np.array(v)
        v.flat[::17] = 0.0
        v.flat[5::19] = -0.0
        v.flat[7::23] = np.nan
        v.flat[9::29] = np.inf
        t = norch.tensor(v, device=cuda).to(t.dtype)
    for descending in (False, True):
        values, indices = t.sort(dim, descending)
        if descending:
            order = v.shape[dim] - 1 - np.flip(np.argsort(np.flip(v, dim), dim, kind="stable"), dim)
        else:
            order = np.argsort(v, dim, kind="stable")
        np.testing.assert_array_equal(host(indices), order)
        np.testing.assert_array_equal(host(values), np.take_along_axis(v, order, dim))


def test_sort_of_views(cuda):
    t, v = make((40, 30, 8))
    x, y = t.permute(2, 0, 1)[1:, ::2], v.transpose(2, 0, 1)[1:, ::2]
    for dim in range(3):
        np.testing.assert_array_equal(host(x.sort(dim)[1]), np.argsort(y, dim, kind="stable"))
    wide = t[:1].expand(4, 30, 8)
    np.testing.assert_array_equal(host(wide.sort(0)[1])[:, 0, 0], np.arange(4))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_arange(cuda, dtype):
    kind = getattr(norch, dtype)
    got = norch.arange(0, 100, 3, dtype=kind, device=cuda)
    np.testing.assert_array_equal(host(got), np.arange(0, 100, 3))
    assert norch.arange(0, dtype=kind, device=cuda).shape == (0,)
    if "float" in dtype:
        np.testing.assert_array_equal(
            host(norch.arange(0, 70, 0.1, dtype=kind, device=cuda)), host(norch.arange(0, 70, 0.1, dtype=kind))
        )


def test_repeats_bit_for_bit_and_can_be_captured(cuda):
    t, _ = make((300001,))
    other, v = make((300001,))

    def work():
        return t.sum(), t.cumsum(0), t.argmax(), *t.sort(0)

    first = [host(f).tobytes() for f in work()]
    assert first == [host(f).tobytes() for f in work()]
    graph = norch.cuda.CUDAGraph()
    with norch.cuda.graph(graph):
        results = work()
    t.copy_(other)
    graph.replay()
    norch.cuda.synchronize()
    np.testing.assert_allclose(host(results[0]), v.sum(dtype=np.float64), rtol=1e-3, atol=1e-2)
    assert host(results[2]) == v.argmax()
    np.testing.assert_array_equal(host(results[3]), np.sort(v))
    np.testing.assert_array_equal(host(results[4]), np.argsort(v, kind="stable"))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [((1000,), 0), ((8, 1024), 1), ((5000, 67), 1), ((5000, 67), 0), ((70001, 3), 0), ((3, 70001), 1), ((1, 5), 0),
     ((1 << 20,), 0), ((16, 21, 8, 9), (0, 2, 3)), ((16, 21, 8, 9), (1, 3)), ((7, 0), 0)],
    ids=str,
)  # fmt: skip
def test_variances_and_norms(cuda, shape, dims, dtype):
    t, v = make(shape, dtype, cuda)
    t, v = t + 100, host(t + 100).astype(np.float64)
    unit = {"float64": 1e-11, "float32": 3e-7, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    views = [(t, v)]
    if len(shape) == 2:
        views += [(t.T.contiguous().T, v), (t[::2, 1:], v[::2, 1:])]
    for x, w in views:
        count = np.prod([w.shape[d] for d in ([dims] if isinstance(dims, int) else dims)])
        if w.size and count > 1:
            x = x.detach()
            x.requires_grad = True
            got = norch.var(x, dims)
            np.testing.assert_allclose(host(got), np.var(w, axis=dims, ddof=1), rtol=4 * unit)
            np.testing.assert_allclose(host(norch.std(x, dims)), np.std(w, axis=dims, ddof=1), rtol=4 * unit)
            got.sum().backward()
            off = (w - w.mean(axis=dims, keepdims=True)) * 2 / (count - 1)
            if dtype in ("float64", "float32"):
                np.testing.assert_allclose(host(x.grad), off, atol=1e-4 / (count - 1) if dtype == "float32" else 1e-11)
        if dtype != "float16":
            np.testing.assert_allclose(host(norch.norm(x, dim=dims)), np.sqrt((w * w).sum(axis=dims)), rtol=2 * unit)


def test_variances_of_few_and_of_odd_numbers(cuda):
    x = norch.tensor([[1.0, np.nan], [np.inf, 1.0], [3e7, 3e7 + 2], [5.0, 5.0]], device=cuda)
    np.testing.assert_array_equal(host(norch.var(x, 1)), [np.nan, np.nan, 2.0, 0.0])
    assert np.isnan(host(norch.var(x[:, :1], 1))).all()
    np.testing.assert_array_equal(host(norch.var(x[3:], 1, unbiased=False)), [0.0])
    big = norch.tensor(RNG.standard_normal((1000, 1000)), device=cuda).float()
    np.testing.assert_array_equal(host(norch.var(big)), host(norch.var(big)))
