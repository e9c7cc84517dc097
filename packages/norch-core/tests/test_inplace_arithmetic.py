"""`add_`, `sub_`, `mul_` and `div_`, and `+=` and its like: the out-of-place result, in the tensor's own memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from inplace_cases import LAYOUTS, OPERATORS, OPS, call, each_op, matrix

import norch
from norch import AutogradError, DeviceError, DTypeError, ShapeError, Tensor
from norch.autograd import gradcheck, gradgradcheck
from norch.testing.strict import strict_device

DTYPES = [
    norch.bool, norch.uint8, norch.int8, norch.int16, norch.int32, norch.int64,
    norch.float16, norch.bfloat16, norch.float32, norch.float64,
]  # fmt: skip


def check(x: Tensor, name: str, *args: Any, **kwargs: Any) -> None:
    """The method gives what the function gives, cast to the tensor's dtype, and the tensor itself."""
    expected = OPS[name](x.clone(), *args, **kwargs).to(x.dtype)
    memory, version, base = x.data_ptr(), x._version, x.base
    assert call(x, name, *args, **kwargs) is x
    assert x.data_ptr() == memory
    assert x.base is base
    assert x.dtype is expected.dtype
    assert x._version > version
    values, wanted = (t.cpu().double().numpy() for t in (x, expected))
    np.testing.assert_array_equal(values, wanted, f"{name} {args} {kwargs}")


# --- Values ---------------------------------------------------------------------------------------------------------


@each_op
@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_that_broadcast(name: str, layout: str, device: str) -> None:
    def target() -> Tensor:
        return LAYOUTS[layout](matrix(device=device))

    shape = tuple(target().shape)
    others: list[Any] = [2, 0.5, True, norch.tensor(3.0, device=device), norch.tensor(3.0)]
    for size in {shape, shape[1:], (1,) * len(shape), (*shape[:-1], 1) if shape else ()}:
        others.append(norch.full(size, 1.5, device=device))
        if len(size) > 1:
            others.append(norch.full(size[::-1], 0.75, device=device).t())
    for other in others:
        whole = matrix(device=device)
        x = LAYOUTS[layout](whole)
        check(x, name, other)
        hidden = LAYOUTS[layout](norch.zeros(2, 3, dtype=norch.bool))
        hidden.fill_(True)
        seen = hidden if hidden.base is None else hidden.base
        untouched = ~seen.reshape(2, 3).numpy()
        np.testing.assert_array_equal(whole.cpu().numpy()[untouched], matrix().numpy()[untouched])


@each_op
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(name: str, dtype: norch.dtype) -> None:
    """What the result's category fits is cast to the tensor's dtype, all else refused: no float into an integer."""
    others = [norch.tensor([1, 3, 2], dtype=d) for d in DTYPES]
    others += [norch.tensor(3, dtype=d) for d in DTYPES]
    for other in [*others, True, 3, 2.5]:
        x = norch.tensor([7, 5, 1], dtype=dtype)
        before = x.tolist()
        try:
            result = OPS[name](x, other)
        except DTypeError:
            result = None
        if result is not None and result.dtype.category <= dtype.category:
            check(x, name, other)
            continue
        with pytest.raises(DTypeError, match=name if result is not None else None):
            call(x, name, other)
        assert x.tolist() == before
        assert x._version == 0


def test_integers_wrap_and_halves_round_once() -> None:
    assert norch.tensor([250], dtype=norch.uint8).add_(10).tolist() == [4]
    assert norch.tensor([3], dtype=norch.uint8).sub_(norch.tensor([5], dtype=norch.uint8)).tolist() == [254]
    assert norch.tensor([100], dtype=norch.int8).mul_(norch.tensor([300])).tolist() == [48]
    half = norch.tensor([1.0], dtype=norch.float16)
    assert half.add_(norch.tensor([2.0**-11 + 2.0**-20], dtype=norch.float64)).item() == 1 + 2**-10


