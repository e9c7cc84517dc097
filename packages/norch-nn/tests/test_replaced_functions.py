"""Modules call what programs have put in the place of functions of norch.nn.functional."""

from __future__ import annotations

import pytest

import norch
import norch.nn.functional as F
from norch import nn

IMAGES, ROWS = norch.ones(2, 4, 6, 6), norch.ones(2, 4)

CASES = {
    "linear": (nn.Linear(4, 3), (ROWS,)),
    "relu": (nn.ReLU(), (ROWS,)),
    "silu": (nn.SiLU(), (ROWS,)),
    "gelu": (nn.GELU(), (ROWS,)),
    "softmax": (nn.Softmax(1), (ROWS,)),
    "dropout": (nn.Dropout(), (ROWS,)),
    "conv2d": (nn.Conv2d(4, 3, 3), (IMAGES,)),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 3, 3), (IMAGES,)),
    "max_pool2d": (nn.MaxPool2d(2), (IMAGES,)),
    "avg_pool2d": (nn.AvgPool2d(2), (IMAGES,)),
    "lp_pool2d": (nn.LPPool2d(2, 2), (IMAGES,)),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d(1), (IMAGES,)),
    "batch_norm": (nn.BatchNorm2d(4), (IMAGES,)),
    "group_norm": (nn.GroupNorm(2, 4), (IMAGES,)),
    "layer_norm": (nn.LayerNorm(4), (ROWS,)),
    "embedding": (nn.Embedding(5, 3), (norch.tensor([1, 2]),)),
    "interpolate": (nn.Upsample(scale_factor=2), (IMAGES,)),
    "mse_loss": (nn.MSELoss(), (ROWS, ROWS)),
    "cross_entropy": (nn.CrossEntropyLoss(), (ROWS, norch.tensor([1, 2]))),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_that_counts_its_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = CASES[name]
    original, calls = getattr(F, name), []

    def counting(*args: object, **kwargs: object) -> object:
        calls.append(name)
        return original(*args, **kwargs)

    expected = module.eval()(*inputs)
    monkeypatch.setattr(F, name, counting)
    assert norch.equal(module(*inputs), expected)
    assert calls == [name]
    monkeypatch.undo()
    module(*inputs)
    assert calls == [name]
