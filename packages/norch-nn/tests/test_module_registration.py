"""What a module registers: parameters, buffers and parts by name, in order, and what may take a name."""

import copy
import pickle

import numpy as np
import pytest
from example_net import Net, names

import norch
from norch import nn


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


def test_another_dict_takes_the_place_of_a_registry():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    copied = type(model).__new__(type(model))
    copied.__dict__.update(model.__dict__)
    copied._modules = {}
    copied.add_module("only", nn.Tanh())
    assert [list(m._modules) for m in (model, copied)] == [["0", "1", "2"], ["only"]]
    layer, weight = nn.BatchNorm1d(2), nn.Parameter(norch.ones(2))
    layer._parameters = {"weight": weight}
    layer._buffers = {name: value.clone() for name, value in layer._buffers.items()}
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    assert layer.weight is weight
    assert not hasattr(layer, "bias")
    assert list(layer.state_dict()) == ["weight", "running_mean", "running_var", "num_batches_tracked"]


def test_the_class_of_a_registry_makes_dicts():
    layer = nn.Linear(2, 3)
    made = type(layer._parameters)((name, value) for name, value in layer._parameters.items())
    assert type(made) is type(layer._parameters.copy()) is dict
    assert made == layer._parameters.copy()
    layer._parameters.update(weight=nn.Parameter(norch.zeros(3, 2)))
    assert layer.weight.sum().item() == 0


def test_a_property_without_a_setter_hides_what_is_registered():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.original = nn.Linear(1, 1)
            self.original = None

        @property
        def original(self):
            return "property"

    hidden = Hidden()
    assert hidden.original == "property"
    assert not hidden.state_dict()
    assert not list(hidden.children())


def test_a_part_is_found_through_attributes_of_its_owners():
    class Delegating(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(1, 1))

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

    outer = Delegating()
    assert outer.get_submodule("0") is outer.inner[0]
    with pytest.raises(AttributeError, match="does not exist"):
        outer.get_submodule("1")
