"""The names that ops register: functions, methods, in-place forms, and the stub that type checkers read."""

import importlib.util
import inspect
import pickle
from pathlib import Path
from types import ModuleType

import pytest

import norch
from norch import Tensor, ops
from norch.ops.registry import FUNCTIONS, IN_PLACE, METHODS, public


def test_every_registered_name_is_there():
    assert not [name for name, f in FUNCTIONS.items() if getattr(norch, name) is not f or getattr(ops, name) is not f]
    assert not [name for name, f in METHODS.items() if getattr(Tensor, name) is not f]
    assert not [name for name in IN_PLACE if not callable(getattr(Tensor, name))]
    assert not FUNCTIONS.keys() - set(dir(norch))


@pytest.mark.parametrize("name", ops.LATE)
def test_what_is_imported_late_is_one_object(name):
    assert getattr(norch, name) is getattr(ops, name)
    assert name in dir(norch)
    assert name in dir(ops)


def test_aliases_are_one_object():
    assert norch.clip is norch.clamp is Tensor.clip
    assert Tensor.subtract_ is Tensor.sub_ is not Tensor.__isub__


def test_methods_that_work_in_place_are_functions_too():
    x = norch.tensor([-1.0, 2.0])
    assert norch.relu_(x) is x
    assert x.tolist() == [0.0, 2.0]
    assert "relu_" in dir(norch)
    with pytest.raises(AttributeError, match="no attribute 'nothing_'"):
        norch.nothing_


def test_a_name_is_given_once():
    def exp():
        pass

    with pytest.raises(ValueError, match="the name 'exp' is taken by norch.ops.elementwise.arithmetic"):
        public()(exp)


def test_functions_know_where_they_are():
    assert pickle.loads(pickle.dumps(norch.exp)) is norch.exp
    assert norch.Tensor.mul.__module__ == "norch.ops.elementwise.arithmetic"
    assert pickle.loads(pickle.dumps(norch.mul)) is norch.mul


def test_the_stub_is_fresh():
    path = Path(__file__).parents[1] / "stubs.py"
    spec = importlib.util.spec_from_file_location("stubs", path)
    stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    assert stubs.STUB.read_text() == stubs.methods(), "stale: hatch run stubs"


def test_signatures_show_the_arguments_before_the_first_call_and_after():
    """Call paths are written when they are first called: help() and editors see what they will take."""
    shown = "(input: 'Tensor', *, out: 'Tensor | None' = None) -> 'Tensor'"
    assert str(inspect.signature(norch.expm1)) == shown
    norch.expm1(norch.ones(1))
    assert str(inspect.signature(norch.expm1)) == shown
    assert list(inspect.signature(norch.add).parameters) == ["input", "other", "alpha", "out"]
    assert list(inspect.signature(Tensor.add_).parameters) == ["input", "other", "alpha"]
    assert list(inspect.signature(Tensor.squeeze_).parameters) == ["input", "dim"]


def test_what_a_star_imports() -> None:
    names: dict[str, object] = {}
    exec("from norch import *", names)
    late = {"stft", "vmap", "compile", "save", "load", "einsum", "FloatTensor", "typename", "relu_", "Event"}
    assert late <= set(names)
    assert names["stft"] is norch.stft
    assert not any(isinstance(value, ModuleType) for value in names.values())
    assert "IndexError" not in names  # which is Python's
    assert names["abs"] is norch.abs
