"""The kernel of Fourier transforms against NumPy in float64: sizes, kinds, layouts, numbers of threads."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import norch
from norch import fft
from norch.backend import Operand
from norch.ops.matrix.dft import dft
from norch_cpu.backend import CpuBackend
from norch_cpu.native import native

RNG = np.random.default_rng(11)
SMALL = [*range(1, 34), 49, 64, 97, 100, 121, 127, 128, 210, 254, 343, 400, 1000, 1022, 1024]
LONG = [4096, 6561, 16000, 16129, 30030, 65536]
EPS = {norch.float64: 2.0**-52, norch.float32: 2.0**-23}
# inputs, outputs, sign, of n: how many numbers come in, and how many go out; doubled.
KINDS = {
    "complex": (2, 2, -1, lambda n: n, lambda n: n, False),
    "complex back": (2, 2, 1, lambda n: n, lambda n: n, False),
    "cut and padded": (2, 2, -1, lambda n: (n + 1) // 2, lambda n: (n + 2) // 3, False),
    "real": (1, 2, -1, lambda n: n, lambda n: n // 2 + 1, False),
    "real to all": (1, 2, 1, lambda n: n, lambda n: n, False),
    "real, doubled, padded": (1, 2, 1, lambda n: (n + 2) // 3, lambda n: n // 2 + 1, True),
    "half to real": (2, 1, 1, lambda n: n // 2 + 1, lambda n: n, True),
    "half to real, forward": (2, 1, -1, lambda n: n // 2 + 1, lambda n: n, False),
    "few to few real": (2, 1, 1, lambda n: (n + 3) // 4, lambda n: (n + 1) // 2, True),
    "all to real": (2, 1, -1, lambda n: n, lambda n: n, False),
}


@pytest.fixture(autouse=True)
def several_threads():
    before = native.num_threads()
    native.set_num_threads(3)
    yield
    native.set_num_threads(before)


def expected_of(x, window, n, sign, outputs, count, scale, doubled):
    """NumPy's, and how large an error of one part in the numbers would be."""
    inputs, size = x.shape[-2:]
    z = x[..., 0, :] + 1j * x[..., 1, :] if inputs == 2 else x[..., 0, :] * (1 if window is None else window)
    twice = np.full(n, 2.0 if doubled else 1.0)
    twice[0] = 1
    if n % 2 == 0:
        twice[n // 2] = 1
    if inputs == 2 and outputs == 1:
        z = z * twice[:size]
    found = np.fft.fft(z, n) if sign < 0 else np.fft.ifft(z, n) * n
    found = found[..., :count] * scale
    rms = np.linalg.norm(z) / max(np.sqrt(z.size / size), 1) * scale
    if outputs == 1:
        return (found.real * (1 if window is None or inputs == 1 else window))[..., None, :], 2 * rms
    found = found * twice[:count] if inputs == 1 else found
    return np.stack([found.real, found.imag], -2), 2 * rms


@cache
def drawn(*shape):
    """The same numbers for every kind and dtype."""
    return RNG.standard_normal(shape)


def check(rows, n, kind, dtype, windowed=False):
    inputs, outputs, sign, size_of, count_of, doubled = KINDS[kind]
    size, count = size_of(n), count_of(n)
    values = norch.tensor(drawn(rows, inputs, size), dtype=dtype)
    window = norch.tensor(RNG.uniform(0, 1, size if inputs == 1 else count), dtype=dtype) if windowed else None
    args = (n, sign, outputs, count, 0.5, doubled)
    found = dft(values, window, *args).numpy().astype(np.float64)
    given = None if window is None else window.numpy().astype(np.float64)
    expected, rms = expected_of(values.numpy().astype(np.float64), given, *args)
    assert found.shape == expected.shape
    allowed = EPS[dtype] * (3 + np.log2(n)) * rms
    # A prime radix is a sum of as many terms.
    assert np.abs(found - expected).max() <= allowed * (3 if n in (49, 97, 121, 127, 254, 343, 1022, 16129) else 1)


@pytest.mark.parametrize("dtype", EPS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_size(kind, dtype):
    for n in SMALL:
        for rows in (1, 5, 17):
            check(
                rows, n, kind, dtype, windowed=rows == 5 and kind not in ("complex", "complex back", "cut and padded")
            )


@pytest.mark.parametrize("dtype", EPS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_long_rows(kind, dtype):
    for n in LONG:
        for rows in (1, 2, 9):
            check(
                rows, n, kind, dtype, windowed=rows == 2 and kind not in ("complex", "complex back", "cut and padded")
            )


@pytest.mark.parametrize("dtype", EPS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [512, 1024, 2048])
def test_many_rows_whole_pages_apart(n, kind, dtype):
    check(21, n, kind, dtype, windowed=n == 1024 and kind not in ("complex", "complex back", "cut and padded"))


@pytest.mark.parametrize("dtype", EPS, ids=str)
@pytest.mark.parametrize("size", [(4, 6), (9, 5), (64, 64), (16, 127), (30, 256), (1, 8), (8, 2)], ids=str)
@pytest.mark.parametrize("given", [None, "cut", "padded"])
def test_images(size, given, dtype):
    assert "dft2" in native.ops()
    height, width = size
    s = {None: None, "cut": (height - height // 3, width - width // 3), "padded": (height + 2, width + 3)}[given]
    x, (re, im) = RNG.standard_normal((2, 3, height, width)), RNG.standard_normal((2, 2, 3, height, width))
    z, before = re + 1j * im, native.num_threads()
    pair = norch.complex(norch.tensor(re, dtype=dtype), norch.tensor(im, dtype=dtype))
    turned = norch.tensor(np.ascontiguousarray(x.T), dtype=dtype).permute(3, 2, 1, 0)
    bound = EPS[dtype] * 60
    for norm in ("backward", "ortho"):
        found = {"rfft2": [fft.rfft2(v, s, norm=norm) for v in (norch.tensor(x, dtype=dtype), turned)]}
        found["fft2"] = [fft.fft2(turned, s, norm=norm)]
        expected = {"rfft2": np.fft.rfft2(x, s, norm=norm), "fft2": np.fft.fft2(x, s, norm=norm)}
        for name in ("fft2", "ifft2", "irfft2"):
            bits = []
            for threads in (1, 3):
                native.set_num_threads(threads)
                bits.append(getattr(fft, name)(pair, s, norm=norm))
            native.set_num_threads(before)
            assert norch.equal(*[getattr(v, "pair", v) for v in bits])
            wanted = getattr(np.fft, name)(z, s, norm=norm)
            np.testing.assert_allclose(bits[0].numpy(), wanted, 0, bound * np.abs(wanted).max())
        for name, results in found.items():
            for result in results:
                np.testing.assert_allclose(result.numpy(), expected[name], 0, bound * np.abs(expected[name]).max())


@pytest.mark.parametrize("n", [131, 262, 521, 2062])
def test_sizes_of_large_prime_factors_have_no_kernel(n):
    x = RNG.standard_normal((2, n))
    found = norch.view_as_real(fft.fft(norch.tensor(x))).numpy()
    z = np.fft.fft(x)
    np.testing.assert_allclose(found, np.stack([z.real, z.imag], -1), atol=1e-10)


def compiled(*operands, **attrs):
    return CpuBackend().compile("dft", operands, {"sign": -1, "scale": 1.0, "doubled": False, "given": (1, 0), **attrs})


def test_what_has_a_kernel():
    def operand(dtype, *shape):
        strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        return Operand(dtype, shape, strides)

    for dtype, n, expected in (
        (norch.float32, 1024, True), (norch.float64, 127, True), (norch.float32, 131, False), (norch.float16, 8, False),
    ):  # fmt: skip
        found = compiled(operand(dtype, 3, 2, n), operand(dtype, 3, 2, n), n=n, outputs=2, count=n)
        assert (found is not None) == expected


def test_a_kernel_tells_the_memory_that_it_takes_while_it_runs():
    backend = norch.device("cpu").backend
    for shape in [(1, 2, 30_000), (64, 2, 8_000), (64, 2, 4_096)]:
        x, out = norch.randn(*shape), norch.empty(*shape)
        operands = [Operand(t.dtype, tuple(t.shape), t.stride()) for t in (out, x)]
        kernel = compiled(*operands, n=shape[2], outputs=2, count=shape[2], scale=0.5)
        norch.cpu.reset_peak_memory_stats()
        before = norch.cpu.memory_stats()["allocated_bytes"]
        kernel(out.buffer, 0, x.buffer, 0)
        taken = norch.cpu.memory_stats()["peak_allocated_bytes"] - before
        told = backend.scratch_bytes(kernel)
        # Which of three threads are at work at once is chance.
        assert told / 4 <= taken <= told * 1.5 + 300_000


def layouts(rows, parts, n):
    """Operands (rows, a second dim of 3, parts, n) that lie in memory in every way."""
    values = RNG.standard_normal((rows, 3, parts, n))
    yield norch.tensor(values)
    for order in [(2, 0, 1, 3), (0, 1, 3, 2), (0, 3, 2, 1), (3, 1, 2, 0), (1, 3, 0, 2), (3, 2, 1, 0)]:
        back = tuple(int(i) for i in np.argsort(order))
        yield norch.tensor(values.transpose(order).copy()).permute(back)
    wide = RNG.standard_normal((rows, 3, parts, 2 * n))
    yield norch.tensor(wide)[..., ::2]
    yield norch.tensor(values[:1]).expand(rows, 3, parts, n)
    yield norch.tensor(values[..., :1]).expand(rows, 3, parts, n)


@pytest.mark.parametrize("n", [12, 15, 4096])
@pytest.mark.parametrize("kind", ["complex", "complex back", "real to all", "half to real"])
def test_layouts(kind, n):
    inputs, outputs, sign, size_of, count_of, doubled = KINDS[kind]
    for x in layouts(2 if n > 100 else 11, inputs, size_of(n)):
        args = (n, sign, outputs, count_of(n), 1.0, doubled)
        found = dft(x, None, *args)
        expected, rms = expected_of(x.numpy(), None, *args)
        assert np.abs(found.numpy() - expected).max() <= 1e-15 * 20 * rms
        span = sum((size - 1) * stride for size, stride in zip(found.shape, found.stride(), strict=True)) + 1
        assert span == found.numel()  # without gaps


def test_columns_stay_columns():
    """Transforms along dims but the last give what lies in memory as the input does."""
    z = fft.fft2(norch.randn(3, 6, 10))
    assert z.real.stride()[-1] == 1
    assert z.real.stride()[-2] == 2 * 10


@pytest.mark.parametrize("shape", [(40, 1000), (3, 16000), (1, 65536), (1, 50)])
def test_the_number_of_threads_changes_no_bit(shape):
    x = norch.randn(*shape)
    found = []
    for threads in (1, 2, 3, 5):
        native.set_num_threads(threads)
        z = fft.rfft(x)
        found.append(
            (norch.view_as_real(z).contiguous(), fft.irfft(z, shape[1]), norch.view_as_real(fft.ifft(x)).contiguous())
        )
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert norch.equal(a, b)


def test_overlapping_frames_are_read_where_they_are():
    x, window = norch.randn(2, 999, dtype=norch.float64), norch.hann_window(60, dtype=norch.float64)
    frames = x.unfold(1, 60, 7)
    found = dft(frames.unsqueeze(2), window, 60, -1, 2, 31, 1.0, False).numpy()
    z = np.fft.rfft(frames.numpy() * window.numpy())
    np.testing.assert_allclose(found, np.stack([z.real, z.imag], 2), atol=1e-13)


def test_numbers_that_are_not_finite_stay_in_their_rows():
    x = norch.ones(9, 64)
    x[3, 5] = float("nan")
    x[4, 0] = float("inf")
    found = norch.view_as_real(fft.rfft(x)).isfinite().all(2).all(1)
    assert found.tolist() == [True] * 3 + [False] * 2 + [True] * 4
