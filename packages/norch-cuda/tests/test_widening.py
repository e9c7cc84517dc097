"""Elementwise ops of operands of several dtypes, against NumPy's of operands that were converted before."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.testing import assert_close

RNG = np.random.default_rng(7)
KINDS = ("float32", "float16", "bfloat16", "bool", "uint8", "int8", "int32", "int64")


def drawn(name: str, shape: tuple[int, ...]) -> norch.Tensor:
    values = RNG.standard_normal(shape) * 30
    return norch.tensor(values > 0) if name == "bool" else norch.tensor(values).abs().to(getattr(norch, name))


def layouts(x: norch.Tensor) -> list[norch.Tensor]:
    """Views of one shape, (6, 40, 33): dense, of other strides, repeated along dims, from an odd element on."""
    return [x[1:7, :40, :33].contiguous(), x[1:7, :40, 1:34], x[0:1, :40, :33], x[1:7, 0:1, :33], x[1:7, :40, 0:1]]


def results(a: norch.Tensor, b: norch.Tensor, mask: norch.Tensor, subtracts: bool) -> list[norch.Tensor]:
    found = [a * b, a + b, norch.maximum(a, b), norch.minimum(a, b), a == b, a < b, a >= b, norch.where(mask, a, b)]
    return [*found, a - b, a / b] if subtracts else found


@pytest.mark.parametrize("first", KINDS[:3])
@pytest.mark.parametrize("second", KINDS)
def test_operands_of_two_dtypes(cuda, first, second):
    a, b, mask = drawn(first, (8, 41, 35)), drawn(second, (8, 41, 35)), drawn("bool", (6, 40, 33))
    dtype = norch.promote_types(a.dtype, b.dtype)
    for x, y in zip(layouts(a), layouts(b)[::-1], strict=True):
        moved = x.to(cuda), y.to(cuda)  # copies keep no strides: views of moved ones do
        for left, right in ((x, y), (y, x)):
            wanted = results(left.to(dtype), right.to(dtype), mask, second != "bool")
            both = moved if left is x else moved[::-1]
            for found, expected in zip(results(*both, mask.to(cuda), second != "bool"), wanted, strict=True):
                assert found.dtype is expected.dtype
                assert_close(found.cpu(), expected, rtol=1e-6 if dtype is norch.float32 else 1e-2, atol=0)


@pytest.mark.parametrize("second", ["bfloat16", "bool", "int64"])
def test_views_and_sums_in_place(cuda, second):
    a, b = drawn("float32", (8, 41, 35)), drawn(second, (8, 41, 35))
    on_gpu = b.to(cuda)
    for x, y in (
        (a[:, 1:, 1:], (b[:, :-1, :-1], on_gpu[:, :-1, :-1])),
        (a, (b[:1], on_gpu[:1])),
        (a.mT, (b.mT, on_gpu.mT)),
    ):
        found, expected = x.clone(), x.clone()
        moved = found.to(cuda)
        moved += y[1]
        expected += y[0].float()
        assert_close(moved.cpu(), expected, rtol=1e-6, atol=1e-6)


def test_that_no_operand_is_converted_before(cuda):
    a, b = norch.randn(1 << 20, device=cuda), norch.randn(1 << 20, device=cuda).bfloat16()
    mask = a > 0
    for call, nbytes in (
        (lambda: a * b, 4 << 20),
        (lambda: b * mask, 2 << 20),
        (lambda: norch.where(mask, b, a), 4 << 20),
    ):
        call()
        before = norch.cuda.memory_allocated()
        norch.cuda.reset_peak_memory_stats()
        out = call()
        assert norch.cuda.max_memory_allocated() - before < 1.5 * nbytes  # a block that is used again may be larger
        del out


def test_gradients_come_in_the_dtypes_of_the_operands(cuda):
    a = norch.randn(64, 33, device=cuda, requires_grad=True)
    b = norch.randn(64, 33, device=cuda).bfloat16().requires_grad_()
    (a * b).sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (norch.float32, norch.bfloat16)
    assert_close(a.grad.cpu(), b.detach().float().cpu(), rtol=0, atol=0)
    assert_close(b.grad.cpu(), a.detach().bfloat16().cpu(), rtol=0, atol=0)


def test_rows_that_are_repeated_in_a_program(cuda):
    """Of several dims, before a compiler is asked: the interpreter reads a row that all blocks share."""
    scores, row = norch.randn(8, 12, 96, 128, device=cuda).half(), norch.randn(8, 1, 1, 128, device=cuda)
    found = norch.nn.functional.hardswish(scores + row).cpu() if hasattr(norch, "nn") else (scores + row).cpu()
    expected = scores.float().cpu() + row.cpu()
    if hasattr(norch, "nn"):
        expected = norch.nn.functional.hardswish(expected)
    assert_close(found, expected, rtol=1e-6, atol=1e-6)
    lerped = norch.lerp(scores.float(), row.expand(8, 12, 96, 128), 0.25).cpu()
    assert_close(lerped, norch.lerp(scores.float().cpu(), row.cpu().expand(8, 12, 96, 128), 0.25), rtol=1e-6, atol=1e-6)
