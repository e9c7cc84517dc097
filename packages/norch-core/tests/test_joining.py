"""`cat`, `stack` and `pad`: values, dtypes, layouts and gradients of many operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import norch
from norch import DeviceError, DTypeError, ShapeError, Tensor
from norch.autograd import gradcheck, gradgradcheck
from norch.backend.registry import register, unregister
from norch.testing.null import NullBackend
from norch.testing.strict import strict_device

JOIN = {"cat": (norch.cat, np.concatenate), "stack": (norch.stack, np.stack)}
each_join = pytest.mark.parametrize("name", JOIN)


def leaf(*shape: int, start: float = 1.0) -> Tensor:
    """Float64 values that are all different."""
    count = int(np.prod(shape))
    return (norch.arange(count, dtype=norch.float64) * 0.25 + start).reshape(shape).requires_grad_()


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "stepped": lambda x: norch.stack([x, x + 9], -1)[..., 0],
    "offset": lambda x: norch.cat([x[:1], x])[1:],
    "expanded": lambda x: x[:1].expand(2, 3),
}


# --- Values ---------------------------------------------------------------------------------------------------------


@each_join
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_parts_of_any_layout(name: str, dim: int) -> None:
    join, oracle = JOIN[name]
    x = norch.arange(6.0).reshape(2, 3) + 1
    parts = [layout(x * i) for i, layout in enumerate(LAYOUTS.values())]
    parts += [parts[1], parts[0], parts[0]]  # the same tensor, and the same layout, more than once
    result = join(parts, dim)
    np.testing.assert_array_equal(result.numpy(), oracle([p.numpy() for p in parts], dim))
    assert result.is_contiguous()


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_cat_of_several_sizes(dim: int) -> None:
    shapes = [tuple(n if d == dim % 3 else 2 for d in range(3)) for n in (3, 1, 0, 4)]
    parts = [norch.randn(*shape) for shape in shapes]
    np.testing.assert_array_equal(norch.cat(parts, dim).numpy(), np.concatenate([p.numpy() for p in parts], dim))


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -4])
def test_stack_makes_the_new_dim_anywhere(dim: int) -> None:
    parts = [norch.randn(2, 3, 4) for _ in range(3)]
    np.testing.assert_array_equal(norch.stack(parts, dim).numpy(), np.stack([p.numpy() for p in parts], dim))


def test_one_part_is_copied() -> None:
    x = norch.ones(2, 2)
    for result in (norch.cat([x]), norch.stack([x])[0]):
        result.zero_()
        assert x.tolist() == [[1, 1], [1, 1]]


@each_join
def test_any_sequence_and_either_name_of_the_dim(name: str) -> None:
    join, oracle = JOIN[name]
    a, b = norch.ones(2, 2), norch.zeros(2, 2)
    expected = oracle([a.numpy(), b.numpy()], 1).tolist()
    assert join((a, b), 1).tolist() == join([a, b], dim=1).tolist() == join([a, b], axis=1).tolist() == expected
    assert join(norch.ones(2, 2, 2).unbind(), 0).shape == oracle([np.ones((2, 2))] * 2, 0).shape


@each_join
def test_dtypes_promote_over_all_parts(name: str) -> None:
    join, _ = JOIN[name]
    order = [norch.bool, norch.uint8, norch.int16, norch.int64, norch.float16, norch.float32, norch.float64]
    for i, low in enumerate(order):
        for high in order[i:]:
            for parts in ([low, high, low], [high, low, low], [low, low, high]):
                result = join([norch.ones(2, dtype=d) for d in parts])
                assert result.dtype is high, parts
                assert result.flatten().tolist() == [1] * 6
    assert join([norch.ones(2, dtype=norch.uint8), norch.ones(2, dtype=norch.int8)]).dtype is norch.int16
    assert join([norch.ones(2, dtype=norch.float16), norch.ones(2, dtype=norch.bfloat16)]).dtype is norch.float32
    assert join([norch.full((2,), -1.5), norch.ones(2, dtype=norch.int64)]).flatten().tolist() == [-1.5, -1.5, 1, 1]


def test_0d_parts_count_in_the_dtype_of_a_stack() -> None:
    result = norch.stack([norch.tensor(1), norch.tensor(2.5)])
    assert result.dtype is norch.float32
    assert result.tolist() == [1, 2.5]


def test_parts_without_elements() -> None:
    x = norch.ones(2, 3)
    assert norch.cat([x, norch.zeros(0, 3)]).tolist() == x.tolist()
    assert norch.cat([norch.zeros(0), x, norch.zeros(0)]).tolist() == x.tolist()  # PyTorch's empty list to append to
    assert norch.cat([norch.zeros(0), norch.zeros(0)]).shape == (0,)
    assert norch.cat([norch.zeros(2, 0), norch.zeros(2, 0)], 1).shape == (2, 0)
    assert norch.stack([norch.zeros(0, 3)] * 2, 1).shape == (0, 2, 3)
    assert norch.cat([norch.zeros(0, 3, dtype=norch.float64), x]).dtype is norch.float64


def test_a_part_without_elements_or_dims_gets_an_empty_gradient() -> None:
    nothing, x = norch.zeros(0, requires_grad=True), norch.zeros(2, 3)
    norch.cat([nothing, x], 1).sum().backward()
    assert nothing.grad.shape == (0,)


def test_an_empty_part_gets_an_empty_gradient() -> None:
    x, empty = leaf(2, 3), leaf(0, 3)
    (norch.cat([empty, x, empty]) * 2).sum().backward()
    assert x.grad.tolist() == [[2] * 3] * 2
    assert empty.grad.shape == (0, 3)


@each_join
def test_what_cannot_be_joined(name: str) -> None:
    join, _ = JOIN[name]
    strict = strict_device()
    with pytest.raises(ShapeError, match=rf"{name}\(\).*\(2, 3\).*\(3, 2\)"):
        join([norch.ones(2, 3), norch.ones(3, 2)])
    with pytest.raises(ShapeError, match=name):
        join([norch.ones(2), norch.ones(2, 2)])
    with pytest.raises(DeviceError, match=rf"{name}\(\).*cpu.*strict"):
        join([norch.ones(2), norch.ones(2, device=strict)])
    with pytest.raises(IndexError, match=name):
        join([norch.ones(2), norch.ones(2)], 3)
    with pytest.raises(DTypeError, match=rf"{name}\(\).*float"):
        join([norch.ones(2), 2.0])  # type: ignore[list-item]
    with pytest.raises(ShapeError, match="at least one"):
        join([])
    assert join([norch.ones(2, device=strict)] * 2).device.type == "strict"


# --- Gradients ------------------------------------------------------------------------------------------------------


@each_join
@pytest.mark.parametrize("dim", [0, -1])
def test_gradients_of_parts_of_any_layout(name: str, dim: int) -> None:
    join, _ = JOIN[name]

    def function(a: Tensor, b: Tensor) -> Tensor:
        parts = [layout(x) for layout in LAYOUTS.values() for x in (a, b)]
        return join([*parts, a, a], dim) ** 2

    inputs = leaf(2, 3), leaf(2, 3, start=-0.9)
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_several_sizes(dim: int) -> None:
    shapes = [(3, 2), (1, 2), (0, 2), (2, 2)]
    inputs = [leaf(*(shape if dim == 0 else shape[::-1]), start=i + 1.0) for i, shape in enumerate(shapes)]
    weight = leaf(6, 2) if dim == 0 else leaf(2, 6)

    def function(*parts: Tensor) -> Tensor:
        return norch.cat(parts, dim) * weight.detach() ** 2

    assert gradcheck(function, inputs)
    assert gradgradcheck(lambda *parts: function(*parts) ** 2, inputs, fast_mode=True)


@each_join
def test_only_the_parts_that_require_a_gradient_get_one(name: str) -> None:
    join, _ = JOIN[name]
    constant, x, y = norch.ones(2), norch.ones(2, requires_grad=True), norch.ones(2, requires_grad=True)
    result = join([constant, x, x.detach(), y, x])
    assert result.requires_grad
    (result.flatten() * norch.arange(10.0)).sum().backward()
    assert x.grad.tolist() == [2 + 8, 3 + 9]
    assert y.grad.tolist() == [6, 7]
    assert constant.grad is None
    assert not join([constant, x.detach()]).requires_grad
    with norch.no_grad():
        assert not join([constant, x]).requires_grad


@each_join
def test_gradients_have_the_dtypes_of_their_parts(name: str) -> None:
    join, _ = JOIN[name]
    parts = [norch.ones(2, dtype=d, requires_grad=True) for d in (norch.float16, norch.float64, norch.float32)]
    join([*parts, norch.ones(2, dtype=norch.int32)]).sum().backward()
    for part in parts:
        assert part.grad.dtype is part.dtype
        assert part.grad.tolist() == [1, 1]


@each_join
def test_a_result_changed_in_place(name: str) -> None:
    join, _ = JOIN[name]

    def function(a: Tensor, b: Tensor) -> Tensor:
        y = join([a * 1, b * 2])
        y[0].mul_(y[1].clone())
        y[1] = 3.0
        return y * y

    assert gradcheck(function, (leaf(2, 2), leaf(2, 2, start=-0.7)))


@each_join
def test_a_part_that_is_a_view_of_what_changed_in_place(name: str) -> None:
    join, _ = JOIN[name]
    x = norch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x * 1
    row = y[1]
    y.mul_(10)
    result = join([row, row])
    assert result.flatten().tolist() == [30, 40, 30, 40]
    result.sum().backward()
    assert x.grad.tolist() == [[0, 0], [20, 20]]


@each_join
def test_parts_may_change_after_they_were_joined(name: str) -> None:
    join, _ = JOIN[name]
    x = norch.ones(2, requires_grad=True)
    part = x * 3
    result = join([part, part])
    part.zero_()  # the graph saved no part
    assert result.flatten().tolist() == [3, 3, 3, 3]
    result.sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_the_node_is_named_and_frees_its_parts() -> None:
    x = norch.ones(2, requires_grad=True)
    for name, (join, _) in JOIN.items():
        node = join([x * 1, norch.ones(2)]).grad_fn
        assert node.name() == f"{name}_backward"
        assert [edge is not None for edge, _ in node.next_functions] == [True, False]


# --- pad ------------------------------------------------------------------------------------------------------------

PADS = {
    "one dim": ((2, 3), (1, 2)),
    "one side": ((2, 3), (0, 2)),
    "two dims": ((2, 3), (1, 0, 2, 1)),
    "three dims": ((2, 1, 2), (1, 1, 0, 2, 3, 0)),
    "nothing": ((2, 3), (0, 0)),
    "no elements": ((0, 3), (1, 1, 2, 0)),
}


@pytest.mark.parametrize("name", PADS)
@pytest.mark.parametrize("value", [0.0, -1.5])
def test_pad_with_a_constant(name: str, value: float) -> None:
    shape, pads = PADS[name]
    width = [(0, 0)] * (len(shape) - len(pads) // 2) + [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -1, -2)]
    x = norch.randn(*shape)
    np.testing.assert_array_equal(norch.pad(x, pads, value=value).numpy(), np.pad(x, width, constant_values=value))


def test_negative_pads_crop() -> None:
    x = norch.arange(12.0).reshape(3, 4)
    assert norch.pad(x, (-1, -1)).tolist() == x[:, 1:-1].tolist()
    assert norch.pad(x, (-1, 2, 1, -2), value=9.0).tolist() == [[9] * 5, [1, 2, 3, 9, 9]]


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_gradients_of_pad(mode: str) -> None:
    x = leaf(2, 3, 4)
    pads = (2, 1, 1, 0) if mode != "constant" else (2, 1, -1, 2)

    def function(x: Tensor) -> Tensor:
        return norch.pad(x, pads, mode) ** 2

    assert gradcheck(function, (x,))
    assert gradcheck(lambda x: function(x.transpose(1, 2)), (x,))
    assert gradgradcheck(function, (x,), fast_mode=True)


@pytest.mark.parametrize("dtype", [norch.bool, norch.uint8, norch.int64, norch.bfloat16, norch.float64])
def test_pad_keeps_the_dtype(dtype: norch.dtype) -> None:
    x = norch.ones(2, dtype=dtype)
    result = norch.pad(x, (1, 1), value=1)
    assert result.dtype is dtype
    assert result.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "pads",
    [
        (0, 0),
        (1, 1),
        (-1, 0),
    ],
)
def test_a_padded_tensor_is_its_own_memory(pads: tuple[int, int]) -> None:
    x = norch.ones(2, requires_grad=True)
    y = x * 1
    result = norch.pad(y, pads)
    result.mul_(5)
    assert y.tolist() == [1, 1]
    result.sum().backward()
    assert x.grad.tolist() == [5 if i >= -pads[0] else 0 for i in range(2)]


def test_parts_that_are_alike_share_a_kernel() -> None:
    class Counting(NullBackend):
        device_type = "counting_copies"
        copies = 0

        def compile(self, op: str, *rest: Any) -> Any:
            self.copies += op == "copy"
            return super().compile(op, *rest)

    backend = Counting()
    register(backend)
    try:
        x = norch.empty(3, device="counting_copies")
        norch.stack([x] * 100)
        norch.cat([x] * 100)
        assert backend.copies == 2
    finally:
        unregister("counting_copies")


def test_vectors_of_nothing_are_joined_along_any_dim():
    assert norch.cat([norch.empty(0), norch.empty(0)], dim=1).shape == (0,)
    assert norch.cat([norch.empty(0), norch.ones(2, 3)], dim=1).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert norch.block_diag().shape == (1, 0)


def test_what_makes_no_grid():
    for wrong in ((), (norch.ones(2, 2),)):
        with pytest.raises(RuntimeError, match="expected vectors"):
            norch.meshgrid(*wrong)
    with pytest.raises(RuntimeError, match="expected one dtype"):
        norch.meshgrid(norch.arange(2), norch.ones(2))
    with pytest.raises(RuntimeError, match="expected one device"):
        norch.meshgrid(norch.ones(2), norch.ones(2, device="meta"))
    assert norch.meshgrid(norch.tensor(3), norch.arange(2))[0].tolist() == [[3, 3]]


def test_repeats_alone_are_a_vector():
    with pytest.raises(RuntimeError, match="a vector"):
        norch.repeat_interleave(norch.ones(2, 2, dtype=norch.int64))
