"""Whole modules, pickled: norch's own, and PyTorch's, which become norch's."""

import copy
import io
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from module_cases import CASES
from pytorch_files import Call, Name, floats, tensor, zipped

import norch
import norch.nn.functional as F
from norch import nn

pytestmark = pytest.mark.usefixtures("on_host")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect"), nn.BatchNorm2d(4), nn.Flatten()
        )
        self.rnn = nn.LSTM(64, 8, 2, bidirectional=True)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 16, 0, "gelu", batch_first=True), 1)
        self.scales = nn.ParameterList([norch.ones(16), norch.ones(16) * 2])
        self.named = nn.ParameterDict({"shift": norch.ones(16)})
        self.more = nn.ModuleDict({"last": nn.Linear(16, 16)})
        self.tied = self.more["last"].weight
        self.activation = F.gelu
        self.register_buffer("mask", norch.ones(16), persistent=False)

    def forward(self, x):
        x = self.encoder(self.rnn(self.body(x)[None])[0])
        return self.more["last"](self.activation(x * self.scales[1] + self.named["shift"] * self.mask)) @ self.tied


def test_a_model_is_saved_and_loaded_whole(tmp_path):
    model = Net().eval()
    model.register_forward_hook(double)
    x = norch.randn(3, 1, 4, 4)
    norch.save({"model": model, "x": x}, tmp_path / "x.pt")
    for mmap in (False, True):
        found = norch.load(tmp_path / "x.pt", weights_only=False, mmap=mmap)
        again = found["model"]
        assert norch.equal(again(found["x"]), model(x))
        assert again.tied is again.more["last"].weight
        assert [type(p) for p in again.parameters()] == [nn.Parameter] * len(list(model.parameters()))
        assert list(again.state_dict()) == list(model.state_dict())
        assert not again.training


class Slotted(nn.Linear):
    __slots__ = ("note",)


def test_slots_are_kept():
    model = Slotted(2, 3)
    model.note = "x"
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert (again.note, again.weight.tolist()) == ("x", model.weight.tolist())


def double(module, args, result):
    return result * 2


def test_every_function_of_nn_can_be_saved_by_name():
    for name in dir(F):
        function = getattr(F, name)
        if callable(function) and not name.startswith("_"):
            file = io.BytesIO()
            norch.save([function], file)
            file.seek(0)
            assert norch.load(file, weights_only=False)[0] is function


# --- PyTorch's ------------------------------------------------------------------------------------------------------


def module(path, name, parameters=(), buffers=(), modules=(), passing=(), **attributes):
    """A module as PyTorch pickles it."""
    parameters = {key: Name("torch._utils", "_rebuild_parameter")(p, True, OrderedDict()) for key, p in parameters}
    state = {
        "training": False, "_parameters": parameters, "_buffers": dict(buffers), "_modules": dict(modules),
        "_non_persistent_buffers_set": set(passing), "_forward_hooks": OrderedDict(), "_is_full_backward_hook": None,
        **attributes,
    }  # fmt: skip
    return Call(Name("copyreg", "__newobj__"), (Name(path, name),), state)


def load(content):
    return norch.load(io.BytesIO(content), weights_only=False)


def test_a_module_of_pytorch_becomes_ours():
    weight, bias = tensor("0", 4, (2, 2)), tensor("1", 2, (2,))
    linear = module(
        "torch.nn.modules.linear", "Linear", {"weight": weight, "bias": bias}.items(), in_features=2, out_features=2
    )
    hooks = OrderedDict({0: Name(__name__, "double")})
    whole = module(
        "torch.nn.modules.container", "Sequential", (), (), {"0": linear, "act": linear}.items(), _forward_hooks=hooks
    )
    found = load(zipped(whole, {"0": floats(1, 2, 3, 4), "1": floats(0, 1)}))
    assert repr(found[0]) == "Linear(in_features=2, out_features=2, bias=True)"
    assert found[0] is found[1]
    assert not found.training
    assert list(found.state_dict()) == ["0.weight", "0.bias", "act.weight", "act.bias"]
    found[0].bias.data.fill_(0)
    assert found(norch.tensor([1.0, 0.0])).tolist() == [14, 30]


