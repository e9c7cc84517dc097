"""The view algebra, against NumPy's: shapes, strides, offsets and shared memory; and the gradients of views."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import norch
from norch import ShapeError
from norch.spec import Spec, may_overlap, reshape_strides

Pair = tuple[norch.Tensor, np.ndarray]
SHAPES = st.lists(st.integers(1, 4), max_size=4).map(tuple)


def pair(shape: tuple[int, ...]) -> Pair:
    values = np.arange(float(prod(shape))).reshape(shape)
    return norch.tensor(values), values


def strides_that_matter(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Where a dim has size 1 its stride means nothing, and libraries differ."""
    return [s for n, s in zip(shape, strides) if n != 1]


def offset(view: np.ndarray, base: np.ndarray) -> int:
    return (view.ctypes.data - base.ctypes.data) // base.itemsize


def check_view(tensor: norch.Tensor, array: np.ndarray, base: norch.Tensor, base_array: np.ndarray) -> None:
    assert tuple(tensor.shape) == array.shape
    np.testing.assert_array_equal(tensor.numpy(), array)
    if not array.size:
        return
    assert strides_that_matter(array.shape, tensor.stride()) == [
        s // 8 for s in strides_that_matter(array.shape, array.strides)
    ]
    assert tensor.storage_offset() == offset(array, base_array)
    assert tensor.is_contiguous() == array.flags.c_contiguous
    assert np.shares_memory(tensor.numpy(), base.numpy())
    assert tensor.data_ptr() == base.data_ptr() + 8 * tensor.storage_offset()


