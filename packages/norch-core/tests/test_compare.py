"""assert_close and isclose: integers without rounding, complex numbers, sparse tensors."""

from __future__ import annotations

import math
from typing import Any

import pytest

import norch
from norch.testing import assert_close

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("made", [lambda x: x, norch.tensor, lambda x: [x]], ids=["number", "tensor", "list"])
@pytest.mark.parametrize(
    ("actual", "expected"),
    [(1 + 2j, 1 + 3j), (1e-3 + 1j, 1j), (complex(NAN, 0), complex(0, NAN)), (2**53, 2**53 + 1), (NAN, NAN)],
)
def test_what_is_not_close(made: Any, actual: Any, expected: Any) -> None:
    with pytest.raises(AssertionError):
        assert_close(made(actual), made(expected))
    assert_close(made(actual), made(actual), equal_nan=True)


def test_complex_numbers_are_close_by_their_distance() -> None:
    assert_close(norch.tensor([1 + 1e-7j]), norch.tensor([1 + 0j]))
    assert_close(norch.tensor([1e5 + 0.05j]), norch.tensor([1e5 + 0j]))
    assert_close(norch.tensor(complex(NAN, 1)), norch.tensor(complex(2, NAN)), equal_nan=True)


def test_sparse_tensors_are_compared_by_their_elements_and_layout() -> None:
    x = norch.eye(3)
    for sparse in (x.to_sparse(), x.to_sparse_csr()):
        assert_close(sparse, sparse)
        assert_close(sparse, x, check_layout=False)
        with pytest.raises(AssertionError, match="layouts"):
            assert_close(sparse, x)
        with pytest.raises(AssertionError, match="not close"):
            assert_close(sparse, sparse * 2)


def test_isclose_at_infinities_and_without_tolerances() -> None:
    def close(a: Any, b: Any, **options: Any) -> bool:
        return bool(norch.isclose(norch.tensor([a]), norch.tensor([b]), **options).item())

    assert not close(2**53, 2**53 + 1, rtol=0, atol=0)
    assert not close(complex(INF, 1), complex(1, INF))
    assert not close(1 + 1j, complex(1, INF))
    assert close(complex(INF, 1), complex(INF, 1))
    assert close(INF, INF, rtol=0, atol=0)
    assert close(NAN, NAN, rtol=0, atol=0, equal_nan=True)
    with pytest.raises(ValueError, match="negative"):
        close(1j, 1j, atol=-1)