def test_buffers_that_are_not_kept():
    state = {"kept": tensor("0", 1, (1,)), "passing": tensor("0", 1, (1,))}
    found = load(
        zipped(module("torch.nn.modules.module", "Module", (), state.items(), (), ["passing"]), {"0": floats(3)})
    )
    assert list(found.state_dict()) == ["kept"]
    assert found.passing.item() == 3


class Restored(nn.Module):
    """Which puts its state into its `__dict__` itself, as torchmetrics' do."""

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.restored = sorted(name for name in state if not name.startswith("_"))


def test_a_module_with_a_setstate_of_its_own():
    parameters = {"weight": tensor("0", 2, (1, 2)), "bias": tensor("1", 1, (1,))}
    linear = module("torch.nn.modules.linear", "Linear", parameters.items(), in_features=2, out_features=1)
    made = module(__name__, "Restored", (), {"scale": tensor("1", 1, (1,))}.items(), {"layer": linear}.items(), size=3)
    found = load(zipped(made, {"0": floats(1, 2), "1": floats(5)}))
    assert found.restored == ["size", "training"]
    for again in (found, copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert again.scale.tolist() == again._buffers["scale"].tolist() == [5]
        assert list(again.state_dict()) == ["scale", "layer.weight", "layer.bias"]
        assert again.size == 3
        again.scale = norch.ones(1)
        assert again.state_dict()["scale"].tolist() == [1]


def test_hooks_on_the_state_are_refused():
    hooks = OrderedDict({0: Name(__name__, "double")})
    with pytest.raises(norch.CheckpointError, match=r"Module: it has hooks on its state_dict.*save its state_dict\(\)"):
        load(zipped(module("torch.nn.modules.module", "Module", _state_dict_hooks=hooks)))


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_each_module_of_pytorch_computes_the_same(case):
    torch = pytest.importorskip("torch", minversion="2.13")
    theirs, file = getattr(torch.nn, case.name)(*case.args, **case.kwargs).eval(), io.BytesIO()
    torch.save(theirs, file)
    ours = load(file.getvalue())
    assert repr(ours) == repr(getattr(nn, case.name)(*case.args, **case.kwargs))
    chance = np.random.default_rng(0)
    inputs = [
        chance.integers(0, case.below, shape) if case.below else chance.random(shape, np.float32)
        for shape in case.inputs
    ]
    expected = theirs(*map(torch.tensor, inputs), **case.call)
    found = ours(*map(norch.tensor, inputs), **case.call)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for a, b in pairs:
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


LOSSES = [name for name in dir(nn) if name.endswith("Loss")]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
@pytest.mark.parametrize("name", [*LOSSES, "LSTM", "GRU", "RNN", "LSTMCell", "MultiheadAttention", "Transformer"])
def test_other_modules_of_pytorch_have_all_that_ours_have(name):
    torch = pytest.importorskip("torch")
    args = {"Transformer": (8, 2, 1, 1), "MultiheadAttention": (8, 2), "AdaptiveLogSoftmaxWithLoss": (4, 6, [2])}.get(
        name, () if name in LOSSES and name != "LinearCrossEntropyLoss" else (3, 4)
    )
    file = io.BytesIO()
    torch.save(getattr(torch.nn, name)(*args), file)
    ours, made = load(file.getvalue()), getattr(nn, name)(*args)
    for a, b in zip(ours.modules(), made.modules(), strict=True):
        assert type(a) is type(b)
        assert set(vars(b)) <= set(vars(a))
    assert repr(ours) == repr(made)


def test_a_module_of_an_older_pytorch():
    weight = Name("torch._utils", "_rebuild_parameter")(tensor("0", 2, (1, 1, 2)), True, OrderedDict())
    sizes = {name: (size,) for name, size in {"kernel_size": 2, "stride": 1, "padding": 0, "dilation": 1}.items()}
    old = module("torch.nn.modules.conv", "Conv1d", in_channels=1, out_channels=1, groups=1, **sizes)
    old.state["_parameters"] = {"weight": weight, "bias": None}
    assert load(zipped(old, {"0": floats(1, 2)}))(norch.ones(1, 3)).tolist() == [[3, 3]]


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code:UserWarning")
def test_a_model_of_pytorch(tmp_path, monkeypatch):
    """A class whose module imports torch, and then norch in its place."""
    torch = pytest.importorskip("torch")
    source = "class Net(nn.Module):" + Path(__file__).read_text().split("class Net(nn.Module):")[1].split("\n\n\n")[0]

    def defined(library):
        home = type(sys)("net_of_a_user")
        home.nn, home.F, home.norch = library.nn, library.nn.functional, library
        exec(compile(source, "net_of_a_user.py", "exec"), home.__dict__)
        monkeypatch.setitem(sys.modules, "net_of_a_user", home)
        return home.Net

    torch.manual_seed(0)
    theirs = defined(torch)().eval()
    x = torch.randn(3, 1, 4, 4)
    expected = theirs(x).detach().numpy()
    for new in (True, False):
        defined(torch)
        theirs.__class__ = sys.modules["net_of_a_user"].Net
        torch.save(theirs, tmp_path / "x", _use_new_zipfile_serialization=new)
        with pytest.raises(norch.CheckpointError, match="Net, a class of PyTorch itself here"):
            norch.load(tmp_path / "x", weights_only=False)
        defined(norch)
        ours = norch.load(tmp_path / "x", weights_only=False)
        np.testing.assert_allclose(ours(norch.tensor(x.numpy())).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
        assert ours.tied is ours.more["last"].weight
        assert list(ours.state_dict()) == list(theirs.state_dict())


def test_optimizers_of_pytorch_go_on(tmp_path):
    torch = pytest.importorskip("torch")

    def train(library, model, optimizer, steps):
        for i in range(steps):
            x = library.arange(12.0).reshape(6, 2) / (10 + i)
            optimizer.zero_grad()
            (model(x) - 1).square().mean().backward()
            optimizer.step()
        return [p.detach().numpy() for p in model.parameters()]

    for name, options in {"Adam": {"amsgrad": True}, "AdamW": {}, "SGD": {"momentum": 0.9}, "RMSprop": {}}.items():
        theirs = torch.nn.Linear(2, 3)
        optimizer = getattr(torch.optim, name)(theirs.parameters(), lr=0.01, **options)
        train(torch, theirs, optimizer, 3)
        torch.save({"model": theirs.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, tmp_path / "x")
        ours = nn.Linear(2, 3)
        resumed = getattr(norch.optim, name)(ours.parameters(), lr=0.5)
        state = norch.load(tmp_path / "x")
        ours.load_state_dict(state["model"])
        resumed.load_state_dict(state["optimizer"])
        for a, b in zip(train(norch, ours, resumed, 3), train(torch, theirs, optimizer, 3), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        norch.save(resumed.state_dict(), tmp_path / "back", format="pytorch")
        optimizer.load_state_dict(torch.load(tmp_path / "back", weights_only=True))


def test_a_model_whose_classes_and_functions_are_declared_safe(tmp_path):
    """As pytorch/examples' word_language_model does."""
    assert nn.TransformerEncoderLayer(8, 2).activation is F.relu
    norch.save({"relu": nn.TransformerEncoderLayer(8, 2, 8), "gelu": [F.gelu, F.softplus]}, tmp_path / "x.pt")
    modules = [nn.TransformerEncoderLayer, nn.MultiheadAttention, nn.Dropout, nn.Linear, nn.LayerNorm]
    modules.append(nn.modules.linear.NonDynamicallyQuantizableLinear)
    with norch.serialization.safe_globals([*modules, F.relu, F.gelu, F.softplus]):
        found = norch.load(tmp_path / "x.pt")
    assert (found["relu"].activation, *found["gelu"]) == (F.relu, F.gelu, F.softplus)
    for missing, name in ((F.relu, "relu"), (F.softplus, "softplus")):
        declared = [x for x in (*modules, F.relu, F.gelu, F.softplus) if x is not missing]
        with norch.serialization.safe_globals(declared), pytest.raises(norch.CheckpointError, match=name):
            norch.load(tmp_path / "x.pt")


def test_whole_models_are_kept_where_norch_is_torch():
    code = """
from norch.compat.standin import install
install()
import io, torch
from torch import nn
file = io.BytesIO()
model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
torch.save(model, file)
file.seek(0)
found = torch.load(file, weights_only=False)
assert type(found) is nn.Sequential
assert torch.equal(found[0].weight, model[0].weight) and isinstance(found[0].weight, nn.Parameter)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.stdout, made.stderr) == ("", "")
