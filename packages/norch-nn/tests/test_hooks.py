"""Hooks of the backward pass, of calls that raise, and of the state."""

import copy
import pickle
from typing import NamedTuple

import numpy as np
import pytest

import norch
from norch import nn
from norch.utils.checkpoint import checkpoint


def array(tensor):
    return tensor.detach().cpu().numpy()


def linear():
    layer = nn.Linear(2, 3, bias=False)
    with norch.no_grad():
        layer.weight.copy_(norch.arange(6).reshape(3, 2))
    return layer


# --- The backward pass ----------------------------------------------------------------------------------------------


def test_backward_hooks_see_the_gradients():
    layer, seen = linear(), []
    layer.register_full_backward_hook(lambda m, into, out: seen.append((m, into, out)))
    layer.register_full_backward_pre_hook(lambda m, out: seen.append((m, out)))
    x = norch.ones(1, 2, requires_grad=True)
    layer(x).sum().backward()
    (first, out), (second, into, same) = seen
    assert first is second is layer
    assert out[0].tolist() == same[0].tolist() == [[1.0, 1.0, 1.0]]
    assert len(into) == 1
    assert into[0].tolist() == x.grad.tolist() == [[6.0, 9.0]]


def test_backward_hooks_may_change_the_gradients():
    layer = linear()
    x = norch.ones(1, 2, requires_grad=True)
    with layer.register_full_backward_pre_hook(lambda m, out: (out[0] * 2,)):
        with layer.register_full_backward_hook(lambda m, into, out: into[0] + out[0].sum()):
            layer(x).sum().backward()
    assert x.grad.tolist() == [[18.0, 24.0]]
    assert layer.weight.grad.tolist() == [[2.0, 2.0]] * 3
    layer.zero_grad()
    layer(x).sum().backward()
    assert layer.weight.grad.tolist() == [[1.0, 1.0]] * 3


def test_backward_hooks_of_inputs_without_gradients():
    layer, seen = linear(), []
    layer.register_full_backward_hook(lambda m, into, out: seen.append((into, out[0].tolist())))
    layer(norch.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0, 1.0, 1.0]])]
    layer.register_full_backward_hook(lambda m, into, out: (norch.ones(1),))
    with pytest.raises(RuntimeError, match="must return None"):
        layer(norch.ones(1, 2)).sum().backward()


def test_backward_hooks_of_several_inputs_and_outputs():
    class Net(nn.Module):
        def forward(self, a, b, c):
            return a * b, b, 3

    net, seen = Net(), []
    net.register_full_backward_hook(lambda m, into, out: seen.append((into, out)))
    a, b = norch.tensor([2.0], requires_grad=True), norch.tensor([5.0])
    product, other, three = net(a, b, None)
    assert three == 3
    product.backward()
    ((into, out),) = seen
    assert [None if g is None else g.tolist() for g in into] == [[5.0], None, None]
    assert [None if g is None else g.tolist() for g in out] == [[1.0], None, None]


def test_backward_hooks_must_keep_the_number():
    layer = linear()
    layer.register_full_backward_pre_hook(lambda m, out: (out[0], out[0]))
    with pytest.raises(RuntimeError, match="grad_output"):
        layer(norch.ones(1, 2)).sum().backward()


def test_backward_hooks_leave_no_grad_alone():
    layer = linear()
    layer.register_full_backward_hook(lambda *_: pytest.fail("called"))
    with norch.no_grad():
        assert not layer(norch.ones(1, 2)).requires_grad


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_backward_hooks_as_pytorchs():
    torch = pytest.importorskip("torch")
    found = []
    for lib in (norch, torch):
        net = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 1))
        with lib.no_grad():
            for p in net.parameters():
                p.copy_(lib.linspace(-1, 1, p.numel()).reshape(p.shape))
        seen = []
        for i, module in enumerate(net):
            module.register_full_backward_pre_hook(lambda m, out, i=i, seen=seen: seen.append((i, "before", out)))
            module.register_full_backward_hook(lambda m, into, out, i=i, seen=seen: seen.append((i, into, out)))
            module.register_forward_hook(lambda m, args, out, i=i, seen=seen: seen.append((i, "forward")))
        net(lib.linspace(0, 1, 6).reshape(2, 3)).sum().backward()
        found.append(
            [[e if isinstance(e, int | str) else [g if g is None else g.tolist() for g in e] for e in s] for s in seen]
        )
    for own, other in zip(*found, strict=True):
        assert own[:1] == other[:1]
        for a, b in zip(own[1:], other[1:], strict=True):
            assert a == b or all((x is y is None) or np.allclose(x, y) for x, y in zip(a, b, strict=True))


# --- Calls ----------------------------------------------------------------------------------------------------------


