"""Every error a user can make has a norch class and a message that names the op and what did not fit."""

from __future__ import annotations

import builtins
from collections.abc import Callable

import numpy as np
import pytest

import norch
from norch import AutogradError, DeviceError, DTypeError, IndexError, NorchError, ShapeError

Row = tuple[str, Callable[[], object], type[Exception], tuple[str, ...]]


def x(*shape: int) -> norch.Tensor:
    return norch.zeros(*shape)


def ints(*values: int) -> norch.Tensor:
    return norch.tensor(values)


SHAPES: list[Row] = [
    ("add", lambda: x(2, 3) + x(4, 5), ShapeError, ("add", "(2, 3)", "(4, 5)")),
    ("where", lambda: norch.where(x(2) > 0, x(3), x(3)), ShapeError, ("where", "(2,)", "(3,)")),
    ("matmul", lambda: x(2, 3) @ x(4, 5), ShapeError, ("matmul", "(2, 3)", "(4, 5)")),
    ("matmul 0-d", lambda: x() @ x(2), ShapeError, ("matmul", "()")),
    ("mm", lambda: norch.mm(x(2, 3, 4), x(4, 2)), ShapeError, ("mm", "(2, 3, 4)")),
    ("bmm", lambda: norch.bmm(x(2, 3, 4), x(3, 4, 2)), ShapeError, ("bmm", "(2, 3, 4)", "(3, 4, 2)")),
    ("dot", lambda: norch.dot(x(2), x(3)), ShapeError, ("dot", "(2,)", "(3,)")),
    ("einsum sizes", lambda: norch.einsum("ij,jk->ik", x(2, 3), x(4, 5)), ShapeError, ("einsum", "3", "4")),
    ("reshape", lambda: x(2, 3).reshape(4), ShapeError, ("reshape", "(4,)", "(2, 3)")),
    ("reshape -1", lambda: x(2, 3).reshape(-1, 4), ShapeError, ("reshape", "(-1, 4)", "(2, 3)")),
    ("reshape -1 -1", lambda: x(2, 3).reshape(-1, -1), ShapeError, ("reshape", "(-1, -1)")),
    ("view", lambda: x(2, 3).t().view(6), ShapeError, ("view", "(3, 2)", "reshape")),
    ("expand", lambda: x(2, 3).expand(4, 3), ShapeError, ("expand", "(2, 3)", "(4, 3)")),
    ("permute", lambda: x(2, 3).permute(0, 0), ShapeError, ("permute", "(0, 0)", "(2, 3)")),
    ("movedim", lambda: x(2, 3).movedim((0, 0), (1, 0)), ShapeError, ("movedim",)),
    ("t", lambda: x(1, 2, 3).t(), ShapeError, ("t()", "(1, 2, 3)")),
    ("mT", lambda: x(3).mT, ShapeError, ("mT", "(3,)")),
    ("cat", lambda: norch.cat([x(2, 3), x(2, 4)]), ShapeError, ("cat", "(2, 3)", "(2, 4)")),
    ("cat nothing", lambda: norch.cat([]), ShapeError, ("cat", "at least one")),
    ("stack", lambda: norch.stack([x(2), x(3)]), ShapeError, ("stack", "(2,)", "(3,)")),
    ("split", lambda: x(5).split([2, 2]), ShapeError, ("split", "[2, 2]", "5")),
    ("chunk", lambda: x(5).chunk(0), ShapeError, ("chunk", "0")),
    ("chunks", lambda: x(0).chunk(2**64), ShapeError, ("chunk", str(2**64))),
    ("sections", lambda: x(5).tensor_split(2**64), ShapeError, ("tensor_split", str(2**64), "5")),
    ("diff", lambda: x(5).diff(2**64).reshape(1), ShapeError, ("(1,)", "(0,)")),
    ("bins", lambda: norch.bincount(ints(1), minlength=2**64), ShapeError, (str(2**64),)),
    ("stride", lambda: norch.avg_pool1d(x(1, 2, 4), 2, (2**64,)), ShapeError, (str(2**64),)),
    ("unfold", lambda: x(3).unfold(0, 4, 1), ShapeError, ("unfold", "4", "(3,)")),
    ("as_strided", lambda: x(4).as_strided((3, 3), (1, 1)), ShapeError, ("as_strided", "(3, 3)", "4 elements")),
    ("as_strided < 0", lambda: x(4).as_strided((2,), (-1,)), ShapeError, ("as_strided", "(-1,)")),
    ("diagonal", lambda: x(2, 3).diagonal(0, 1, 1), ShapeError, ("diagonal", "(2, 3)")),
    ("pad", lambda: norch.pad(x(2), (1, 1, 1, 1)), ShapeError, ("pad", "[1, 1, 1, 1]")),
    ("roll", lambda: norch.roll(x(2, 2), (1, 1), 0), ShapeError, ("roll",)),
    ("gather", lambda: x(2, 3).gather(0, ints(0)), ShapeError, ("gather", "(2, 3)", "(1,)")),
    ("gather from nothing", lambda: x(0).gather(0, ints(0, 1)), IndexError, ("gather", "(2,)", "(0,)", "empty")),
    ("topk", lambda: x(3).topk(4), ShapeError, ("topk", "4", "(3,)")),
    ("item", lambda: x(2).item(), ShapeError, ("item", "(2,)")),
    ("bool", lambda: bool(x(2)), ShapeError, ("bool", "(2,)")),
    ("ragged", lambda: norch.tensor([[1, 2], [3]]), ShapeError, ("tensor", "[0] has length 2, data[1] has length 1")),
    ("ragged deep", lambda: norch.tensor([[[1], [2]], [[3], 4]]), ShapeError, ("tensor", "data[1][0]", "data[1][1]")),
    ("negative size", lambda: norch.zeros(2, -1), ShapeError, ("zeros", "(2, -1)")),
    ("huge", lambda: norch.empty(2**40, 2**40), ShapeError, ("empty",)),
    ("arange step", lambda: norch.arange(0, 5, -1), ShapeError, ("arange", "-1")),
    ("in-place shape", lambda: x(2).add_(x(3, 2)), ShapeError, ("add_", "(3, 2)", "(2,)")),
    ("in-place expanded", lambda: x(1).expand(3).add_(1), ShapeError, ("add_", "clone")),
    ("setitem", lambda: x(2, 3).__setitem__(0, x(2)), ShapeError, ("(2,)", "(3,)")),
    ("max empty", lambda: x(0, 3).amax(0), ShapeError, ("amax", "(0, 3)")),
    ("argmin empty", lambda: x(2, 0).argmin(1), ShapeError, ("argmin", "(2, 0)")),
    ("max empty all", lambda: x(0).max(), ShapeError, ("amax", "(0,)")),
    ("repeated dim", lambda: x(2, 3).sum((0, 0)), ShapeError, ("sum", "twice")),
    ("grad shape", lambda: setattr(x(2), "grad", x(3)), ShapeError, ("(3,)", "(2,)")),
]  # fmt: skip

