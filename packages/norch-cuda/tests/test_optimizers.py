"""Steps of optimisers on a GPU against those of tensors on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.testing.steps import STEPS, check_step

RNG = np.random.default_rng(5)
DTYPES = (norch.float64, norch.float32, norch.float16, norch.bfloat16)
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2048,), (2049,), (64, 64), (100003,)]


def draw(shapes, dtype, *, positive=False):
    arrays = [RNG.standard_normal(shape) for shape in shapes]
    return [norch.tensor(np.abs(a) if positive else a, dtype=norch.float64).to(dtype) for a in arrays]


def assert_same(lists, expected, dtype):
    tolerance = {norch.float64: 1e-13, norch.float32: 3e-6, norch.float16: 2e-3, norch.bfloat16: 1.6e-2}[dtype]
    for tensors, others in zip(lists, expected, strict=True):
        for x, y in zip(tensors, others, strict=True):
            np.testing.assert_allclose(x.to("cpu").double().numpy(), y.double().numpy(), rtol=tolerance, atol=tolerance)


def check(update, lists, dtype, device, **how):
    """16-bit floats are compared with float32 that is rounded after each step, whatever the CPU's backend rounds."""
    moved = [[x.to(device) for x in tensors] for tensors in lists]
    if dtype.itemsize == 2:
        lists = [[x.float() for x in tensors] for tensors in lists]
    for _ in range(2):
        update(*lists, **how)
        update(*moved, **how)
        for tensors in lists:
            for x in tensors:
                x.copy_(x.to(dtype))
    assert_same(moved, lists, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("maximize", [False, True])
def test_sgd(cuda, dtype, decay, maximize):
    p, g, b = (draw(SHAPES, dtype) for _ in range(3))
    how = {"lr": 0.1, "weight_decay": decay, "maximize": maximize}
    check(norch.sgd_step_, [p, g], dtype, cuda, **how)
    for nesterov, dampening in ((False, 0.25), (True, 0.0)):
        more = {"momentum": 0.9, "nesterov": nesterov, "dampening": dampening}
        check(norch.sgd_step_, [p, g, b], dtype, cuda, **how, **more)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_adam(cuda, dtype, decay, decoupled, maximize):
    lists = [draw(SHAPES, dtype) for _ in range(3)] + [draw(SHAPES, dtype, positive=True)]
    how = {"step": 3, "lr": 0.01, "weight_decay": decay, "decoupled": decoupled, "maximize": maximize, "eps": 1e-4}
    check(norch.adam_step_, lists, dtype, cuda, **how)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_formulas(cuda, step):
    check_step(step, cuda, shapes=SHAPES)


@pytest.mark.parametrize("count", [16, 17, 75, 76, 88, 89, 139, 140, 200])
def test_many_parameters(cuda, count):
    shapes = [(int(n),) for n in RNG.integers(0, 3000, count)]
    lists = [draw(shapes, norch.float32) for _ in range(3)] + [draw(shapes, norch.float32, positive=True)]
    check(norch.adam_step_, lists, norch.float32, cuda, step=1, eps=1e-4)
    check(norch.sgd_step_, lists[:2], norch.float32, cuda, lr=0.1)
    lists.insert(4, draw(shapes, norch.float32, positive=True))
    check(norch.adam_step_, lists, norch.float32, cuda, step=1, eps=1e-4)


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=lambda d: d.name)
def test_parts_of_larger_tensors(cuda, dtype):
    lists = [draw([(5001,), (3000,)], dtype) for _ in range(3)]
    moved = [[x.to(cuda)[1:] for x in tensors] for tensors in lists]
    lists = [[x[1:] for x in tensors] for tensors in lists]
    for ours in (lists, moved):
        norch.sgd_step_(*ours, lr=0.1, momentum=0.9)
    assert_same(moved, lists, dtype)


def test_infinite_and_missing_numbers(cuda):
    p, g = (norch.tensor([1.0, np.inf, -np.inf, np.nan, 0.0]) for _ in range(2))
    moved = [p.to(cuda)], [g.to(cuda)]
    norch.sgd_step_([p], [g], lr=0.5)
    norch.sgd_step_(*moved, lr=0.5)
    np.testing.assert_array_equal(moved[0][0].to("cpu").numpy(), p.numpy())


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("count", [1, 450])
def test_gradients_are_clipped_together(cuda, dtype, count):
    """More of them than a launch takes, some of which begin where packets do not."""
    whole = [x.to(cuda) for x in draw([SHAPES[i % len(SHAPES)] for i in range(count - 1)] + [(70001,)], dtype)]
    given = [x[1:] if i % 3 == 0 and x.ndim == 1 and x.numel() else x for i, x in enumerate(whole)]
    before = [x.to("cpu").double().numpy().copy() for x in given]
    norm = norch.total_norm(given)
    expected = np.sqrt(sum((a**2).sum() for a in before))
    np.testing.assert_allclose(norm.item(), expected, rtol=1e-12 if dtype is norch.float64 else 1e-6)
    assert norch.total_norm(given).item() == norm.item()
    edges = [x[0].item() for x in whole if x.ndim == 1 and x.numel() > 1]
    norch.scale_(given, norch.tensor(1.0, device=cuda))
    norch.scale_(given, norch.tensor(0.25, device=cuda))
    for x, a in zip(given, before, strict=True):
        bound = 1e-5 if dtype is norch.float16 else 0  # where a quarter is subnormal
        np.testing.assert_allclose(x.to("cpu").double().numpy(), a / 4, rtol=0, atol=bound)
    unscaled = [x for i, x in enumerate(whole) if x.ndim == 1 and x.numel() > 1 and i % 3 == 0]
    assert {x[0].item() for x in unscaled} <= set(edges)


def test_what_is_not_finite_is_in_the_norm(cuda):
    for value in (np.nan, np.inf):
        x = norch.ones(10000, device=cuda)
        x[9999] = value
        np.testing.assert_equal(norch.total_norm([norch.ones(5, device=cuda), x]).item(), value)
    assert norch.total_norm([norch.zeros(0, device=cuda)]).item() == 0


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_a_norm_whose_squares_float32_cannot_hold(cuda, size):
    found = norch.total_norm([norch.full((3,), size, device=cuda), norch.full((1,), size, device=cuda)])
    np.testing.assert_allclose(found.item(), 2 * size, rtol=1e-6)
