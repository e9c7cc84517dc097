"""Products of groups of matrices, beside the products of each: nn.functional.grouped_mm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import norch
from norch.testing.gradcheck import gradcheck

Slices = list[tuple[int, int]]


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def rows(a: Any, b: Any, at: Slices) -> Any:
    out = np.zeros((len(a), b.shape[2]))
    for i, (start, end) in enumerate(at):
        out[start:end] = a[start:end] @ b[i]
    return out


def columns(a: Any, b: Any, at: Slices) -> Any:
    out = np.zeros((a.shape[1], b.shape[1]))
    for i, (start, end) in enumerate(at):
        out[:, start:end] = a[i] @ b[:, start:end]
    return out


def inner(a: Any, b: Any, at: Slices) -> Any:
    return np.stack([a[:, start:end] @ b[start:end] for start, end in at])


CASES = {
    "rows": (rows, (9, 3), (4, 3, 5)),
    "columns": (columns, (4, 5, 3), (3, 9)),
    "inner": (inner, (5, 9), (9, 3)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ends", [[2, 5, 7, 9], [2, 2, 6, 7], [0, 0, 0, 0]])
def test_it_is_the_product_of_each_group(case: str, ends: list[int]) -> None:
    by_groups: Callable[..., Any]
    by_groups, left, right = CASES[case]
    a, b = numbers(*left), numbers(*right, seed=1)
    tensors = [norch.tensor(x, requires_grad=True) for x in (a, b)]
    offs = norch.tensor(ends, dtype=norch.int32)
    found = norch.grouped_mm(*tensors, offs=offs)
    expected = by_groups(a, b, list(zip([0, *ends], ends)))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12, atol=1e-14)
    gradcheck(lambda x, y: norch.grouped_mm(x, y, offs=offs), tensors)
    first = [norch.autograd.grad((norch.grouped_mm(*tensors, offs=offs) ** 2).sum(), tensors, create_graph=True)]
    second = norch.autograd.grad(sum((g * g).sum() for g in first[0]), tensors)
    step = 1e-6
    for i, place in ((0, (0,) * len(left)), (1, (1,) * len(right))):
        sums = []
        for sign in (1, -1):
            moved = [x.copy() for x in (a, b)]
            moved[i][place] += sign * step
            leaves = [norch.tensor(x, requires_grad=True) for x in moved]
            grads = norch.autograd.grad((norch.grouped_mm(*leaves, offs=offs) ** 2).sum(), leaves)
            sums.append(sum((g * g).sum().item() for g in grads))
        assert second[i][place].item() == pytest.approx((sums[0] - sums[1]) / (2 * step), rel=1e-4, abs=1e-4)


def test_bias_dtypes_and_names() -> None:
    a, b = norch.tensor(numbers(3, 4, 2)), norch.tensor(numbers(3, 2, 5, seed=1))
    assert norch.equal(norch.grouped_mm(a, b), a @ b)
    offs = norch.tensor([1, 2, 4], dtype=norch.int32)
    bias = norch.arange(5.0, dtype=norch.float64)
    plain = norch.grouped_mm(a[0], b, offs=offs)
    assert norch.equal(norch.grouped_mm(a[0], b, offs=offs, bias=bias), plain + bias)
    half = norch.grouped_mm(a[0].bfloat16(), b.bfloat16(), offs=offs)
    wide = norch.grouped_mm(a[0].bfloat16(), b.bfloat16(), offs=offs, out_dtype=norch.float32)
    assert (half.dtype, wide.dtype) == (norch.bfloat16, norch.float32)
    assert norch.allclose(wide, norch.grouped_mm(a[0].bfloat16().float(), b.bfloat16().float(), offs=offs))
    assert norch._grouped_mm is norch.grouped_mm


def test_what_does_not_fit() -> None:
    a, b = norch.ones(4, 2), norch.ones(3, 2, 5)
    offs = norch.tensor([1, 2, 4], dtype=norch.int32)
    for arguments, match in (
        ((a, b), "need offs"),
        ((b, norch.ones(3, 5, 2), offs), "no offs"),
        ((b, norch.ones(2, 5, 2)), "numbers of groups"),
        ((a, norch.ones(3, 3, 5), offs), "do not fit"),
        ((a[0], b, offs), "2 or 3 dims"),
        ((a, b, offs[:2]), r"offs of shape \(2,\)"),
        ((a, b, norch.tensor([2, 1, 4], dtype=norch.int32)), "must rise"),
        ((a, b, norch.tensor([1, 2, 5], dtype=norch.int32)), "to 4 at most"),
    ):
        with pytest.raises(norch.ShapeError, match=match):
            norch.grouped_mm(*arguments[:2], offs=(*arguments, None)[2])
    with pytest.raises(norch.DTypeError, match="int32"):
        norch.grouped_mm(a, b, offs=offs.long())


@pytest.mark.parametrize("case", CASES)
def test_it_is_pytorchs(case: str) -> None:
    torch = pytest.importorskip("torch")
    left, right = {"rows": ((16, 8), (4, 8, 24)), "columns": ((4, 8, 16), (16, 32)), "inner": ((8, 32), (32, 16))}[case]
    arrays = [numbers(*left).astype(np.float32), numbers(*right, seed=1).astype(np.float32)]
    ends = [4, 4, 12, 16] if case == "rows" else [8, 8, 16, 32]
    results = []
    for library, product in ((torch, torch.nn.functional.grouped_mm), (norch, norch.grouped_mm)):
        tensors = [library.tensor(x, requires_grad=True) for x in arrays]
        found = product(*tensors, offs=library.tensor(ends, dtype=library.int32))
        (found * found).sum().backward()
        results.append([found.detach().numpy(), *(t.grad.numpy() for t in tensors)])
    for theirs, ours in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_autocast_leaves_their_dtype() -> None:
    a, b = (norch.tensor(numbers(*shape), dtype=norch.float32, requires_grad=True) for shape in ((9, 3), (4, 3, 5)))
    offs = norch.tensor([2, 5, 7, 9], dtype=norch.int32)
    plain = norch.grouped_mm(a, b, offs=offs)
    with norch.autocast("cpu", norch.bfloat16):
        found = norch.grouped_mm(a, b, offs=offs)
    assert found.dtype is norch.float32
    assert norch.equal(found, plain)
    found.sum().backward()
    assert a.grad.dtype is b.grad.dtype is norch.float32
