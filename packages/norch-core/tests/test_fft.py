"""Fourier transforms, against NumPy's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import norch
from norch import fft
from norch.ops.matrix.dft import dft
from norch.testing.gradcheck import gradcheck, gradgradcheck

RNG = np.random.default_rng(5)
SIZES = [1, 2, 3, 16, 65, 97, 128, 131, 400, 509, 521, 1022, 1031, 2048, 20000]
NORMS = ["backward", "ortho", "forward"]


def parts(z):
    return np.stack([z.real, z.imag], -1)


def pair(z, dtype=norch.float64):
    return norch.view_as_complex(norch.tensor(parts(z), dtype=dtype))


def close(found, expected, tolerance=1e-12):
    given = norch.view_as_real(found).detach().numpy() if norch.is_complex(found) else found.detach().numpy()
    expected = parts(expected) if np.iscomplexobj(expected) else expected
    assert given.shape == expected.shape
    assert np.abs(given - expected).max(initial=0) <= tolerance * max(np.abs(expected).max(initial=0), 1)


@pytest.mark.parametrize("n", SIZES)
def test_along_one_dim(n):
    norm = NORMS[n % 3]
    x = RNG.standard_normal((2, n))
    z = x + 1j * RNG.standard_normal((2, n))
    close(fft.fft(norch.tensor(x), norm=norm), np.fft.fft(x, norm=norm))
    close(fft.fft(pair(z), norm=norm), np.fft.fft(z, norm=norm))
    close(fft.ifft(pair(z), norm=norm), np.fft.ifft(z, norm=norm))
    close(fft.rfft(norch.tensor(x), norm=norm), np.fft.rfft(x, norm=norm))
    close(fft.irfft(pair(z), n, norm=norm), np.fft.irfft(z, n, norm=norm))


@pytest.mark.parametrize("n", [8192, 6002, 30030])
def test_long_transforms_are_no_product_where_products_are_coarse(n, monkeypatch):
    """None of more than 4,096 elements, of which a backend without a kernel for it makes products."""
    norch.set_float32_matmul_precision("high")
    module, lengths = sys.modules["norch.ops.matrix.dft"], []
    tables = module._tables
    monkeypatch.setattr(module, "_tables", lambda n, *args: lengths.append(n) or tables(n, *args))
    try:
        x = RNG.standard_normal((2, n)).astype(np.float32)
        found = dft.op.decompose(norch.tensor(x).unsqueeze(1), None, n, -1, 2, n // 2 + 1, 1.0, False).numpy()
    finally:
        norch.set_float32_matmul_precision("highest")
    expected = np.fft.rfft(x.astype(np.float64))
    assert np.abs(found[:, 0] + 1j * found[:, 1] - expected).max() <= 1e-5 * np.abs(expected).max()
    assert max(lengths, default=0) <= 4096


@pytest.mark.parametrize("n", [64, 400, 1024, 1031])
def test_float32_is_as_accurate_as_its_numbers(n):
    x = RNG.standard_normal((4, n)).astype(np.float32)
    expected = np.fft.fft(x.astype(np.float64))
    close(fft.fft(norch.tensor(x)), expected, 1e-6)
    close(fft.irfft(fft.rfft(norch.tensor(x)), n), x, 1e-6)


@pytest.mark.parametrize("kwargs", [{}, {"n": 3}, {"n": 9}, {"dim": 0}, {"n": 4, "dim": 1}], ids=str)
def test_sizes_and_dims(kwargs):
    x = RNG.standard_normal((6, 5))
    theirs = {"axis" if k == "dim" else k: v for k, v in kwargs.items()}
    close(fft.fft(norch.tensor(x), **kwargs), np.fft.fft(x, **theirs))
    close(fft.rfft(norch.tensor(x), **kwargs), np.fft.rfft(x, **theirs))
    z = np.fft.fft(x)
    close(fft.irfft(pair(z), **kwargs), np.fft.irfft(z, **theirs))
    close(fft.ifft(pair(z), **kwargs), np.fft.ifft(z, **theirs))


@pytest.mark.parametrize("kwargs", [{}, {"s": (3, 8)}, {"dim": (0, 1)}, {"s": (4, 7), "dim": (2, 0), "norm": "ortho"}])
@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"])
def test_along_several_dims(name, kwargs):
    x = RNG.standard_normal((3, 4, 5))
    given = x + 1j * RNG.standard_normal(x.shape) if name.startswith("i") else x
    theirs = {"axes" if k == "dim" else k: v for k, v in kwargs.items()}
    if "s" in theirs and "axes" not in theirs:
        theirs["axes"] = (-2, -1)
    expected = getattr(np.fft, name)(given, **theirs)
    close(getattr(fft, name)(pair(given) if name.startswith("i") else norch.tensor(x), **kwargs), expected)


@pytest.mark.parametrize("kwargs", [{}, {"n": 7}, {"n": 4, "norm": "ortho"}, {"norm": "forward", "dim": 0}])
def test_transforms_of_what_is_its_own_mirrored_conjugate(kwargs):
    theirs = {"axis" if k == "dim" else k: v for k, v in kwargs.items()}
    x = RNG.standard_normal((6, 5))
    z = x + 1j * RNG.standard_normal(x.shape)
    close(fft.hfft(pair(z), **kwargs), np.fft.hfft(z, **theirs))
    close(fft.hfft(norch.tensor(x), **kwargs), np.fft.hfft(x, **theirs))
    close(fft.ihfft(norch.tensor(x), **kwargs), np.fft.ihfft(x, **theirs))
    with pytest.raises(ValueError, match="hfft"):
        fft.hfft(norch.tensor(x), norm="none")


def test_such_transforms_along_several_dims():
    x = RNG.standard_normal((3, 4, 6))
    half = fft.ihfftn(norch.tensor(x))
    close(half, np.conj(np.fft.rfftn(x)) / x.size)
    close(fft.hfftn(half), x)
    close(fft.hfft2(fft.ihfft2(norch.tensor(x), norm="ortho"), norm="ortho"), x)


def test_frequencies_and_shifts():
    for n in (1, 4, 5):
        close(fft.fftfreq(n, 0.3), np.fft.fftfreq(n, 0.3), 1e-6)
        close(fft.rfftfreq(n, 0.3, dtype=norch.float64), np.fft.rfftfreq(n, 0.3))
    x = RNG.standard_normal((3, 4, 5))
    for dim in (None, 1, (0, 2)):
        close(fft.fftshift(norch.tensor(x), dim), np.fft.fftshift(x, dim))
        close(fft.ifftshift(norch.tensor(x), dim), np.fft.ifftshift(x, dim))
    z = np.fft.fft(x)
    close(fft.fftshift(pair(z)), np.fft.fftshift(z))


@pytest.mark.parametrize("n", [5, 40, 150])
def test_gradients(n):
    x = norch.tensor(RNG.standard_normal(n), requires_grad=True)
    z = norch.tensor(RNG.standard_normal((n, 2)), requires_grad=True)
    assert gradcheck(lambda x: norch.view_as_real(fft.rfft(x)), (x,))
    assert gradcheck(lambda z: norch.view_as_real(fft.fft(norch.view_as_complex(z))), (z,))
    assert gradcheck(lambda z: fft.irfft(norch.view_as_complex(z), n), (z,))


KINDS = {
    "real to half": ((2, 1, 6), (8, -1, 2, 5, 0.5, False)),
    "half to real": ((2, 2, 5), (8, 1, 1, 8, 0.5, True)),
    "half of an odd size": ((2, 2, 4), (7, -1, 1, 7, 0.5, True)),
    "real to doubled": ((2, 1, 7), (7, 1, 2, 4, 0.5, True)),
    "complex to real": ((2, 2, 6), (6, 1, 1, 4, 0.5, False)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_gradients_of_windowed_transforms(kind):
    shape, args = KINDS[kind]
    x = norch.tensor(RNG.standard_normal(shape), requires_grad=True)
    window = norch.tensor(RNG.standard_normal(args[3] if shape[1] == 2 else shape[2]), requires_grad=True)
    assert gradcheck(lambda x, w: dft(x, w, *args), (x, window))
    assert gradgradcheck(lambda x, w: dft(x, w, *args), (x, window), fast_mode=True)


def test_transforms_of_func():
    x = norch.tensor(RNG.standard_normal((3, 2, 12)))
    window = norch.tensor(RNG.standard_normal((3, 12)))

    def spectrum(x, w):
        return norch.view_as_real(fft.rfft(x * w))

    close(norch.func.vmap(spectrum)(x, window), parts(np.fft.rfft(x.numpy() * window.numpy()[:, None])))
    windowed = norch.func.vmap(lambda x, w: dft(x.unsqueeze(-2), w, 12, -1, 2, 7, 1.0, False))(x, window)
    close(windowed.movedim(-2, -1), parts(np.fft.rfft(x.numpy() * window.numpy()[:, None])))
    out, tangent = norch.func.jvp(spectrum, (x[0], window[0]), (x[1], norch.zeros_like(window[0])))
    close(tangent, parts(np.fft.rfft((x[1] * window[0]).numpy())))
    close(out, parts(np.fft.rfft((x[0] * window[0]).numpy())))


def test_a_captured_step_gives_the_same_bits():
    def step(x):
        z = fft.rfft(x)
        return fft.irfft(z * 0.5, 20), z.abs()

    captured = norch.capture(step)
    for _ in range(3):
        x = norch.randn(3, 20)
        for found, expected in zip(captured(x), step(x), strict=True):
            assert norch.equal(found, expected)


def test_integers_and_16_bits():
    close(fft.fft(norch.arange(5)), np.fft.fft(np.arange(5)), 1e-6)
    with pytest.raises(norch.DTypeError, match=r"fft\(\): expected float32 or float64, got norch.float16"):
        fft.fft(norch.ones(4, dtype=norch.float16))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: fft.fft(x, 0), norch.ShapeError, "n must be at least 1"),
        (lambda x: fft.fft(x, norm="half"), ValueError, "backward, ortho, forward"),
        (lambda x: fft.fft(x, dim=3), norch.IndexError, "out of range"),
        (lambda x: fft.fft("x"), norch.DTypeError, "must be a Tensor"),
        (lambda x: fft.fft2(x, dim=(0, 0)), norch.ShapeError, "do not fit"),
        (lambda x: fft.irfft(x[:1]), norch.ShapeError, "n must be at least 1"),
    ],
)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call(norch.ones(4))


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "ihfftn"])
def test_one_dim_and_its_size_may_be_ints(name):
    x = RNG.standard_normal((4, 6))
    function = getattr(norch.fft, name)
    assert norch.equal(function(norch.tensor(x), s=3, dim=0).pair, function(norch.tensor(x), s=(3,), dim=(0,)).pair)
    assert norch.equal(function(norch.tensor(x), 5).pair, function(norch.tensor(x), (5,)).pair)


def test_star_imports_bring_transforms_alone():
    names = {}
    exec("from norch.fft import *", names)
    assert {name for name in names if name != "__builtins__"} == set(norch.fft.__all__)
    assert all(callable(names[name]) for name in norch.fft.__all__)


def test_gradients_of_no_numbers_filled_up_with_zeros():
    z = norch.zeros(3, 8, 0, 2, requires_grad=True)
    norch.fft.irfft2(norch.view_as_complex(z), s=(16, 16)).sum().backward()
    assert z.grad.shape == (3, 8, 0, 2)
