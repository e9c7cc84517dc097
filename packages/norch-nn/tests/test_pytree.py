"""Nested containers as lists of leaves."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import norch
from norch.fx.immutable_collections import immutable_dict, immutable_list
from norch.utils import _pytree as pytree

pytestmark = pytest.mark.usefixtures("on_host")

Pair = namedtuple("Pair", "left right")
TREE = {"b": [1, (2, None)], "a": Pair(3, OrderedDict(x=4)), "c": defaultdict(list, y=[5]), "d": deque([6], 3)}


def test_a_tree_comes_apart_and_together():
    leaves, spec = pytree.tree_flatten(TREE)
    assert leaves == [1, 2, None, 3, 4, 5, 6]
    again = pytree.tree_unflatten(leaves, spec)
    assert again == TREE
    assert [type(again[key]) for key in "bacd"] == [list, Pair, defaultdict, deque]
    assert again["c"].default_factory is list
    assert again["d"].maxlen == 3
    assert (spec.num_leaves, spec.num_children, pytree.tree_structure(1).is_leaf()) == (7, 4, True)
    assert pytree.tree_leaves(TREE, is_leaf=lambda v: isinstance(v, Pair))[3] is TREE["a"]
    with pytest.raises(ValueError, match="1 leaves for a tree of 7"):
        pytree.tree_unflatten([1], spec)


def test_functions_of_leaves():
    assert pytree.tree_map(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20]}) == {"x": [11, 22]}
    assert pytree.tree_map_only(int, lambda n: -n, [1, "a", (2,)]) == [-1, "a", (-2,)]
    moved = pytree.tree_map_only(norch.Tensor, norch.Tensor.double, {"x": norch.ones(1), "n": 1})
    assert (moved["x"].dtype, moved["n"]) == (norch.float64, 1)
    seen = []
    assert pytree.tree_map_(seen.append, TREE) is TREE
    assert len(seen) == 7
    assert pytree.tree_all(bool, [1, (2,)])
    assert not pytree.tree_any(bool, [0, ()])
    with pytest.raises(ValueError, match="different shapes"):
        pytree.tree_map(max, [1], (1,))


def test_types_are_registered_once():
    class Box:
        def __init__(self, value):
            self.value = value

    pytree.register_pytree_node(Box, lambda box: ([box.value], None), lambda children, _: Box(*children))
    assert pytree.tree_map(lambda n: n + 1, [Box(1)])[0].value == 2
    with pytest.raises(ValueError, match="Box is a container already"):
        pytree.register_pytree_node(Box, None, None)


def test_dicts_by_their_keys():
    children, keys = pytree._dict_flatten_with_keys({"a": 1, 2: 3})
    assert [(str(key), child) for key, child in children] == [("['a']", 1), ("[2]", 3)]
    assert pytree._dict_unflatten([4, 5], keys) == {"a": 4, 2: 5}


def test_leaves_are_pytorchs():
    torch = pytest.importorskip("torch")
    from torch.utils import _pytree as theirs

    assert torch is not None
    assert theirs.tree_flatten(TREE)[0] == pytree.tree_flatten(TREE)[0]


def test_immutable_collections_of_graphs_are_trees():
    tree = immutable_dict(a=3, b=immutable_list([norch.ones(2), 4]))
    leaves, structure = pytree.tree_flatten(tree)
    assert [leaves[0], leaves[2]] == [3, 4]
    again = pytree.tree_unflatten([1, 2, 5], structure)
    assert again == {"a": 1, "b": [2, 5]}
    assert (type(again), type(again["b"])) == (immutable_dict, immutable_list)


def test_other_trees_may_go_further_than_the_first():
    found = pytree.tree_map(lambda a, b: (a, b), {"x": 1, "y": [2]}, OrderedDict(y=["b"], x=("a", [3])))
    assert found == {"x": (1, ("a", [3])), "y": [(2, "b")]}
    spec = pytree.tree_structure([1, (2, 3)])
    assert (spec.num_nodes, spec.num_leaves, spec.child(1).num_nodes) == (5, 3, 3)
    assert spec.children() == [pytree.tree_structure(1), pytree.tree_structure((2, 3))]
    for other in ([1], [1, [2, 3]], {"x": 1, "z": [2]}, 5):
        with pytest.raises(ValueError, match="different shapes"):
            pytree.tree_map(max, {"x": 1, "y": [2]} if isinstance(other, dict) else [1, (2, 3)], other)
