"""Modules around modules, whose activations are computed again; and what says which modules are wrapped."""

from __future__ import annotations

from functools import partial

import pytest

import norch
from norch import nn
from norch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from norch.distributed.fsdp import wrap as wrapping


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act, self.extra = nn.Linear(4, 4), nn.GELU(), 5

    def forward(self, x, scale=1.0):
        return self.act(self.linear(x)) * scale


def model() -> nn.Sequential:
    norch.manual_seed(0)
    return nn.Sequential(Block(), nn.Sequential(Block(), nn.ReLU()), nn.Linear(4, 2))


def gradients(net: nn.Module) -> list[list[float]]:
    net(norch.ones(3, 4)).square().sum().backward()
    return [p.grad.flatten().tolist() for p in net.parameters()]


def kinds(net: nn.Module) -> list[str]:
    return [type(m).__name__ for m in net.modules()]


@pytest.mark.parametrize("kind", CheckpointImpl)
def test_gradients_and_states_are_those_of_the_model(kind):
    net, calls = model(), []
    apply_activation_checkpointing(
        net,
        checkpoint_wrapper_fn=partial(checkpoint_wrapper, checkpoint_impl=kind),
        check_fn=lambda module: isinstance(module, Block),
    )
    assert kinds(net)[1:3] == ["CheckpointWrapper", "Block"]
    assert kinds(net).count("CheckpointWrapper") == 2
    net[0].linear.register_forward_hook(lambda *_: calls.append(1))
    assert gradients(net) == gradients(model())
    assert len(calls) == 2
    assert list(net.state_dict()) == list(model().state_dict())
    other = model()
    other[0].linear.weight.data.fill_(3)
    net.load_state_dict(other.state_dict())
    assert (net[0].linear.weight == 3).all()
    other.load_state_dict(net.state_dict())
    assert net[0].extra == 5
    with pytest.raises(AttributeError, match="missing"):
        net[0].missing
    assert [name for name, _ in net[0].named_parameters()] == ["linear.weight", "linear.bias"]


def test_arguments_go_to_the_module_and_options_to_the_function():
    seen = []

    def run(module, *args, reason, **kwargs):
        seen.append((reason, sorted(kwargs)))
        return module(*args, **kwargs)

    x = norch.ones(1, 4)
    for wrapped in (
        CheckpointWrapper(Block(), preserve_rng_state=False),
        CheckpointWrapper(Block(), checkpoint_fn=run, reason="memory"),
        offload_wrapper(Block()),
    ):
        norch.testing.assert_close(wrapped(x, scale=2.0), nn.GELU()(wrapped.linear(x)) * 2)
    assert seen == [("memory", ["scale"])]
    assert checkpoint_wrapper(model())[0].extra == 5


def test_policies():
    def wrapped(policy):
        net = model()
        apply_activation_checkpointing(net, auto_wrap_policy=policy)
        names = kinds(net)
        return [names[i + 1] for i, name in enumerate(names) if name == "CheckpointWrapper"]

    assert wrapped(wrapping.ModuleWrapPolicy({nn.Linear})) == ["Linear"] * 3
    assert wrapped(wrapping.CustomPolicy(lambda m: isinstance(m, Block) and {"option": 1})) == ["Block"] * 2
    assert wrapped(wrapping.always_wrap_policy)[0] == "Block"
    blocks = partial(wrapping.lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Block))
    layers = partial(wrapping.transformer_auto_wrap_policy, transformer_layer_cls={nn.ReLU})
    assert wrapped(blocks) == ["Block"] * 2
    assert wrapped(partial(wrapping._or_policy, policies=[blocks, layers])) == ["Block", "Block", "ReLU"]
    assert wrapped(partial(wrapping.size_based_auto_wrap_policy, min_num_params=20)) == ["Linear", "Linear"]


def test_a_module_in_two_places_is_wrapped_once():
    shared = Block()
    net = nn.Sequential(shared, shared)
    apply_activation_checkpointing(net, check_fn=lambda module: isinstance(module, Block))
    assert net[0] is net[1]


def test_wrap_does_what_enable_wrap_says():
    layer = nn.Linear(2, 2)
    assert wrapping.wrap(layer) is layer
    with wrapping.enable_wrap(wrapper_cls=CheckpointWrapper, checkpoint_impl=CheckpointImpl.REENTRANT):
        made = wrapping.wrap(layer)
        other = wrapping.wrap(layer, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    assert (made.checkpoint_impl, other.checkpoint_impl) == tuple(CheckpointImpl)
    assert wrapping.wrap(layer) is layer
