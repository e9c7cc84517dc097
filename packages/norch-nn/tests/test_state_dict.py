"""state_dict and load_state_dict."""

from collections import OrderedDict

import numpy as np
import pytest

import norch
from norch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        self.register_buffer("mean", norch.zeros(2))
        self.register_buffer("scratch", norch.zeros(2), persistent=False)

    def forward(self, x):
        return self.body(x - self.mean)


KEYS = ["mean", "body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"]


def test_round_trip():
    source, target = Net(), Net()
    source.mean.fill_(0.5)
    state = source.state_dict()
    assert list(state) == KEYS
    result = target.load_state_dict(state)
    assert repr(result) == "<All keys matched successfully>"
    x = norch.rand(4, 2)
    assert target(x).tolist() == source(x).tolist()
    assert target.body[0].weight.data_ptr() != source.body[0].weight.data_ptr()
    assert target.body[0].weight.requires_grad


def test_the_state_is_detached_and_on_the_modules_memory():
    net = Net()
    state = net.state_dict()
    assert not any(t.requires_grad for t in state.values())
    assert state["body.0.weight"].data_ptr() == net.body[0].weight.data_ptr()
    assert net.state_dict(keep_vars=True)["body.0.weight"] is net.body[0].weight
    assert list(net.state_dict(prefix="model.")) == [f"model.{key}" for key in KEYS]


def test_shared_parameters_are_saved_under_each_name():
    net = nn.Module()
    net.a = net.b = nn.Linear(1, 1)
    assert list(net.state_dict()) == ["a.weight", "a.bias", "b.weight", "b.bias"]


def test_the_state_is_an_ordered_dict_that_takes_attributes():
    state = nn.Linear(2, 2).state_dict()
    assert isinstance(state, OrderedDict)
    state._metadata = {"": {"version": 1}}
    state.move_to_end("weight")
    assert list(state) == ["bias", "weight"]


def test_parts_that_have_a_state_dict_of_their_own_are_asked_for_it():
    class Scaled(nn.Linear):
        def state_dict(self, *, destination=None, prefix="", keep_vars=False):
            state = super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
            state[f"{prefix}weight"] = state[f"{prefix}weight"] * 2
            return state

    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Scaled(2, 2, bias=False)))
    state = model.state_dict()
    assert list(state) == ["0.weight", "0.bias", "1.0.weight"]
    assert state["1.0.weight"].tolist() == (model[1][0].weight * 2).tolist()


def test_values_are_cast_and_arrays_are_taken():
    net = nn.Linear(2, 1).double()
    net.load_state_dict({"weight": np.array([[1, 2]], np.float32), "bias": norch.tensor([3], dtype=norch.int64)})
    assert net.weight.dtype is norch.float64
    assert net.weight.tolist() == [[1.0, 2.0]]
    assert net.bias.tolist() == [3.0]


def test_every_mismatch_is_named_and_nothing_is_loaded():
    net = Net()
    before = net.body[2].bias.tolist()
    state = {"body.2.bias": norch.ones(1), "body.0.weight": norch.ones(2, 2), "other": norch.ones(1)}
    with pytest.raises(nn.StateDictError) as caught:
        net.load_state_dict(state)
    assert str(caught.value) == (
        "Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "mean", "body.0.bias", "body.2.weight".\n'
        '\tUnexpected key(s) in state_dict: "other".\n'
        "\tsize mismatch for body.0.weight: the state_dict has shape (2, 2), the module (3, 2)."
    )
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, norch.NorchError)
    assert net.body[2].bias.tolist() == before


def test_not_strict_returns_what_did_not_match():
    net = Net()
    result = net.load_state_dict({"body.2.bias": norch.ones(1), "other": norch.ones(1)}, strict=False)
    assert result.missing_keys == ["mean", "body.0.weight", "body.0.bias", "body.2.weight"]
    assert result.unexpected_keys == ["other"]
    assert net.body[2].bias.tolist() == [1.0]
    with pytest.raises(nn.StateDictError, match="size mismatch"):
        net.load_state_dict({"body.2.bias": norch.ones(2)}, strict=False)


