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


def test_train_and_eval_are_asked_of_each_module():
    class Frozen(nn.Linear):
        def train(self, mode=True):
            return super().train(False)

    net = nn.Sequential(nn.Sequential(Frozen(2, 2), nn.Dropout(0.5)))
    net.train()
    assert [m.training for m in net.modules()] == [True, True, False, True]


def test_a_class_takes_modules_out_of_its_state():
    """As PyTorch's programs do that keep a part of a model in another form."""

    class Codes(nn.Module):
        def __init__(self):
            super().__init__()
            self.made, self.kept = nn.Tanh(), nn.Linear(2, 2)
            self.register_buffer("passing", norch.zeros(1), persistent=False)

        def __getstate__(self):
            state = super().__getstate__().copy()
            state["_modules"] = state["_modules"].copy()
            del state["_modules"]["made"]
            return state

        def __setstate__(self, state):
            super().__setstate__(state)
            self.made = nn.Tanh()

    net = Codes()
    copied = copy.deepcopy(net)
    assert [name for name, _ in copied.named_children()] == ["kept", "made"]
    assert list(copied.state_dict()) == ["kept.weight", "kept.bias"]
    assert (copied.kept.weight == net.kept.weight).all()
    assert copied.kept.weight is not net.kept.weight
    assert "_modules" not in vars(copied)


def test_parameters_are_registered_by_the_method_of_that_name(monkeypatch):
    """Libraries put another in its place while a model is made, so that its parameters take no memory."""
    register = nn.Module.register_parameter

    def register_empty(module, name, param):
        register(module, name, param)
        if param is not None:
            module._parameters[name] = type(param)(param.to("meta"), requires_grad=param.requires_grad)

    monkeypatch.setattr(nn.Module, "register_parameter", register_empty)
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert all(p.is_meta and isinstance(p, nn.Parameter) for p in net.parameters())
    assert len(list(net.parameters())) == 4
    net.register_buffer("steps", norch.zeros(1), persistent=False)
    assert net._non_persistent_buffers_set == {"steps"}


def test_names_that_getattr_finds_in_another_module_are_free():
    class Around(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base
            self.register_buffer("scale", norch.ones(1))

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.base, name)

    inner = nn.Linear(1, 1)
    inner.register_buffer("scale", norch.zeros(1))
    assert Around(inner).scale.item() == 1.0
    with pytest.raises(KeyError, match="already exists"):
        inner.register_buffer("forward", norch.zeros(1))


def test_a_class_has_its_own_to():
    class Index(nn.Linear):
        def to(self, device):
            return self.cpu()

    net = Index(1, 1)
    assert net.to("cpu") is net
    assert net.double().weight.dtype is norch.float64


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


def test_a_getattr_of_a_class_is_asked_for_what_is_registered():
    """As PyTorch's modules find it in no other way: Pyro's note so which parameters a model has."""

    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.asked = []
            self.inner, self.plain = nn.Linear(2, 3), 5
            self.weight = nn.Parameter(norch.ones(2))
            self.register_buffer("mean", norch.zeros(2))

        def __getattr__(self, name):
            found = super().__getattr__(name)
            self.asked.append(name)
            return found * 2 if name == "weight" else found

    class Mixed(nn.Linear, Base):
        def __init__(self):
            Base.__init__(self)

    for kind in (Base, Mixed):
        net = kind()
        assert (net.plain, net.weight.tolist(), net.mean.tolist()) == (5, [2, 2], [0, 0])
        assert net.inner is dict(net.named_children())["inner"]
        assert set(net.asked) == {"weight", "mean", "inner"}
        assert [p.shape for p in net.parameters()] == [(2,), (3, 2), (3,)]
        assert not hasattr(net, "nothing")
        copied = copy.deepcopy(net)
        assert copied.weight.tolist() == [2, 2]
        assert list(copied.state_dict()) == list(net.state_dict())


def test_named_members_of_ones_own():
    class Sized(nn.Linear):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.sizes = {"in": sizes[0], "none": None}

    net = nn.Sequential(Sized(2, 3), nn.ReLU(), Sized(3, 1))
    found = net._named_members(lambda module: getattr(module, "sizes", {}).items(), prefix="net")
    assert list(found) == [("net.0.in", 2), ("net.2.in", 3)]
    assert list(net[0]._named_members(lambda module: module.sizes.items(), recurse=False)) == [("in", 2)]


def test_a_transform_and_a_distribution_may_be_modules_too():
    class Shift(norch.distributions.Transform, nn.Module):
        domain = codomain = norch.distributions.constraints.real
        bijective = True

        def __init__(self, cache_size=0):
            super().__init__(cache_size=cache_size)
            self.by = nn.Parameter(norch.ones(1))

        def _call(self, x):
            return x + self.by

    class Around(norch.distributions.Normal, nn.Module):
        def __init__(self):
            super().__init__(0.0, 1.0)
            self.layer = nn.Linear(1, 1)

    assert [name for name, _ in Shift().named_parameters()] == ["by"]
    assert Shift()(norch.zeros(2)).tolist() == [1, 1]
    assert len(list(Around().parameters())) == 2


def test_a_function_as_an_attribute_of_a_class_is_no_method():
    class Net(nn.Module):
        product, squash = norch.matmul, norch.sigmoid

        def forward(self, x):
            return self.squash(self.product(x, x))

    x = norch.ones(2, 2)
    assert norch.equal(Net()(x), norch.sigmoid(x @ x))
    assert Net.product is norch.matmul


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
