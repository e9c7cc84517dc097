"""Tensors from nothing and from data: shapes, dtypes, values and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import norch
from norch import DTypeError, ShapeError

Tensor = norch.Tensor


@pytest.fixture
def double_by_default() -> Iterator[None]:
    norch.set_default_dtype(norch.float64)
    yield
    norch.set_default_dtype(norch.float32)


SIZED: dict[str, Callable[..., Tensor]] = {
    "zeros": norch.zeros, "ones": norch.ones, "empty": norch.empty, "rand": norch.rand, "randn": norch.randn,
}  # fmt: skip


@pytest.mark.parametrize("name", SIZED)
def test_sizes(name: str) -> None:
    make = SIZED[name]
    for made in (make(2, 3), make((2, 3)), make([2, 3]), make(norch.Size((2, 3))), make(np.int64(2), norch.tensor(3))):
        assert made.shape == (2, 3)
        assert made.dtype is norch.float32
        assert made.is_contiguous()
        assert made.device == norch.device("cpu")
    assert make().shape == make(()).shape == ()
    assert make(3).shape == (3,)
    assert make(0, 2).numel() == 0
    assert make(2, dtype=norch.float64, requires_grad=True).requires_grad


def test_sizes_are_ints():
    counted = norch.Size([2, norch.count_nonzero(norch.ones(3)), np.int32(4)])
    assert counted == (2, 3, 4)
    assert [type(n) for n in counted] == [int] * 3
    assert (norch.Size(), norch.Size(range(2))) == ((), (0, 1))
    for wrong in ([2.0], "2", [norch.ones(2)]):
        with pytest.raises(TypeError):
            norch.Size(wrong)


def test_values() -> None:
    assert norch.zeros(2, dtype=norch.bool).tolist() == [False, False]
    assert norch.ones(2, dtype=norch.int8).tolist() == [1, 1]
    assert norch.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert norch.eye(2, dtype=norch.int64).tolist() == [[1, 0], [0, 1]]
    assert norch.full((2,), 7).dtype is norch.int64
    assert norch.full((2,), True).dtype is norch.bool
    assert norch.full((2,), 0.5).tolist() == [0.5, 0.5]
    assert norch.full((), norch.tensor(3.0)).item() == 3
    assert norch.full((1,), 0.1, dtype=norch.float64).item() == 0.1


def test_sizes_by_name() -> None:
    x = norch.ones(1, dtype=norch.float64)
    made = [x.new_zeros(size=(3, 2)), x.new_ones(size=[3, 2], layout=norch.strided), x.new_empty(size=(3, 2))]
    assert {(tuple(m.shape), m.dtype) for m in made} == {((3, 2), norch.float64)}
    assert x.new_ones(2, pin_memory=False, requires_grad=True).requires_grad
    with pytest.raises(TypeError, match="unexpected arguments sizes"):
        x.new_ones(2, sizes=3)


@pytest.mark.parametrize("suffix", ["like", "new"])
def test_forms_after_another_tensor(suffix: str) -> None:
    x = norch.ones(2, 3, dtype=norch.float16).t()
    if suffix == "like":
        made = [norch.zeros_like(x), norch.ones_like(x), norch.empty_like(x), norch.full_like(x, 4)]
        made += [norch.rand_like(x), norch.randn_like(x), norch.randint_like(x, 5)]
        assert norch.zeros_like(x, dtype=norch.int32).dtype is norch.int32
    else:
        made = [x.new_zeros(3, 2), x.new_ones((3, 2)), x.new_empty(3, 2), x.new_full((3, 2), 4)]
        made += [x.new_tensor([[1, 2]] * 3)]
    for one in made:
        assert one.shape == (3, 2)
        assert one.dtype is norch.float16
        assert not one.requires_grad
    assert made[3].tolist() == [[4, 4]] * 3


@pytest.mark.parametrize(
    "args", [(5,), (2, 5), (0, 10, 3), (5, 0, -2), (0,), (3, 3), (0, 1, 0.1), (1.5, 4), (-1, 1, 0.3), (10, 0, -2.5)]
)
def test_arange(args: tuple[float, ...]) -> None:
    found, expected = norch.arange(*args, dtype=None), np.arange(*args)
    assert found.dtype is (norch.float32 if float in map(type, args) else norch.int64)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-7)
    assert norch.arange(*args, dtype=norch.float64).dtype is norch.float64


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 10, 101])
@pytest.mark.parametrize("ends", [(0, 1), (-3.5, 2), (5, -5), (2, 2)])
def test_linspace(ends: tuple[float, float], steps: int) -> None:
    found = norch.linspace(*ends, steps)
    np.testing.assert_allclose(found.numpy(), np.linspace(*ends, steps), rtol=1e-6, atol=1e-6)
    if steps > 1:
        assert (found[0].item(), found[-1].item()) == ends


@pytest.mark.parametrize(
    ("ends", "steps"),
    [((-121.63234118893061, 60.32809590509747), 1801), ((-8307.519568543374, 23458.080738406676), 42)],
)
def test_linspace_of_16_bit_floats_is_rounded_once(ends: tuple[float, float], steps: int) -> None:
    found, wide = [norch.linspace(*ends, steps, dtype=d).numpy() for d in (norch.float16, norch.float64)]
    np.testing.assert_array_equal(found, wide.astype(np.float16))


DATA: list[tuple[Any, str, Any]] = [
    (True, "bool", True),
    (3, "int64", 3),
    (2.5, "float32", 2.5),
    ([1, 2], "int64", [1, 2]),
    ([1, 2.5], "float32", [1, 2.5]),
    ([True, False], "bool", [True, False]),
    ([True, 2], "int64", [1, 2]),
    ((1, (2)), "int64", [1, 2]),
    ([[1, 2], [3, 4]], "int64", [[1, 2], [3, 4]]),
    ([], "float32", []),
    ([[], []], "float32", [[], []]),
    (range(3), "int64", [0, 1, 2]),
    (np.float64(0.5), "float64", 0.5),
    (np.arange(2, dtype=np.int16), "int16", [0, 1]),
    (np.ones((2, 1), np.float16), "float16", [[1], [1]]),
    ([np.float32(1), np.float32(2)], "float32", [1, 2]),
    ([np.array([1, 2]), np.array([3, 4])], "int64", [[1, 2], [3, 4]]),
]


@pytest.mark.parametrize(("data", "dtype", "values"), DATA, ids=[repr(d[0])[:30] for d in DATA])
def test_tensor_of_data(data: Any, dtype: str, values: Any) -> None:
    x = norch.tensor(data)
    assert x.dtype.name == dtype
    assert x.tolist() == values
    assert norch.tensor(data, dtype=norch.float64).dtype is norch.float64


def test_tensor_of_tensors() -> None:
    x = norch.tensor([norch.tensor(1.0), norch.tensor(2.0)])
    assert x.tolist() == [1, 2]
    assert norch.tensor([norch.tensor([1, 2]), norch.tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]


def test_nothing_is_rounded_twice() -> None:
    assert norch.tensor(0.1, dtype=norch.float64).item() == 0.1
    assert norch.tensor([[0.1]], dtype=norch.float64).item() == 0.1
    assert norch.tensor(2**62 + 1).item() == 2**62 + 1
    assert norch.tensor([2**53 + 1], dtype=norch.int64).item() == 2**53 + 1


def test_tensor_copies_and_as_tensor_shares() -> None:
    array = np.zeros(3, np.float32)
    x = norch.zeros(3)
    for source in (array, x):
        copied, shared = norch.tensor(source), norch.as_tensor(source)
        assert not np.shares_memory(copied.numpy(), np.asarray(source))
        assert np.shares_memory(shared.numpy(), np.asarray(source))
        assert not np.shares_memory(norch.as_tensor(source, dtype=norch.float64).numpy(), np.asarray(source))
    assert norch.as_tensor(x) is x
    leaf = norch.ones(2, requires_grad=True)
    assert not norch.tensor(leaf).requires_grad
    assert norch.tensor([1.0], requires_grad=True).is_leaf


def test_the_class_as_a_constructor() -> None:
    assert norch.Tensor(2, 3).shape == (2, 3)
    assert norch.Tensor().shape == (0,)
    x = norch.Tensor([[1, 2], [3, 4]])
    assert x.dtype is norch.float32
    assert x.T.tolist() == [[1, 3], [2, 4]]
    assert norch.Tensor([[0.5]], requires_grad=True).requires_grad
    array = np.zeros(2, np.float32)
    assert not np.shares_memory(norch.Tensor(array).numpy(), array)
    with pytest.raises(ShapeError):
        norch.Tensor([[1], [2, 3]])


def test_frombuffer() -> None:
    memory = bytearray(np.arange(4, dtype=np.int32).tobytes())
    x = norch.frombuffer(memory, dtype=norch.int32, count=2, offset=4)
    assert x.tolist() == [1, 2]
    x[0] = 9
    assert np.frombuffer(memory, np.int32)[1] == 9
    assert norch.frombuffer(bytes(memory), dtype=norch.int32).tolist() == [0, 9, 2, 3]


def test_storage() -> None:
    x = norch.zeros(4, 5, dtype=norch.float64)
    assert x.storage().nbytes() == x[1:3].storage().nbytes() == 160
    assert x[1:3].nbytes == 80
    assert len(x.storage()) == x.storage().size() == 20
    assert x.storage().data_ptr() == x.data_ptr()
    assert x.element_size() == x.itemsize == 8


def test_the_default_dtype(double_by_default: None) -> None:
    assert norch.get_default_dtype() is norch.float64
    assert norch.zeros(1).dtype is norch.rand(1).dtype is norch.tensor(1.0).dtype is norch.float64
    assert norch.tensor([]).dtype is norch.Tensor([1]).dtype is norch.float64
    assert (norch.arange(3) / 2).dtype is norch.float64
    assert (norch.arange(3) * 0.5).dtype is norch.float64
    assert norch.arange(3).exp().dtype is norch.float64
    assert (norch.zeros(1, dtype=norch.float32) * 0.5).dtype is norch.float32
    assert norch.linspace(0, 1, 3).dtype is norch.eye(2).dtype is norch.float64


def test_the_default_dtype_is_back() -> None:
    assert norch.arange(3).exp().dtype is (norch.arange(3) * 0.5).dtype is norch.float32


def test_data_that_make_no_tensor() -> None:
    for data in ("abc", None, object(), {1: 2}, [1, "a"], [None]):
        with pytest.raises(DTypeError):
            norch.tensor(data)
    for data in ([1, [2]], [[1, 2], 3], [[1], [2, 3]], [np.zeros(2), np.zeros(3)]):
        with pytest.raises(ShapeError, match="ragged"):
            norch.tensor(data)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ShapeError, match="64 levels"):
        norch.tensor(endless)


def test_nested_lists_of_one_type() -> None:
    rng = np.random.default_rng(0)
    for shape in ((3, 4), (2, 1, 3), (2, 0), (0, 2), (1, 1, 1, 1)):
        for array in (rng.integers(-9, 9, shape), rng.normal(size=shape)):
            for dtype in (None, norch.float32, norch.float64, norch.int64, norch.int8):
                made, expected = norch.tensor(array.tolist(), dtype=dtype), norch.tensor(array, dtype=dtype)
                assert made.shape == (shape if 0 not in shape else np.array(array.tolist()).shape)
                np.testing.assert_array_equal(made.numpy(), expected.to(made.dtype).numpy().reshape(tuple(made.shape)))
    assert norch.tensor([[1, 2], [3, 4]]).dtype is norch.int64
    assert norch.tensor([[1.0], [3.0]]).dtype is norch.float32


@pytest.mark.parametrize(
    "create",
    [
        norch.empty,
        norch.zeros,
        norch.ones,
        norch.arange,
        norch.randperm,
        lambda *a, **k: norch.full(a, 1.0, **k),
        lambda n, **k: norch.linspace(0, 1, n, **k),
        lambda n, **k: norch.logspace(0, 1, n, **k),
        lambda n, **k: norch.randint(5, (n,), **k),
        lambda n, **k: norch.ones(1).new_full((n,), 3.0, **k),
        lambda n, **k: norch.empty_strided((n,), (1,), **k),
        lambda n, **k: norch.ones(1).new_empty_strided((n,), (1,), **k),
    ],
)
def test_arguments_of_pytorch_that_norch_has_not(create: Any) -> None:
    assert create(2, layout=norch.strided).shape == (2,)
    assert create(2, out=None).shape == (2,)
    with pytest.raises(TypeError, match=r"\(\): norch has no layout but norch.strided"):
        create(2, layout="sparse_coo")
    out = norch.zeros(2)
    assert create(2, out=out) is out
    with pytest.raises(TypeError, match=r"\(\): unexpected arguments colour, shade"):
        create(2, colour=1, shade=2)


@pytest.mark.parametrize("end", [0.7, 1.1, -0.3, 1e9 / 3])
@pytest.mark.parametrize("steps", [2, 3, 8, 100])
def test_linspace_ends_where_it_is_told_to(end: float, steps: int) -> None:
    values = norch.linspace(0.1, end, steps, dtype=norch.float64)
    assert values[0].item() == 0.1
    assert values[-1].item() == end
    np.testing.assert_allclose(values.numpy(), np.linspace(0.1, end, steps), 1e-14, 1e-14)


def test_meshgrid_and_diagonals() -> None:
    rows, columns = norch.meshgrid(norch.arange(2), norch.arange(3), indexing="ij")
    assert rows.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert columns.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert norch.meshgrid(norch.arange(2), norch.arange(3), indexing="xy")[0].shape == (3, 2)
    assert norch.diag(norch.tensor([1, 2])).tolist() == [[1, 0], [0, 2]]


def test_the_default_device_is_where_tensors_are_made():
    from norch.testing.strict import strict_device

    strict = norch.device(strict_device())
    x = norch.ones(2)
    assert norch.get_default_device() == norch.device("cpu")
    norch.set_default_device(strict)
    try:
        for made in (norch.zeros(2), norch.tensor([1.0]), norch.rand(3), norch.arange(4), norch.as_tensor([1, 2])):
            assert made.device is strict
        assert norch.as_tensor(x) is x
        assert norch.zeros_like(x).device == norch.tensor([1], device="cpu").device == norch.device("cpu")
    finally:
        norch.set_default_device(None)
    assert norch.zeros(2).device == norch.device("cpu")
    with pytest.raises(norch.DeviceError, match="no installed package"):
        norch.set_default_device("abacus")
    assert norch.get_default_device() == norch.device("cpu")


def test_factories_read_nothing_from_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from norch.testing.strict import StrictBackend, strict_device

    device = strict_device()
    x, number = norch.ones(2, 3, device=device), norch.tensor(2.5, device=device)

    def copy_out(*args: Any) -> None:
        raise AssertionError("read from the device")

    with monkeypatch.context() as patched:
        patched.setattr(StrictBackend, "copy_out", copy_out)
        made = [norch.full_like(x.T, number), x.new_full((2,), number), norch.full((2,), number, device=device)]
        for like in (x, x.T, x[:, ::2], x.expand(4, 2, 3)):
            for make in (norch.zeros_like, norch.ones_like, norch.empty_like, norch.rand_like, norch.randn_like):
                assert make(like).shape == make(like, dtype=norch.float64).shape == like.shape
            (
                norch.full_like(like, 3),
                norch.randint_like(like, 5),
                like.new_zeros(2),
                like.new_ones(2),
                like.new_empty(2),
            )
        norch.arange(5, device=device), norch.linspace(0, 1, 5, device=device), norch.eye(3, device=device)
        norch.tril_indices(3, 4, device=device), norch.triu_indices(3, 4, device=device), x.new_tensor(x)
        (
            norch.logspace(0, 1, 5, device=device),
            norch.hann_window(4, device=device),
            norch.scalar_tensor(1, device=device),
        )
    for one in made:
        assert one.dtype is norch.float32
        assert set(one.reshape(-1).tolist()) == {2.5}
    assert norch.tril_indices(3, 2, device=device).tolist() == [[0, 1, 1, 2, 2], [0, 0, 1, 0, 1]]


@pytest.mark.parametrize("offset", [-9, -2, 0, 1, 3, 9])
def test_triangle_indices_are_numpys(offset):
    for row in (0, 1, 3, 5, 300):
        for col in (0, 1, 4, 7, 290):
            lower, upper = norch.tril_indices(row, col, offset), norch.triu_indices(row, col, offset, dtype=norch.int32)
            assert (lower.dtype, upper.dtype) == (norch.int64, norch.int32)
            assert np.array_equal(lower.numpy(), np.array(np.tril_indices(row, offset, col)))
            assert np.array_equal(upper.numpy(), np.array(np.triu_indices(row, offset, col)))
    for op in (norch.tril_indices, norch.triu_indices):
        with pytest.raises(norch.ShapeError, match=r"-1 rows and 3 columns"):
            op(-1, 3, offset)


def test_a_shape_stays_a_shape() -> None:
    shape = norch.ones(2, 3, 4).shape
    for part in (shape[1:], shape[:0], shape + (1,), (1,) + shape, shape * 2, 2 * shape):
        assert type(part) is norch.Size
    assert shape[1:].numel() == 12
    assert ((5,) + shape[-1:])[0] == 5
    assert type(shape[-1]) is int
    sizes = [1]
    sizes += shape
    assert sizes == [1, 2, 3, 4]
    with pytest.raises(TypeError, match="can only concatenate list"):
        [1] + shape
    with pytest.raises(TypeError, match=r"arange\(\) missing 1 required argument: 'end'"):
        norch.arange()


def test_old_constructors_take_shapes():
    shape = norch.ones(2, 3).size()
    for made in (norch.Tensor(shape), norch.FloatTensor(shape), norch.LongTensor(shape), norch.ones(1).new(shape)):
        assert made.shape == (2, 3)
    assert norch.Tensor(norch.Size([])).shape == ()
    assert norch.Tensor((2, 3)).tolist() == [2, 3]
    assert norch.DoubleTensor(shape[:1]).shape == (2,)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([np.float64(1)], norch.float64),
        ([2.0, np.float64(1)], norch.float64),
        ([np.float32(1), 2.0], norch.float32),
        ([np.int32(1)], norch.int32),
        ([np.int32(1), 2], norch.int64),
        ([np.int64(1), 2.5], norch.float32),
        ([np.bool_(True)], norch.bool),
        ([np.array([1.0, 2.0]), [3, 4]], norch.float64),
        ([[np.uint8(1), np.uint8(2)]], norch.uint8),
    ],
)
def test_numpys_numbers_in_lists_say_the_dtype(data, dtype):
    for found in (norch.tensor(data), norch.as_tensor(data)):
        assert found.dtype is dtype
        assert found.tolist() == np.array(data).tolist()
    assert norch.tensor(data, dtype=norch.float16).dtype is norch.float16
    assert norch.Tensor(data).dtype is norch.float32


def test_tensors_in_lists_say_the_dtype():
    one = norch.tensor(1.0, dtype=norch.float64)
    assert norch.tensor([one, 2.0]).dtype is norch.float64
    assert norch.tensor([norch.tensor(1), 2.5]).dtype is norch.float32


def test_places_of_triangles_take_a_layout() -> None:
    assert norch.tril_indices(2, 2, layout=norch.strided).tolist() == [[0, 1, 1], [0, 0, 1]]
    assert norch.triu_indices(2, 2, layout=norch.strided, pin_memory=False).tolist() == [[0, 0, 1], [0, 1, 1]]
    assert norch.scalar_tensor(3, layout=norch.strided).item() == 3
    with pytest.raises(TypeError, match=r"triu_indices\(\): unexpected arguments colour"):
        norch.triu_indices(2, 2, colour=1)


@pytest.mark.parametrize(("value", "dtype"), [
    (norch.tensor(0.5, dtype=norch.float64), norch.float32), (norch.tensor(0.5, dtype=norch.bfloat16), norch.float32),
    (norch.tensor(2, dtype=norch.int32), norch.int64), (norch.tensor(2, dtype=norch.uint8), norch.int64),
    (norch.tensor(True), norch.bool),
])  # fmt: skip
def test_full_of_a_0d_tensor_has_the_dtype_of_a_number(value, dtype):
    found = norch.full((2, 3), value)
    assert found.dtype is dtype
    assert found.tolist() == [[value.item()] * 3] * 2
    assert norch.full((2,), value, dtype=norch.float16).dtype is norch.float16
