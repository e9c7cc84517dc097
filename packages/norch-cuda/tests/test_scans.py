"""cumprod, cummax, cummin and logcumsumexp on the GPU against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(5)
SHAPES = [((1,), 0), ((7,), 0), ((5, 129), 1), ((300, 1000), 1), ((1000, 300), 0), ((3, 70001), 1), ((70001, 3), 0),
          ((1 << 18,), 0), ((4, 65, 33), 1), ((0, 4), 0), ((4, 0), 0)]  # fmt: skip


def host(t):
    t = t.detach().to("cpu")
    return (t.double() if t.dtype.is_floating_point else t).numpy()


def along(v, dim, t):
    """The tensor as it is, transposed in memory, and every other element of a larger one."""
    yield t, v
    if v.ndim > 1:
        yield t.transpose(0, 1).contiguous().transpose(0, 1), v
    yield t.flip(dim), np.flip(v, dim)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_cumprod(cuda, shape, dim, dtype):
    values = RNG.integers(-3, 4, shape) if dtype == "int64" else np.exp(RNG.uniform(-0.01, 0.01, shape))
    made = norch.tensor(values).to(getattr(norch, dtype)).to(cuda)
    for t, v in along(host(made), dim, made):
        got = host(norch.cumprod(t, dim))
        wanted = np.cumprod(v, dim)
        if dtype == "int64":
            np.testing.assert_array_equal(got, wanted)
        else:
            unit = {"float64": 1e-9, "float32": 2e-7, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
            wanted = np.where(wanted > 65504, np.inf, wanted) if dtype == "float16" else wanted
            np.testing.assert_allclose(got, wanted, rtol=unit, atol=6e-8 if dtype == "float16" else 0)


def running(v, dim, largest):
    """Values and last indices."""
    v = np.moveaxis(v, dim, 0)
    with np.errstate(invalid="ignore"):
        best = (np.maximum if largest else np.minimum).accumulate(v)
        index = np.maximum.accumulate(
            np.where((v == best) | (v != v), np.arange(len(v)).reshape(-1, *(1,) * (v.ndim - 1)), 0)
        )
    return np.moveaxis(best, 0, dim), np.moveaxis(index, 0, dim)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_running_extremes(cuda, shape, dim, dtype):
    values = RNG.integers(0, 100, shape).astype(np.float64)
    if "float" in dtype and values.size > 400:
        values.reshape(-1)[values.size * 3 // 4] = np.nan
    made = norch.tensor(values if "float" in dtype else values.astype(np.int64)).to(getattr(norch, dtype)).to(cuda)
    for t, v in along(host(made), dim, made):
        for name in ("cummax", "cummin"):
            got = getattr(norch, name)(t, dim)
            wanted = running(v, dim, name == "cummax")
            for one, other in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(host(one), other)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_gradient_of_running_extremes(cuda, shape, dim, dtype):
    values, given = RNG.integers(0, 100, shape).astype(np.float64), RNG.integers(-1, 2, shape).astype(np.float64)
    x, g = (norch.tensor(v).to(getattr(norch, dtype)).to(cuda) for v in (values, given))
    x.requires_grad_()
    for (grad, of_grad), name in itertools.product(along(given, dim, g), ("cummax", "cummin")):
        y, index = getattr(norch, name)(x, dim)
        (found,) = norch.autograd.grad(y, x, grad)
        at, wanted = host(index), np.zeros(shape)
        places = list(np.indices(shape))
        places[dim] = at
        np.add.at(wanted, tuple(places), of_grad)
        np.testing.assert_allclose(host(found), wanted, rtol=1e-2 if dtype == "bfloat16" else 0)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_logcumsumexp_and_its_gradient(cuda, shape, dim, dtype):
    made = norch.tensor(RNG.standard_normal(shape) * 3).to(getattr(norch, dtype)).to(cuda)
    unit = {"float64": 1e-11, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    for t, v in along(host(made), dim, made):
        t = t.detach()
        t.requires_grad = True
        y = norch.logcumsumexp(t, dim)
        wanted = np.logaddexp.accumulate(v, dim) if v.size else v
        np.testing.assert_allclose(host(y), wanted, rtol=unit, atol=unit)
        y.sum().backward()
        if not v.size or dtype in ("float16", "bfloat16"):
            continue
        share = np.flip(np.cumsum(np.flip(np.exp(-wanted), dim), dim), dim)
        # As many factors are multiplied as the row is long, each of which is rounded.
        rounded = v.shape[dim] * 2.0**-27 if dtype == "float32" else 0
        np.testing.assert_allclose(host(t.grad), np.exp(v) * share, rtol=max(100 * unit, rounded), atol=unit)
        first = host(t.grad)
        t.grad = None
        norch.logcumsumexp(t, dim).sum().backward()
        np.testing.assert_array_equal(host(t.grad), first)


def test_logcumsumexp_of_infinities(cuda):
    x = np.array(
        [[-np.inf, -np.inf, 1.0, np.inf, 2.0], [1.0, -np.inf, 3.0, np.nan, 2.0], [np.inf, np.inf, 1.0, 2.0, 3.0]]
    )
    with np.errstate(invalid="ignore"):
        wanted = np.logaddexp.accumulate(x, 1)
    np.testing.assert_allclose(host(norch.logcumsumexp(norch.tensor(x, device=cuda), 1)), wanted)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_gradient_of_cumsum(cuda, shape, dim, dtype):
    made = norch.tensor(RNG.integers(-4, 5, shape).astype(np.float64)).to(getattr(norch, dtype)).to(cuda)
    for g, v in along(host(made), dim, made):
        x = norch.zeros_like(g)
        x.requires_grad = True
        norch.cumsum(x, dim).backward(g)
        wanted = np.flip(np.cumsum(np.flip(v, dim), dim), dim)
        np.testing.assert_allclose(host(x.grad), wanted, rtol=8e-3 if dtype == "bfloat16" else 1e-6)
        x.grad = None
        norch.cumsum(x, dim).sum().backward()
        count = np.flip(np.cumsum(np.ones(v.shape), dim), dim)
        np.testing.assert_allclose(host(x.grad), count, rtol=8e-3 if dtype == "bfloat16" else 1e-7)


def test_cumprod_gradient_with_zeros(cuda):
    v = RNG.uniform(0.5, 1.5, (4, 300))
    v[1, 7] = v[2, 3] = v[2, 200] = 0.0
    grads = []
    for device in ("cpu", cuda, cuda):
        t = norch.tensor(v, device=device, requires_grad=True)
        norch.cumprod(t, 1).sum().backward()
        grads.append(host(t.grad))
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(grads[1], grads[2])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8"])
def test_searchsorted(cuda, dtype):
    kind = getattr(norch, dtype)
    for rows, size, count in ((1, 1, 5), (1, 1000, 4099), (1, 100003, 70001), (5, 65, 33), (1, 0, 4), (3, 8, 0)):
        sequence = np.sort(RNG.integers(0, 200, (rows, size)), -1).astype(np.float64)
        values = RNG.integers(0, 210, (rows, count)).astype(np.float64)
        if "float" in dtype:
            if size:
                sequence[:, -1] = np.nan
            if count:
                values[:, 0], values[:, -1] = np.nan, np.inf
        s, x = (norch.tensor(v if "float" in dtype else v.astype(np.int64)).to(kind) for v in (sequence, values))
        for right in (False, True):
            got = host(norch.searchsorted(s.to(cuda), x.to(cuda), right=right))
            side = "right" if right else "left"
            wanted = [np.searchsorted(a, b, side) for a, b in zip(s.double().numpy(), x.double().numpy(), strict=True)]
            np.testing.assert_array_equal(got, np.stack(wanted))


@pytest.mark.parametrize("numel", [1, 15, 4096, 4097, 70001, (1 << 23) + 5])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_nonzero(cuda, numel, share):
    v = RNG.random(numel) < share
    t = norch.tensor(v, device=cuda)
    np.testing.assert_array_equal(host(norch.nonzero(t))[:, 0], np.flatnonzero(v))
    np.testing.assert_array_equal(host(norch.nonzero(t[1:], as_tuple=True)[0]), np.flatnonzero(v[1:]))
    if numel == 70001:
        for one, other in zip(norch.nonzero(t[1:].reshape(7, 10000), as_tuple=True), v[1:].reshape(7, 10000).nonzero()):
            np.testing.assert_array_equal(host(one), other)


def test_triangles(cuda):
    for row, col, offset in [(3, 4, 0), (100, 33, -7), (33, 100, 7), (1, 1, 5), (0, 3, 0), (200, 200, 1)]:
        lower, upper = (f(row, col, offset, device=cuda) for f in (norch.tril_indices, norch.triu_indices))
        np.testing.assert_array_equal(host(lower), np.array(np.tril_indices(row, offset, col)))
        np.testing.assert_array_equal(host(upper), np.array(np.triu_indices(row, offset, col)))


def test_masked_scatter_and_its_gradient(cuda):
    v, s = RNG.standard_normal(70001), RNG.standard_normal(70001)
    mask = RNG.random(70001) < 0.3
    x, source = (norch.tensor(a, device=cuda, requires_grad=True) for a in (v, s))
    y = norch.masked_scatter(x, norch.tensor(mask, device=cuda), source)
    wanted = v.copy()
    wanted[mask] = s[: mask.sum()]
    np.testing.assert_array_equal(host(y), wanted)
    g = RNG.standard_normal(70001)
    y.backward(norch.tensor(g, device=cuda))
    grad = np.zeros(70001)
    grad[: mask.sum()] = g[mask]
    np.testing.assert_array_equal(host(source.grad), grad)
    np.testing.assert_array_equal(host(x.grad), np.where(mask, 0, g))
