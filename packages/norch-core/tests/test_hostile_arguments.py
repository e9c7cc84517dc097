"""Every public function and method, with arguments that make no sense: an error that a user understands, or none."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from hostile import UNCHECKED, faults

import norch
from norch import DTypeError, Tensor
from norch.ops import LATE
from norch.ops.registry import FUNCTIONS

OPERATORS = """__add__ __radd__ __iadd__ __sub__ __rsub__ __pow__ __rpow__ __truediv__ __floordiv__ __mod__ __and__
    __lshift__ __matmul__ __eq__ __lt__ __getitem__ __contains__ __format__""".split()


def functions() -> dict[str, Any]:
    found = {}
    for prefix, space in (("", norch), ("linalg.", norch.linalg), ("special.", norch.special)):
        for name in getattr(space, "__all__", None) or dir(space):
            value = getattr(space, name)
            if inspect.isfunction(value) and not name.startswith("_") and name not in UNCHECKED:
                found[prefix + name] = value
    return found


FOUND = functions()


@pytest.mark.parametrize("name", FOUND)
def test_functions(name: str) -> None:
    assert faults(FOUND[name]) == []


@pytest.mark.parametrize("name", [*[n for n in dir(Tensor) if not n.startswith("_")], *OPERATORS])
def test_methods(name: str) -> None:
    method = getattr(Tensor, name)
    if callable(method):
        assert faults(method, (norch.tensor([[0.5, 1.0], [3.0, 0.25]]),)) == []


def test_all_functions_are_among_them() -> None:
    kept = {name for name in FUNCTIONS if inspect.isfunction(FUNCTIONS[name])} | {*LATE}
    assert kept - UNCHECKED <= set(FOUND)


X = norch.ones(2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: norch.mm(3, X), r"mm\(\): input must be a Tensor, got int 3"),
        (lambda: norch.layer_norm(X, (3,), "w"), r"layer_norm\(\): weight must be a Tensor.*, got str 'w'"),
        (lambda: norch.leaky_relu(X, None), r"leaky_relu\(\): negative_slope must be a number, got NoneType None"),
        (lambda: X.cumsum("x"), r"cumsum\(\): dim must be an int, got 'x'"),
        (lambda: X.long().lcm_(Tensor), r"lcm_?\(\): .*Tensor"),
        (lambda: norch.clip(1.0, 0, X), r"clamp\(\): input must be a Tensor, got float 1.0"),
        (lambda: norch.sub(norch.bool, X, alpha=2), r"an operand must be a Tensor or a number, got DType"),
        (lambda: norch.gt(norch.Tensor, X), "operands must be tensors, numbers or arrays, got type"),
        (lambda: norch.exp(norch.Tensor), "Tensor"),
        (lambda: norch.zeros_like(norch.Tensor), r"zeros_like\(\): input must be a Tensor, got type"),
        (lambda: norch.zeros(2).copy_(norch.Tensor), "has no dtype for"),
        (lambda: norch.index_put({}, (norch.tensor([0]),), X), r"index_put\(\): input must be a Tensor, got dict"),
        (lambda: X.clamp("a"), r"clamp\(\): min must be a Tensor or a number or None, got str 'a'"),
        (lambda: norch.cat(3), r"cat\(\): tensors must be a sequence of Tensors, got int 3"),
        (lambda: norch.stack([X, 3]), r"stack\(\): expected a sequence of tensors, got Tensor, int"),
        (lambda: norch.rand(2, generator=3), r"rand\(\): generator must be a Generator, got int 3"),
        (lambda: norch.linalg.inv(None), r"inv\(\): A must be a Tensor, got NoneType None"),
        (
            lambda: norch.einsum("ij->i", [[1.0]]),
            r"einsum\(\): expected an equation and tensors, got str 'ij->i', list",
        ),
        (lambda: X.index_add(0, 3, X), r"index_add\(\): index must be a Tensor, got int 3"),
        (
            lambda: norch.softmax(X, len),
            r"softmax\(\): dim must be an int, got builtin_function_or_method <built-in function len>",
        ),
        (lambda: norch.zeros_like(3), r"zeros_like\(\): input must be a Tensor, got int 3"),
        (lambda: X.add_(1j), r"add_\(\): operands must be tensors, numbers or arrays, got complex 1j"),
    ],
)
def test_the_message_names_function_argument_and_what_came(call: Any, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        call()


def test_a_refused_float_leaves_no_plan_behind_for_ints() -> None:
    for size, name in enumerate(("diagonal", "diag", "softmax", "unsqueeze"), 11):
        method = getattr(norch.ones(size, 5), name)
        with pytest.raises(DTypeError):
            method(1.0)
        assert method(1).add_(1).max().item() <= 2


def test_an_error_of_the_users_own_function_is_left_alone() -> None:
    def function(value: float) -> float:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        norch.ones(2).apply_(function)


def test_the_numbers_of_numpy_are_numbers() -> None:
    x = norch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    one, yes, half = np.int64(1), np.bool_(True), np.float32(0.5)
    same = [
        (x.clamp(half, np.float64(4)), x.clamp(0.5, 4.0)),
        (x.clamp_min(one), x.clamp_min(1)),
        (norch.leaky_relu(-x, half), norch.leaky_relu(-x, 0.5)),
        (x.sum(one, yes), x.sum(1, True)),
        (x.softmax(one), x.softmax(1)),
        (x.reshape(np.int32(3), np.int64(2)), x.reshape(3, 2)),
        (x.transpose(one, np.int8(0)), x.t()),
        (x.permute(one, np.int64(0)), x.t()),
        (x.narrow(one, one, one), x.narrow(1, 1, 1)),
        (x.roll(one, np.int64(0)), x.roll(1, 0)),
        (norch.where(x > half, half, x), norch.where(x > 0.5, 0.5, x)),
        (norch.full((np.int64(2),), half), norch.full((2,), 0.5)),
        (norch.arange(np.int64(3)), norch.arange(3)),
        (norch.zeros(np.int64(2), np.uint8(1)), norch.zeros(2, 1)),
        (x.masked_fill(x > 2, half), x.masked_fill(x > 2, 0.5)),
        (x + yes, x + True),
        (x * np.array(2.0, np.float32), x * 2.0),
        (x.flip(np.int64(0)), x.flip(0)),
        (x.diagonal(one), x.diagonal(1)),
        (norch.pad(x, (one, one), value=half), norch.pad(x, (1, 1), value=0.5)),
        (x.topk(one)[0], x.topk(1)[0]),
        (norch.softmax(x, norch.tensor(1)), norch.softmax(x, 1)),
        (x.max(one)[0], x.max(1)[0]),
        (x.min(np.int64(0), keepdim=yes)[1], x.min(0, keepdim=True)[1]),
        (x.repeat_interleave(np.int64(2), one), x.repeat_interleave(2, 1)),
        (norch.xlogy(x, half), norch.xlogy(x, 0.5)),
        (norch.special.xlog1py(x, np.float64(0.1)), norch.special.xlog1py(x, 0.1)),
        (norch.ldexp(x, one), norch.ldexp(x, 1)),
        (norch.max_pool1d(x, np.int64(2), stride=one), norch.max_pool1d(x, 2, stride=1)),
        (norch.avg_pool1d(x, np.int64(2)), norch.avg_pool1d(x, 2)),
    ]
    for found, expected in same:
        assert found.dtype is expected.dtype
        assert found.tolist() == expected.tolist()


def test_parts_cut_by_a_number_of_numpy_have_sizes_of_python() -> None:
    x = norch.arange(6.0, requires_grad=True)
    for part in (*x.chunk(np.int64(4)), *x.split(np.int64(4)), *x.tensor_split(np.int64(4))):
        assert all(type(n) is int for n in part.shape)
        (part * 2).sum().backward()
    assert x.grad.tolist() == [6.0] * 6


def test_what_has_an_index_is_an_int() -> None:
    class One:
        def __index__(self) -> int:
            return 1

    one: Any = One()
    for function in (norch.softmax, norch.sum, norch.cumsum, norch.argmax, norch.unsqueeze, norch.squeeze):
        assert function(X, one).tolist() == function(X, 1).tolist()


def test_an_argument_given_twice_is_a_type_error() -> None:
    call: Any = norch.lerp
    with pytest.raises(TypeError, match=r"multiple values for argument 'weight'|lerp\(\)"):
        call(norch.Tensor, X, 0.0, weight=True)


def test_arrays_are_operands_beside_alpha() -> None:
    array, x = np.array([3]), norch.tensor(2.0)
    for out, wanted in (
        (norch.sub(array, x, alpha=2), -1),
        (norch.rsub(x, array, alpha=2), -1),
        (x.sub(array, alpha=2), -4),
    ):
        assert out.dtype is norch.float64  # as in NumPy
        assert out.tolist() == [wanted]
