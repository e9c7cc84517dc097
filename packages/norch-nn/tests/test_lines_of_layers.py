"""Errors name the line that called a layer, not one of norch.nn; `inner` names that."""

import inspect

import pytest

import norch
from norch import nn


def failed(inner=False):
    """The error of a backward pass, and the lines of the call that led to it."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.ReLU(inplace=True))
    with norch.autograd.record_lines(True, inner=inner):
        out = model(norch.ones(3, 2))  # the call
    with pytest.raises(norch.AutogradError, match="sigmoid needs its result .* but relu_ has changed") as error:
        out.sum().backward()
    return str(error.value).split("\n")[1:], out


def test_the_line_that_called_the_layers():
    rows, out = failed()
    first = inspect.getsourcelines(failed)[1]
    called = f"test_lines_of_layers.py:{first + 4} in failed   out = model(norch.ones(3, 2))  # the call"
    assert [row.strip().partition("   ")[2] for row in rows] == [called, called]
    assert out.grad_fn.line.function == "failed"


def test_the_line_within_the_layers():
    _, changed = failed(inner=True)[0]
    assert "activation.py" in changed
    assert "relu_()" in changed


def test_layers_written_by_users_are_their_own():
    class Scaled(nn.Module):
        def forward(self, x):
            return nn.functional.linear(x, norch.eye(2, requires_grad=True)) * 2  # inside

    with norch.autograd.record_lines(True):
        out = nn.Sequential(Scaled())(norch.ones(1, 2))
    assert out.grad_fn.line.text().endswith("# inside")
    assert out.grad_fn.next_functions[0][0].line == out.grad_fn.line
