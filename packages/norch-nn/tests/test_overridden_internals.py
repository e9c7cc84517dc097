"""What PyTorch's classes override in Module: `_apply`, `_save_to_state_dict`, and hooks that replace a state_dict."""

from __future__ import annotations

import norch
from norch import nn


class Remembering(nn.Module):
    """Has tensors that are no buffers, moves them with the others and saves them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.seen = [norch.ones(3)]

    def _apply(self, fn):
        self.seen = [fn(x) for x in self.seen]
        return super()._apply(fn)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "seen"] = self.seen[0]


def test_apply_is_called_of_each_module():
    model = nn.Sequential(Remembering(), nn.BatchNorm1d(2))
    assert model.double() is model
    assert model[0].seen[0].dtype is norch.float64
    assert model[0].linear.weight.dtype is norch.float64
    assert model[1].running_mean.dtype is norch.float64
    assert model[1].num_batches_tracked.dtype is norch.int64
    model.to_empty(device="meta")
    assert model[0].seen[0].is_meta
    assert (
        nn.Sequential(Remembering()).to_empty(device="meta", recurse=False)[0].linear.weight.device
        == norch.ones(1).device
    )


def test_apply_of_ones_own_function():
    model = nn.Linear(2, 2)
    weight = model.weight
    weight.grad = norch.ones(2, 2)
    model._apply(lambda t: t * 0 + 3)
    assert model.weight is weight
    assert weight.tolist() == weight.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_what_modules_share_is_made_once():
    first, second = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    second.running_mean, second.weight = first.running_mean, first.weight
    calls = []
    nn.Sequential(first, second)._apply(lambda t: calls.append(t.shape) or t + 1)
    assert first.running_mean is second.running_mean
    assert first.running_mean.tolist() == [1.0, 1.0]
    assert first.weight.tolist() == [2.0, 2.0]
    assert len(calls) == 8


def test_save_to_state_dict_is_called_of_each_module():
    state = nn.Sequential(Remembering()).state_dict(prefix="m.")
    assert sorted(state) == ["m.0.linear.bias", "m.0.linear.weight", "m.0.seen"]


def test_a_hook_may_replace_the_state_dict():
    model = nn.Linear(2, 2)
    handle = model._register_state_dict_hook(lambda module, state, prefix, metadata: {"all": state["weight"]})
    assert list(model.state_dict()) == ["all"]
    handle.remove()
    assert list(model.state_dict()) == ["weight", "bias"]