@pytest.mark.parametrize("name", ["add_", "sub_"])
@pytest.mark.parametrize("alpha", [2, -1, 0, 0.5])
def test_alpha(name: str, alpha: float) -> None:
    for other in (matrix() * 3, norch.ones(3), 4, 0.25, norch.tensor(2.0)):
        for layout in LAYOUTS.values():
            if layout(matrix()).shape == (2, 3) or not isinstance(other, Tensor) or not other.ndim:
                check(layout(matrix()), name, other, alpha=alpha)
    check(matrix(), name, matrix(), alpha=norch.tensor(alpha))
    assert norch.sub(1.0, norch.ones(2), alpha=alpha).tolist() == [1 - alpha] * 2
    whole = matrix(norch.int64)
    check(whole, name, matrix(norch.int64), alpha=3)
    with pytest.raises(DTypeError, match=name):
        call(whole, name, 1, alpha=0.5)


@pytest.mark.parametrize("mode", ["floor", "trunc", None])
def test_division_that_rounds(mode: str | None) -> None:
    x = norch.tensor([7.0, -7.0, 2.0])
    check(x, "div_", norch.tensor([2.0, 2.0, -4.0]), rounding_mode=mode)
    check(x, "div_", 3, rounding_mode=mode)
    whole = norch.tensor([7, -7, 2])
    if mode is None:
        with pytest.raises(DTypeError):
            whole.div_(2, rounding_mode=mode)
    else:
        check(whole, "div_", 2, rounding_mode=mode)


@each_op
def test_operators_are_the_methods(name: str) -> None:
    for other in (3, 0.5, matrix() + 1, norch.ones(3) * 2, np.float32(2)):
        x, y = matrix(), matrix()
        z = OPERATORS[name](x, other)
        assert z is x
        assert x.tolist() == call(y, name, other).tolist()
    whole = matrix(norch.int32)
    for other in (0.5, norch.ones(3)):
        with pytest.raises(DTypeError):
            OPERATORS[name](whole, other)
    assert whole.tolist() == matrix().tolist()


@each_op
def test_a_tensor_with_itself(name: str) -> None:
    for layout in LAYOUTS.values():
        x = layout(matrix())
        expected = OPS[name](x.clone(), x.clone()).tolist()
        assert call(x, name, x).tolist() == expected
        x = layout(matrix())
        assert call(x, name, x.detach()).tolist() == expected  # another tensor on the same memory


OVERLAPS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "before": (lambda x: x[1:], lambda x: x[:-1]),
    "after": (lambda x: x[:-1], lambda x: x[1:]),
    "first": (lambda x: x, lambda x: x[0]),
    "last": (lambda x: x, lambda x: x[-1:]),
    "stepped": (lambda x: x[::2], lambda x: x[1:5]),
    "windows": (lambda x: x[:4], lambda x: x.unfold(0, 2, 1)[:4, 1]),
    "transposed": (lambda x: x[:4].view(2, 2), lambda x: x[:4].view(2, 2).t()),
    "reversed": (lambda x: x, lambda x: x.flip(0)),
    "expanded": (lambda x: x[:6].view(2, 3), lambda x: x[1:2].expand(2, 3)),
}


@each_op
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_operands_that_overlap(name: str, overlap: str, device: str) -> None:
    """As if the other operand had been copied first."""
    left, right = OVERLAPS[overlap]
    x = norch.arange(1.0, 8.0, device=device)
    expected = x.clone()
    call(left(expected), name, right(x).clone())
    call(left(x), name, right(x))
    assert x.tolist() == expected.tolist()


@each_op
def test_operands_on_two_devices(name: str) -> None:
    x, far = norch.ones(2), norch.ones(2, device=strict_device())
    for target, other in ((x, far), (far, x)):
        with pytest.raises(DeviceError, match="cpu.*strict|strict.*cpu"):
            call(target, name, other)
        assert target.tolist() == [1, 1]


@each_op
def test_shapes_that_an_in_place_op_cannot_give(name: str) -> None:
    x = norch.ones(3)
    for other in (norch.ones(2, 3), norch.ones(2), norch.ones(1, 1)):
        with pytest.raises(ShapeError, match=r"\(3,\)"):
            call(x, name, other)
    with pytest.raises(ShapeError, match=rf"{name}\(\).*expand"):
        call(norch.ones(1).expand(3), name, 2)
    with pytest.raises(ShapeError):
        call(norch.ones(()), name, norch.ones(1))
    assert x.tolist() == [1, 1, 1]
    assert x._version == 0


