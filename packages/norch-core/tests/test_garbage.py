"""How often Python's collector looks at the oldest objects: see `norch.autograd.garbage`."""

from __future__ import annotations

import gc

import pytest

import norch
from norch.autograd import garbage


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    gc.disable()
    gc.collect()
    gc.set_threshold(700, 10, 10)
    gc.collect()
    yield
    gc.set_threshold(*before)
    gc.enable()


def make_cycles(count):
    for _ in range(count):
        x = [norch.ones(1)]
        x.append(x)


def test_collections_that_find_nothing_become_rare():
    seen = []
    for _ in range(8):
        gc.collect()
        seen.append(gc.get_threshold())
    assert seen[0][:2] == seen[-1][:2] == (700, 10)
    assert [s[2] for s in seen[:3]] == [20, 40, 80]
    assert seen[-1][2] == 10 * garbage.MOST


def test_one_that_finds_something_brings_them_back():
    for _ in range(3):
        gc.collect()
    make_cycles(2 * garbage.FEW)
    assert gc.collect() >= garbage.FEW
    assert gc.get_threshold() == (700, 10, 10)


def test_a_program_s_own_thresholds_are_where_it_begins_again():
    gc.collect()
    gc.set_threshold(5000, 20, 30)
    gc.collect()
    assert gc.get_threshold() == (5000, 20, 30)
    gc.collect()
    assert gc.get_threshold() == (5000, 20, 60)
    gc.set_threshold(0)
    gc.collect()
    gc.collect()
    assert gc.get_threshold()[0] == 0
