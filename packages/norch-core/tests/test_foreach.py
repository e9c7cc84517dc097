"""`norch._foreach_*` against the same method tensor by tensor."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.compat.flattening import _group_tensors_by_device_and_dtype

A, B, C = ([norch.rand(n, 2) + 0.5 for n in (1, 3)] for _ in range(3))


def same(found: list[norch.Tensor], expected: list[norch.Tensor]) -> None:
    assert [x.tolist() for x in found] == [x.tolist() for x in expected]


@pytest.mark.parametrize("name", ["abs", "exp", "neg", "sqrt", "rsqrt", "sign", "sigmoid", "log1p", "reciprocal"])
def test_of_one_list(name: str) -> None:
    same(getattr(norch, f"_foreach_{name}")(A), [getattr(x, name)() for x in A])
    changed = [x.clone() for x in A]
    assert getattr(norch, f"_foreach_{name}_")(changed) is changed
    same(changed, [getattr(x, name)() for x in A])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_of_two_lists_a_number_or_a_number_each(name: str) -> None:
    function = getattr(norch, f"_foreach_{name}")
    same(function(A, B), [getattr(x, name)(y) for x, y in zip(A, B, strict=True)])
    same(function(A, 2.0), [getattr(x, name)(2.0) for x in A])
    same(function(A, [2.0, 3.0]), [getattr(x, name)(y) for x, y in zip(A, (2.0, 3.0), strict=True)])
    if name != "pow":
        same(function(A, norch.tensor(3.0)), [getattr(x, name)(3.0) for x in A])


def test_options_and_three_lists() -> None:
    same(norch._foreach_add(A, B, alpha=2), [x + 2 * y for x, y in zip(A, B, strict=True)])
    rows = list(zip(A, B, C, strict=True))
    for name in ("addcmul", "addcdiv"):
        method = getattr(norch.Tensor, name)
        same(getattr(norch, f"_foreach_{name}")(A, B, C, value=0.5), [method(x, y, z, value=0.5) for x, y, z in rows])
        each = [method(x, y, z, value=v) for (x, y, z), v in zip(rows, (1.0, 2.0), strict=True)]
        same(getattr(norch, f"_foreach_{name}")(A, B, C, [1.0, 2.0]), each)
        same(getattr(norch, f"_foreach_{name}")(A, B, C, norch.tensor([1.0, 2.0])), each)
    same(norch._foreach_lerp(A, B, weight=0.25), [x.lerp(y, 0.25) for x, y in zip(A, B, strict=True)])
    same(norch._foreach_lerp(A, B, C), [x.lerp(y, z) for x, y, z in rows])
    same(norch._foreach_pow(2.0, A), [2.0**x for x in A])


def test_bounds_norms_and_copies() -> None:
    same(norch._foreach_maximum(A, B), [norch.maximum(x, y) for x, y in zip(A, B, strict=True)])
    same(norch._foreach_clamp_max(A, 0.75), [x.clamp(max=0.75) for x in A])
    changed = [x.clone() for x in A]
    norch._foreach_clamp_min_(changed, 0.75)
    norch._foreach_minimum_(changed, B)
    same(changed, [norch.minimum(x.clamp(min=0.75), y) for x, y in zip(A, B, strict=True)])
    same(norch._foreach_norm(A, 1), [x.abs().sum() for x in A])
    same(norch._foreach_max(A), [x.max() for x in A])
    norch._foreach_copy_(changed, B)
    same(changed, B)
    norch._foreach_zero_(changed)
    assert not any(x.any().item() for x in changed)


def test_what_there_is_not() -> None:
    assert not hasattr(norch, "_foreach_median")
    with pytest.raises(ValueError, match="zip"):
        norch._foreach_add(A, B[:1])


def test_groups_of_a_device_and_dtype() -> None:
    x, y, z = norch.ones(1), norch.ones(2).double(), norch.ones(3)
    found = _group_tensors_by_device_and_dtype([[x, y, z], [1, 2, 3], []], with_indices=True)
    places = {key[1]: indices for key, (_, indices) in found.items()}
    assert places == {norch.float32: [0, 2], norch.float64: [1]}
    (tensors, numbers, nothing), _ = found[x.device, norch.float32]
    assert tensors[0] is x
    assert tensors[1] is z
    assert (numbers, nothing) == ([1, 3], [None, None])


def test_what_is_changed_in_place_is_given_back() -> None:
    parts = [norch.ones(2), norch.zeros(())]
    assert norch._foreach_add_(parts, 1) is parts
    assert norch._foreach_copy_(parts, [norch.zeros(2), norch.ones(())]) is parts
    copies = norch._foreach_clone(parts)
    assert norch._foreach_zero_(parts) is parts
    assert [c.tolist() for c in copies] == [[0.0, 0.0], 1.0]


def test_a_name_is_looked_for_once() -> None:
    assert norch._foreach_neg_ is vars(norch)["_foreach_neg_"]


AVERAGES = {
    "_foreach_add_": (lambda x, y: x + y, ()),
    "_foreach_sub_": (lambda x, y: x - y, ()),
    "_foreach_lerp_": (lambda x, y: x + np.float32(0.25) * (y - x), (0.25,)),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_all_tensors_are_moved_at_once(name: str) -> None:
    """As a model's averages are. Infinities and NaN are what the formula makes of them."""
    expected, more = AVERAGES[name]
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (5,), (), (2, 0), (1, 7)] * 3
    a = [np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]
    b = [np.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]
    a[0][0], b[0][0], a[0][1] = (np.inf, -np.inf, np.nan, 1), (1, np.inf, 1, np.nan), np.inf
    tensors, others = ([norch.tensor(x) for x in xs] for xs in (a, b))
    before = [t.buffer for t in tensors]
    assert getattr(norch, name)(tensors, others, *more) is tensors
    for x, y, found in zip(a, b, tensors, strict=True):
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(found.numpy(), expected(x, y), rtol=1e-6, atol=1e-7)
    assert all(t.buffer is buffer for t, buffer in zip(tensors, before, strict=True))


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.bfloat16])
def test_all_tensors_are_multiplied_at_once(dtype: norch.DType) -> None:
    tensors = [norch.full((n, 3), n - 4.0, dtype=dtype) for n in range(12)]
    tensors[3][0, 0] = float("inf")
    assert norch._foreach_mul_(tensors, 0.3) is tensors
    for n, found in enumerate(tensors):
        wanted = norch.full((n, 3), n - 4.0, dtype=dtype) * 0.3
        if n == 3:
            wanted[0, 0] = float("inf")
        assert norch.equal(found, wanted)


