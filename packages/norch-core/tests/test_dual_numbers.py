"""`norch.autograd.forward_ad`: tangents of what is computed of dual tensors."""

from __future__ import annotations

import pytest

import norch
from norch.autograd.forward_ad import dual_level, enter_dual_level, exit_dual_level, make_dual, unpack_dual


def test_tangents_are_those_of_jvp() -> None:
    x, y = norch.tensor([[1.0, 2.0], [3.0, 4.0]]), norch.tensor([0.5, -1.0])
    by_x, by_y = norch.tensor([[1.0, -1.0], [0.0, 2.0]]), norch.tensor([3.0, 1.0])

    def function(x, y):
        return (x @ y).exp() * x.sum(1), x.tanh()

    _, expected = norch.func.jvp(function, (x, y), (by_x, by_y))
    with dual_level():
        made = function(make_dual(x, by_x), make_dual(y, by_y))
        for out, tangent in zip(made, expected, strict=True):
            primal, found = unpack_dual(out)
            assert (primal.requires_grad, found.requires_grad) == (False, False)
            assert norch.allclose(found, tangent)
        constant = unpack_dual(function(x, y)[0])
    assert constant.tangent is None
    assert unpack_dual(made[0]).tangent is None


def test_the_tangent_that_was_given() -> None:
    tangent = norch.ones(2)
    with dual_level() as level:
        dual = make_dual(norch.zeros(2), tangent, level=level)
        assert unpack_dual(dual).tangent is tangent
        assert unpack_dual(dual.sign()).tangent.tolist() == [0, 0]
        assert unpack_dual(dual.detach() * 2).tangent is None


def test_tangents_can_be_differentiated() -> None:
    x = norch.tensor([1.0, 2.0], requires_grad=True)
    with dual_level():
        tangent = unpack_dual((make_dual(x, norch.ones(2)) ** 3).sum()).tangent
    assert tangent.item() == 15
    assert norch.autograd.grad(tangent, x)[0].tolist() == [6, 12]


def test_in_place_and_without_gradients() -> None:
    with norch.no_grad(), dual_level():
        dual = make_dual(norch.ones(2), norch.tensor([1.0, 3.0]))
        out = norch.zeros(3)
        out[:2] = dual * 3
        out.mul_(2)
        assert unpack_dual(out).tangent.tolist() == [6, 18, 0]
    assert norch.is_grad_enabled()


def test_each_sample_of_vmap_has_its_tangent() -> None:
    def change(tangent):
        with dual_level():
            dual = make_dual(norch.tensor([2.0, 3.0]), tangent)
            return unpack_dual(dual[0] * dual[1]).tangent

    assert norch.vmap(change)(norch.eye(2)).tolist() == [3, 2]


def test_what_has_no_meaning() -> None:
    with pytest.raises(RuntimeError, match="there is no level"):
        make_dual(norch.ones(1), norch.ones(1))
    with pytest.raises(RuntimeError, match="there is no dual level"):
        exit_dual_level()
    assert enter_dual_level() == 0
    try:
        with pytest.raises(RuntimeError, match="Nested forward mode"):
            enter_dual_level()
        with pytest.raises(RuntimeError, match="are floating, got norch.int64"):
            make_dual(norch.ones(1, dtype=norch.int64), norch.ones(1))
        with pytest.raises(RuntimeError, match=r"tangent of shape \(2,\) for a tensor of shape \(1,\)"):
            make_dual(norch.ones(1), norch.ones(2))
        with norch.no_grad(), pytest.raises(RuntimeError, match="under no_grad"):
            make_dual(norch.ones(1), norch.ones(1))
    finally:
        exit_dual_level()


def test_programs_ask_which_level_there_is():
    from norch.autograd import forward_ad

    assert forward_ad._current_level == -1
    with dual_level():
        assert forward_ad._current_level == 0
    assert forward_ad._current_level == -1
