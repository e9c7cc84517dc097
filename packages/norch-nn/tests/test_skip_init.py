"""Modules without first values, and gradients clipped under an old name."""

from __future__ import annotations

import pytest

import norch
from norch import nn
from norch.nn.utils import clip_grad_norm, skip_init


def test_parameters_are_there_and_have_no_first_values() -> None:
    before = norch.get_rng_state()
    layer = skip_init(nn.Linear, 5, out_features=2)
    assert norch.equal(norch.get_rng_state(), before)
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.shape == (2, 5)
    assert layer.weight.device.type == "cpu"
    layer.load_state_dict(nn.Linear(5, 2).state_dict())
    assert skip_init(nn.BatchNorm1d, 3, device="meta").running_mean.is_meta


def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match="expected a class of modules, got <built-in"):
        skip_init(len)
    with pytest.raises(RuntimeError, match="ReLU takes no device"):
        skip_init(nn.ReLU)


def test_clip_grad_norm_warns() -> None:
    p = nn.Parameter(norch.zeros(2))
    p.grad = norch.tensor([3.0, 4.0])
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        assert clip_grad_norm([p], 1.0).item() == 5
    assert p.grad.norm().item() == pytest.approx(1)
