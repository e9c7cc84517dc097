"""`x[index]` and `x[index] = value` against NumPy, with their gradients; and the functions that gather and scatter."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import norch

Index = tuple[Any, ...]


def as_norch(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(as_norch(i) for i in index)
    return norch.tensor(index) if isinstance(index, np.ndarray) else index


@st.composite
def slices(draw: st.DrawFn, size: int, negative: bool = True) -> slice:
    bound = st.none() | st.integers(-size - 1, size + 1)
    steps = [None, 1, 2, 3, *([-1, -2] if negative else [])]
    return slice(draw(bound), draw(bound), draw(st.sampled_from(steps)))


@st.composite
def arrays_of_indices(draw: st.DrawFn, size: int, shape: tuple[int, ...]) -> np.ndarray:
    mine = tuple(draw(st.sampled_from([1, n])) for n in shape[draw(st.integers(0, max(len(shape) - 1, 0))) :])
    return np.array(
        draw(st.lists(st.integers(-size, size - 1), min_size=prod(mine), max_size=prod(mine))), np.int64
    ).reshape(mine)


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Index:
    """Slices, None, Ellipsis and either ints or arrays and masks.

    NumPy counts an int beside an array as an array, PyTorch and norch as a choice made before: they differ in where
    the dims of the result go, so the two are not mixed here.
    """
    advanced = draw(st.booleans())
    common = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple))
    parts: list[Any] = []
    dim = 0
    while dim < len(shape):
        size = shape[dim]
        kind = draw(st.sampled_from(["slice", "none", "stop", "dots", *(["array", "mask"] if advanced else ["int"])]))
        if kind == "stop":
            break
        if kind == "dots":
            parts.append(...)
            break
        if kind == "none":
            parts.append(None)
            if sum(p is None for p in parts) > 2:
                break
            continue
        if kind == "slice":
            parts.append(draw(slices(size)))
        elif kind == "int":
            parts.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            parts.append(draw(arrays_of_indices(size, common)))
        else:
            if any(isinstance(p, np.ndarray) for p in parts):
                break  # how many the mask chooses would have to fit the others
            rank = draw(st.integers(1, len(shape) - dim))
            count = prod(shape[dim : dim + rank])
            bits = draw(st.lists(st.booleans(), min_size=count, max_size=count))
            parts.append(np.array(bits, bool).reshape(shape[dim : dim + rank]))
            dim += rank
            break
        dim += 1
    return tuple(parts)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, Index]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple))
    array = np.arange(float(prod(shape))).reshape(shape)
    order = draw(st.permutations(range(len(shape))))
    array = array.transpose(order)
    return array, draw(indices(array.shape))


def test_a_0d_tensor_is_its_own_first_element() -> None:
    x = norch.tensor(3.0, requires_grad=True)
    for index in (0, -1, (0,), norch.tensor(0), np.int64(-1), True, ..., ()):
        assert x[index].sum().item() == 3
    x[(0,)].backward()
    assert x.grad.item() == 1
    for index in (1, -2, (0, 0), slice(None)):
        with pytest.raises(norch.IndexError, match="0-d|0 dims"):
            x[index]


ALL, FIRST, SECOND = slice(None), np.array([1, 0]), np.array([[2], [0]])


@pytest.mark.parametrize(
    "index",
    [
        (ALL, FIRST, ALL, FIRST),  # apart: the index's own dims come first
        (ALL, FIRST, FIRST),  # side by side: they stay where they are
        (ALL, ALL, FIRST, FIRST),
        (ALL, SECOND, ALL, FIRST),
        (ALL, None, FIRST, ALL, FIRST),
        (ALL, FIRST, slice(1, 3), SECOND),
        (..., FIRST, ALL, SECOND),
        (ALL, SECOND, FIRST, ALL),
    ],
    ids=str,
)
def test_where_the_dims_of_several_index_tensors_go(index: Index) -> None:
    array = np.arange(120.0).reshape(2, 3, 4, 5)
    x = norch.tensor(array)
    found, expected = x[as_norch(index)], array[index]
    assert tuple(found.shape) == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)
    value = np.arange(expected.size).reshape(expected.shape) + 1000.0
    array[index] = value
    x[as_norch(index)] = norch.tensor(value)
    np.testing.assert_array_equal(x.numpy(), array)


def check_getitem(array: np.ndarray, index: Index) -> None:
    expected = array[index]
    x = norch.from_numpy(array.copy(order="K")).requires_grad_()
    found = x[as_norch(index)]
    assert tuple(found.shape) == expected.shape
    np.testing.assert_array_equal(found.detach().numpy(), expected)
    weight = np.random.RandomState(0).rand(*expected.shape)
    (found * norch.tensor(weight)).sum().backward()
    gradient = np.zeros(array.shape)
    np.add.at(gradient, index, weight)
    np.testing.assert_allclose(x.grad.numpy(), gradient)


def check_setitem(array: np.ndarray, index: Index, places: np.ndarray, shape: tuple[int, ...]) -> None:
    value = np.random.RandomState(1).rand(*shape) + 100.0
    expected = array.copy()
    expected[index] = value
    x = norch.from_numpy(array.copy(order="K")).requires_grad_()
    v = norch.tensor(value, dtype=norch.float64, requires_grad=True)
    y = x * 1.0
    y[as_norch(index)] = v
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    weight = np.random.RandomState(2).rand(*array.shape)
    (y * norch.tensor(weight)).sum().backward()
    kept = weight.copy()
    kept[index] = 0
    np.testing.assert_allclose(x.grad.numpy(), kept)
    axes = tuple(i for i, n in enumerate(shape) if n == 1 != places.shape[i])
    total = weight[index].sum(axes, keepdims=True) if shape else weight[index].sum()  # a place named twice counts twice
    np.testing.assert_allclose(v.grad.numpy(), total)


@settings(max_examples=400, deadline=None)
@given(cases(), st.data())
def test_getitem_and_setitem_are_numpys(case: tuple[np.ndarray, Index], data: st.DataObject) -> None:
    """Of one case, as drawing it takes longer than either."""
    array, index = case
    check_getitem(array, index)
    places = np.arange(array.size).reshape(array.shape)[index]
    shape = tuple(data.draw(st.sampled_from([1, n])) for n in places.shape)
    if len(np.unique(places)) < places.size:
        shape = ()  # which of two values stays is open, unless they are the same
    check_setitem(array, index, places, shape)


def test_basic_indices_are_views_and_others_copies() -> None:
    x = norch.arange(12.0).reshape(3, 4).clone()
    for view in (x[1], x[1:, ::2], x[..., None], x[norch.tensor(1)], x[np.int64(2)]):
        assert np.shares_memory(view.numpy(), x.numpy())
    for copy in (x[[1]], x[x > 3], x[::-1], x[norch.tensor([0])]):
        assert not np.shares_memory(copy.numpy(), x.numpy())


def test_indices_of_every_type() -> None:
    x = norch.arange(12).reshape(3, 4)
    assert x[[0, 2]].tolist() == x[norch.tensor([0, 2])].tolist() == x[np.array([0, 2])].tolist()
    assert x[range(2)].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert x[norch.tensor([0, 2], dtype=norch.int32)].shape == (2, 4)
    assert x[norch.tensor([0, 2], dtype=norch.int8), 1].tolist() == [1, 9]
    assert x[[True, False, True]].shape == (2, 4)
    assert x[True].shape == (1, 3, 4)
    assert x[False].shape == (0, 3, 4)
    assert x[[]].shape == (0, 4)
    assert x[None, ..., None].shape == (1, 3, 4, 1)
    assert x[()].shape == (3, 4)
    assert x[norch.tensor(2), norch.tensor(1)].item() == 9
    assert x[norch.empty(0, dtype=norch.int64)].shape == (0, 4)


ROWS, COLUMNS = np.array([[1], [0]]), np.array([3, 0, 2])


@pytest.mark.parametrize("index", [
    (..., COLUMNS), (..., ROWS, COLUMNS), (..., COLUMNS, 0), (..., COLUMNS, slice(1, 3)), (slice(0, 1), ..., COLUMNS),
    (..., None, COLUMNS), (..., np.array([True, False, True, True])), (None, ..., ROWS, None),
])  # fmt: skip
def test_arrays_of_numpy_after_an_ellipsis(index: Index) -> None:
    x = np.arange(64.0).reshape(4, 4, 4)
    assert np.array_equal(norch.tensor(x)[index].numpy(), x[index])
    y = norch.tensor(x)
    y[index] = -1.0
    x[index] = -1.0
    assert np.array_equal(y.numpy(), x)


@pytest.mark.parametrize("before", [(ROWS,), (None, ROWS), (slice(0, 3), ROWS), (..., ROWS)])
def test_arrays_of_numpy_before_a_tensor(before: tuple[Any, ...]) -> None:
    x = np.arange(64.0).reshape(4, 4, 4)
    y = norch.tensor(x)
    index = (*before, norch.tensor(COLUMNS))
    assert np.array_equal(y[index].numpy(), x[*before, COLUMNS])
    y[index] = -1.0
    x[*before, COLUMNS] = -1.0
    assert np.array_equal(y.numpy(), x)


def test_a_list_of_more_than_numbers_is_taken_for_a_tuple() -> None:
    x = norch.arange(12).reshape(3, 4)
    assert x[[[0, 1], [2, 0]]].tolist() == x[[0, 1], [2, 0]].tolist() == [2, 4]
    assert x[[norch.tensor([0, 1]), 2]].tolist() == [2, 6]
    assert x[[slice(1), None, ...]].shape == (1, 1, 4)
    assert x[[[[0, 1], [2, 0]]]].shape == (2, 2, 4)
    assert x[[[0]] * 40].shape == (40, 1, 4)
    x[[[0, 1], [2, 0]]] = norch.tensor([-1, -2])
    assert [x[0, 2].item(), x[1, 0].item(), x.sum().item()] == [-1, -2, 57]


def test_int_beside_arrays_is_taken_first() -> None:
    x = norch.arange(24).reshape(2, 3, 4)
    assert x[[0, 1], :, 1].shape == (2, 3)
    assert x[0, :, [1, 2]].shape == (3, 2)  # NumPy says (2, 3)
    assert x[norch.tensor(0), :, [1, 2]].shape == (3, 2)
    assert x[[0], :, [1, 2]].shape == (2, 3)  # arrays apart: their dims come first


def test_assignment_of_every_type() -> None:
    x = norch.zeros(3, 4, dtype=norch.int64)
    x[0] = 1
    x[1, 1:3] = [7, 8]
    x[2, ::-1] = norch.arange(4)
    x[x == 0] = np.int64(-1)
    x[[0, 0], [0, 1]] = norch.tensor(2.9)  # cast, as PyTorch does
    assert x.tolist() == [[2, 2, 1, 1], [-1, 7, 8, -1], [3, 2, 1, -1]]
    x[:] = norch.arange(4).reshape(1, 1, 4)
    x[...] = x.flip(1)
    assert x.tolist() == [[3, 2, 1, 0]] * 3


def test_assignment_from_itself() -> None:
    x = norch.arange(5)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]
    x[[0, 1]] = x[[4, 3]]
    assert x.tolist() == [3, 2, 1, 2, 3]


def test_augmented_assignment() -> None:
    x = norch.ones(3, requires_grad=True)
    y = x * 2
    y[0] += 3
    y[[1, 2]] *= 4
    y.sum().backward()
    assert y.tolist() == [5, 8, 8]
    assert x.grad.tolist() == [2, 8, 8]


def test_assignment_through_views_and_columns() -> None:
    x = norch.zeros(3, 4)
    x.t()[1:3, 0] = 5
    x[:, 3][[0, 2]] = 7
    x.t()[norch.tensor([0, 1]), norch.tensor([2, 2])] = norch.tensor([1.0, 2.0])
    assert x.tolist() == [[0, 5, 5, 7], [0, 0, 0, 0], [1, 2, 0, 7]]


def test_index_put() -> None:
    x = norch.zeros(3)
    x.index_put_((norch.tensor([0, 0, 2]),), norch.tensor([1.0, 2.0, 4.0]), accumulate=True)
    assert x.tolist() == [3, 0, 4]
    y = x.index_put((norch.tensor([1]),), norch.tensor(9.0))
    assert y.tolist() == [3, 9, 4]
    assert x.tolist() == [3, 0, 4]
    assert x.index_put_((norch.tensor(1),), norch.tensor(1.0), accumulate=True).tolist() == [3, 1, 4]
    with pytest.raises(norch.IndexError):
        x.index_put_((), norch.tensor(1.0))


def test_gather_and_scatter() -> None:
    x = norch.arange(6.0).reshape(2, 3)
    index = norch.tensor([[2, -1, 0], [1, 1, -3]])
    assert x.gather(1, index).tolist() == [[2, 2, 0], [4, 4, 3]]
    assert x.gather(0, norch.tensor([[1, 0]])).tolist() == [[3, 1]]
    zeros = norch.zeros(2, 3)
    assert zeros.scatter(1, norch.tensor([[2], [0]]), 5.0).tolist() == [[0, 0, 5], [5, 0, 0]]
    assert zeros.scatter_add(0, norch.tensor([[1, 1, 1], [1, 1, 1]]), x).tolist() == [[0, 0, 0], [3, 5, 7]]
    assert zeros.tolist() == [[0, 0, 0], [0, 0, 0]]
    zeros.scatter_(1, norch.tensor([[1]]), norch.tensor([[4.0, 9.0]]))
    assert zeros.tolist() == [[0, 4, 0], [0, 0, 0]]


def test_selection() -> None:
    x = norch.arange(6.0).reshape(2, 3)
    assert norch.index_select(x, 1, norch.tensor([2, 0])).tolist() == [[2, 0], [5, 3]]
    assert norch.take(x, norch.tensor([[0, -1]])).tolist() == [[0, 5]]
    assert norch.masked_select(x, x > 3).tolist() == [4, 5]
    assert norch.masked_select(x, norch.tensor([True, False, True])).tolist() == [0, 2, 3, 5]
    assert x.index_add(0, norch.tensor([0, 0]), x, alpha=2).tolist() == [[6, 11, 16], [3, 4, 5]]
    assert x.index_fill(1, norch.tensor([1]), -1).tolist() == [[0, -1, 2], [3, -1, 5]]
    assert norch.nonzero(x > 3).tolist() == [[1, 1], [1, 2]]
    assert [p.tolist() for p in norch.nonzero(x > 3, as_tuple=True)] == [[1, 1], [1, 2]]
    assert norch.nonzero(norch.zeros(2, 0)).shape == (0, 2)
    assert norch.one_hot(norch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_a_mask_of_zero_size() -> None:
    x = norch.zeros(2, 0)
    assert x[x > 0].shape == (0,)
    assert x[norch.tensor(0), norch.zeros(0, dtype=norch.bool)].shape == (0,)
    x[x > 0] = 1.0
    assert norch.zeros(0, 3)[norch.zeros(0, 3, dtype=norch.bool)].shape == (0,)


@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable_and_puts_nan_last(descending: bool) -> None:
    values = np.array([2.0, np.nan, 1.0, 2.0, -np.inf, 1.0])
    found, order = norch.sort(norch.tensor(values), descending=descending)
    expected = sorted(range(6), key=lambda i: (np.inf if np.isnan(values[i]) else values[i]) * (-1) ** descending)
    assert order.tolist() == expected
    np.testing.assert_array_equal(found.numpy(), values[expected])


def test_unique_and_searchsorted() -> None:
    x = norch.tensor([[3, 1], [3, 2]])
    values, inverse, counts = norch.unique(x, return_inverse=True, return_counts=True)
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == ([1, 2, 3], [[2, 0], [2, 1]], [1, 1, 2])
    assert values[inverse].tolist() == x.tolist()
    sequence = np.array([1.0, 2.0, 2.0, 5.0])
    wanted = np.array([[0.0, 2.0], [3.0, 9.0]])
    for side in ("left", "right"):
        found = norch.searchsorted(norch.tensor(sequence), norch.tensor(wanted), side=side)
        np.testing.assert_array_equal(found.numpy(), np.searchsorted(sequence, wanted, side))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_, np.float32])
def test_unique_rows(dtype: Any) -> None:
    draws = np.random.default_rng(0)
    for shape in ((1, 3), (50, 4), (300, 3, 2), (30, 70), (9, 1)):
        values = draws.integers(0, 3, shape).astype(dtype)
        if dtype is np.int64:  # of which no other column has room beside the first
            values[:2, 0] = np.array([[2**63 - 1], [-(2**63)]][: values[:2].shape[0]]).reshape(
                -1, *[1] * (len(shape) - 2)
            )
        found = norch.unique(norch.tensor(values), return_inverse=True, return_counts=True, dim=0)
        wanted = np.unique(values, return_inverse=True, return_counts=True, axis=0)
        for result, expected in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(result.numpy(), expected.reshape(result.shape))


def test_scatter_add_into_a_0_d_tensor():
    assert norch.tensor(2.5).scatter_add(0, norch.tensor(0), norch.tensor(1.0)).item() == 3.5


@pytest.mark.parametrize("repeats", [-1, [1, -1, 2], [3, 0, -2]])
def test_negative_repeats(repeats):
    repeats = repeats if isinstance(repeats, int) else norch.tensor(repeats)
    with pytest.raises(norch.ShapeError, match="negative"):
        norch.repeat_interleave(norch.arange(3), repeats)


@pytest.mark.parametrize("index", [0, slice(None), (slice(0, None),), (0, slice(None)), Ellipsis], ids=str)
def test_a_number_is_not_written_where_elements_share_memory(index):
    x = norch.zeros(1, 1).expand(1, 2)
    with pytest.raises(norch.ShapeError):
        x[index] = 1
    assert x.tolist() == [[0.0, 0.0]]
    x.fill_(2)  # as in PyTorch
    assert x.tolist() == [[2.0, 2.0]]


def test_bytes_are_masks_as_in_pytorch():
    x, mask = norch.arange(6.0).reshape(2, 3), norch.tensor([[0, 1, 0], [2, 0, 1]], dtype=norch.uint8)
    with pytest.warns(UserWarning, match="takes it for a mask"):
        assert x[mask].tolist() == [1, 3, 5]
    with pytest.warns(UserWarning, match="takes it for a mask"):
        assert x[:, mask[0]].tolist() == [[1], [4]]
    with pytest.warns(UserWarning, match="takes it for a mask"):
        assert x[np.array([0, 1], np.uint8)].tolist() == [[3, 4, 5]]
    with pytest.warns(UserWarning, match="takes it for a mask"):
        x[mask] = -1
    assert x.tolist() == [[0, -1, 2], [-1, 4, -1]]
    with pytest.warns(UserWarning, match="for a mask"), pytest.raises(norch.IndexError, match="mask of shape"):
        x[norch.tensor([0, 1, 1], dtype=norch.uint8)]
    with pytest.raises(norch.DTypeError, match="mask must be bool"):
        x.masked_select(mask)


def test_arguments_by_pytorchs_names():
    x, rows = norch.arange(6.0).reshape(2, 3), norch.tensor([0])
    named = {"dim": 0, "index": rows, "source": norch.full((1, 3), 9.0)}
    for function in (x.index_copy, x.clone().index_copy_):
        assert function(**named).tolist() == [[9, 9, 9], [3, 4, 5]]
    assert x.index_add(**named, alpha=2).tolist() == [[18, 19, 20], [3, 4, 5]]
    assert x.index_reduce(**named, reduce="amin").tolist() == x.tolist()
    assert x.index_fill(dim=0, index=rows, value=7).tolist() == [[7, 7, 7], [3, 4, 5]]
    assert norch.tensor(2.0).index_copy(dim=0, index=rows, source=norch.tensor(3.0)).tolist() == 3
    assert x.gather(0, norch.tensor([[1]]), sparse_grad=True).tolist() == [[3]]
    assert x.swapaxes(axis0=0, axis1=1).tolist() == norch.swapaxes(x, axis0=1, axis1=0).tolist() == x.T.tolist()
    assert [part.tolist() for part in x.split_with_sizes(split_sizes=[1, 2], dim=1)] == [
        [[0], [3]],
        [[1, 2], [4, 5]],
    ]
    assert [part.shape for part in norch.hsplit(x, sections=3)] == [(2, 1)] * 3
    assert x.vsplit(indices=(1,))[1].tolist() == [[3, 4, 5]]
    assert norch.empty(0).resize_(size=(2, 3)).shape == (2, 3)
    assert norch.inverse(input=norch.eye(2) * 2).tolist() == [[0.5, 0], [0, 0.5]]
