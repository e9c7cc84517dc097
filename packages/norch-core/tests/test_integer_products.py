"""Products with matrices of int8."""

from __future__ import annotations

import numpy as np
import pytest

import norch


def test_products_of_int8_are_exact() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((5, 300), (300, 7)))
    found = norch._int_mm(norch.tensor(a), norch.tensor(b))
    assert found.dtype is norch.int32
    assert found.tolist() == (a.astype(np.int32) @ b.astype(np.int32)).tolist()
    with pytest.raises(RuntimeError, match="expected int8, got norch.float32"):
        norch._int_mm(norch.ones(2, 2), norch.ones(2, 2))
    with pytest.raises(RuntimeError, match=r"expected matrices, got shapes \(2,\)"):
        norch._int_mm(norch.ones(2, dtype=norch.int8), norch.ones(2, 2, dtype=norch.int8))


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16])
def test_weights_of_int8_with_scales(dtype: norch.dtype) -> None:
    rng = np.random.default_rng(1)
    x = norch.tensor(rng.standard_normal((3, 16)), dtype=dtype)
    w = norch.tensor(rng.integers(-128, 128, (4, 16), dtype=np.int8))
    scales = norch.tensor(rng.random(4) / 64, dtype=dtype)
    found = norch._weight_int8pack_mm(x, w, scales)
    assert found.dtype is dtype
    expected = x.double() @ w.double().T * scales.double()
    assert norch.allclose(found.double(), expected, rtol=1e-2 if dtype is norch.bfloat16 else 1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="expected weights of int8"):
        norch._weight_int8pack_mm(x, x, scales)
