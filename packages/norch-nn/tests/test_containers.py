"""ModuleList, ModuleDict, ParameterList, ParameterDict, and the list that Sequential is."""

import copy
from collections import OrderedDict

import pytest

import norch
from norch import nn


def test_sequential_changes_like_a_list():
    a, b, c, d = (nn.Linear(2, 2) for _ in range(4))
    net = nn.Sequential(a, b)
    assert net.append(c) is net
    assert net.insert(0, d) is net
    assert list(net) == [d, a, b, c]
    assert [n for n, _ in net.named_children()] == ["0", "1", "2", "3"]
    assert list(net[1:3]) == [a, b]
    assert isinstance(net[1:3], nn.Sequential)
    del net[0]
    assert net[0] is a
    del net[1:]
    assert list(net) == [a]
    net += [b]
    net.extend(nn.Sequential(c, d))
    assert list(net) == [a, b, c, d]
    assert net.pop() is d
    assert list(net * 2) == [a, b, c] * 2
    assert list(2 * net) == [a, b, c] * 2
    net *= 2
    assert len(net) == 6
    assert len(net + nn.Sequential(d)) == 7
    for wrong in (0, 1.5):
        with pytest.raises((ValueError, TypeError), match="multiplied"):
            net * wrong


def test_module_list():
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    assert len(layers) == 3
    assert layers[-1] is layers[2]
    assert [n for n, _ in layers.named_parameters()] == [f"{i}.{p}" for i in range(3) for p in ("weight", "bias")]
    assert isinstance(layers[1:], nn.ModuleList)
    assert [n for n, _ in layers[1:].named_children()] == ["0", "1"]
    layers[0] = relu = nn.ReLU()
    layers.insert(1, tanh := nn.Tanh())
    assert list(layers)[:2] == [relu, tanh]
    layers += [nn.GELU()]
    assert len(layers + [relu]) == 6
    assert layers.pop(1) is tanh
    del layers[0]
    assert list(layers.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert relu not in layers
    for wrong, error in ((9, IndexError), ("0", TypeError)):
        with pytest.raises(error):
            layers[wrong]
    with pytest.raises(TypeError):
        layers.append(3)
    with pytest.raises(TypeError, match="iterable"):
        layers.extend(nn.ReLU())
    with pytest.raises(NotImplementedError):
        layers(norch.ones(2))
    assert "0" not in dir(layers)


def test_module_list_prints_repeats_once():
    text = repr(nn.ModuleList([*(nn.Linear(2, 2) for _ in range(3)), nn.Sequential(nn.ReLU())]))
    assert text == (
        "ModuleList(\n"
        "  (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)\n"
        "  (3): Sequential(\n"
        "    (0): ReLU()\n"
        "  )\n"
        ")"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_module_dict():
    choices = nn.ModuleDict({"conv": nn.Conv2d(1, 1, 1), "pool": nn.MaxPool2d(2)})
    choices.update([("act", nn.ReLU())])
    assert list(choices) == list(choices.keys()) == ["conv", "pool", "act"]
    assert "pool" in choices
    assert "other" not in choices
    assert [k for k, _ in choices.items()] == ["conv", "pool", "act"]
    assert list(choices.values())[2] is choices["act"]
    assert list(choices.state_dict()) == ["conv.weight", "conv.bias"]
    assert isinstance(choices.pop("pool"), nn.MaxPool2d)
    del choices["act"]
    choices["conv"] = conv = nn.Identity()
    assert list(choices.values()) == [conv]
    assert repr(choices) == "ModuleDict(\n  (conv): Identity()\n)"
    choices.clear()
    assert len(choices) == 0
    with pytest.raises(KeyError):
        choices["conv"]
    with pytest.raises(KeyError, match="already exists"):
        choices["keys"] = conv
    with pytest.raises(TypeError, match="not iterable"):
        choices.update(3)


def test_parameter_list():
    weights = nn.ParameterList([norch.ones(2), nn.Parameter(norch.zeros(3, 1)), "note"])
    assert [type(p) for p in weights] == [nn.Parameter, nn.Parameter, str]
    assert [n for n, _ in weights.named_parameters()] == ["0", "1"]
    assert list(weights.state_dict()) == ["0", "1"]
    weights.append(norch.ones(1))
    weights += [norch.ones(4)]
    assert len(weights) == 5
    assert weights[-1].shape == (4,)
    assert len(weights[1:3]) == 2
    weights[0] = norch.zeros(5)
    assert isinstance(weights[0], nn.Parameter)
    with pytest.raises(IndexError):
        weights[5]
    with pytest.raises(TypeError, match="iterable"):
        weights.extend(norch.ones(2))
    small = nn.ParameterList([norch.ones(2), norch.ones(2, 3), 7])
    if norch.get_default_device().type == "cpu":
        assert repr(small) == (
            "ParameterList(\n"
            "    (0): Parameter containing: [norch.float32 of size 2]\n"
            "    (1): Parameter containing: [norch.float32 of size 2x3]\n"
            "    (2): Object of type: int\n"
            ")"
        )
    assert [p.tolist() for p in copy.deepcopy(small)[:1]] == [[1.0, 1.0]]
    assert small.to(norch.float64)[0].dtype is norch.float64


def test_parameter_dict():
    weights = nn.ParameterDict({"left": norch.ones(2), "right": nn.Parameter(norch.zeros(1))})
    weights.update({"note": 3})
    assert list(weights) == ["left", "right", "note"]
    assert [n for n, _ in weights.named_parameters()] == ["left", "right"]
    assert isinstance(weights["left"], nn.Parameter)
    assert weights.get("none", 1) == 1
    assert weights.setdefault("note", 4) == 3
    assert weights.setdefault("new", 4) == 4
    assert weights.popitem() == ("new", 4)
    assert list((weights | {"up": norch.ones(1)}).keys()) == ["left", "right", "note", "up"]
    weights |= {"up": norch.ones(1)}
    assert next(reversed(weights)) == "up"
    assert list(weights.copy().state_dict()) == ["left", "right", "up"]
    assert weights.fromkeys(["a"], 1)["a"] == 1
    del weights["up"]
    assert weights.pop("note") == 3
    weights.clear()
    assert list(weights.parameters()) == []
    with pytest.raises(KeyError):
        weights["left"]
    with pytest.raises(KeyError, match="already exists"):
        weights["training"] = norch.ones(1)


def test_parameters_of_a_plain_dict_are_in_the_order_of_its_keys():
    pairs = [("b", norch.ones(1)), ("c", norch.ones(1)), ("a", norch.ones(1))]
    weights = nn.ParameterDict(dict(pairs))
    assert [n for n, _ in weights.named_parameters()] == list(weights) == ["a", "b", "c"]
    weights.update({"z": norch.ones(1), "y": norch.ones(1)})
    assert list(weights) == ["a", "b", "c", "y", "z"]
    for ordered in (pairs, OrderedDict(pairs), nn.ParameterDict(pairs), iter(pairs)):
        assert list(nn.ParameterDict(ordered)) == ["b", "c", "a"]
    kept = nn.ParameterDict(pairs)
    assert list(kept.copy()) == list(kept.fromkeys("bca", 1)) == list(kept | {}) == ["b", "c", "a"]


def test_clipping_warns_of_an_iterator_that_is_used_up():
    parameters = nn.Linear(2, 2).parameters()
    list(parameters)
    with pytest.warns(UserWarning, match="the iterator has no parameters"):
        nn.utils.clip_grad_norm_(parameters, 1.0)
    nn.utils.clip_grad_norm_([], 1.0)
