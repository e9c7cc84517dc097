"""What PyTorch's classes override in Module: `_apply`, `_save_to_state_dict`, and hooks that replace a state_dict."""

from __future__ import annotations

import copy

import pytest

import norch
from norch import nn
from norch.nn.modules import module as of_all
from norch.nn.modules.batchnorm import _BatchNorm


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


def test_batch_norms_check_their_input_as_a_subclass_says():
    class AnyDims(_BatchNorm):
        def _check_input_dim(self, input):
            seen.append(input.ndim)

    class Three(nn.BatchNorm2d):
        def _check_input_dim(self, input):
            if input.ndim != 3:
                raise ValueError("three dims")

    class Instance(nn.InstanceNorm2d):
        def _check_input_dim(self, input):
            seen.append("instance")

    seen = []
    norm = AnyDims(3)
    x = norch.randn(4, 3, 2, 2, 2, 2)
    assert norch.allclose(norm(x), nn.BatchNorm1d(3)(x.reshape(4, 3, -1)).reshape(x.shape), atol=1e-6)
    norm(norch.randn(4, 3))
    Instance(3)(norch.randn(2, 3, 4, 4))
    assert seen == [6, 2, "instance"]
    assert Three(3)(norch.randn(4, 3, 2)).shape == (4, 3, 2)
    with pytest.raises(ValueError, match="three dims"):
        Three(3)(norch.randn(4, 3, 2, 2))
    with pytest.raises(ValueError, match="expected 4 dims"):
        nn.BatchNorm2d(3)._check_input_dim(norch.randn(4, 3))
    with pytest.raises(NotImplementedError):
        _BatchNorm(3)(norch.randn(4, 3))


def test_subclasses_call_the_parts_of_layers():
    class Doubled(nn.ConvTranspose2d):
        def forward(self, input, output_size=None):
            extra = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, 2, (1, 1))
            options = self.stride, self.padding, extra, self.groups, self.dilation
            return nn.functional.conv_transpose2d(input, self.weight * 2, self.bias, *options)

    class Table(nn.Embedding):
        def reset_parameters(self):
            nn.init.ones_(self.weight)
            self._fill_padding_idx_with_zero()

    layer = Doubled(2, 3, 3, stride=2, bias=False)
    x = norch.randn(1, 2, 5, 5)
    assert norch.allclose(layer(x, [12, 12]), 2 * nn.ConvTranspose2d.forward(layer, x, [12, 12]), atol=1e-6)
    assert Table(3, 2, padding_idx=1).weight.tolist() == [[1, 1], [0, 0], [1, 1]]
    linear = nn.Linear(2, 2)
    assert (linear._call_impl(x[0, 0, :2, :2]) == linear(x[0, 0, :2, :2])).all()


def test_optimizers_take_a_loaded_state_by_setstate():
    class Newer(norch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        def __setstate__(self, state):
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("added", 3)

    p = nn.Parameter(norch.ones(2))
    optimizer = Newer([p])
    optimizer.state[p]["n"] = 1
    optimizer.load_state_dict(optimizer.state_dict())
    assert (optimizer.param_groups[0]["added"], optimizer.param_groups[0]["params"][0] is p) == (3, True)
    assert optimizer.state[p]["n"] == 1
    assert copy.deepcopy(Newer([p])).param_groups[0]["added"] == 3


def test_hooks_of_all_modules():
    seen = []
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    net[1].register_forward_hook(lambda m, args, out: seen.append("own"))
    with (
        of_all.register_module_forward_pre_hook(lambda m, args: seen.append(f"before {type(m).__name__}")),
        of_all.register_module_forward_hook(lambda m, args, kw, out: out * 2, with_kwargs=True),
        of_all.register_module_full_backward_pre_hook(lambda m, grads: seen.append(f"pre {type(m).__name__}")),
        of_all.register_module_full_backward_hook(lambda m, into, out: seen.append(f"back {type(m).__name__}")),
    ):
        x = norch.ones(1, 2, requires_grad=True)
        out = net(x)
        assert norch.allclose(out, net[1].forward(net[0].forward(x) * 2) * 4)
        assert seen == ["before Sequential", "before Linear", "before Tanh", "own"]
        seen.clear()
        out.sum().backward()
        assert seen == ["pre Sequential", "pre Tanh", "back Tanh", "pre Linear", "back Linear", "back Sequential"]
    seen.clear()
    plain = net(x)
    assert seen == ["own"]
    assert norch.allclose(plain, net[1].forward(net[0].forward(x)))
    assert nn.Module.__call__.__module__ == "norch.nn.module"


def test_hooks_of_all_modules_run_where_a_module_is_compiled():
    net = nn.Sequential(nn.Linear(2, 2))
    compiled = norch.compile(net)
    x = norch.ones(1, 2)
    for _ in range(4):
        compiled(x)
    seen = []
    with of_all.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)):
        compiled(x)
    assert "Linear" in seen
    seen.clear()
    compiled(x)
    assert not seen
