"""Training with each optimiser and schedule goes where PyTorch goes: by what it gave, and live where it is there."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from trajectories import OPTIMIZERS, SCHEDULERS, run_optimizer, run_scheduler, summary

import norch
import norch.optim

STORED = json.loads(Path(__file__).with_name("trajectories.json").read_text())


def assert_same(found, expected):
    np.testing.assert_allclose(found["rates"], expected["rates"], rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(found["momenta"], expected["momenta"], rtol=1e-12)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["weights"], expected["weights"], rtol=1e-5, atol=1e-5)


def test_every_run_is_stored():
    assert set(STORED) == {f"optimizer {n}" for n in OPTIMIZERS} | {f"scheduler {n}" for n in SCHEDULERS}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_as_stored(name):
    assert_same(summary(run_optimizer(norch, name)), STORED[f"optimizer {name}"])


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_as_stored(name):
    assert_same(summary(run_scheduler(norch, name)), STORED[f"scheduler {name}"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_as_pytorch(name):
    torch = pytest.importorskip("torch")
    assert_same(run_optimizer(norch, name), run_optimizer(torch, name))


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_as_pytorch(name):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run_scheduler(torch, name)
    assert_same(run_scheduler(norch, name), expected)
