"""Dtypes, their limits, and promotion: PyTorch's table, written out."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import norch
from norch import DTypeError, shown
from norch.dtype import DTYPES

NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
SHORT = dict(zip(["b1", "u1", "i1", "i2", "i4", "i8", "f2", "bf", "f4", "f8"], NAMES))

# torch.promote_types of the dtype of each row and of each column, in the order of NAMES.
TABLE = """
b1 u1 i1 i2 i4 i8 f2 bf f4 f8
u1 u1 i2 i2 i4 i8 f2 bf f4 f8
i1 i2 i1 i2 i4 i8 f2 bf f4 f8
i2 i2 i2 i2 i4 i8 f2 bf f4 f8
i4 i4 i4 i4 i4 i8 f2 bf f4 f8
i8 i8 i8 i8 i8 i8 f2 bf f4 f8
f2 f2 f2 f2 f2 f2 f2 f4 f4 f8
bf bf bf bf bf bf f4 bf f4 f8
f4 f4 f4 f4 f4 f4 f4 f4 f4 f8
f8 f8 f8 f8 f8 f8 f8 f8 f8 f8
"""
PROMOTED = {
    (a, b): SHORT[word]
    for a, line in zip(NAMES, TABLE.split("\n")[1:-1])
    for b, word in zip(NAMES, line.split())
}  # fmt: skip


def dtype(name: str) -> norch.DType:
    found: norch.DType = getattr(norch, name)
    return found


def category(name: str) -> int:
    return 0 if name == "bool" else 1 if "int" in name else 2


def mixed(strong: str, weak: str) -> str:
    """The result of an operand of a higher and one of a lower priority, from the categories."""
    return weak if category(weak) > category(strong) else strong


@pytest.mark.parametrize(("a", "b"), list(product(NAMES, NAMES)))
def test_promotion_of_tensors(a: str, b: str) -> None:
    expected = PROMOTED[a, b]
    x, y = norch.ones(2, dtype=dtype(a)), norch.ones(3, 1, dtype=dtype(b))
    assert norch.promote_types(dtype(a), dtype(b)) is dtype(expected)
    assert norch.result_type(x, y) is dtype(expected)
    for found in (x + y, x * y, norch.where(x > 0, x, y), norch.maximum(x, y), norch.cat([x, y.reshape(-1)])):
        assert found.dtype is dtype(expected)
        assert found.bool().all()
    assert (x == y).dtype is (x < y).dtype is norch.bool
    assert (x / y).dtype is (dtype(expected) if category(expected) == 2 else norch.float32)
    if expected != "bool":
        assert (x // y).dtype is (x % y).dtype is (x**y).dtype is dtype(expected)
    assert (x[0] + y[0, 0]).dtype is dtype(expected)  # both 0-d
    assert (x + y[0, 0]).dtype is dtype(mixed(a, b))
    assert (x[0] * y).dtype is dtype(mixed(b, a))
    if category(mixed(a, b)) <= category(a):
        z = x.clone()
        z += y[0, 0]
        assert z.dtype is dtype(a)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("scalar", "own"), [(True, "bool"), (2, "int64"), (2.5, "float32")])
@pytest.mark.parametrize("ndim", [0, 1])
def test_promotion_with_python_numbers(name: str, scalar: Any, own: str, ndim: int) -> None:
    x = norch.ones((2,) * ndim, dtype=dtype(name))
    expected = mixed(name, own)
    value: Callable[[Any], Any] = np.asarray if not ndim else np.unique
    for found in (x * scalar, scalar * x, norch.where(x > 0, scalar, x)):
        assert found.dtype is dtype(expected)
        assert value(found.double().numpy()).tolist() in (float(scalar), [float(scalar)])
    assert (x + scalar).dtype is (scalar + x).dtype is dtype(expected)
    assert (x / scalar).dtype is (scalar / x).dtype is (dtype(expected) if category(expected) == 2 else norch.float32)
    assert (x < scalar).dtype is norch.bool
    assert norch.result_type(x, scalar) is dtype(expected)


def test_python_numbers_wrap_or_are_refused() -> None:
    x = norch.zeros(1, dtype=norch.uint8)
    assert (x - 1).tolist() == [255]
    assert (x + -1).tolist() == [255]
    with pytest.raises(DTypeError, match="300"):
        x + 300
    assert (norch.ones(1, dtype=norch.float16) * 1e6).tolist() == [float("inf")]


def test_names_and_aliases() -> None:
    assert [d.name for d in DTYPES] == NAMES
    assert norch.half is norch.float16
    assert norch.float is norch.float32
    assert norch.double is norch.float64
    assert norch.short is norch.int16
    assert norch.int is norch.int32
    assert norch.long is norch.int64
    assert repr(norch.bfloat16) == "norch.bfloat16"
    assert norch.zeros(1, dtype="float64").dtype is norch.float64
    assert norch.zeros(1, dtype=np.int16).dtype is norch.int16
    assert norch.zeros(1, dtype=float).dtype is norch.tensor([1], dtype=float).dtype is norch.float64
    assert norch.ones(1).to(float).dtype is norch.ones(1).sum(dtype=float).dtype is norch.float64
    assert norch.finfo(float).eps == norch.finfo(norch.complex128).eps == norch.finfo(norch.float64).eps
    assert norch.zeros(1, dtype=int).dtype is norch.int64
    assert norch.zeros(1, dtype=bool).dtype is norch.bool
    assert isinstance(norch.float32, norch.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_properties(name: str) -> None:
    one = dtype(name)
    assert one.itemsize == one.numpy.itemsize == norch.zeros(1, dtype=one).element_size()
    assert one.is_floating_point == (category(name) == 2)
    assert one.is_signed == (name not in ("bool", "uint8"))


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_finfo(name: str) -> None:
    found, expected = norch.finfo(dtype(name)), ml_dtypes.finfo(dtype(name).numpy)
    for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution"):
        assert getattr(found, field) == float(getattr(expected, field))
    assert norch.finfo().dtype is norch.float32


def test_limits_name_their_dtype_in_the_place_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "root", "torch")
    assert (norch.finfo(norch.bfloat16).dtype, norch.iinfo(norch.int8).dtype) == ("bfloat16", "int8")
    assert repr(norch.iinfo(norch.int8)) == "iinfo(dtype=int8, min=-128, max=127)"


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_iinfo(name: str) -> None:
    found, expected = norch.iinfo(dtype(name)), np.iinfo(name)
    assert (found.bits, found.min, found.max) == (expected.bits, expected.min, expected.max)
    assert (norch.tensor([found.max], dtype=dtype(name)) + 1).tolist() == [found.min]


@pytest.mark.parametrize(("source", "target"), list(product(NAMES, NAMES)))
def test_casts(source: str, target: str) -> None:
    values = [0, 1, 3, 100] if source != "bool" else [False, True]
    x = norch.tensor(values, dtype=dtype(source))
    y = x.to(dtype(target))
    assert y.dtype is dtype(target)
    expected = np.asarray(values).astype(bool) if target == "bool" else np.asarray(values)
    assert y.tolist() == expected.tolist()
    assert (y is x) == (source == target)
    assert x.type(dtype(target)).dtype is x.type_as(y).dtype is dtype(target)


def test_casts_by_name() -> None:
    x = norch.tensor([0.0, 1.5, -2.5])
    for method, name in (
        ("float", "float32"), ("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"), ("long", "int64"),
        ("int", "int32"), ("short", "int16"), ("char", "int8"), ("bool", "bool"),
    ):  # fmt: skip
        assert getattr(x, method)().dtype is dtype(name)
    assert x.long().tolist() == [0, 1, -2]
    assert x.bool().tolist() == [False, True, True]
    assert x.abs().byte().tolist() == [0, 1, 2]


def test_gradients_go_through_casts() -> None:
    x = norch.ones(2, requires_grad=True)
    (x.double() * 2).sum().backward()
    assert x.grad.dtype is norch.float32
    assert x.grad.tolist() == [2, 2]
    assert not x.long().requires_grad


def test_reductions_of_integers() -> None:
    x = norch.tensor([200, 100], dtype=norch.uint8)
    assert x.sum().dtype is x.prod().dtype is x.cumsum(0).dtype is norch.int64
    assert x.sum().item() == 300
    assert x.amax().dtype is norch.uint8
    assert (x > 150).sum().item() == 1
    assert x.sum(dtype=norch.float64).dtype is norch.float64
    assert x.argmax().dtype is norch.int64
    assert x.any().dtype is norch.bool
    assert x.mean(dtype=norch.float32).item() == 150


def test_complex_dtypes_are_dtypes_to_programs():
    """As array-api-compat asks, by which SciPy and scikit-learn call PyTorch."""
    for dtype in (norch.complex64, norch.complex128):
        assert isinstance(dtype, norch.dtype)
        assert pickle.loads(pickle.dumps(dtype)) is copy.deepcopy(dtype) is dtype
    assert norch.zeros(2).to(norch.complex64).dtype is norch.complex64
    assert norch.promote_types(norch.float64, norch.complex64) is norch.complex128


def test_asarray_without_a_copy():
    given = (
        norch.ones(2),
        norch.ones(2, 2).t(),
        np.ones(2),
        np.ones((2, 2)).T,
        norch.complex(norch.ones(2), norch.ones(2)),
    )
    for data in given:
        shared = norch.asarray(data, copy=False)
        data[0] = 7
        assert (shared[:1] == data[:1]).all()
        assert (norch.asarray(data, copy=True)[:1] == data[:1]).all()
    for data, dtype in (
        (norch.ones(2), norch.float64), (np.ones(2), norch.float32), ([1.0], None), (3.0, None),
        (np.ones(2)[::-1], None), (np.float32(1), None),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="copy"):
            norch.asarray(data, dtype=dtype, copy=False)
        assert norch.asarray(data, dtype=dtype).shape == np.shape(data)