def test_always_called_hooks_see_a_call_that_raised():
    class Bad(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    net, seen = Bad(), []
    net.register_forward_hook(lambda m, args, out: seen.append("never"))
    net.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(ValueError, match="no"):
        net(1)
    assert seen == [None]

    def worse(m, args, out):
        raise KeyError("hook")

    net.register_forward_hook(worse, always_call=True)
    with pytest.warns(UserWarning, match="always_call"):
        with pytest.raises(ValueError, match="no"):
            net(1)
    good, seen = nn.Identity(), []
    good.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    assert good(4) == 4
    assert seen == [4]


def hook_of_this_module(module, args, output):
    return output * 2


def test_hooks_are_copied_and_pickled():
    layer = nn.Identity()
    layer.register_forward_hook(hook_of_this_module)
    other = copy.deepcopy(layer)
    assert other(norch.ones(1)).tolist() == [2.0]
    other.register_forward_hook(hook_of_this_module)
    assert layer(norch.ones(1)).tolist() == [2.0]
    assert other(norch.ones(1)).tolist() == [4.0]


def test_a_class_that_keeps_hooks_of_its_own():
    hooks = {}
    handle = norch.utils.hooks.RemovableHandle(hooks)
    hooks[handle.id] = print
    assert list(hooks.values()) == [print]
    handle.remove()
    assert hooks == {}


# --- The state ------------------------------------------------------------------------------------------------------


def test_state_hooks_change_what_is_saved():
    net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    calls = []
    net[1].register_state_dict_pre_hook(lambda m, prefix, keep_vars: calls.append((prefix, keep_vars)))
    net[1].register_state_dict_post_hook(lambda m, state, prefix, metadata: state.pop(prefix + "bias") and None)
    handle = net.register_state_dict_post_hook(lambda m, state, prefix, metadata: state.update(extra=norch.ones(1)))
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "extra"]
    assert calls == [("1.", False)]
    handle.remove()
    given = {"before": 1}
    assert net.state_dict(destination=given, prefix="net.") is given
    assert list(given) == ["before", "net.0.weight", "net.0.bias", "net.1.weight"]
    net.register_state_dict_post_hook(lambda *_: {})
    with pytest.raises(RuntimeError, match="must return None"):
        net.state_dict()


def test_state_hooks_change_what_is_loaded():
    net = nn.Sequential(nn.Linear(1, 1, bias=False))

    def rename(module, state, prefix, metadata, strict, missing, unexpected, errors):
        state[prefix + "weight"] = state.pop(prefix + "kernel")

    net[0].register_load_state_dict_pre_hook(rename)
    given = {"0.kernel": norch.full((1, 1), 7.0), "other": norch.ones(1)}
    with pytest.raises(nn.StateDictError, match='Unexpected key.*"other"'):
        net.load_state_dict(given)
    net.register_load_state_dict_post_hook(lambda module, keys: keys.unexpected_keys.clear())
    assert net.load_state_dict(given).unexpected_keys == []
    assert net[0].weight.item() == 7.0
    assert list(given) == ["0.kernel", "other"]


@pytest.mark.parametrize("with_module", [False, True])
def test_the_old_hook_of_load_state_dict(with_module):
    net, seen = nn.Linear(1, 1), []
    net._register_load_state_dict_pre_hook(lambda *args: seen.append(args), with_module=with_module)
    net.load_state_dict(net.state_dict())
    assert (seen[0][0] is net) == with_module
    assert list(seen[0][with_module]) == ["weight", "bias"]
    net = nn.Identity()
    net._register_load_state_dict_pre_hook(print, with_module=with_module)
    assert len(pickle.loads(pickle.dumps(net))._hooks.load_pre) == 1


def test_a_class_that_loads_what_others_have_saved():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", norch.ones(2))

        def _load_from_state_dict(self, state_dict, prefix, *args):
            state_dict.pop(prefix + "num_batches_tracked", None)
            state_dict[prefix + "scale"] = state_dict.pop(prefix + "weight")
            super()._load_from_state_dict(state_dict, prefix, *args)

    net = nn.Sequential(nn.Linear(1, 1), Frozen())
    given = {**nn.Sequential(nn.Linear(1, 1), nn.Identity()).state_dict(), "1.weight": norch.tensor([3.0, 4.0])}
    net.load_state_dict({**given, "1.num_batches_tracked": norch.tensor(5)})
    assert net[1].scale.tolist() == [3, 4]
    assert "1.weight" in given


def test_state_is_assigned():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net[0].bias.requires_grad_(False)
    state = {name: value.clone().to(norch.float64) for name, value in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net[0].weight.dtype is norch.float64
    assert net[0].weight.data_ptr() == state["0.weight"].data_ptr()
    assert isinstance(net[0].weight, nn.Parameter)
    assert net[0].weight.requires_grad
    assert not net[0].bias.requires_grad
    assert net[1].running_mean.data_ptr() == state["1.running_mean"].data_ptr()
    assert [n for n, _ in net.named_buffers()] == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]


def test_a_tied_state_stays_tied_when_assigned():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    shared = norch.ones(2, 2)
    state = dict(net.state_dict()) | {"0.weight": shared, "1.weight": shared}
    net.load_state_dict(state, assign=True)
    assert net[0].weight is net[1].weight


