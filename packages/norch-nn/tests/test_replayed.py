"""norch.switches.living_replayed: optimisers and schedulers, however they were made."""

import copy
import gc
import pickle

import pytest

from norch import nn, optim
from norch.switches import living_replayed


def is_found(thing):
    return any(thing is found for found in living_replayed())


@pytest.fixture
def optimizer():
    return optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)


def test_those_made_by_their_classes_are_found(optimizer):
    assert is_found(optimizer)
    assert is_found(optim.lr_scheduler.StepLR(optimizer, 2))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_those_read_from_pickles_are_found(optimizer, protocol):
    assert is_found(pickle.loads(pickle.dumps(optimizer, protocol)))


def test_copies_are_found(optimizer):
    assert is_found(copy.copy(optimizer))
    assert is_found(copy.deepcopy(optimizer))


def test_they_are_not_kept_alive(optimizer):
    number = id(optimizer.param_groups)
    gone = optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    gone.mark = number
    del gone
    gc.collect()
    assert not any(getattr(found, "mark", None) == number for found in living_replayed())
