"""`torch.jit` for programs: `trace`, `script`, `save`, `load` and `ScriptModule`."""

from __future__ import annotations

import copy
import io
from enum import Enum

import pytest

import norch
from norch import jit, nn
from norch.errors import RefusedPickleError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.activation = nn.functional.relu
        self.sizes = (1, 2)

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return self.activation(self.norm(self.linear(x)))


@pytest.mark.parametrize("make", [lambda net, x: jit.trace(net, x), lambda net, x: jit.script(net)])
def test_a_module_computes_as_the_one_it_was_made_of(make):
    net, x = Net().eval(), norch.randn(4, 3)
    made = make(net, x)
    assert norch.equal(made(x), net(x))
    assert list(made.state_dict()) == list(net.state_dict())
    assert made.linear.weight is net.linear.weight
    assert isinstance(made, jit.ScriptModule)
    assert not isinstance(net, jit.ScriptModule)
    assert (made.original_name, made.training) == ("Net", False)
    copied = copy.deepcopy(made)
    assert norch.equal(copied(x), net(x))
    assert copied.linear.weight is not net.linear.weight
    assert jit.trace(made, x) is jit.freeze(made) is made


def test_an_example_is_computed_once():
    calls = []

    class Counted(nn.Module):
        def forward(self, x, scale=1):
            calls.append(scale)
            return x * scale

    traced = jit.trace(Counted(), norch.ones(2), example_kwarg_inputs={"scale": 3}, check_trace=False)
    assert calls == [3]
    assert traced(norch.ones(2), 2).tolist() == [2, 2]
    with pytest.raises(norch.ShapeError):
        jit.trace(nn.Linear(3, 2), norch.ones(4))
    function = lambda x: x + 1  # noqa: E731
    assert jit.trace(function, (norch.ones(2),)) is function


def test_what_was_saved_is_loaded(tmp_path):
    net, x = Net().eval(), norch.randn(4, 3)
    jit.trace(net, x).save(tmp_path / "net.pt")
    loaded = jit.load(tmp_path / "net.pt", map_location="cpu")
    assert isinstance(loaded, jit.ScriptModule)
    assert (loaded.original_name, loaded.training, loaded.sizes) == ("Net", False, (1, 2))
    assert norch.equal(loaded(x.cpu()), net.cpu()(x.cpu()))
    file = io.BytesIO()
    jit.save(net, file)
    file.seek(0)
    assert norch.equal(jit.load(file)(x.cpu()), net(x.cpu()))


class Kind(Enum):
    SQUARE = "square"


def test_enums_are_loaded():
    net, file = Net(), io.BytesIO()
    net.kind = Kind.SQUARE
    jit.save(net, file)
    file.seek(0)
    assert jit.load(file).kind is Kind.SQUARE


class Elsewhere:
    pass


def test_only_modules_are_loaded():
    net, file = Net(), io.BytesIO()
    net.other = Elsewhere()
    jit.save(net, file)
    file.seek(0)
    with pytest.raises(RefusedPickleError, match="Elsewhere"):
        jit.load(file)
    file = io.BytesIO()
    norch.save(net.state_dict(), file)
    file.seek(0)
    with pytest.raises(NotImplementedError, match="norch runs no TorchScript"):
        jit.load(file)
    with pytest.raises(norch.DTypeError, match="expected a module"):
        jit.save(len, file)
    with pytest.raises(NotImplementedError, match="extra files"):
        jit.save(Net(), file, _extra_files={"a": ""})


def test_a_script_module_is_a_module():
    class Old(jit.ScriptModule):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        @jit.script_method
        def forward(self, x):
            return self.linear(x)

    assert Old()(norch.ones(4, 3)).shape == (4, 2)
