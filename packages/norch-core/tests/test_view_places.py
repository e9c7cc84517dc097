"""Views that differ in their place alone share a plan, and their gradients meet in one buffer."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.dispatch.op import all_ops


def plans() -> int:
    return sum(len(op.plans) + len(op.plans.old) for op in all_ops())


def ramp(*shape: int) -> tuple[norch.Tensor, np.ndarray]:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return norch.tensor(values), values


@pytest.mark.parametrize(
    "take",
    [
        lambda x, i: x[i],
        lambda x, i: x[-1 - i],
        lambda x, i: x[i, 2],
        lambda x, i: x[i, 1, 2],
        lambda x, i: x[i : i + 3],
        lambda x, i: x[i : i + 6 : 2],
        lambda x, i: x[i : i + 3, 1],
        lambda x, i: x[:, 1][i],
        lambda x, i: x[2:][i][1],
    ],
)
def test_an_index_makes_no_plan_of_its_own(take) -> None:
    x, values = ramp(64, 3, 4)
    take(x, 0)
    before = plans()
    found = [take(x, i) for i in range(50)]
    assert plans() == before
    for i, view in enumerate(found):
        np.testing.assert_array_equal(view.numpy(), take(values, i))


def test_named_functions_make_no_plan_for_each_place_either() -> None:
    x, values = ramp(64, 6)
    x.narrow(0, 0, 2), x.select(0, 0), x.split(4), x.unbind(), x.chunk(8)
    before = plans()
    for i in range(60):
        np.testing.assert_array_equal(x.narrow(0, i, 2).numpy(), values[i : i + 2])
        np.testing.assert_array_equal(x.select(0, i).numpy(), values[i])
    for i, (a, b) in enumerate(zip(x.split(4), x.chunk(16), strict=True)):
        np.testing.assert_array_equal(a.numpy(), values[4 * i : 4 * i + 4])
        np.testing.assert_array_equal(b.numpy(), values[4 * i : 4 * i + 4])
    assert plans() == before


def test_writing_to_places_under_autograd_makes_no_plan_for_each() -> None:
    weight = norch.ones(4, requires_grad=True)
    x = norch.zeros(32, 4) * weight
    counts = []
    for i in range(32):
        x[i] = weight * i
        counts.append(plans())
    assert counts[4] == counts[-1]
    (x * norch.arange(32.0).reshape(32, 1)).sum().backward()
    assert weight.grad.tolist() == [float(sum(i * i for i in range(32)))] * 4


@pytest.mark.parametrize("index", [64, -65, (0, 4), (0, -5), (1, 0, 0)])
def test_an_index_out_of_range_is_named(index) -> None:
    x, _ = ramp(64, 4)
    with pytest.raises(norch.IndexError, match="index"):
        x[index]


def gradient_of_parts(leaf: bool, how) -> tuple[list, list]:
    w = np.random.default_rng(3).standard_normal((7, 5, 2)).astype(np.float32)
    x = norch.ones(7, 5, 2, requires_grad=True)
    y = x if leaf else x * 1.0
    total = sum((part * norch.tensor(w[i])).sum() * (i + 1) for i, part in enumerate(how(y)))
    total.backward()
    return x.grad.tolist(), (w * np.arange(1, 8, dtype=np.float32).reshape(7, 1, 1)).tolist()


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize(
    "how",
    [
        lambda y: y.unbind(),
        lambda y: [p.squeeze(0) for p in y.chunk(7)],
        lambda y: [y[i] for i in range(7)],
        lambda y: [y[i : i + 1][0] for i in range(6, -1, -1)][::-1],
        lambda y: y.transpose(0, 1).unbind(1),
    ],
)
def test_parts_give_their_base_its_gradient(leaf: bool, how) -> None:
    found, expected = gradient_of_parts(leaf, how)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_gradients_of_a_leafs_parts_are_added_where_they_are() -> None:
    x = norch.ones(6, 3, requires_grad=True)
    x.grad = held = norch.full((6, 3), 10.0)
    sum(part.sum() * i for i, part in enumerate(x.unbind())).backward()
    assert x.grad is held
    assert held.tolist() == [[10.0 + i] * 3 for i in range(6)]


def test_second_gradients_through_parts() -> None:
    x = norch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (first,) = norch.autograd.grad(sum(p**3 for p in x.unbind()), x, create_graph=True)
    (second,) = norch.autograd.grad(first.sum(), x)
    assert first.tolist() == [3.0, 12.0, 27.0]
    assert second.tolist() == [6.0, 12.0, 18.0]


def test_a_written_value_that_is_used_again_keeps_its_own_order() -> None:
    w = np.arange(9, dtype=np.float32).reshape(3, 3)
    b = norch.ones(3, 3, requires_grad=True)
    x = norch.zeros(3, 3) * b
    value = b * 2
    x.t().copy_(value)
    (value * 3).sum().add((x * norch.tensor(w)).sum()).backward()
    np.testing.assert_array_equal(b.grad.numpy(), 6 + 2 * w.T)


def test_views_of_leaves_like_pytorch() -> None:
    torch = pytest.importorskip("torch")

    def script(lib):
        x = lib.arange(24.0).reshape(6, 4).requires_grad_()
        y = x * 2
        y[1:3] = x[2:4] * 3
        y[-1, 2] = 5.0
        y[4].mul_(x[0])
        parts = [y[i, j : j + 2] for i in range(6) for j in range(3)]
        (sum((p * p).sum() for p in parts) + sum(p.sum() for p in x.split(4))).backward()
        return x.grad.tolist()

    np.testing.assert_allclose(script(norch), script(torch), rtol=1e-6)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_joining_parts_of_several_layouts_and_dtypes_like_pytorch(dim: int) -> None:
    torch = pytest.importorskip("torch")

    def script(lib):
        x = lib.arange(24.0).reshape(4, 6).requires_grad_()
        parts = [x[:, :4], x[:, 2:].t(), x[:, :4], lib.ones(4, 4, dtype=lib.int64), x[:, 1:5] * 2]
        stacked, joined = lib.stack(parts, dim), lib.cat([*parts, lib.zeros(0)], 0 if dim == 0 else 1)
        weight = lib.arange(80.0)
        ((stacked.reshape(-1) * weight).sum() + (joined.reshape(-1) * weight**2).sum()).backward()
        return [stacked.tolist(), joined.tolist(), x.grad.tolist()]

    for found, expected in zip(script(norch), script(torch), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("amounts", [(1, 2), (1, 0, 0, 3), (0, 0, 2, 1), (-1, 2, 1, -2), (-1, -1), (1, 1, 1, 1, 1, 1)])
def test_padding_like_pytorch(amounts) -> None:
    torch = pytest.importorskip("torch")

    def script(lib, pad):
        x = lib.arange(24.0).reshape(4, 6).t().reshape(3, 4, 2).requires_grad_()
        y = pad(x, amounts, value=3.0)
        (first,) = lib.autograd.grad((y**3).sum(), x, create_graph=True)
        (second,) = lib.autograd.grad((first**2).sum(), x)
        return [y.tolist(), first.tolist(), second.tolist()]

    for found, expected in zip(script(norch, norch.pad), script(torch, torch.nn.functional.pad), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
