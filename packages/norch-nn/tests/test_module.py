"""Module: what is registered, how it is found, called, moved and copied."""

import copy
import pickle

import pytest
from example_net import Net, names

import norch
from norch import nn

# --- The call and its hooks -----------------------------------------------------------------------------------------


def test_forward_must_be_defined():
    with pytest.raises(NotImplementedError, match=r'Module \[Module\] is missing the required "forward" function'):
        nn.Module()(1)


def test_arguments_reach_forward():
    class Add(nn.Module):
        def forward(self, x, *, y=0):
            return x + y

    assert Add()(1) == 1
    assert Add()(1, y=2) == 3


def test_hooks_see_and_change_what_passes():
    class Add(nn.Module):
        def forward(self, x, y=0):
            return x + y

    net, seen = Add(), []
    before = net.register_forward_pre_hook(lambda m, args: seen.append((m, args)))
    after = net.register_forward_hook(lambda m, args, out: seen.append((args, out)))
    assert net(1, y=2) == 3
    assert seen == [(net, (1,)), ((1,), 3)]
    before.remove()
    after.remove()
    after.remove()
    assert net(5) == 5
    assert len(seen) == 2
    with net.register_forward_pre_hook(lambda m, args: (args[0] + 10,)):
        with net.register_forward_hook(lambda m, args, out: -out):
            assert net(1) == -11
    with net.register_forward_pre_hook(lambda m, args: 7):
        assert net(1) == 7
    with net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"y": 4}), with_kwargs=True):
        with net.register_forward_hook(lambda m, args, kwargs, out: (out, kwargs), with_kwargs=True):
            assert net(1) == (5, {"y": 4})
    with net.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True):
        with pytest.raises(TypeError, match="must return None or"):
            net(1)
    assert net(1) == 1


def test_hooks_run_in_order_and_may_go_first():
    net, seen = nn.Identity(), []
    net.register_forward_hook(lambda *_: seen.append("a"))
    net.register_forward_hook(lambda *_: seen.append("b"))
    net.register_forward_hook(lambda *_: seen.append("first"), prepend=True)
    net(1)
    assert seen == ["first", "a", "b"]


def test_a_hook_may_remove_itself():
    net, seen = nn.Identity(), []
    handle = net.register_forward_hook(lambda *_: (seen.append(1), handle.remove())[1])
    net.register_forward_hook(lambda *_: seen.append(2))
    net(0)
    net(0)
    assert seen == [1, 2, 2]


# --- Changes to all parts -------------------------------------------------------------------------------------------


def test_train_and_eval_reach_all_modules():
    net = nn.Sequential(Net(), nn.Tanh())
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    assert all(m.training for m in net.train().modules())
    with pytest.raises(norch.DTypeError, match="mode"):
        net.train("yes")


def test_apply_visits_children_first():
    net, seen = Net(), []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "Tanh", "Linear", "Net"]


def test_requires_grad_and_zero_grad():
    net = Net()
    net(norch.ones(1, 2)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())


def test_to_changes_floating_tensors_and_keeps_the_parameters():
    net = Net()
    before = list(net.parameters())
    net(norch.ones(1, 2)).sum().backward()
    assert net.to(norch.float64) is net
    assert [id(p) for p in net.parameters()] == [id(p) for p in before]
    assert all(p.dtype is norch.float64 and p.grad.dtype is norch.float64 for p in net.parameters())
    assert net.steps.dtype is norch.int64
    assert net.scratch.dtype is norch.float64
    assert net(norch.ones(1, 2, dtype=norch.float64)).dtype is norch.float64
    assert net.half().scale.dtype is norch.float16
    assert net.bfloat16().scale.dtype is norch.bfloat16
    assert net.float().scale.dtype is norch.float32
    assert net.double().scale.dtype is norch.float64
    assert net.to("cpu", norch.float32).scale.dtype is norch.float32
    assert net.to(norch.ones(1, dtype=norch.float64)).scale.dtype is norch.float64
    assert net.to(device=norch.device("cpu"), dtype=norch.float32).scale.dtype is norch.float32
    assert net.cpu().scale.device == norch.device("cpu")
    assert list(net.state_dict()) == list(Net().state_dict())


def test_to_refuses_what_it_cannot_do():
    with pytest.raises(norch.DTypeError, match="only accepts floating dtypes"):
        Net().to(norch.int64)
    with pytest.raises(norch.DTypeError, match="expected a device, a dtype or a tensor"):
        Net().to(3.5)
    with pytest.raises(norch.DeviceError, match="nowhere"):
        Net().to("nowhere")


# --- Copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_are_whole_and_apart(duplicate):
    net = Net().eval()
    net.fc2.tied = net.fc1.weight
    other = duplicate(net)
    x = norch.ones(1, 2)
    assert other(x).tolist() == net(x).tolist()
    assert other.fc2.tied is other.fc1.weight
    assert not other.training
    with norch.no_grad():
        other.scale.fill_(0)
    assert net(x).item() != 0
    assert names(other.named_parameters()) == names(net.named_parameters())
    assert list(other.state_dict()) == list(net.state_dict())


# --- Containers -----------------------------------------------------------------------------------------------------