# --- The graph ------------------------------------------------------------------------------------------------------


@each_op
def test_leaves_are_refused_and_left_as_they_were(name: str) -> None:
    x = norch.ones(2, 2, requires_grad=True)
    for target in (x, x[0], x.t(), x.view(-1)[::2]):
        for other in (2, norch.full((), 2.0), norch.ones(1, requires_grad=True)):
            with pytest.raises(AutogradError, match=rf"{name}\(\).*leaf"):
                call(target, name, other)
    assert x.tolist() == [[1, 1], [1, 1]]
    assert x._version == 0
    with norch.no_grad():
        call(x, name, 2)
    assert x.is_leaf
    assert x.requires_grad
    assert x.tolist() == OPS[name](norch.ones(2, 2), 2).tolist()


@each_op
def test_versions_grow_with_every_change(name: str) -> None:
    x = norch.ones(2, 2)
    view, seen = x.t(), [x._version]
    for target in (x, view, x.detach(), x[0], x[0, 0]):
        for other in (2, 0.5, norch.ones(()), target):
            call(target, name, other)
            assert view._version == x._version > seen[-1]
            seen.append(x._version)
    with norch.no_grad():
        call(x, name, 1)
    assert x._version > seen[-1]


@each_op
def test_a_saved_operand_that_changed_is_named(name: str) -> None:
    for other in (2, 0.5, norch.full((2,), 3.0), norch.ones(2, requires_grad=True)):
        x = norch.ones(2, requires_grad=True)
        y = x * 1
        z = y.sin()
        call(y, name, other)
        with pytest.raises(AutogradError, match=f"sin needs .*{name} has changed it"):
            z.sum().backward()


def test_an_operand_that_multiplies_in_place_is_saved() -> None:
    for name in ("mul_", "div_"):
        x, other = norch.ones(2, requires_grad=True), norch.full((2,), 2.0)
        y = x * 1
        call(y, name, other)
        other.add_(1)
        with pytest.raises(AutogradError, match=f"{name[:-1]} needs .*add_ has changed it"):
            y.sum().backward()


@each_op
@pytest.mark.parametrize("layout", [n for n in LAYOUTS if n != "none"])
def test_gradients(name: str, layout: str) -> None:
    """Of the tensor, of the base behind a view, and of the other operand."""

    def function(x: Tensor, other: Tensor) -> Tensor:
        base = x * 1.5
        view = LAYOUTS[layout](base)
        call(view, name, 3.0)
        call(view, name, other[: view.shape[-1]] if view.ndim else other[0])
        call(view, name, view * 0.5 + 1)
        return base * base

    x = norch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], dtype=norch.float64, requires_grad=True)
    other = norch.tensor([0.7, 1.3, 2.1], dtype=norch.float64, requires_grad=True)
    assert gradcheck(function, (x, other))
    assert gradgradcheck(function, (x, other), fast_mode=True)


@each_op
def test_gradients_of_a_tensor_with_itself(name: str) -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 1.5
        call(y, name, y)
        call(y[0], name, y[1].clone())
        if name in ("add_", "sub_"):  # the others save an operand that they change
            call(y[:, 1:], name, y[:, :-1])
        return y * y

    x = norch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=norch.float64, requires_grad=True)
    assert gradcheck(function, (x,))


@each_op
def test_a_constant_takes_the_gradient_of_its_operand(name: str) -> None:
    w = norch.full((2,), 2.0, requires_grad=True)
    x = norch.full((2, 2), 3.0)
    row = x[1]
    call(row, name, w)
    assert x.requires_grad
    assert not x.is_leaf
    assert not x[0].sum().is_leaf
    x.sum().backward()
    expected = {"add_": 1, "sub_": -1, "mul_": 3, "div_": -0.75}[name]
    assert w.grad.tolist() == [expected, expected]


@each_op
def test_nothing_is_recorded_of_constants(name: str) -> None:
    x, w = norch.ones(2), norch.ones(2, requires_grad=True)
    call(x, name, w.detach())
    assert x.grad_fn is None
    with norch.no_grad():
        call(x, name, w)
    assert x.grad_fn is None
    assert not x.requires_grad
