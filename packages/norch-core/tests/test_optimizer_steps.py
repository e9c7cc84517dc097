"""The steps of optimisers: their formulas on each device, and what every step does beside its formula."""

import inspect

import pytest

import norch
from norch.dtype import float32, float64
from norch.ops import optimizer
from norch.testing.steps import STEPS, check_step


def call(name, p, g, fill=1.0):
    """A step of the parameters, with all states that it can have."""
    states = next(s for s in reversed(STEPS.values()) if s.function == name)
    lists = {key: [norch.full_like(x, fill) for x in p] for key in states.states}
    getattr(norch, name)(p, g, **lists, **states.options)
    return lists


def test_every_step_has_a_formula():
    assert {step.function for step in STEPS.values()} == set(optimizer.__all__)


def test_every_option_is_in_some_formula():
    """Every option that a step has is one that the formulas were tried with."""
    for name in optimizer.__all__:
        _, _, *options = inspect.signature(getattr(norch, name)).parameters
        tried = {k for s in STEPS.values() if s.function == name for k in (*s.options, *s.states)}
        assert set(options) - {"differentiable"} == tried, name


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_formulas(step, device):
    check_step(step, device, (float64,) if device == "strict" else (float64, float32))


@pytest.mark.parametrize("name", optimizer.__all__)
def test_parameters_that_no_kernel_takes(name):
    """Layouts and dtypes that differ, and parameters that overlap: as each alone."""

    def made():
        memory = norch.arange(24.0, dtype=float64) / 8 + 1
        return [memory[:12].reshape(3, 4).T, memory[12:20:2], norch.ones(3, dtype=float32), memory[14:18]]

    together, alone = made(), made()
    call(name, together, [norch.full_like(p, 0.5) for p in together])
    for p in alone:
        call(name, [p], [norch.full_like(p, 0.5)])
    for a, b in zip(together, alone, strict=True):
        assert a.tolist() == pytest.approx(b.tolist()) if a.ndim == 1 else norch.allclose(a, b)


@pytest.mark.parametrize("name", optimizer.__all__)
def test_a_step_is_noticed_but_not_recorded(name):
    p = norch.ones(3, requires_grad=True)
    loss = (p * p).sum()
    states = call(name, [p], [norch.ones(3, requires_grad=True)])
    assert p.is_leaf
    assert not any(s.requires_grad for lists in states.values() for s in lists)
    with pytest.raises(norch.AutogradError, match=f"{name} has changed it in place"):
        loss.backward()


@pytest.mark.parametrize("name", optimizer.__all__)
def test_what_is_refused(name):
    p, g = norch.ones(3), norch.ones(3)
    with pytest.raises(norch.ShapeError, match=f"{name}.*2 parameters, but 1"):
        call(name, [p, norch.ones(1)], [g])
    with pytest.raises(norch.ShapeError, match=rf"{name}.*shape \(3,\).*shape \(2,\)"):
        call(name, [p], [norch.ones(2)])
    with pytest.raises(norch.DTypeError, match=f"{name}.*int64"):
        call(name, [p], [norch.ones(3).long()])
    assert p.tolist() == [1.0] * 3
    call(name, [], [])
    call(name, [norch.ones(0)], [norch.ones(0)])
