"""norch.signal.windows and the older window functions, beside NumPy's and formulas."""

import numpy as np
import pytest

import norch
from norch.signal import windows

D = {"dtype": norch.float64}
N = np.arange(9)
EXPECTED = {
    "hann": ({}, np.hanning(9)),
    "hamming": ({}, np.hamming(9)),
    "blackman": ({}, np.blackman(9)),
    "bartlett": ({}, np.bartlett(9)),
    "kaiser": ({"beta": 5.0}, np.kaiser(9, 5.0)),
    "general_hamming": ({"alpha": 0.7}, 0.7 - 0.3 * np.cos(N * np.pi / 4)),
    "general_cosine": ({"a": [0.2, 0.3]}, 0.2 - 0.3 * np.cos(N * np.pi / 4)),
    "cosine": ({}, np.sin((N + 0.5) * np.pi / 9)),
    "gaussian": ({"std": 2.0}, np.exp(-((N - 4) ** 2) / 8)),
    "exponential": ({"tau": 3.0}, np.exp(-np.abs(N - 4) / 3)),
    "nuttall": (
        {},
        sum(
            a * (-1) ** i * np.cos(N * np.pi / 4 * i)
            for i, a in enumerate((0.3635819, 0.4891775, 0.1365995, 0.0106411))
        ),
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_values(name):
    options, expected = EXPECTED[name]
    function = getattr(windows, name)
    np.testing.assert_allclose(function(9, **options, **D).cpu().numpy(), expected, rtol=1e-13, atol=1e-15)
    periodic = function(8, sym=False, **options, **D).cpu().numpy()
    if name != "cosine":  # whose period is a point longer
        np.testing.assert_allclose(periodic, expected[:8], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(function(8, sym=False, **options).cpu().numpy(), periodic, rtol=1e-5, atol=1e-7)
    assert function(0, **options).tolist() == []
    assert function(1, **options).tolist() == [1]
    assert function(3, requires_grad=True, **options).requires_grad
    with pytest.raises(norch.DTypeError, match=name):
        function(4, dtype=norch.int64, **options)
    with pytest.raises(ValueError, match=name):
        function(-1, **options)


def test_an_exponential_window_has_a_center():
    expected = np.exp(-np.abs(np.arange(6) - 1.0))
    np.testing.assert_allclose(windows.exponential(6, center=1.0, sym=False, **D).cpu().numpy(), expected)
    with pytest.raises(ValueError, match="symmetric"):
        windows.exponential(6, center=1.0)


def test_wrong_options():
    for call in (
        lambda: windows.exponential(3, tau=0),
        lambda: windows.gaussian(3, std=-1.0),
        lambda: windows.kaiser(3, beta=-1.0),
        lambda: windows.general_cosine(3, a=[]),
    ):
        with pytest.raises(ValueError, match=r"\(\):"):
            call()


def test_the_older_functions_are_periodic():
    for name in ("hann", "hamming", "blackman", "bartlett", "kaiser"):
        function, expected = getattr(norch, f"{name}_window"), getattr(windows, name)
        np.testing.assert_array_equal(
            function(8, layout=norch.strided).cpu().numpy(), expected(8, sym=False).cpu().numpy()
        )
        np.testing.assert_array_equal(function(8, False).cpu().numpy(), expected(8).cpu().numpy())
        with pytest.raises(norch.DTypeError, match=f"{name}_window"):
            function(4, dtype=norch.int64)
    np.testing.assert_allclose(norch.kaiser_window(9, False, 5.0, **D).cpu().numpy(), np.kaiser(9, 5.0))
    np.testing.assert_allclose(norch.hamming_window(4, True, 0.5, 0.25, **D).cpu().numpy(), [0.25, 0.5, 0.75, 0.5])
