"""Private names of PyTorch's that scripts import: what optimizers and loaders of one's own are made with."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import norch
from norch import nn, optim
from norch.optim.optimizer import _use_grad_for_differentiable
from norch.utils.data import default_collate


class Descent(optim.Optimizer):
    def __init__(self, params, differentiable):
        super().__init__(params, {"lr": 0.5, "differentiable": differentiable})

    @_use_grad_for_differentiable
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])
        return norch.is_grad_enabled()


@pytest.mark.parametrize("differentiable", [False, True])
def test_steps_are_recorded_where_they_are_differentiable(differentiable):
    p = nn.Parameter(norch.ones(2))
    given = p.clone() if differentiable else p
    given.retain_grad()
    given.sum().backward()
    assert Descent([given], differentiable).step() is differentiable
    assert given.tolist() == [0.5, 0.5]
    assert norch.is_grad_enabled()


def test_exceptions_are_raised_elsewhere():
    program = """
from norch._utils import ExceptionWrapper
class Odd(Exception):
    def __init__(self, a, b): pass
for error in (KeyError("k"), Odd(1, 2)):
    try:
        raise error
    except Exception:
        kept = ExceptionWrapper(where="in a thread")
    try:
        kept.reraise()
    except Exception as found:
        print(type(found).__name__, "in a thread" in str(found), "Traceback" in str(found))
from norch.utils.collect_env import get_pretty_env_info
print("norch-core" in get_pretty_env_info())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:3] == ["KeyError True True", "RuntimeError True True", "True"]


def test_an_array_is_a_batch():
    words = np.array(["a", "b"])
    assert list(default_collate(words)) == ["a", "b"]
    assert default_collate(np.arange(3)).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="empty"):
        default_collate(np.zeros(0))