def test_modules_are_replaced_by_name():
    net = nn.Sequential(nn.Sequential(nn.Linear(1, 1)))
    net.set_submodule("0.0", relu := nn.ReLU())
    assert net[0][0] is relu
    with pytest.raises(AttributeError):
        net.set_submodule("0.new", relu, strict=True)
    with pytest.raises(AttributeError):
        net.set_submodule("1.new", relu)
    with pytest.raises(ValueError, match="empty"):
        net.set_submodule("", relu)


def test_modules_move():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = net[0].weight
    assert net.half().to(dtype=norch.float64, non_blocking=True) is net
    assert net[0].weight is weight
    assert weight.dtype is net[1].running_mean.dtype is norch.float64
    assert net[1].num_batches_tracked.dtype is norch.int64
    assert net.bfloat16().float()[0].weight.dtype is norch.float32
    assert net.type(norch.float16)[0].weight.dtype is norch.float16
    assert net.to_empty(device="cpu").to(tensor=norch.ones(1, dtype=norch.float64))[0].weight.dtype is norch.float64
    with pytest.raises(TypeError, match="memory_format must be one of norch's, got 'channels_last'"):
        net.to(memory_format="channels_last")
    for parameter in net.parameters():  # the memory that to_empty gave may hold NaN
        nn.init.ones_(parameter)
    other = copy.deepcopy(net)
    assert all(
        a is not b and a.tolist() == b.tolist() for a, b in zip(net.parameters(), other.parameters(), strict=True)
    )
    again = pickle.loads(pickle.dumps(net))
    assert repr(again) == repr(net)
    assert list(again.state_dict()) == list(net.state_dict())


def test_parameters_have_their_gradients_from_the_last_layer_to_the_first():
    """In PyTorch's order, and each while the pass has the layers before it still to do."""
    layer, seen = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), []
    for name, parameter in layer.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p, name=name: seen.append((name, layer.self_attn.in_proj_weight.grad is None))
        )
    layer(norch.rand(2, 3, 8)).sum().backward()
    assert [name for name, _ in seen] == (
        "norm2.weight norm2.bias linear2.bias linear2.weight linear1.bias linear1.weight norm1.weight norm1.bias "
        "self_attn.out_proj.bias self_attn.out_proj.weight self_attn.in_proj_bias self_attn.in_proj_weight"
    ).split()
    assert all(early for _, early in seen[:-1])


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_parameter_of_a_checkpointed_layer_and_one_shared(reentrant):
    inside, shared, seen = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), []
    inside.weight.register_post_accumulate_grad_hook(lambda p: seen.append("inside"))
    shared.weight.register_post_accumulate_grad_hook(lambda p: seen.append("shared"))
    inside.weight.register_hook(
        lambda g: norch.autograd.queue_callback(lambda: seen.append("end")),
    )
    x = norch.rand(3, 2)
    y = shared(checkpoint(inside, shared(x), use_reentrant=reentrant))
    y.sum().backward()
    assert seen == ["inside", "shared", "end"]


def test_hooks_of_states_are_listed_as_by_pytorch():
    linear = nn.Linear(1, 1)
    names = ("_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
    assert [len(getattr(linear, name)) for name in names] == [0, 0, 0, 0]
    hook = lambda module, state, prefix, metadata: None  # noqa: E731
    handle = linear.register_state_dict_post_hook(hook)
    assert list(linear._state_dict_hooks.items()) == [(handle.id, hook)]
    handle.remove()
    assert not linear._state_dict_hooks


class Both(NamedTuple):
    double: norch.Tensor
    same: norch.Tensor


class Doubling(nn.Module):
    def forward(self, x):
        return Both(x * 2, x)


def test_named_tuples_pass_backward_hooks():
    module, seen = Doubling(), []
    module.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_output))
    result = module(norch.ones(2, requires_grad=True))
    assert type(result) is Both
    result.double.sum().backward()
    assert [g if g is None else g.tolist() for g in seen[0]] == [[1, 1], None]


@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("name", ["register_backward_hook", "register_full_backward_hook"])
def test_backward_hooks_of_outputs_in_containers(name, kind):
    class Net(nn.Module):
        def forward(self, x):
            y = x * 3
            return {"n": 1, "y": y, "z": y * 2} if kind is dict else [1, y, y * 2]

    net, seen = Net(), []
    getattr(net, name)(lambda module, grads, outputs: seen.append((grads, outputs)))
    x = norch.ones(2, requires_grad=True)
    found = net(x)
    assert type(found) is kind
    found["y" if kind is dict else 1].sum().backward()
    assert x.grad.tolist() == [3, 3]
    ((grads, outputs),) = seen
    assert (grads[0].tolist(), outputs[1].tolist(), outputs[0], outputs[2]) == ([3, 3], [1, 1], None, None)
