"""random, arange and dropout: every bit of them against the definition, written out in Python's own numbers."""

import math

import ml_dtypes
import numpy as np
import pytest

import norch
from norch.backend import Operand
from norch.numpy_backend import philox as reference
from norch_cpu.native import native

FLOATS = ("float64", "float32", "float16", "bfloat16")
STATES = [(0, 0), (2**64 - 1, 2**63 + 5), (1234567890123, 77)]
MASK = 2**32 - 1


def philox(block, seed, offset):
    """The four words of a block: Salmon et al., 2011."""
    c = [block & MASK, block >> 32, offset & MASK, offset >> 32]
    k = [seed & MASK, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & MASK, (p >> 32) ^ c[3] ^ k[1], p & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def words(n, seed, offset):
    return [w for block in range(-(-n // 4)) for w in philox(block, seed, offset)][:n]


def doubles(n, seed, offset):
    w = words(2 * n, seed, offset)
    return [((a >> 5) * 2**26 + (b >> 6)) / 2**53 for a, b in zip(w[::2], w[1::2], strict=True)]


def normals(u):
    for a, b in zip(u[::2], u[1::2], strict=True):
        r, t = math.sqrt(-2 * math.log1p(-a)), 2 * math.pi * b
        yield from (r * math.cos(t), r * math.sin(t))


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def generator(seed, offset):
    return norch.Generator().set_state((seed, offset))


def as_float(t):
    return np.array(t.tolist(), float).reshape(t.shape)


@pytest.fixture
def threads():
    before = norch.get_num_threads()
    yield norch.set_num_threads
    norch.set_num_threads(before)


def test_the_published_words():
    """The known answer of Random123 for a counter and a key of zeros."""
    assert [hex(w) for w in philox(0, 0, 0)] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("state", STATES, ids=str)
def test_integers(state):
    for n in (0, 1, 5, 127, 1301):
        w = words(2 * n, *state)
        assert norch.randint(0, 2**30, (n,), generator=generator(*state)).tolist() == [x >> 2 for x in w[:n]]
        wide = [(a << 32 | b) >> 1 & (2**62 - 1) for a, b in zip(w[::2], w[1::2], strict=True)]
        assert norch.randint(0, 2**62, (n,), generator=generator(*state)).tolist() == wide


@pytest.mark.parametrize("state", STATES, ids=str)
def test_uniforms_to_the_bit(state):
    digits = {"float32": 24, "float16": 11, "bfloat16": 8}
    for n in (0, 1, 6, 130, 1301):
        for name, d in digits.items():
            got = norch.rand(n, generator=generator(*state), dtype=name)
            assert got.tolist() == [(w >> (32 - d)) / 2**d for w in words(n, *state)]
        assert norch.rand(n, generator=generator(*state), dtype="float64").tolist() == doubles(n, *state)


@pytest.mark.parametrize("state", STATES, ids=str)
@pytest.mark.parametrize("name", FLOATS)
def test_normals_to_a_few_ulp(state, name):
    for n in (1, 2, 7, 1300):
        even = n + n % 2
        u = doubles(even, *state) if name == "float64" else [(w >> 8) / 2**24 for w in words(even, *state)]
        want = np.array(list(normals(u)))[:n]
        got = as_float(norch.randn(n, generator=generator(*state), dtype=name))
        ulp = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[name]
        few = 4 if name in ("float64", "float32") else 1
        assert (np.abs(got - want) <= few * ulp * np.abs(want) + (2.0**-24 if name == "float16" else 0)).all()


@pytest.mark.parametrize("name", FLOATS)
def test_large_draws_are_the_same_in_any_number_of_threads(name, threads):
    drawn = []
    for count in (1, 2, 5):
        threads(count)
        drawn.append([f(300_003, generator=generator(5, 6), dtype=name) for f in (norch.rand, norch.randn)])
    for u, n in drawn[1:]:
        assert (u == drawn[0][0]).all().item()
        assert (n == drawn[0][1]).all().item()
    u, n = (as_float(t[:100_000]) for t in drawn[0])
    assert abs(u.mean() - 0.5) < 0.004
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(n.mean()) < 0.015
    assert abs(n.std() - 1) < 0.015
    assert np.isfinite(n).all()
    assert drawn[0][0][1304:1308].tolist() == norch.rand(1308, generator=generator(5, 6), dtype=name)[1304:].tolist()


def native_kernel(op, dtype, shape, strides, scalar_dtype, attrs):
    """A kernel with two scalars, and the call of it: returns the output and what lies between its elements."""
    scalar = Operand(scalar_dtype, (), (), True)
    kernel = native.compile(op, (Operand(dtype, shape, strides), scalar, scalar), attrs)
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))

    def call(a, b):
        memory = np.full(span, 7, numpy_dtype(dtype.name))
        kernel(native.from_host(memoryview(memory.view(np.uint8))), 0, a, b)
        view = np.lib.stride_tricks.as_strided(memory, shape, [s * memory.itemsize for s in strides])
        return memory, view

    return call


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_draws_into_other_layouts(name, kind):
    dtype = getattr(norch, name)
    plain = {"uniform": norch.rand, "normal": norch.randn}[kind]
    for shape, strides in [((6, 5), (1, 6)), ((5, 3, 4), (60, 20, 2)), ((301,), (3,)), ((), ())]:
        memory, view = native_kernel("random", dtype, shape, strides, norch.int64, {"kind": kind})(3, 4)
        want = as_float(plain(shape, generator=generator(3, 4), dtype=name))
        assert view.astype(float).tolist() == want.tolist()
        assert (memory == 7).sum() >= memory.size - view.size


# --- arange -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["int64", "int32", "int16", "int8", "uint8"])
def test_arange_of_integers(name):
    dtype = getattr(norch, name)
    for n, strides in ((1, (1,)), (777, (1,)), (300, (3,)), (100_000, (1,))):
        _, view = native_kernel("arange", dtype, (n,), strides, dtype, {})(100, 7)
        with np.errstate(all="ignore"):
            want = np.array(100 + np.arange(n) * 7).astype(numpy_dtype(name))
        assert (view == want).all()
    assert norch.arange(5, -10, -3).tolist() == [5, 2, -1, -4, -7]
    assert norch.arange(0, dtype=name).tolist() == []


@pytest.mark.parametrize("name", FLOATS)
def test_arange_of_floats_is_rounded_once(name):
    dtype = getattr(norch, name)
    for n, strides in ((1, (1,)), (2500, (1,)), (300, (4,)), (100_000, (1,))):
        _, view = native_kernel("arange", dtype, (n,), strides, dtype, {})(-3.7, 0.01234567)
        exact = -3.7 + np.arange(n) * 0.01234567
        if name == "bfloat16":  # ml_dtypes goes by way of float32
            near = exact.astype(np.float32).astype(ml_dtypes.bfloat16).astype(float)
            assert (np.abs(view.astype(float) - exact) <= np.abs(near - exact)).all()
        else:
            assert (view == exact.astype(name)).all()
    half = norch.arange(65500, 65540, 8, dtype=norch.float16)
    assert half.tolist() == [65504.0, 65504.0, 65504.0, math.inf, math.inf]


def test_arange_between_two_roundings():
    """A number just over the middle between two neighbours, which float32 puts on the middle."""
    for name, digits in (("float16", 11), ("bfloat16", 8)):
        dtype = getattr(norch, name)
        middle = 1 + 2.0**-digits
        for start, want in ((middle + 2.0**-40, 1 + 2.0 ** (1 - digits)), (middle - 2.0**-40, 1.0), (middle, 1.0)):
            _, view = native_kernel("arange", dtype, (2,), (1,), dtype, {})(start, 0.0)
            assert view.astype(float).tolist() == [want, want]
    for value in (math.inf, -math.inf, 0.0, 5e-8):
        _, view = native_kernel("arange", norch.float16, (1,), (1,), norch.float16, {})(value, 0.0)
        assert view[0] == np.float16(value)
    assert np.isnan(native_kernel("arange", norch.float16, (1,), (1,), norch.float16, {})(math.nan, 0.0)[1][0])


# --- dropout ----------------------------------------------------------------------------------------------------------


def dropped(x, p, seed, offset, name):
    """Of an array: zeros where the uniform of the element, in row-major order, is less than p."""
    blocks = reference.words(seed, offset, 0, -(-x.size // 4))
    u = reference.uniform(blocks, 24).reshape(-1)[: x.size].reshape(x.shape)
    with np.errstate(all="ignore"):
        kept = x.astype(np.float32 if name != "float64" else float) * (
            np.float32(1 / (1 - p)) if name != "float64" else 1 / (1 - p)
        )
    return np.where(u < np.float32(p), 0, kept).astype(numpy_dtype(name)).astype(float)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("shape", [(1,), (7,), (33, 70), (3, 5, 700), (60_001,)], ids=str)
def test_dropout_draws_by_element(name, shape):
    dtype = getattr(norch, name)
    array = np.random.default_rng(0).standard_normal(shape).astype(numpy_dtype(name))
    x = norch.tensor(array.astype(float).tolist(), dtype=dtype)
    reverse = tuple(range(len(shape)))[::-1]
    doubled = norch.stack([x, x], -1)
    layouts = [x, x.permute(reverse).contiguous().permute(reverse), doubled[..., 1]]
    for state, p in (((3, 4), 0.3), ((2**64 - 1, 2**64 - 1), 0.75)):
        norch.set_rng_state(state)
        want = dropped(array, p, *state, name)
        for layout in layouts:
            norch.set_rng_state(state)
            np.testing.assert_array_equal(as_float(norch.dropout(layout, p)), want)


def test_dropout_of_one_row_for_all():
    row = norch.arange(1, 131, dtype=norch.float32)
    norch.manual_seed(8)
    got = norch.dropout(row.expand(50, 130), 0.5).numpy()
    norch.manual_seed(8)
    assert (got == norch.dropout(row.expand(50, 130).contiguous(), 0.5).numpy()).all()
    assert set((got / row.numpy()).reshape(-1).tolist()) == {0.0, 2.0}


def test_dropout_at_its_edges(threads):
    x = norch.tensor([math.nan, math.inf, -math.inf, 1.0] * 1000)
    assert norch.dropout(x, 1.0).tolist() == [0.0] * 4000
    assert norch.dropout(x, 1 - 2**-40).tolist() == [0.0] * 4000
    assert norch.dropout(x, 0.5).isnan().sum().item() < 1000
    assert norch.dropout(norch.empty(0, 3), 0.5).shape == (0, 3)
    assert norch.dropout(norch.tensor(2.0), 0.5).item() in (0.0, 4.0)
    y = norch.ones(200_000)
    drawn = []
    for count in (1, 3):
        threads(count)
        norch.manual_seed(1)
        drawn.append(norch.dropout(y, 0.1))
    assert (drawn[0] == drawn[1]).all().item()
    assert abs((drawn[0] == 0).float().mean().item() - 0.1) < 0.005


def test_dropout_draws_its_mask_again_for_the_gradient():
    x = norch.ones(37, 41).t().requires_grad_()
    y = norch.dropout(x, 0.4)
    y.sum().backward()
    assert (x.grad == y).all().item()


def test_poisson_counts_are_where_uniform_draws_lie_among_the_sums_of_probabilities():
    from norch.ops.rejection import poisson_of_uniform

    rng = np.random.default_rng(0)
    rate, drawn = rng.uniform(0, 10, (37, 61)), rng.random((37, 61))
    drawn[0, :3], rate[0, 3:5] = (0, np.nextafter(1, 0), 0.5), (0, 9.99)
    mass, expected = np.exp(-rate), np.zeros(rate.shape)
    part, below = mass.copy(), mass.copy()
    for k in range(1, 120):
        expected[drawn >= below] = k
        part = part * (rate / k)
        below = below + part
    for arrays in ((drawn, mass, rate), tuple(a.T for a in (drawn, mass, rate))):
        found = poisson_of_uniform(*(norch.from_numpy(a) for a in arrays))
        assert (found.numpy() == (expected if arrays[0] is drawn else expected.T)).all()
