"""Finding all tensors: what a search that remembers the last one finds is what one without memory does."""

from __future__ import annotations

import gc
from types import FrameType

import pytest

import norch
from norch.living import Newborn, kinds_of, living, living_now
from norch.tensor_base import TensorBase


class Odd(norch.Tensor):
    """A class of its own."""


@pytest.mark.parametrize(
    "between",
    [
        lambda: None,
        gc.collect,
        lambda: gc.collect(0),
        lambda: gc.collect(1),
        lambda: (gc.freeze(), gc.unfreeze()),
    ],
    ids=["nothing", "collected", "youngest", "middle", "thawed"],
)
def test_a_search_finds_what_was_made_since_the_last(between):
    kinds = kinds_of(TensorBase)
    gone = norch.ones(2)
    kept = norch.ones(3)
    living_now(kinds)
    Newborn().over()
    del gone
    made = [norch.ones(4), norch.ones(5).as_subclass(Odd)]
    between()
    found = {id(t) for t in living_now(kinds)}
    made.append(norch.ones(6))
    try:
        assert found == {id(t) for t in living(kinds)} - {id(made[-1])}
        assert {id(kept), id(made[0]), id(made[1])} <= found
        assert {id(t) for t in living_now(kinds)} == found | {id(made[-1])}
    finally:
        gc.unfreeze()


def test_instances_of_new_classes_are_found():
    living_now(kinds_of(TensorBase))

    class New(norch.Tensor):
        """A class that was not there."""

    made = norch.ones(2).as_subclass(New)
    assert any(t is made for t in living_now(kinds_of(TensorBase)))


def test_a_search_holds_nothing():
    kinds = kinds_of(TensorBase)
    made = norch.ones(2)
    gc.disable()
    try:
        for _ in range(2):
            living_now(kinds)
            assert [type(holder) for holder in gc.get_referrers(made)] in ([], [FrameType])
    finally:
        gc.enable()
