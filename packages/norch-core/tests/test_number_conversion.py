"""Python's numbers as elements of a dtype: converted, too large, out of its range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import norch
from norch import DTypeError


@pytest.mark.parametrize("data", [[1e300, 1.0], [[1e300], [1.0]]], ids=["list", "nested"])
@pytest.mark.parametrize("dtype", [None, norch.float32, norch.float16])
def test_a_number_too_large_for_the_dtype_is_inf_without_a_warning(data: Any, dtype: Any) -> None:
    assert norch.tensor(data, dtype=dtype).reshape(-1).tolist() == [float("inf"), 1.0]


INF, NAN, HUGE = float("inf"), float("nan"), 2**63
BEYOND: dict[str, tuple[Any, str]] = {
    "int": (300, "int8"), "negative": (-300, "uint8"), "float": (2.5e3, "int8"), "inf": (INF, "int64"),
    "-inf": (-INF, "int32"), "nan": (NAN, "int64"), "huge": (HUGE, "int64"), "huge float": (2.0**63, "int64"),
}  # fmt: skip
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda value, dtype: norch.tensor(value, dtype=dtype),
    "list": lambda value, dtype: norch.tensor([0, value], dtype=dtype),
    "nested": lambda value, dtype: norch.tensor([[0], [value]], dtype=dtype),
    "full": lambda value, dtype: norch.full((2,), value, dtype=dtype),
    "full_like": lambda value, dtype: norch.full_like(norch.zeros(2, dtype=dtype), value),
    "fill_": lambda value, dtype: norch.zeros(2, dtype=dtype).fill_(value),
    "[0] =": lambda value, dtype: norch.zeros(2, dtype=dtype).__setitem__(0, value),
    "[[0]] =": lambda value, dtype: norch.zeros(2, dtype=dtype).__setitem__(norch.tensor([0]), value),
    "[0, 1] =": lambda value, dtype: norch.zeros(2, 2, dtype=dtype).__setitem__((0, 1), value),
    "[mask] =": lambda value, dtype: norch.zeros(2, dtype=dtype).__setitem__(norch.tensor([True, False]), value),
    "masked_fill": lambda value, dtype: norch.zeros(2, dtype=dtype).masked_fill(norch.tensor([True, False]), value),
    "index_fill": lambda value, dtype: norch.zeros(2, dtype=dtype).index_fill(0, norch.tensor([0]), value),
    "pad": lambda value, dtype: norch.pad(norch.zeros(2, dtype=dtype), (1, 0), value=value),
    "linspace": lambda value, dtype: norch.linspace(0, value, 2, dtype=dtype),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("case", BEYOND)
def test_a_number_that_an_integer_dtype_cannot_hold_is_refused(case: str, write: str) -> None:
    """PyTorch raises RuntimeError, which DTypeError is too."""
    value, dtype = BEYOND[case]
    with pytest.raises(DTypeError, match=rf"\(\): .* is out of range for norch.{dtype}"):
        WRITES[write](value, getattr(norch, dtype))


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        ([-1, -200], "uint8", [255, 56]),
        ([2.9, -2.9], "int32", [2, -2]),
        ([-(2**63), 2**63 - 1], "int64", [-(2**63), 2**63 - 1]),
        ([2**63, 1], "float16", [INF, 1]),
        ([2**70, 3], "float32", [2.0**70, 3]),
        ([NAN, 0.0], "bool", [True, False]),
        ([2**53 + 1, 1], "int64", [2**53 + 1, 1]),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_numbers_are_converted_as_pytorch_does(data: Any, dtype: str, expected: Any, nested: bool) -> None:
    found = norch.tensor([[v] for v in data] if nested else data, dtype=getattr(norch, dtype))
    assert found.reshape(-1).tolist() == expected


def test_integers_beyond_int64_have_no_dtype_of_their_own() -> None:
    for data in (2**63, [2**63], [[1, 2], [3, 2**63]], [-(2**63) - 1], [2**64]):
        with pytest.raises(DTypeError, match="out of range for norch.int64"):
            norch.tensor(data)
    with pytest.raises(DTypeError, match="beyond what a float can hold"):
        norch.tensor([10**400], dtype=norch.float32)


@pytest.mark.parametrize("dtype", [norch.int64, norch.int8, norch.bool])
def test_integers_have_no_negative_powers(dtype: norch.DType) -> None:
    x = norch.tensor([1, 1]).to(dtype)
    calls: list[Callable[[], Any]] = [
        lambda: x**-1, lambda: norch.pow(x, -2), lambda: norch.pow(x, -1, out=norch.zeros(2, dtype=norch.int64)),
        lambda: x.long().pow_(-1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(DTypeError, match="a fraction"):
            call()
    assert (2 ** norch.tensor([1, 2])).tolist() == [2, 4]
    assert (norch.tensor([2, 4]) ** -1.0).tolist() == [0.5, 0.25]
    assert (norch.tensor([2.0, 4.0]) ** -1).tolist() == [0.5, 0.25]