def test_only_a_dict_is_a_state():
    with pytest.raises(norch.DTypeError, match="expected a dict of tensors, got list"):
        Net().load_state_dict([norch.ones(1)])


def test_one_element_is_taken_for_a_0d_parameter():
    class Shift(norch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = norch.nn.Parameter(norch.zeros(()))

    shift = Shift()
    shift.load_state_dict({"shift": norch.tensor([3.0])})
    assert (shift.shift.shape, shift.shift.item()) == ((), 3.0)


class Renamed(nn.Linear):
    """As torchvision's MNASNet asks: which version of the class saved this?"""

    _version = 3
    asked = None

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        self.asked = dict(local_metadata)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_a_class_is_told_its_version():
    net, told = nn.Sequential(Renamed(2, 2), nn.BatchNorm1d(2)), []
    net[1].register_load_state_dict_pre_hook(lambda module, state, prefix, metadata, *rest: told.append(metadata))
    state = net.state_dict()
    assert state._metadata == {"": {"version": 1}, "0": {"version": 3}, "1": {"version": 2}}
    net.load_state_dict(state)
    assert (net[0].asked, told[-1]) == ({"version": 3}, {"version": 2})
    net.load_state_dict(state, assign=True)
    assert net[0].asked == {"version": 3, "assign_to_params_buffers": True}
    net.load_state_dict(dict(state))
    assert (net[0].asked, told[-1]) == ({}, {})
    assert net.state_dict(destination={}) is not None  # a plain dict has no such attribute
    whole = nn.ModuleDict({"part": net}).state_dict()
    assert whole._metadata["part.0"] == {"version": 3}


def test_batch_norm_of_before_it_counted_batches():
    net = nn.Sequential(nn.BatchNorm1d(2))
    state = dict(net.state_dict())
    del state["0.num_batches_tracked"]
    net[0].num_batches_tracked.fill_(7)
    assert net.load_state_dict(state).missing_keys == []
    assert net[0].num_batches_tracked.item() == 7
    counted = net.state_dict()
    del counted["0.num_batches_tracked"]
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        net.load_state_dict(counted)


def test_versions_in_a_file_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Sequential(torch.nn.BatchNorm1d(2)).state_dict(), tmp_path / "state.pt")
    state = norch.load(tmp_path / "state.pt")
    assert state._metadata["0"] == {"version": 2}
    net, asked = nn.Sequential(nn.BatchNorm1d(2)), []
    net[0].register_load_state_dict_pre_hook(lambda module, state, prefix, metadata, *rest: asked.append(metadata))
    net.load_state_dict(state)
    assert asked == [{"version": 2}]


class Versioned(nn.Linear):
    """A layer that halves weights of its first version."""

    _version = 2

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if local_metadata.get("version", 1) < 2:
            state_dict[prefix + "weight"] = state_dict[prefix + "weight"] / 2
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


@pytest.mark.parametrize("format", [None, "pytorch"])
def test_the_versions_of_modules_are_saved(tmp_path, format):
    model = nn.Sequential(Versioned(2, 2), nn.BatchNorm1d(2))
    state = model.state_dict()
    norch.save(
        {"step": 1, "order": OrderedDict(a=OrderedDict(b=1)), "model": state, "plain": OrderedDict(state)},
        tmp_path / "x",
        format=format,
    )
    found = norch.load(tmp_path / "x")
    assert found["model"]._metadata == state._metadata
    assert {path: known["version"] for path, known in state._metadata.items()} == {"": 1, "0": 2, "1": 2}
    assert not hasattr(found["plain"], "_metadata")
    assert found["order"] == {"a": {"b": 1}}
    model.load_state_dict(found["model"])
    assert model[0].weight.tolist() == state["0.weight"].tolist()


def test_arguments_by_position():
    class Part(nn.Linear):
        def state_dict(self, destination=None, prefix="", keep_vars=False):
            found = super().state_dict(destination, prefix, keep_vars)
            del found[prefix + "bias"]
            return found

    model, given = nn.Sequential(Part(2, 3)), {}
    assert list(model.state_dict()) == ["0.weight"]
    assert model.state_dict(given, "a.") is given
    assert list(given) == ["a.0.weight"]
    assert model.state_dict({}, "", True)["0.weight"] is model[0].weight