DTYPES: list[Row] = [
    ("str operand", lambda: norch.add(x(2), "a"), DTypeError, ("add", "str", "'a'")),
    ("sum of list", lambda: norch.sum([1, 2]), DTypeError, ("sum", "list")),  # type: ignore[arg-type]
    ("cat of ints", lambda: norch.cat([1, 2]), DTypeError, ("cat", "int")),  # type: ignore[list-item]
    ("bitwise float", lambda: x(2) & x(2), DTypeError, ("bitwise_and", "float32")),
    ("invert float", lambda: ~x(2), DTypeError, ("bitwise_not", "float32")),
    ("neg bool", lambda: -(x(2) > 0), DTypeError, ("neg", "bool")),
    ("mean of ints", lambda: ints(1, 2).mean(), DTypeError, ("mean", "int64")),
    ("in-place category", lambda: ints(1, 2).add_(0.5), DTypeError, ("add_", "float32", "int64")),
    ("index by floats", lambda: x(3)[x(2)], DTypeError, ("index", "float32")),
    ("gather by floats", lambda: x(3).gather(0, x(1)), DTypeError, ("gather", "float32")),
    ("mask of ints", lambda: x(3).masked_fill(ints(1, 0, 1), 0.0), DTypeError, ("masked_fill", "int64")),
    ("requires_grad of ints", lambda: ints(1).requires_grad_(), DTypeError, ("requires_grad", "int64")),
    ("strings", lambda: norch.tensor(["a"]), DTypeError, ("tensor", "list")),
    ("None", lambda: norch.tensor(None), DTypeError, ("tensor", "NoneType")),
    ("too big", lambda: norch.tensor(2**70), DTypeError, ("tensor",)),
    ("complex array", lambda: norch.from_numpy(np.zeros(2, np.clongdouble)), DTypeError, ("complex256",)),
    ("from_numpy list", lambda: norch.from_numpy([1]), DTypeError, ("from_numpy", "list")),  # type: ignore[arg-type]
    ("unknown dtype", lambda: norch.zeros(2, dtype="float8"), DTypeError, ("zeros", "float8", "float32")),
    ("float size", lambda: norch.zeros(2.5), DTypeError, ("zeros", "2.5")),
    ("float dim", lambda: x(2).sum(0.5), DTypeError, ("sum", "0.5")),
    ("float reshape", lambda: x(4).reshape(2.5, 2), DTypeError, ("reshape", "2.5")),
    ("scalar range", lambda: norch.zeros(2, dtype=norch.uint8) + 300, DTypeError, ("add", "300", "uint8")),
    ("default dtype", lambda: norch.set_default_dtype(norch.int64), DTypeError, ("set_default_dtype", "int64")),
    ("finfo", lambda: norch.finfo(norch.int32), DTypeError, ("finfo", "int32", "iinfo")),
    ("iinfo", lambda: norch.iinfo(norch.float32), DTypeError, ("iinfo", "float32")),
    ("__index__", lambda: [1][x(1)], DTypeError, ("float32", "(1,)")),  # type: ignore[call-overload]
    ("view size", lambda: x(3).view(norch.float64), ShapeError, ("view", "float32", "float64")),
    ("rand of ints", lambda: norch.rand(2, dtype=norch.int64), DTypeError, ("rand", "int64")),
    ("one_hot", lambda: norch.one_hot(x(2)), DTypeError, ("one_hot", "float32")),
]  # fmt: skip

