"""Subclasses of Tensor that define no `__torch_function__` of their own."""

import copy

import pytest

import norch
import norch.overrides
from norch import Tensor

P = norch.arange(16.0).reshape(4, 4)


def test_results_are_of_a_subclass_that_defines_nothing():
    class Kind(Tensor):
        def twice(self):
            return self * 2

    x = P.as_subclass(Kind)
    with_out = norch.mul(x, P, out=norch.empty_like(x))
    for found in (x + 1, P @ x, x[0], x.exp(), norch.cat([P, x]), x.max(0).values, x.twice(), x.clone(), with_out):
        assert type(found) is Kind
    assert x.tolist() == P.tolist()
    assert x.sum().item() == 120.0
    assert (x.twice().twice()[1, 1] + P[0, 1]).item() == 21.0
    leaf = Kind([1.0, 2.0], requires_grad=True)
    (leaf.twice() ** 2).sum().backward()
    assert leaf.grad.tolist() == [8.0, 16.0]
    assert type(copy.deepcopy(leaf)) is Kind

    class Other(Tensor):
        pass

    with pytest.raises(TypeError, match="no implementation found"):
        norch.add(x, P.as_subclass(Other))


def test_make_subclass_gives_a_leaf_on_the_same_memory():
    class Labelled(norch.Tensor):
        pass

    data = norch.ones(2, requires_grad=True) * 2
    made = norch.Tensor._make_subclass(Labelled, data, True)
    assert type(made) is Labelled
    assert made.is_leaf
    assert made.requires_grad
    assert made.data_ptr() == data.data_ptr()


def test_str_of_a_subclass_is_its_repr():
    class Named(norch.Tensor):
        def __repr__(self):
            return "a name"

    assert str(norch.ones(2).as_subclass(Named)) == "a name"


def test_a_class_may_call_its_own_what_norch_calls_a_part_of_a_tensor():
    class Quantised(norch.Tensor):
        @property
        def offset(self):
            return self.zero

        @property
        def base(self):
            raise AttributeError("base")

        @property
        def node(self):
            return self.graph

        @node.setter
        def node(self, value):
            self.graph = value

    x = norch.arange(6.0)[2:].as_subclass(Quantised)
    x.zero, x.node = 7.0, "mine"
    assert (x.offset, x.graph, x.node, hasattr(x, "base")) == (7.0, "mine", "mine", False)
    assert isinstance(Quantised.offset, property)
    assert (x.storage_offset(), x.tolist(), x[1:].tolist(), (x + 1).tolist()) == (
        2, [2.0, 3.0, 4.0, 5.0], [3.0, 4.0, 5.0], [3.0, 4.0, 5.0, 6.0]
    )  # fmt: skip
    x.requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [4.0, 6.0, 8.0, 10.0]
