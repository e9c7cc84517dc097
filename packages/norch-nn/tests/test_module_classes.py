"""What classes of modules change of Module: attributes, registration, state, and bases of other kinds."""

import copy

import pytest

import norch
from norch import nn


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
    assert list(vars(copied)["_modules"]) == ["kept", "made"]


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


def test_attributes_of_a_class_that_raise_when_asked():
    class Injector(type):
        def __getattr__(cls, name):
            raise RuntimeError(f"cannot resolve {name}")

    class Holder(nn.Module):
        class parts(metaclass=Injector):
            pass

    assert isinstance(Holder(), nn.Module)


def test_a_parameter_s_class_has_its_own_to():
    class Packed(nn.Parameter):
        def to(self, *args, **kwargs):
            if not hasattr(self, "scale"):
                self.scale = float(self.detach().abs().max())
                self.data = (self.detach() / self.scale * 127).round().to(norch.int8)
            return self

    layer = nn.Linear(2, 1, bias=False)
    layer.weight = Packed(norch.tensor([[1.0, -2.0]]), requires_grad=False)
    weight = layer.weight
    model = nn.Sequential(layer).to("cpu")
    assert model[0].weight is weight
    assert (weight.dtype, weight.tolist(), weight.scale) == (norch.int8, [[64, -127]], 2.0)


def test_a_getattr_that_is_mixed_in_before_the_module_is_asked():
    """tltorch's factors of complex tensors are kept as real ones, and are complex by a __getattr__ in a mixin."""

    class Complex:
        def register_parameter(self, name, value):
            super().register_parameter(name, nn.Parameter(norch.view_as_real(value)))

        def __getattr__(self, name):
            value = super().__getattr__(name)
            return norch.view_as_complex(value) if isinstance(value, norch.Tensor) else value

    class Factor(nn.Module):
        def __init__(self, values):
            super().__init__()
            self.register_parameter("factor", values)
            self.plain = 3

    class ComplexFactor(Complex, Factor):
        pass

    class Behind(Factor, Complex):
        pass

    net = ComplexFactor(norch.tensor([1 + 2j, 3j]))
    assert net.factor.tolist() == [1 + 2j, 3j]
    assert (net.plain, [p.shape for p in net.parameters()]) == (3, [(2, 2)])
    assert Behind(nn.Parameter(norch.ones(2))).factor.tolist() == [1, 1]