@st.composite
def steps(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]:
    """A view op as norch spells it, and as NumPy does."""
    ndim = len(shape)
    kinds = ["unsqueeze", "squeeze", "index", "expand", "reshape"]
    kinds += ["transpose", "permute", "narrow", "movedim", "unfold", "select"] if ndim else []
    kinds += ["diagonal", "flatten"] if ndim > 1 else []
    kind = draw(st.sampled_from(kinds))
    dim = draw(st.integers(-ndim, ndim - 1)) if ndim else 0
    size = shape[dim] if ndim else 1
    if kind == "unsqueeze":
        at = draw(st.integers(-ndim - 1, ndim))
        return lambda t: t.unsqueeze(at), lambda a: np.expand_dims(a, at)
    if kind == "squeeze":
        return lambda t: t.squeeze(), np.squeeze
    if kind == "expand":
        new = (2, *[draw(st.integers(1, 3)) if n == 1 else n for n in shape])
        return lambda t: t.expand(new), lambda a: np.broadcast_to(a, new)
    if kind == "transpose":
        other = draw(st.integers(-ndim, ndim - 1))
        return lambda t: t.transpose(dim, other), lambda a: np.swapaxes(a, dim, other)
    if kind == "permute":
        order = draw(st.permutations(range(ndim)))
        return lambda t: t.permute(*order), lambda a: a.transpose(order)
    if kind == "movedim":
        other = draw(st.integers(-ndim, ndim - 1))
        return lambda t: t.movedim(dim, other), lambda a: np.moveaxis(a, dim, other)
    if kind == "narrow":
        start = draw(st.integers(0, size - 1))
        length = draw(st.integers(1, size - start))
        cut = (slice(None),) * (dim % ndim) + (slice(start, start + length),)
        return lambda t: t.narrow(dim, start, length), lambda a: a[cut]
    if kind == "select":
        at = draw(st.integers(-size, size - 1))
        return lambda t: t.select(dim, at), lambda a: a[(slice(None),) * (dim % ndim) + (at, ...)]
    if kind == "unfold":
        width, step = draw(st.integers(1, size)), draw(st.integers(1, 3))
        every = (slice(None),) * (dim % ndim) + (slice(None, None, step),)
        windows = np.lib.stride_tricks.sliding_window_view
        return lambda t: t.unfold(dim, width, step), lambda a: windows(a, width, dim, writeable=False)[every]
    if kind == "diagonal":
        first, second = draw(st.permutations(range(ndim)))[:2]
        shift = draw(st.integers(-1, 1))
        return lambda t: t.diagonal(shift, first, second), lambda a: np.diagonal(a, shift, first, second)
    if kind == "flatten":
        return lambda t: t.flatten(), lambda a: a.reshape(-1)
    if kind == "reshape":
        new = draw(st.permutations([*shape, 1]))
        return lambda t: t.reshape(new), lambda a: a.reshape(new)
    parts: list[Any] = []
    for n in shape:
        start = draw(st.integers(-n, n - 1))
        parts.append(draw(st.sampled_from([start, slice(start, None), slice(None, None, 2), slice(None), ...])))
    while parts.count(...) > 1:
        parts[parts.index(...)] = slice(None)
    parts.insert(draw(st.integers(0, len(parts))), None)
    index = tuple(parts if ... in parts else [*parts, ...])  # with ..., NumPy gives an array even for 0 dims
    return lambda t: t[index], lambda a: a[index]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_chains_of_views_are_numpys(data: st.DataObject) -> None:
    base, base_array = pair(data.draw(SHAPES))
    tensor, array = base, base_array
    for _ in range(data.draw(st.integers(1, 4))):
        of_tensor, of_array = data.draw(steps(array.shape))
        before = array
        tensor, array = of_tensor(tensor), of_array(array)
        if array.size and not np.shares_memory(array, base_array):  # NumPy had to copy: so had norch
            assert not np.shares_memory(tensor.numpy(), base.numpy())
            np.testing.assert_array_equal(tensor.numpy(), array)
            assert not before.flags.c_contiguous
            base, base_array = tensor, array
        check_view(tensor, array, base, base_array)
        if 0 in array.shape:
            return
    if not may_overlap(tensor.spec.shape, tensor.spec.strides):
        tensor.fill_(-1.0)
        np.ndarray(array.shape, float, base_array, 8 * offset(array, base_array), array.strides)[...] = -1.0
        np.testing.assert_array_equal(base.numpy(), base_array)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_reshape_is_a_view_exactly_where_numpy_can(data: st.DataObject) -> None:
    _, array = pair(data.draw(SHAPES))
    view = array.transpose(data.draw(st.permutations(range(array.ndim))))
    view = view[(..., *(slice(None, None, data.draw(st.sampled_from([1, 1, 2]))) for _ in view.shape))]
    left, new = view.size, []
    while left > 1:
        new.append(data.draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0])))
        left //= new[-1]
    new.insert(data.draw(st.integers(0, len(new))), 1)
    expected = view.reshape(new)
    strides = reshape_strides(view.shape, tuple(s // 8 for s in view.strides), tuple(new))
    assert (strides is not None) == np.shares_memory(expected, view)
    if strides is not None:
        assert strides_that_matter(tuple(new), strides) == [
            s // 8 for s in strides_that_matter(expected.shape, expected.strides)
        ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=3))
def test_overlap_is_never_missed(dims: list[tuple[int, int]]) -> None:
    shape, strides = tuple(n for n, _ in dims), tuple(s for _, s in dims)
    places = [sum(i * s for i, s in zip(index, strides)) for index in np.ndindex(*shape)]
    if len(set(places)) < len(places):
        assert may_overlap(shape, strides)


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(3)), st.tuples(*[st.integers(1, 3)] * 3), st.tuples(*[st.integers(0, 5)] * 3))
def test_no_overlap_is_claimed_of_parts_of_an_array(
    order: list[int], steps: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    whole = np.zeros([n * s for n, s in zip(sizes, steps)] or [1])
    part = whole[tuple(slice(None, None, s) for s in steps)].transpose(order)
    assert not may_overlap(part.shape, tuple(s // 8 for s in part.strides))


VIEWS: dict[str, Callable[[norch.Tensor], norch.Tensor]] = {
    "reshape": lambda x: x.reshape(4, 6),
    "view": lambda x: x.view(-1),
    "view_as": lambda x: x.view_as(norch.empty(6, 4)),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "squeeze": lambda x: x.squeeze(),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "transpose": lambda x: x.transpose(0, 2),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "t": lambda x: x[0].t(),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, 2),
    "narrow": lambda x: x.narrow(2, 1, 2),
    "select": lambda x: x.select(1, 2),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "as_strided": lambda x: x.as_strided((2, 3), (7, 2), 1),
    "unfold": lambda x: x.unfold(2, 2, 2),
    "split": lambda x: x.split(2, 1)[1],
    "split sizes": lambda x: x.split([1, 2], 1)[1],
    "chunk": lambda x: x.chunk(2, 2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "iteration": lambda x: list(x)[1],
    "contiguous": lambda x: x.contiguous(),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "x[1]": lambda x: x[1],
    "x[...]": lambda x: x[...],
    "x[:]": lambda x: x[:],
    "x[1:, ::2, None, -1]": lambda x: x[1:, ::2, None, -1],
    "x[tensor(1)]": lambda x: x[norch.tensor(1)],
    "bitcast": lambda x: x.view(norch.int64),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name: str) -> None:
    base = norch.arange(24, dtype=norch.float64).reshape(2, 3, 4).clone()
    view = VIEWS[name](base)
    assert np.shares_memory(view.numpy(), base.numpy())
    assert view.storage().data_ptr() == base.storage().data_ptr()
    view.fill_(7)
    assert int((base.view(norch.int64) == 7).sum() if name == "bitcast" else (base == 7).sum()) >= view.numel()
    base.zero_()
    assert not view.any()


@pytest.mark.parametrize("name", [n for n in VIEWS if n not in ("detach", "data", "bitcast")])
def test_gradients_of_views(name: str) -> None:
    x = norch.rand(2, 3, 4, dtype=norch.float64, requires_grad=True)
    weight = norch.rand(tuple(VIEWS[name](x).shape), dtype=norch.float64)
    (VIEWS[name](x * 1.0) * weight).sum().backward()
    expected = norch.zeros(2, 3, 4, dtype=norch.float64)
    VIEWS[name](expected).copy_(weight)
    np.testing.assert_array_equal(x.grad.numpy(), expected.numpy())
    assert norch.autograd.gradgradcheck(lambda v: VIEWS[name](v * v), (x,), fast_mode=True)


COPIES: dict[str, Callable[[norch.Tensor], norch.Tensor]] = {
    "clone": lambda x: x.clone(),
    "reshape": lambda x: x.transpose(0, 1).reshape(-1),
    "flatten": lambda x: x.t().flatten(),
    "contiguous": lambda x: x.t().contiguous(),
    "flip": lambda x: x.flip(0),
    "x[::-1]": lambda x: x[::-1],
    "x[[0, 1]]": lambda x: x[[0, 1]],
    "x[mask]": lambda x: x[x >= 0],
    "repeat": lambda x: x.repeat(1, 1),
    "cat": lambda x: norch.cat([x]),
    "roll": lambda x: x.roll(2, 0),
    "to": lambda x: x.to(norch.float64),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_do_not_share_memory(name: str) -> None:
    x = norch.arange(6.0).reshape(2, 3).clone()
    copy = COPIES[name](x)
    assert not np.shares_memory(copy.numpy(), x.numpy())
    copy.fill_(-1)
    assert (x >= 0).all()


@pytest.mark.parametrize(
    ("shape", "copy"),
    [
        ((1, 4), lambda x: x.repeat(3, 1)),
        ((4,), lambda x: x.repeat(2, 1)),
        ((), lambda x: x.tile(3)),
        ((1, 4), lambda x: x.repeat_interleave(3, 0)),
        ((2, 3), lambda x: x.repeat_interleave(1, 0)),
        ((1, 1, 2, 2), lambda x: norch.pixel_shuffle(x, 1)),
        ((1, 4, 1, 1), lambda x: norch.pixel_shuffle(x, 2)),
        ((1, 1, 2, 2), lambda x: norch.pixel_unshuffle(x, 2)),
        ((1, 4, 1, 1), lambda x: norch.channel_shuffle(x, 4)),
        ((2,), lambda x: norch.flip(x, ())),
        ((2,), lambda x: x.roll(0)),
        ((2,), lambda x: x.diff(n=0)),
        ((1,), lambda x: x.logcumsumexp(0)),
    ],
)
def test_nothing_to_rearrange_is_a_copy_too(shape: tuple[int, ...], copy: Callable[[Any], Any]) -> None:
    x = norch.zeros(shape)
    out = copy(x)
    out.copy_(norch.arange(float(out.numel())).reshape(out.shape))
    assert out.flatten().tolist() == list(range(out.numel()))
    assert not x.any()


def test_expand_uses_no_memory() -> None:
    x = norch.ones(1, 3)
    wide = x.expand(1000, 3)
    assert wide.stride() == (0, 1)
    assert wide.storage().nbytes() == 12
    assert wide.nbytes == 12000
    assert x.expand(2, -1, 3).shape == (2, 1, 3)
    assert x.broadcast_to((2, 3)).stride() == (0, 1)


def test_gradient_through_overlapping_windows() -> None:
    x = norch.arange(5.0).requires_grad_()
    x.unfold(0, 3, 1).sum().backward()
    assert x.grad.tolist() == [1, 2, 3, 2, 1]
    y = norch.arange(5.0).requires_grad_()
    y.unfold(0, 4, 1).unfold(1, 2, 1).sum().backward()
    assert y.grad.tolist() == [1, 3, 4, 3, 1]
    z = norch.ones(1).requires_grad_()
    z.expand(4).unfold(0, 2, 2).sum().backward()
    assert z.grad.tolist() == [4]


def test_gradient_of_expand_is_a_sum() -> None:
    x = norch.ones(3, 1, requires_grad=True)
    x.expand(2, 3, 4).sum().backward()
    assert x.grad.tolist() == [[8], [8], [8]]


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (0, 0)])
def test_views_of_nothing(shape: tuple[int, ...]) -> None:
    x = norch.zeros(shape)
    assert x.is_contiguous()
    assert x.T.is_contiguous()
    assert x.reshape(-1).shape == (0,)
    assert x.unsqueeze(0).squeeze(0).shape == shape
    assert x.storage().nbytes() == 0
    assert x.tolist() == np.zeros(shape).tolist()


def test_view_of_0d() -> None:
    x = norch.tensor(2.0)
    assert x.reshape(1, 1).shape == (1, 1)
    assert x.expand(2, 2).tolist() == [[2, 2], [2, 2]]
    assert x.unfold(0, 1, 1).shape == (1,)
    assert x.t().shape == x.T.shape == x.squeeze().shape == ()
    assert x[0].item() == x[()].item() == x[...].item() == 2


def test_specs_are_interned() -> None:
    a, b = norch.zeros(2, 3), norch.ones(2, 3)
    assert a.spec is b.spec
    assert a.t().spec is b.t().spec
    assert a.spec is not a.t().spec
    assert Spec((2, 3), (3, 1), norch.float32, norch.device("cpu")) is a.spec
    with pytest.raises(ShapeError):
        a.t().view(-1)


def test_data_pointer_and_offset() -> None:
    x = norch.zeros(4, 5)
    assert x[2].storage_offset() == 10
    assert x[2].data_ptr() == x.data_ptr() + 40
    assert x.t()[1:, ::2].stride() == (1, 10)
    assert x.size(0) == 4
    assert x.size(-1) == 5
    assert x.stride(1) == 1
    assert x.shape.numel() == 20


def test_gradient_of_a_view_of_what_is_expanded_already() -> None:
    x = norch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x.expand(2, 3).as_strided((2, 2), (0, 1), 1) * norch.tensor([1.0, 10.0])).sum().backward()
    assert x.grad.tolist() == [0, 2, 20]


def test_gradient_of_a_view_that_starts_before_its_operand() -> None:
    x = norch.arange(6.0).requires_grad_()
    part = (x * 1)[2:5]
    earlier = part.as_strided((4,), (1,), 1)
    assert earlier.tolist() == [1, 2, 3, 4]
    (earlier * norch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [0, 0, 2, 3, 4, 0]  # what lies outside of the operand is not its own


@pytest.mark.parametrize("start", [0, 1, 2])
def test_gradient_of_a_view_that_reaches_past_its_operand(start: int) -> None:
    x = norch.arange(6.0).requires_grad_()
    middle = x[2:4]
    wide = middle.as_strided((4,), (1,), start)
    (wide.sum() + (middle * 3).sum()).backward()
    assert x.grad.tolist() == [0, 0, 4, 4, 0, 0]  # as PyTorch: of what the operand shows


@pytest.mark.parametrize("view", [lambda x: x[...], lambda x: x[:], lambda x: x[()]], ids=["...", ":", "()"])
def test_gradient_of_the_whole_of_an_expanded_leaf(view: Callable[[Any], Any]) -> None:
    x = norch.ones(1, 2).expand(3, 2).requires_grad_()
    weight = norch.arange(6.0).reshape(3, 2)
    (view(x) * weight).sum().backward()
    assert x.grad.tolist() == weight.tolist()


def test_results_lie_in_memory_as_their_operands_do() -> None:
    x = norch.arange(24.0).reshape(2, 3, 4)
    for view in (x.transpose(0, 2), x.permute(1, 2, 0), x):
        for result in (
            view + 1,
            view + view,
            view * view[:1],
            view.exp(),
            -view,
            view.clone(),
            norch.where(view > 3, view, 0),
        ):
            assert result.stride() == view.stride()
    for other in (x.expand(2, 2, 3, 4), x[:, ::2], x[..., 1:]):  # what overlaps, or has gaps, gives rows
        assert (other + other).is_contiguous()
        assert other.exp().is_contiguous()
    two = x.transpose(0, 2), x.reshape(4, 3, 2)  # of two layouts the first one's
    assert (two[0] + two[1]).stride() == two[0].stride()
    assert (two[1] + two[0]).is_contiguous()


def test_gradients_of_parts_are_gathered_in_the_layout_of_what_they_are_parts_of() -> None:
    x = norch.arange(24.0).reshape(2, 2, 3, 2).requires_grad_()
    heads = (x * 1).permute(2, 0, 1, 3)
    heads.retain_grad()
    query, key, value = heads.unbind(0)
    (query * 2 + key * 3 + value * norch.arange(8.0).reshape(2, 2, 2)).sum().backward()
    expected = np.stack([np.full((2, 2, 2), 2.0), np.full((2, 2, 2), 3.0), np.arange(8.0).reshape(2, 2, 2)])
    assert heads.grad.tolist() == expected.tolist()
    assert heads.grad.stride() == heads.stride()
    assert x.grad.tolist() == expected.transpose(1, 2, 0, 3).tolist()
