"""nn.functional, nn.init and the constructors of modules and optimisers, with arguments that make no sense."""

import inspect

import pytest
from hostile import faults
from module_cases import CASES

import norch
import norch.nn.functional as F
from norch import nn, optim

FUNCTIONS = {
    f"{space.__name__}.{name}": value
    for space in (F, nn.init, nn.utils)
    for name, value in vars(space).items()
    if inspect.isfunction(value) and not name.startswith("_")
}
# Their first arguments suit them, so that those behind are looked at.
MODULES = {case.name: case.args for case in CASES}
OPTIMIZERS = [n for n, value in vars(optim).items() if inspect.isclass(value) and n != "Optimizer"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    assert faults(FUNCTIONS[name]) == []


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    assert faults(getattr(nn, name), MODULES[name]) == []
    for count in range(len(MODULES[name])):
        assert faults(getattr(nn, name), MODULES[name][:count]) == []


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    assert faults(getattr(optim, name), ([nn.Parameter(norch.ones(2))],)) == []
    assert faults(getattr(optim, name)) == []
