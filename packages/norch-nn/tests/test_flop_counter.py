"""Counting floating point operations: `norch.utils.flop_counter`."""

from __future__ import annotations

from typing import Any

import pytest

import norch
from norch import nn
from norch.utils.flop_counter import FlopCounterMode


def test_products_are_counted(capsys: Any) -> None:
    model, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), norch.ones(3, 8)
    with FlopCounterMode(display=False) as counter:
        loss = model(x).sum()
    forward = 2 * 3 * (8 * 4 + 4 * 2)
    layers = {"Sequential.0": 2 * 3 * 8 * 4, "Sequential.2": 2 * 3 * 4 * 2}
    names = {"Global": forward, "Sequential": forward, **layers}
    assert counter.get_flop_counts() == {name: {"linear": flops} for name, flops in names.items()}
    with counter:
        loss.backward()
    assert counter.get_total_flops() == 2 * forward - 2 * 3 * 8 * 4  # x needs no gradient
    norch.mm(x, x.T)
    assert counter.get_total_flops() == 2 * forward - 2 * 3 * 8 * 4
    assert capsys.readouterr().out == ""
    with FlopCounterMode():
        norch.mm(x, x.T)
    assert capsys.readouterr().out.split() == ["matmul", "144", "all", "144"]


def test_recurrent_layers() -> None:
    layer, x = nn.LSTM(3, 5), norch.ones(4, 2, 3, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        loss = layer(x)[0].sum()
    forward = counter.get_total_flops()
    assert forward == 2 * 4 * 2 * (4 * 5 * 3 + 4 * 5 * 5)
    with counter:
        loss.backward()
    assert counter.get_flop_counts()["Global"] == {"recurrence_grad": 2 * forward}


def test_a_mapping_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="custom_mapping"):
        FlopCounterMode(custom_mapping={"sin": 1})


@pytest.mark.usefixtures("on_host")
def test_as_pytorch_counts() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode as Theirs

    found = []
    for library, counter in ((norch, FlopCounterMode), (torch, Theirs)):
        a, w = (library.ones(s, requires_grad=True) for s in ((2, 3, 8, 8), (4, 3, 3, 3)))
        with counter(display=False) as counted:
            y = library.nn.functional.conv2d(a, w).flatten(2)
            (y @ y.mT).sum().backward()
            q = library.ones((1, 2, 8, 4), requires_grad=True)
            library.nn.functional.linear(q, q[0, 0]).sum().backward()
        found.append(counted.get_total_flops())
    assert found[0] == found[1]


@pytest.mark.usefixtures("on_host")
def test_modules_are_counted_as_pytorch_counts() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode as Theirs

    found = []
    for library, mode in ((norch, FlopCounterMode), (torch, Theirs)):
        layers = library.nn
        shared = layers.Linear(4, 4)
        model = layers.Sequential(layers.Sequential(layers.Linear(8, 4), layers.ReLU(), shared), layers.ReLU(), shared)
        with mode(display=False) as counter:
            model(library.ones(3, 8)).sum().backward()
            shared(library.ones(2, 4))
        found.append({name: sum(counts.values()) for name, counts in counter.flop_counts.items()})
    assert found[0] == found[1]
