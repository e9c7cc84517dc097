"""Module: what is registered, how it is found, called, moved and copied."""

import copy
import pickle

import numpy as np
import pytest

import norch
from norch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 3)
        self.act = nn.Tanh()
        self.fc2 = nn.Linear(3, 1)
        self.scale = nn.Parameter(norch.ones(1))
        self.register_buffer("steps", norch.zeros(1, dtype=norch.int64))
        self.register_buffer("scratch", norch.zeros(2), persistent=False)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) * self.scale


def names(pairs):
    return [name for name, _ in pairs]


# --- Registration ---------------------------------------------------------------------------------------------------


def test_attributes_are_registered_in_order_of_assignment():
    net = Net()
    assert names(net.named_parameters()) == ["scale", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert names(net.named_parameters(recurse=False)) == ["scale"]
    assert names(net.named_parameters("net")) == [f"net.{n}" for n in names(net.named_parameters())]
    assert names(net.named_buffers()) == ["steps", "scratch"]
    assert names(net.named_children()) == ["fc1", "act", "fc2"]
    assert names(net.named_modules()) == ["", "fc1", "act", "fc2"]
    assert all(type(p) is nn.Parameter and p.requires_grad and p.is_leaf for p in net.parameters())
    assert next(iter(net.modules())) is net
    assert list(net.children()) == [net.fc1, net.act, net.fc2]


def test_a_name_changes_its_kind_with_what_is_assigned():
    net = nn.Module()
    net.x = norch.ones(1)
    assert not list(net.parameters())
    assert not list(net.buffers())
    net.x = nn.Parameter(norch.ones(1))
    assert names(net.named_parameters()) == ["x"]
    net.x = nn.Linear(1, 1)
    assert names(net.named_parameters()) == ["x.weight", "x.bias"]
    net.x = nn.Buffer(norch.ones(1))
    assert names(net.named_buffers()) == ["x"]
    assert not list(net.parameters())
    del net.x
    assert not list(net.buffers())
    assert not hasattr(net, "x")


def test_none_keeps_the_place_of_what_is_registered():
    net = nn.Linear(2, 2)
    net.bias = None
    assert net.bias is None
    assert names(net.named_parameters()) == ["weight"]
    net.bias = nn.Parameter(norch.zeros(2))
    assert names(net.named_parameters()) == ["weight", "bias"]
    parent = Net()
    parent.act = None
    assert names(parent.named_children()) == ["fc1", "fc2"]


def test_only_what_fits_can_take_a_registered_name():
    net = Net()
    with pytest.raises(norch.DTypeError, match="cannot assign 'Tensor' as parameter 'scale'"):
        net.scale = norch.ones(1)
    with pytest.raises(norch.DTypeError, match="cannot assign 'int' as child module 'fc1'"):
        net.fc1 = 3
    with pytest.raises(norch.DTypeError, match="cannot assign 'int' as buffer 'steps'"):
        net.steps = 3
    net.steps = norch.ones(1)
    assert names(net.named_buffers()) == ["steps", "scratch"]


def test_register_methods_check_names_and_values():
    net = Net()
    with pytest.raises(KeyError, match="attribute 'fc1' already exists"):
        net.register_buffer("fc1", norch.ones(1))
    with pytest.raises(KeyError, match="attribute 'scale' already exists"):
        net.add_module("scale", nn.Tanh())
    with pytest.raises(KeyError, match="must not be empty or contain"):
        net.register_parameter("a.b", nn.Parameter(norch.ones(1)))
    with pytest.raises(KeyError, match="must not be empty or contain"):
        net.register_module("", nn.Tanh())
    with pytest.raises(TypeError, match="name should be a string"):
        net.register_buffer(1, norch.ones(1))
    with pytest.raises(norch.DTypeError, match="Parameter or None required"):
        net.register_parameter("y", norch.ones(1))
    with pytest.raises(norch.DTypeError, match="Tensor or None required"):
        net.register_buffer("y", 1.0)
    with pytest.raises(norch.DTypeError, match="not a Module"):
        net.add_module("y", norch.ones(1))


def test_a_forgotten_super_init_is_named():
    class Eager(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(1, 1)

    class Owner(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(norch.ones(1))

    class Lazy(nn.Module):
        def __init__(self):
            pass

        def forward(self, x):
            return x

    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\) call"):
        Eager()
    with pytest.raises(AttributeError, match=r"cannot assign parameters before Module.__init__\(\) call"):
        Owner()
    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) first in Lazy.__init__\(\)"):
        Lazy()(1)
    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) first in Lazy.__init__\(\)"):
        list(Lazy().parameters())