def test_what_is_not_alike_is_moved_one_by_one() -> None:
    tensors = [norch.ones(2, 3), norch.ones(3, dtype=norch.float64), norch.ones(2, dtype=norch.int64)]
    norch._foreach_add_(tensors, [norch.ones(3), norch.ones(3), norch.ones(2, dtype=norch.int64)], alpha=2)
    assert [t.tolist() for t in tensors] == [[[3.0] * 3] * 2, [3.0] * 3, [3, 3]]
    memory = norch.arange(4.0)
    norch._foreach_add_([memory[:3], memory[1:]], [memory[:3].clone(), memory[1:].clone()])  # the second sees the first
    assert memory.tolist() == [0.0, 3.0, 6.0, 6.0]
    norch._foreach_lerp_(tensors[:1], [norch.zeros(2, 3)], 1.0)
    assert tensors[0].tolist() == [[0.0] * 3] * 2


def test_leaves_are_changed_where_nothing_is_recorded() -> None:
    leaves = [norch.ones(2, requires_grad=True) for _ in range(9)]
    for call in (lambda: norch._foreach_add_(leaves, leaves), lambda: norch._foreach_mul_(leaves, 2.0)):
        with pytest.raises(RuntimeError, match="leaf"):
            call()
        with norch.no_grad():
            call()
    assert [leaf.tolist() for leaf in leaves] == [[4.0, 4.0]] * 9
    x = norch.ones(2, requires_grad=True)
    y = x * 3
    norch._foreach_add_([y], [x * x])
    y.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_changed_tensors_are_noticed_by_the_graph() -> None:
    x, w = norch.ones(2), norch.ones(2, requires_grad=True)
    y = (x * w).sum()
    norch._foreach_add_([x], [norch.ones(2)])
    with pytest.raises(RuntimeError, match="changed"):
        y.backward()
