"""PyTorch's names of what sets its compiler, and checks of sparse tensors."""

from __future__ import annotations

import pytest

import norch
import norch.compiler
from norch._dynamo.backends.debugging import aot_eager, eager
from norch.sparse import check_sparse_tensor_invariants


def double(x: norch.Tensor) -> norch.Tensor:
    return x * 2


def test_backends_that_compile_nothing() -> None:
    assert norch.compile(double, backend=eager) is norch.compile(double, backend=aot_eager) is double
    assert norch.compiler.compile(double, backend="eager") is eager(double, ()) is double


def test_stances() -> None:
    norch.compiler.set_stance("default")
    with norch.compiler.set_stance("force_eager"):
        assert norch.compile(double)(norch.ones(1)).item() == 2
    assert norch.compiler.set_stance("eager_on_recompile")(double)(norch.ones(1)).item() == 2
    with pytest.raises(RuntimeError, match="unknown stance 'lazy'"):
        norch.compiler.set_stance("lazy")


def test_the_switch_of_sparse_checks() -> None:
    check = check_sparse_tensor_invariants
    assert not check.is_enabled()
    with check():
        assert check.is_enabled()
        with check(enable=False):
            assert not check.is_enabled()
        assert check.is_enabled()
    assert check()(check.is_enabled)()
    check.enable()
    assert check.is_enabled()
    check.disable()
    assert not check.is_enabled()
    with pytest.raises(norch.IndexError):
        norch.sparse_coo_tensor([[5]], [1.0], (2,))
