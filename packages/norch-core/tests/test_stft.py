"""Short-time Fourier transforms and windows, against NumPy's transforms and, where it is installed, PyTorch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import norch
from norch.testing.gradcheck import gradcheck

RNG = np.random.default_rng(7)
SIGNAL = RNG.standard_normal((2, 300))


def test_frames_are_transformed():
    window = np.hanning(17)[:16]
    x = norch.tensor(SIGNAL)
    found = norch.stft(x, 16, 4, window=norch.tensor(window), return_complex=False)
    padded = np.pad(SIGNAL, ((0, 0), (8, 8)), mode="reflect")
    frames = np.stack([padded[:, t : t + 16] for t in range(0, 301, 4)], 1) * window
    expected = np.fft.rfft(frames).transpose(0, 2, 1)
    assert found.shape == (2, 9, 76, 2)
    np.testing.assert_allclose(found.numpy(), np.stack([expected.real, expected.imag], -1), atol=1e-12)
    pair = norch.stft(x, 16, 4, window=norch.tensor(window), return_complex=True)
    assert norch.is_complex(pair)
    assert norch.equal(norch.view_as_real(pair), found)
    assert norch.equal(
        norch.view_as_real(norch.stft(x[0], 16, 4, window=norch.tensor(window), return_complex=True)), found[0]
    )


@pytest.mark.parametrize(
    "kwargs", [{}, {"onesided": False}, {"normalized": True}, {"center": False}, {"hop_length": 5}]
)
def test_the_inverse_gives_the_signal(kwargs):
    x = norch.tensor(SIGNAL)
    window = norch.hamming_window(32, dtype=norch.float64)
    spectrum = norch.stft(x, 32, window=window, return_complex=False, **kwargs)
    back = norch.istft(spectrum, 32, window=window, **kwargs)
    n = back.shape[-1]
    assert n > 280
    norch.testing.assert_close(back, x[:, :n])
    assert norch.istft(spectrum[0], 32, window=window, length=250, **kwargs).shape == (250,)


def test_the_inverse_reads_half_of_all_frequencies():
    half = RNG.standard_normal((9, 20)) + 1j * RNG.standard_normal((9, 20))
    half[[0, 8]] = half[[0, 8]].real
    whole = np.concatenate([half, RNG.standard_normal((7, 20))])  # no conjugates of the first half
    window = norch.hamming_window(16, dtype=norch.float64)
    found = norch.istft(norch.tensor(whole), 16, window=window)
    norch.testing.assert_close(found, norch.istft(norch.tensor(half), 16, window=window))


def test_gradients():
    x = norch.tensor(SIGNAL[0, :40], requires_grad=True)
    window = norch.hann_window(12, dtype=norch.float64)
    assert gradcheck(lambda x: norch.stft(x, 16, 5, 12, window, return_complex=False), (x,))
    spectrum = norch.stft(x.detach(), 16, 4, return_complex=False).requires_grad_()
    assert gradcheck(lambda s: norch.istft(s, 16, 4), (spectrum,))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: norch.stft(x, 16), "return_complex=False"),
        (lambda x: norch.stft(x.reshape(2, 3, -1), 16, return_complex=True), "1 or 2 dims"),
        (lambda x: norch.stft(x[:, :8], 16, center=False, return_complex=True), "more than the 8 elements"),
        (lambda x: norch.stft(x, 16, win_length=20, return_complex=True), "win_length 20 do not fit"),
        (lambda x: norch.stft(x, 16, window=norch.ones(9), return_complex=True), "window of win_length 16"),
        (lambda x: norch.istft(x, 16), "frequencies, frames, 2"),
        (lambda x: norch.istft(norch.ones(7, 3, 2), 16), "7 frequencies of 3 frames do not fit"),
        (lambda x: norch.istft(norch.ones(9, 3, 2), 16, window=norch.zeros(16)), "leave elements of the signal out"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(RuntimeError, match=words):
        call(norch.tensor(SIGNAL))


def test_beside_pytorch():
    torch = pytest.importorskip("torch")
    choices = itertools.product(
        [16, 30], [None, 7], [True, False], ["reflect", "constant"], [False, True], [None, False]
    )
    for n_fft, hop, center, mode, normalized, onesided in choices:
        results = []
        for t in (norch, torch):
            x = t.tensor(SIGNAL, requires_grad=True)
            same = dict(hop_length=hop, window=t.hann_window(n_fft, dtype=t.float64), center=center)
            more = same | dict(normalized=normalized, onesided=onesided)
            out = t.view_as_real(t.stft(x, n_fft, pad_mode=mode, return_complex=True, **more))
            (out**3).sum().backward()
            back = t.istft(t.view_as_complex(out.detach()), n_fft, **more, length=250) if center else out
            results.append([v.detach().numpy() for v in (out, x.grad, back)])
        for found, expected in zip(*results, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("kwargs", [{}, {"normalized": True, "hop_length": 5}, {"center": False}])
def test_frames_of_complex_signals(kwargs):
    signal, window = SIGNAL[0] + 1j * SIGNAL[1], np.hanning(17)[:16] + 0.1
    z, weights = norch.tensor(signal), norch.tensor(window)
    found = norch.stft(z, 16, window=weights, return_complex=True, **kwargs)
    centered = np.pad(signal, (8, 8), mode="reflect") if kwargs.get("center", True) else signal
    hop = kwargs.get("hop_length", 4)
    frames = np.stack([centered[t : t + 16] * window for t in range(0, len(centered) - 15, hop)], 1)
    expected = np.fft.fft(frames, axis=0) * (0.25 if "normalized" in kwargs else 1)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    assert norch.equal(z.stft(16, window=weights, return_complex=False, **kwargs), norch.view_as_real(found))
    back = norch.istft(found, 16, window=weights, onesided=False, return_complex=True, length=300, **kwargs)
    whole = 300 if "center" not in kwargs else 296
    np.testing.assert_allclose(back.numpy()[:whole], signal[:whole], atol=1e-10)
    with pytest.raises(ValueError, match="onesided must be False"):
        norch.stft(z, 16, window=weights, onesided=True, return_complex=True)
    phase = norch.stft(z, 16, window=weights * (1 + 2j), return_complex=True, **kwargs)
    np.testing.assert_allclose(phase.numpy(), expected * (1 + 2j), atol=1e-12)
