"""GradScaler steps, skips and adapts as PyTorch's; autocast is refused unless it is off."""

from __future__ import annotations

import math

import pytest

import norch
from norch.amp import GradScaler, autocast


class Descent:
    """The least that an optimiser is: parameter groups and a step."""

    def __init__(self, *parameters):
        self.param_groups = [{"params": list(parameters)}]
        self.steps = 0

    def step(self):
        self.steps += 1
        with norch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad)
        return "stepped"


def test_scales_and_unscales():
    x = norch.ones(2, requires_grad=True)
    optimizer, scaler = Descent(x), GradScaler(init_scale=8.0)
    loss = (x * norch.tensor([0.5, 0.25])).sum()
    assert scaler.scale(loss).item() == 6.0
    assert [v.item() for v in scaler.scale([loss, loss])] == [6.0, 6.0]
    scaler.scale(loss).backward()
    assert x.grad.tolist() == [4, 2]
    scaler.unscale_(optimizer)
    assert x.grad.tolist() == [0.5, 0.25]
    with pytest.raises(norch.AutogradError, match="already"):
        scaler.unscale_(optimizer)
    assert scaler.step(optimizer) == "stepped"
    with pytest.raises(norch.AutogradError, match="already"):
        scaler.step(optimizer)
    scaler.update()
    assert x.tolist() == [0.5, 0.75]


def test_leaves_out_steps_that_overflowed_and_grows_after_good_ones():
    x = norch.ones(1, requires_grad=True)
    optimizer, scaler = Descent(x), GradScaler(init_scale=4.0, growth_interval=2)
    factors = []
    for value in (1.0, 1.0, math.inf, 1.0, 1.0):
        x.grad = norch.tensor([value])
        scaler.step(optimizer)
        scaler.update()
        factors.append(scaler.get_scale())
    assert factors == [4, 8, 4, 4, 8]
    assert optimizer.steps == 4


def test_state_goes_on():
    scaler = GradScaler("cpu", init_scale=4.0, growth_interval=2)
    x = norch.ones(1, requires_grad=True)
    x.grad = norch.ones(1)
    scaler.step(Descent(x))
    scaler.update()
    again = GradScaler()
    again.load_state_dict(scaler.state_dict())
    assert again.state_dict() == scaler.state_dict()
    assert scaler.state_dict()["_growth_tracker"] == 1
    with pytest.raises(ValueError, match="empty"):
        again.load_state_dict({})


def test_disabled_it_does_nothing():
    scaler = GradScaler(enabled=False)
    x = norch.ones(1, requires_grad=True)
    x.grad = norch.ones(1)
    optimizer = Descent(x)
    assert scaler.scale(x) is x
    scaler.unscale_(optimizer)
    assert scaler.step(optimizer) == "stepped"
    scaler.update()
    assert (scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (1.0, {}, False)


def test_what_it_refuses():
    x = norch.ones(1, requires_grad=True)
    scaler = GradScaler()
    with pytest.raises(norch.AutogradError, match="has a gradient"):
        scaler.unscale_(Descent(x))
    with pytest.raises(norch.AutogradError, match="no optimiser"):
        scaler.update()
    with pytest.raises(ValueError, match="growth_factor"):
        GradScaler(growth_factor=1.0)
    half = norch.ones(1, dtype=norch.float16, requires_grad=True)
    half.grad = norch.ones(1, dtype=norch.float16)
    with pytest.raises(ValueError, match="float16"):
        scaler.unscale_(Descent(half))
    with pytest.raises(NotImplementedError, match="closure"):
        scaler.step(Descent(x), closure=lambda: None)


def test_autocast():
    with pytest.raises(NotImplementedError, match="enabled=False"):
        autocast("cuda", dtype=norch.float16)
    with norch.autocast(device_type="cpu", dtype=norch.bfloat16, enabled=False):
        assert (norch.ones(2, 2) @ norch.ones(2, 2)).dtype is norch.float32
    assert autocast("cuda", enabled=False)(max) is max
    assert not norch.is_autocast_enabled()