INDICES: list[Row] = [
    ("dim", lambda: x(2, 3).sum(2), IndexError, ("sum", "2", "-2 to 1")),
    ("dim < 0", lambda: x(2, 3).transpose(0, -3), IndexError, ("transpose", "-3")),
    ("unsqueeze", lambda: x(2).unsqueeze(3), IndexError, ("unsqueeze", "3")),
    ("int", lambda: x(2, 3)[2], IndexError, ("index 2", "dim 0", "(2, 3)")),
    ("int in dim 1", lambda: x(2, 3)[0, -4], IndexError, ("index -4", "dim 1", "(2, 3)")),
    ("too many", lambda: x(2)[0, 0], IndexError, ("2 indices", "(2,)")),
    ("two dots", lambda: x(2)[..., ...], IndexError, ("'...'",)),
    ("str", lambda: x(2)["a"], IndexError, ("index", "'a'")),
    ("step 0", lambda: x(2)[::0], IndexError, ("index", "step of 0")),
    ("list", lambda: x(2)[[0, 5]], IndexError, ("index 5", "size 2")),
    ("tensors do not broadcast", lambda: x(4, 4)[[0, 1], [0, 1, 2]], IndexError, ("index", "(2,)", "(3,)")),
    ("mask shape", lambda: x(2)[norch.tensor([True, False, True])], IndexError, ("mask", "(3,)", "(2,)")),
    ("assign", lambda: x(2).__setitem__(3, 1.0), IndexError, ("index 3", "(2,)")),
    ("assign list", lambda: x(2).__setitem__([0, 3], 1.0), IndexError, ("index 3", "size 2")),
    ("gather", lambda: x(2).gather(0, ints(2)), IndexError, ("gather", "2")),
    ("scatter", lambda: x(2).scatter(0, ints(2), 1.0), IndexError, ("scatter", "2")),
    ("index_select", lambda: norch.index_select(x(2), 0, ints(7)), IndexError, ("7",)),
    ("masked_fill", lambda: x(2).masked_fill_(x(2) > 0, None), norch.DTypeError, ("value", "None")),
    ("index_select", lambda: norch.index_select(x(0, 0), 0, ints(0)), IndexError, ("(0, 0)", "empty")),
    ("narrow", lambda: x(3).narrow(0, 2, 2), IndexError, ("narrow", "(3,)")),
    ("select", lambda: x(3).select(0, 3), IndexError, ("select", "3", "(3,)")),
    ("0-d", lambda: norch.tensor(1.0)[1], IndexError, ("index 1", "0-d")),
    ("size", lambda: x(2).size(1), IndexError, ("size", "1")),
    ("one_hot", lambda: norch.one_hot(ints(3), 2), IndexError, ("one_hot", "3", "2")),
]  # fmt: skip


def leaf() -> norch.Tensor:
    return norch.ones(3, requires_grad=True)


def twice() -> None:
    loss = leaf().exp().sum()
    loss.backward()
    loss.backward()


def changed() -> None:
    y = leaf() * 2
    z = y * y
    y.add_(1)
    z.sum().backward()