def test_an_attribute_may_be_a_tuple_of_tensors_or_arrays():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(3, 4)
            self.state = None

        def forward(self, x):
            self.state = self.cell(x, self.state)
            return self.state[0]

    module, x = Recurrent(), norch.randn(2, 3)
    once = module(x).clone()
    assert not norch.equal(module(x), once)
    module.pair = np.zeros(2), np.ones(2)
    module.pair = np.ones(2), np.ones(2)
    assert module.pair[0].tolist() == [1, 1]


def test_a_missing_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'fc3'"):
        Net().fc3


def test_shared_parts_are_listed_once():
    net = nn.Module()
    net.a = net.b = nn.Linear(1, 1)
    net.c = nn.Linear(1, 1)
    net.c.weight = net.a.weight
    assert names(net.named_parameters()) == ["a.weight", "a.bias", "c.bias"]
    assert names(net.named_parameters(remove_duplicate=False)) == [
        "a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias",
    ]  # fmt: skip
    assert names(net.named_modules()) == ["", "a", "c"]
    assert names(net.named_modules(remove_duplicate=False)) == ["", "a", "b", "c"]
    assert names(net.named_children()) == ["a", "c"]


def test_parts_are_found_by_dotted_name():
    net = nn.Sequential(Net(), nn.Tanh())
    assert net.get_submodule("") is net
    assert net.get_submodule("0.fc1") is net[0].fc1
    assert net.get_parameter("0.fc1.weight") is net[0].fc1.weight
    assert net.get_buffer("0.steps") is net[0].steps
    with pytest.raises(AttributeError, match=r"'0.fc3': Net attribute 'fc3' does not exist"):
        net.get_submodule("0.fc3")
    with pytest.raises(AttributeError, match="attribute 'scale' is not a Module"):
        net.get_submodule("0.scale")
    with pytest.raises(AttributeError, match="Linear has no parameter 'wait'"):
        net.get_parameter("0.fc1.wait")


# --- Parameter and Buffer -------------------------------------------------------------------------------------------


def test_parameter_is_a_leaf_on_the_memory_of_its_data():
    data = norch.ones(2, requires_grad=True) * 3
    p = nn.Parameter(data)
    assert p.is_leaf
    assert p.requires_grad
    assert p.data_ptr() == data.data_ptr()
    assert not nn.Parameter(norch.ones(2), requires_grad=False).requires_grad
    assert nn.Parameter().numel() == 0
    assert type(p * 2) is norch.Tensor
    assert isinstance(p, norch.Tensor)
    with pytest.raises(norch.DTypeError):
        nn.Parameter(norch.ones(2, dtype=norch.int64))
    with pytest.raises(norch.DTypeError, match="data must be a Tensor, got list"):
        nn.Parameter([1.0])


def test_parameters_are_copied_and_pickled_as_parameters():
    p = nn.Parameter(norch.tensor([1.0, 2.0]))
    (p * p).sum().backward()
    for other in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(other) is nn.Parameter
        assert other.requires_grad
        assert other.is_leaf
        assert other.tolist() == [1.0, 2.0]
        assert other.data_ptr() != p.data_ptr()
    assert copy.deepcopy(p).grad.tolist() == [2.0, 4.0]


def test_buffers_are_registered_and_saved_unless_told_not_to_be():
    net = nn.Module()
    net.kept = nn.Buffer(norch.ones(1))
    net.dropped = nn.Buffer(norch.ones(1), persistent=False)
    assert names(net.named_buffers()) == ["kept", "dropped"]
    assert list(net.state_dict()) == ["kept"]
    assert not net.kept.requires_grad


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


def test_an_attribute_error_of_a_users_module_is_left_alone():
    class Wrong(nn.Module):
        def forward(self, x):
            return x.nonsense

    with pytest.raises(AttributeError, match="nonsense"):
        nn.Sequential(Wrong())(norch.ones(2))


def test_classes_whose_code_names_getattr():
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 3)

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.__dict__["inner"], name)

    class Numbered(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer0 = nn.Linear(2, 3)

        def forward(self, x):
            return self.__getattr__("layer0")(x)

    assert Wrapper().out_features == 3
    assert Numbered()(norch.ones(1, 2)).shape == (1, 3)
    with pytest.raises(AttributeError, match="'Wrapper|'Linear' object has no attribute 'nothing'"):
        _ = Wrapper().nothing
    with pytest.raises(AttributeError, match="'Numbered' object has no attribute 'nothing'"):
        _ = Numbered().nothing
    assert not hasattr(nn.Linear, "__getattr__")  # attributes of most modules stay quick
    assert issubclass(type("More", (Wrapper,), {}), nn.Module)


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
