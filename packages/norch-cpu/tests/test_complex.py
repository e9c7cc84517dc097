"""Products of complex numbers against NumPy's, in the layouts that pairs come in."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.elementwise.complex_products import complex_mul
from norch_cpu.native import native


def as_complex(pair):
    array = pair.numpy()
    return array[..., 0] + 1j * array[..., 1]


def planar(pair):
    return pair.movedim(-1, 0).contiguous().movedim(0, -1)


def test_the_kernel_is_native():
    assert "complex_mul" in native.ops()


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize("conj", [False, True])
@pytest.mark.parametrize("layouts", ["pairs", "second planar", "first planar", "planar", "strided", "transposed"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 37), (3, 37)),
        ((2, 5, 3, 16), (5, 1, 16)),
        ((5, 40), ()),
        ((), (3, 21)),
        ((), ()),
        ((4, 1), (1, 7)),
        ((0, 3), (3,)),
    ],
)
def test_products_are_numpys(dtype, conj, layouts, shapes):
    a, b = (norch.randn(*shape, 2, dtype=dtype) for shape in shapes)
    if layouts == "second planar":
        b = planar(b)
    elif layouts == "first planar":
        a = planar(a)
    elif layouts == "planar":
        a, b = planar(a), planar(b)
    elif layouts == "strided":
        a, b = (norch.stack([x, x], -2)[..., 1, :] for x in (a, b))
    elif layouts == "transposed" and len(shapes[0]) == len(shapes[1]) == 2:
        a, b = a.transpose(0, 1), b.transpose(0, 1)
    other = as_complex(b)
    found, expected = as_complex(complex_mul(a, b, conj)), as_complex(a) * (other.conj() if conj else other)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-6 if dtype is norch.float32 else 1e-14, atol=1e-6)


def test_sixteen_bit_parts_are_composed():
    a, b = norch.randn(5, 2).half(), norch.randn(5, 2).half()
    found, expected = as_complex(complex_mul(a, b, False).float()), as_complex(a.float()) * as_complex(b.float())
    np.testing.assert_allclose(found, expected, atol=2e-2)