GRAPH: list[Row] = [
    ("non-scalar", lambda: (leaf() * 2).backward(), AutogradError, ("backward", "scalar", "(3,)")),
    ("twice", twice, AutogradError, ("backward", "gone", "retain_graph=True")),
    ("changed", changed, AutogradError, ("mul", "add_", "(3,)", "clone")),
    ("no graph", lambda: x(3).sum().backward(), AutogradError, ("backward", "()", "requires_grad")),
    ("leaf in place", lambda: leaf().add_(1), AutogradError, ("add_", "leaf", "no_grad")),
    ("view of leaf in place", lambda: leaf()[0].add_(1), AutogradError, ("add_", "view", "leaf")),
    ("seed shape", lambda: (leaf() * 2).backward(x(2)), ShapeError, ("backward", "(2,)", "(3,)")),
    ("unused", lambda: norch.autograd.grad(leaf().sum(), leaf()), AutogradError, ("grad", "allow_unused")),
    ("untracked input", lambda: norch.autograd.grad(leaf().sum(), x(2)), AutogradError, ("grad", "requires_grad")),
    ("numpy", lambda: leaf().numpy(), AutogradError, ("numpy", "detach")),
    ("hook", lambda: x(2).register_hook(lambda g: g), AutogradError, ("register_hook",)),
    ("retain_grad", lambda: x(2).retain_grad(), AutogradError, ("retain_grad",)),
    ("requires_grad_", lambda: (leaf() * 2).requires_grad_(False), AutogradError, ("mul", "detach")),
    ("deepcopy", lambda: __import__("copy").deepcopy(leaf() * 2), AutogradError, ("deepcopy", "leaves")),
]

DEVICES: list[Row] = [
    ("unknown", lambda: norch.zeros(2, device="abacus"), DeviceError, ("abacus",)),
    ("to unknown", lambda: x(2).to("abacus:1"), DeviceError, ("abacus",)),
    ("no such cpu", lambda: norch.zeros(2, device="cpu:9"), DeviceError, ("cpu", "1")),
    ("no name", lambda: norch.device("cpu:x"), DeviceError, ("'cpu:x'",)),
    ("a number in a tensor's place", lambda: norch.relu(3), DTypeError, ("relu", "input", "int")),  # type: ignore[arg-type]
    ("a number in a tensor's place", lambda: norch.layer_norm(2.0, (1,)), DTypeError, ("layer_norm", "input", "float")),
    ("a number for a target", lambda: norch.mse_loss(norch.ones(2), 4), DTypeError, ("mse_loss", "int 4")),  # type: ignore[arg-type]
    ("not a string", lambda: norch.device(3.5), DeviceError, ("3.5",)),  # type: ignore[arg-type]
]


ROWS = [*SHAPES, *DTYPES, *INDICES, *GRAPH, *DEVICES]


@pytest.mark.parametrize("row", ROWS, ids=[f"{r[0]}-{r[2].__name__}" for r in ROWS])
def test_message(row: Row) -> None:
    _, call, kind, words = row
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, NorchError)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (ShapeError, ValueError),
        (ShapeError, RuntimeError),
        (DTypeError, RuntimeError),
        (DTypeError, TypeError),
        (IndexError, builtins.IndexError),
        (DeviceError, RuntimeError),
        (AutogradError, RuntimeError),
        (norch.BackendError, RuntimeError),
        (norch.OutOfMemoryError, MemoryError),
    ],
)
def test_errors_are_also_what_python_would_raise(kind: type, builtin: type) -> None:
    assert issubclass(kind, builtin)
    assert issubclass(kind, NorchError)


def test_out_of_memory() -> None:
    with pytest.raises(norch.OutOfMemoryError, match=r"cpu.*bytes|room"):
        norch.zeros(2**56)


def test_unknown_operand_leaves_python_its_say() -> None:
    with pytest.raises(TypeError):
        norch.zeros(2) + "a"
    with pytest.raises(TypeError):
        norch.zeros(2) + object()
    assert (norch.zeros(2) == "a") is False


def test_a_failed_op_leaves_the_tensor_as_it_was() -> None:
    a = norch.arange(3)
    for call in (lambda: a.add_(0.5), lambda: a.__setitem__([0, 9], 1), lambda: a.add_(norch.zeros(2, 3))):
        with pytest.raises(NorchError):
            call()
    assert a.tolist() == [0, 1, 2]


def test_no_loop_over_what_has_no_length() -> None:
    with pytest.raises(TypeError, match="0-d"):
        len(norch.tensor(1.0))
    with pytest.raises(TypeError, match="0-d"):
        iter(norch.tensor(1.0))


def test_a_pool_of_errors_keeps_grad_mode() -> None:
    for call in (changed, twice):
        with pytest.raises(AutogradError):
            call()
        assert norch.is_grad_enabled()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: x(2, 3) @ x(4, 5),
        lambda: x(2) + x(3),
        lambda: x(4).view(3),
        lambda: norch.cat([x(2, 3), x(2, 4)]),
        lambda: ints(1).requires_grad_(),
        lambda: norch.mean(ints(1, 2)),
        lambda: x(2, 2).index_select(0, x(2)),
    ],
    ids=["matmul", "add", "view", "cat", "requires_grad_", "mean", "index_select"],
)
def test_a_script_that_catches_runtime_error_as_pytorch_raises_catches_it(wrong: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError):
        wrong()