def test_sequential_is_a_list_of_modules():
    a, b, c = nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)
    net = nn.Sequential(a, b, c)
    x = norch.ones(4, 2)
    assert net(x).tolist() == c(b(a(x))).tolist()
    assert len(net) == 3
    assert list(net) == [a, b, c]
    assert net[0] is a
    assert net[-1] is c
    assert list(net[:2]) == [a, b]
    assert list(net[1:].state_dict()) == ["2.weight", "2.bias"]
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of range"):
            net[index]
    assert nn.Sequential()(x) is x
    with pytest.raises(norch.DTypeError, match="not a Module"):
        nn.Sequential(norch.tanh)


def test_sequential_changes_like_a_list():
    a, b, c = nn.Tanh(), nn.ReLU(), nn.Sigmoid()
    net = nn.Sequential(a)
    assert net.append(c) is net
    net.insert(1, b)
    assert list(net) == [a, b, c]
    assert names(net.named_children()) == ["0", "1", "2"]
    assert net.pop(0) is a
    assert names(net.named_children()) == ["0", "1"]
    net[0] = a
    assert list(net) == [a, c]
    del net[-1]
    assert list(net) == [a]
    assert list(net + nn.Sequential(b)) == [a, b]
    assert list(net.extend([b, c])) == [a, b, c]
    del net[1:]
    assert list(net) == [a]


def test_sequential_takes_names_from_a_dict():
    net = nn.Sequential({"first": nn.Linear(2, 3), "second": nn.Tanh()})
    assert names(net.named_children()) == ["first", "second"]
    assert net.first is net[0]
    assert names(net[1:].named_children()) == ["second"]


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(2), lambda: nn.LSTM(2, 2), lambda: nn.LazyLinear(2)])
def test_an_input_that_is_no_tensor_is_named(make):
    module = make()
    with pytest.raises(norch.DTypeError, match=rf"{type(module).__name__}\(\): input must be a Tensor.*, got .*1j"):
        module(1j)


def test_conv_forward_takes_another_weight():
    class Standardised(nn.Conv2d):
        def forward(self, x):
            return self._conv_forward(x, self.weight * 0 + 1, None)

    layer = Standardised(1, 1, 3, padding=1, padding_mode="reflect")
    assert layer(norch.ones(1, 1, 4, 4)).tolist() == [[[[9.0] * 4] * 4]]


def test_registries_are_read_and_changed_as_dicts():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert list(model._modules.items()) == [("0", model[0]), ("1", model[1])]
    model._modules["1"] = nn.Tanh()
    model._modules["last"] = nn.Identity()
    assert [type(child).__name__ for child in model] == ["Linear", "Tanh", "Identity"]
    del model._modules["last"]
    assert len(model) == 2
    assert model[0]._parameters["bias"] is model[0].bias
    model[0]._parameters["bias"] = None
    assert model[0].bias is None
    assert "running_mean" in nn.BatchNorm1d(3)._buffers
    assert model._modules.get("nothing") is None
    assert repr(model[1]._modules) == "{}"
    with pytest.raises(KeyError, match="weight"):
        model._modules["weight"]


def test_classes_that_are_of_no_module():
    """As those that a program makes by `type` where no `__name__` is."""
    scope = {"nn": nn, "optim": norch.optim}
    code = "Twice = type('Twice', (nn.Module,), {'forward': lambda self, x: x * 2}); "
    exec(code + "Mine = type('Mine', (optim.SGD,), {})", scope)
    model = nn.Sequential(nn.Linear(2, 2), scope["Twice"]())
    scope["Mine"](model.parameters(), lr=0.1)
    x = norch.ones(1, 2)
    assert model(x).tolist() == (model[0](x) * 2).tolist()
    step = norch.capture(scope["Twice"]())
    for _ in range(4):
        assert step(x).tolist() == [[2, 2]]


@pytest.mark.usefixtures("on_host")
def test_parameters_and_buffers_in_memory_that_processes_share():
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    weight = module[0].weight
    assert module.share_memory() is module
    assert module[0].weight is weight
    assert all(t.is_shared() for t in (*module.parameters(), *module.buffers()))
    assert weight.is_leaf
    assert weight.requires_grad


def test_old_tensor_types_are_dtypes():
    module = nn.Linear(2, 2)
    for kind, dtype in ((norch.DoubleTensor, norch.float64), ("torch.HalfTensor", norch.float16), (norch.float32,) * 2):
        assert module.type(kind) is module
        assert module.weight.dtype is dtype


def test_a_module_that_saves_and_loads_by_itself():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.param = nn.Parameter(norch.ones(1))
            self.sub = nn.Linear(2, 2)

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "serialized"] = self.param.data + 1

        def _load_from_state_dict(self, state_dict, prefix, *others):
            self.param.data.copy_(state_dict[prefix + "serialized"] - 1)

    module, other = nn.Sequential(Own()), nn.Sequential(Own())
    with norch.no_grad():
        module[0].param[0] = 10
    state = module.state_dict()
    assert sorted(state) == ["0.serialized", "0.sub.bias", "0.sub.weight"]
    assert other.load_state_dict(state) == ([], [])
    assert other[0].param.item() == 10
    assert other[0].sub.weight.tolist() == module[0].sub.weight.tolist()
    del state["0.sub.bias"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0.sub.bias".\s*$'):
        other.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "1.more"'):
        other.load_state_dict({**module.state_dict(), "1.more": norch.ones(1)})
