"""Captured steps that return registered containers, and that ask whether they are being recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

import norch
from norch import nn
from norch.utils import _pytree as pytree


class Output:
    """As the outputs of packages are: attributes, registered as a container."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


pytree.register_pytree_node(
    Output,
    lambda out: (list(vars(out).values()), list(vars(out))),
    lambda values, keys: Output(**dict(zip(keys, values))),
)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        norch.manual_seed(0)
        self.linear = nn.Linear(3, 2)

    def forward(self, x: norch.Tensor, given: Output | None = None) -> Output:
        hidden = self.linear(x) if given is None else self.linear(x) * given.scale
        return Output(hidden=hidden, loss=(hidden * hidden).mean(), nothing=None)


def test_results_in_a_registered_container() -> None:
    model, x = Model(), norch.tensor(np.arange(6.0).reshape(2, 3), dtype=norch.float32)
    captured, found = norch.compile(model), []
    for forward in (model, *[captured] * 5):
        model.zero_grad()
        out = forward(x, given=Output(scale=norch.tensor(2.0)))
        assert type(out) is Output
        assert out.nothing is None
        out.loss.backward()
        found.append([out.hidden.tolist(), out.loss.item(), model.linear.weight.grad.tolist()])
    assert all(values == found[0] for values in found)
    assert "2 calls replayed" in str(captured.report())


def test_code_knows_that_it_is_recorded() -> None:
    seen: list[bool] = []

    @norch.capture
    def step(x: norch.Tensor) -> norch.Tensor:
        seen.append(norch.compiler.is_compiling())
        if not norch.compiler.is_compiling() and x.sum().item() < 0:  # reads a value
            raise ValueError("negative")
        return x * 2

    for _ in range(5):
        assert step(norch.ones(3)).tolist() == [2, 2, 2]
    assert seen == [False, True, True]
    assert not norch.compiler.is_compiling()
    assert "2 calls replayed" in str(step.report())
