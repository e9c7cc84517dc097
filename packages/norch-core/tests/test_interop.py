"""Tensors beside NumPy arrays, Python numbers, DLPack, copy and pickle."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import norch
from norch import AutogradError, DTypeError, ShapeError
from norch.dtype import DTYPES
from norch.testing.strict import strict_device

Tensor = norch.Tensor


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_numpy_and_from_numpy_share_memory(dtype: norch.DType) -> None:
    x = norch.zeros(2, 3, dtype=dtype)
    array = x.numpy()
    assert array.dtype == dtype.numpy
    array[1, 2] = 1
    assert x.tolist() == [[0, 0, 0], [0, 0, 1]]
    back = norch.from_numpy(array)
    assert back.dtype is dtype
    back.fill_(1)
    assert x.all()
    assert array.all()
    assert back.data_ptr() == x.data_ptr() == array.ctypes.data


def test_strided_arrays_are_shared_too() -> None:
    array = np.arange(24.0).reshape(4, 6)
    for view in (array[1:, ::2], array.T, array[2], array[1:2, 3], np.broadcast_to(array, (2, 4, 6)).T):
        x = norch.from_numpy(view) if view.flags.writeable else norch.tensor(view)
        np.testing.assert_array_equal(x.numpy(), view)
    x = norch.from_numpy(array[1:, ::2])
    assert x.stride() == (6, 2)
    x.zero_()
    assert array[1:, ::2].sum() == 0
    assert array[0, 0:2].tolist() == [0, 1]
    assert norch.from_numpy(array.T).stride() == (1, 6)


def test_arrays_that_must_be_copied() -> None:
    array = np.arange(6.0)
    for other in (array[::-1], array.astype(">f8"), np.frombuffer(array.tobytes())):
        x = norch.from_numpy(other)
        np.testing.assert_array_equal(x.numpy(), other)
        assert not np.shares_memory(x.numpy(), other)
    record = np.zeros(3, [("a", "i1"), ("b", "f4")])["b"]  # 5 bytes apart
    assert norch.from_numpy(record).tolist() == [0, 0, 0]


def test_numpy_of_views_and_of_nothing() -> None:
    x = norch.arange(12.0).reshape(3, 4)
    assert x[1:, ::2].numpy().strides == (16, 8)
    assert x.t().numpy().flags.f_contiguous
    assert norch.zeros(2, 0).numpy().shape == (2, 0)
    assert norch.tensor(3.0).numpy().shape == ()
    with pytest.raises(AutogradError, match="detach"):
        norch.ones(1, requires_grad=True).numpy()
    assert norch.ones(1, requires_grad=True).numpy(force=True).tolist() == [1]


def test_numpy_functions_take_tensors() -> None:
    x = norch.tensor([[3.0, 1.0], [2.0, 4.0]])
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert not np.shares_memory(np.array(x, copy=True), x.numpy())
    assert np.sort(x, axis=None).tolist() == [1, 2, 3, 4]
    assert np.concatenate([x, x]).shape == (4, 2)
    assert np.allclose(x, x.numpy())
    np.testing.assert_array_equal(np.stack([x[0], x[1]]), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_arrays_and_numpy_scalars_as_operands(dtype: type) -> None:
    x = norch.tensor([1.0, 2.0])
    array = np.array([3, 4], dtype)
    for both in (x + array, array + x):
        assert isinstance(both, Tensor)
        assert both.tolist() == [4, 6]
        assert both.dtype is (norch.float32 if dtype is np.float32 else norch.float64)  # as in NumPy
    assert (array - x).tolist() == [2, 2]
    assert (array / x).tolist() == [3, 2]
    assert (array > x).tolist() == [True, True]
    assert (x @ array).item() == (array @ x).item() == 11
    scalar = dtype(3)
    for found, expected in (
        (x + scalar, [4, 5]),
        (scalar + x, [4, 5]),
        (scalar - x, [2, 1]),
        (scalar * x, [3, 6]),
        (scalar / x, [3, 1.5]),
        (scalar**x, [3, 9]),
        (x < scalar, [True, True]),
        (scalar < x, [False, False]),
    ):
        assert isinstance(found, Tensor)
        assert found.tolist() == expected
        assert found.dtype in (norch.float32, norch.bool)


def test_item_and_tolist() -> None:
    assert type(norch.tensor(1.5).item()) is float
    assert type(norch.tensor([[3]]).item()) is int
    assert norch.tensor(True).item() is True
    assert norch.tensor(1.5, dtype=norch.bfloat16).item() == 1.5
    assert norch.tensor(7).tolist() == 7
    assert norch.tensor([[1, 2], [3, 4]]).t().tolist() == [[1, 3], [2, 4]]
    assert norch.zeros(2, 0).tolist() == [[], []]
    assert norch.ones(1, requires_grad=True).item() == 1


def test_python_numbers() -> None:
    x = norch.tensor([2.75])
    assert float(x) == 2.75
    assert int(x) == 2
    assert bool(x)
    assert not bool(norch.tensor(0))
    assert [10, 20, 30][norch.tensor(1)] == 20
    assert list(range(norch.tensor(3))) == [0, 1, 2]  # type: ignore[call-overload]
    assert round(float(norch.tensor(2.5))) == 2
    for wrong, error in ((lambda: bool(norch.zeros(0)), ShapeError), (lambda: range(norch.tensor(1.0)), DTypeError)):
        with pytest.raises(error):
            wrong()


def test_len_iteration_and_membership() -> None:
    x = norch.tensor([[1, 2], [3, 4]])
    assert len(x) == 2
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    a, b = x
    assert b.tolist() == [3, 4]
    assert 3 in x
    assert 5 not in x
    assert norch.tensor(2) in x
    assert [r.item() for r in reversed([*x[0]])] == [2, 1]
    assert dict(zip(["a", "b"], x[0].tolist())) == {"a": 1, "b": 2}


def test_tensors_hash_by_identity() -> None:
    x, y = norch.zeros(2), norch.zeros(2)
    assert {x: 1, y: 2}[x] == 1
    assert len({x, y, x}) == 2
    assert (x == y).all()
    assert x is not y


def test_format() -> None:
    loss = norch.tensor(0.123456, requires_grad=True) * 1
    assert f"{loss[0]:.4f}" == "0.1235"
    assert f"{loss:.2e}" == "1.23e-01"
    assert f"{norch.tensor([7]):>4d}" == "   7"
    assert f"{norch.tensor([1, 2])}" == str(norch.tensor([1, 2]))
    assert f"{norch.tensor(3)}" == "3"  # as in PyTorch
    with pytest.raises(TypeError):
        f"{norch.tensor([1.0, 2.0]):.2f}"


COPIERS: dict[str, Callable[[Tensor], Tensor]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


@pytest.mark.parametrize("name", COPIERS)
@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16, norch.int64, norch.bool])
def test_copies(name: str, dtype: norch.DType) -> None:
    x = norch.ones(3, 2, dtype=dtype).t()
    if dtype.is_floating_point:
        x = x.clone().requires_grad_()
    y = COPIERS[name](x)
    assert y.dtype is x.dtype
    assert y.shape == x.shape
    assert y.requires_grad == x.requires_grad
    assert y.is_leaf
    assert y.tolist() == x.tolist()
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("name", COPIERS)
def test_copies_stay_on_their_device(name: str) -> None:
    x = norch.ones(3, device=strict_device())
    assert COPIERS[name](x).device == x.device


def test_shallow_copy_and_deepcopy_of_several() -> None:
    x = norch.ones(2, requires_grad=True)
    x.sum().backward()
    both = copy.deepcopy([x, x])
    assert both[0] is both[1]
    assert both[0].grad.tolist() == [1, 1]
    assert both[0].grad is not x.grad
    with pytest.raises(AutogradError):
        copy.deepcopy(x * 2)


def test_a_shallow_copy_is_on_the_same_memory() -> None:
    x = norch.ones(2, 2, requires_grad=True)
    x.note = "kept"
    for source in (x, x.t(), x * 1):
        copied = copy.copy(source)
        assert copied is not source
        assert copied.is_leaf
        assert copied.requires_grad
        assert copied.data_ptr() == source.data_ptr()
        assert copied.stride() == source.stride()
        copied.detach().fill_(7)
        assert source.tolist() == [[7, 7], [7, 7]]
    assert copy.copy(x).note == "kept"


def test_what_shares_memory_shares_it_in_a_deep_copy() -> None:
    x = norch.arange(6.0)
    whole, part, turned = copy.deepcopy([x, x[1:3], x.view(2, 3).t()])
    x.fill_(9)
    assert part.tolist() == [1, 2]
    whole.fill_(5)
    assert part.tolist() == [5, 5]
    assert turned.stride() == (1, 3)
    assert turned.tolist() == [[5, 5]] * 3
    assert copy.deepcopy(norch.ones(1).expand(4)).tolist() == [1, 1, 1, 1]
    assert copy.deepcopy(norch.zeros(0, 3)).shape == (0, 3)
    assert copy.deepcopy(norch.empty(2, device="meta")).is_meta


def test_dtypes_and_devices_are_singletons_when_copied() -> None:
    for one in (*DTYPES, norch.device("cpu")):
        assert copy.deepcopy(one) is one
        assert pickle.loads(pickle.dumps(one)) is one


def test_dlpack() -> None:
    x = norch.arange(6.0).reshape(2, 3).clone()
    array = np.from_dlpack(x.t())
    assert array.tolist() == x.t().tolist()
    assert np.shares_memory(array, x.numpy())
    source = np.arange(4, dtype=np.int32)
    y = norch.from_dlpack(source)
    assert y.dtype is norch.int32
    y[0] = 9
    assert source[0] == 9
    assert norch.from_dlpack(x).data_ptr() == x.data_ptr()
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(AutogradError):
        norch.ones(1, requires_grad=True).__dlpack__()


@pytest.mark.parametrize("kwargs", [{}, {"max_version": (1, 0)}])
def test_dlpack_of_bfloat16(kwargs):
    x = norch.tensor([[1.0, 2.0, -3.0], [4.0, 5.0, 6.0]]).bfloat16()
    y = norch.from_dlpack(x.t().__dlpack__(**kwargs))
    assert y.dtype is norch.bfloat16
    assert y.tolist() == x.t().tolist()
    assert norch.from_dlpack(x).data_ptr() == x.data_ptr()
    with pytest.raises(AutogradError):
        norch.ones(1, dtype=norch.bfloat16, requires_grad=True).__dlpack__()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_dlpack_with_pytorch(name):
    torch = pytest.importorskip("torch")
    there = torch.tensor([[1.0, 2.0, -3.0], [4.0, 5.0, 6.0]]).to(getattr(torch, name))
    here = norch.from_dlpack(there.t())
    assert here.dtype is getattr(norch, name)
    assert here.tolist() == there.t().tolist()
    back = torch.from_dlpack(here)
    assert back.dtype is there.dtype
    assert back.data_ptr() == here.data_ptr() == there.data_ptr()
    assert back.tolist() == there.t().tolist()


def test_memory_outlives_its_owner() -> None:
    array = norch.arange(1000.0).clone().numpy()
    x = norch.from_numpy(np.arange(1000.0))[500:]
    assert array.sum() == 499500
    assert x[0].item() == 500


def test_tensors_of_a_subclass() -> None:
    class Named(Tensor):
        __slots__ = ()

    x = norch.ones(2, requires_grad=True).as_subclass(Named)
    assert type(x) is Named
    assert (x * 2).tolist() == [2, 2]
    assert type(copy.deepcopy(x.detach().as_subclass(Named))) is Named
    x.label = "kept"
    assert x.label == "kept"


def test_arrays_of_tensors_that_require_grad_while_nothing_is_recorded() -> None:
    x = norch.ones(2, requires_grad=True)
    with norch.no_grad():
        assert x.numpy().tolist() == x.view(-1).numpy().tolist() == [1, 1]
    with pytest.raises(norch.AutogradError, match="requires grad"):
        x.numpy()


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64]
)
def test_lists_of_memory_are_those_of_arrays(dtype: type) -> None:
    array = (np.arange(24) % 7 - 3).astype(dtype).reshape(2, 3, 4)
    x = norch.tensor(array)
    for of in (
        lambda v: v,
        lambda v: v[1],
        lambda v: v[1, 2],
        lambda v: v[0, 1, 2],
        lambda v: v[:, 1],
        lambda v: v[:0],
    ):
        found, expected = of(x).tolist(), of(array).tolist()
        assert (found, repr(found)) == (expected, repr(expected))
    assert norch.arange(5000).tolist() == list(range(5000))


def test_a_captured_function_does_not_freeze_a_list() -> None:
    step = norch.capture(lambda x: x * x.tolist()[0])
    for first in (1.0, 2.0, 3.0, 4.0):
        assert step(norch.tensor([first, 5.0])).tolist() == [first * first, first * 5]


def test_functions_of_numpy_return_tensors():
    x = norch.tensor([1.0, 4.0])
    for found, expected in (
        (np.sqrt(x), [1.0, 2.0]),
        (np.maximum(x, 2), [2.0, 4.0]),
        (np.add(np.ones(2, np.float32), x), [2.0, 5.0]),
        (np.sqrt(x[1]), 2.0),
        (np.argsort(x), [0, 1]),
        (np.choose(norch.tensor([0, 1]), np.array([[1, 2], [3, 4]])), [1, 4]),
        (np.isnan(x), [False, False]),
    ):
        assert isinstance(found, norch.Tensor)
        assert found.tolist() == expected
    assert np.sqrt(x).dtype is norch.float32
    assert isinstance(np.asarray(x), np.ndarray)
    assert isinstance(np.char.add(np.array(["a"]), "b"), np.ndarray)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_arrays_beside_tensors_promote_as_in_numpy(shape: tuple[int, ...]) -> None:
    for own, other, expected in (
        ("float32", "float64", "float64"),
        ("float32", "int64", "float64"),
        ("float32", "int16", "float32"),
        ("int64", "float32", "float64"),
        ("uint8", "int8", "int16"),
        ("bool", "int32", "int32"),
    ):
        x, array = norch.ones(2, dtype=getattr(norch, own)), np.ones(shape, other)
        for found in (x + array, array + x, x * array):
            assert found.dtype is getattr(norch, expected)
    assert (norch.tensor([1, 2]) / np.array(2)).dtype is norch.float64


def test_products_with_arrays_of_another_dtype() -> None:
    x = norch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    array = np.array([[1.0, 0.0], [2.0, 1.0]])
    assert (x @ array).dtype is (array @ x).dtype is norch.float64
    assert (x @ array).tolist() == [[5, 2], [11, 4]]
    assert (array @ x).tolist() == [[1, 2], [5, 8]]
    (x @ array).sum().backward()
    assert x.grad.tolist() == [[1, 3], [1, 3]]
    assert x.grad.dtype is norch.float32


def test_reversed_is_a_tensor() -> None:
    assert reversed(norch.arange(6).view(3, 2)).tolist() == [[4, 5], [2, 3], [0, 1]]
    assert reversed(norch.tensor(2.0)).item() == 2
