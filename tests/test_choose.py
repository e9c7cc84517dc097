"""benchmarks/choose.py: what it times is right, and what it found becomes the tables of docs/choose.md."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "choosing"), str(ROOT / "benchmarks"), str(ROOT / "docs")]
by_numpy, problem, child, choose, choose_tables = map(
    import_module, ("by_numpy", "problem", "child", "choose", "choose_tables")
)


@pytest.mark.parametrize("model", ["article", "mlp", "cnn"])
def test_derivatives_by_hand_are_those_of_differences(model):
    """In float64, of some weights of each parameter."""
    x, y = problem.data(model)
    x = x[:4].astype(np.float64)
    y = y[:4] if model != "article" else y.astype(np.float64)
    w = {name: value.astype(np.float64) for name, value in problem.weights(model).items()}
    loss_of = getattr(by_numpy, model)
    grads = loss_of(w, x, y)[1]
    assert grads.keys() == w.keys()
    rng = np.random.default_rng(0)
    for name, value in w.items():
        at = tuple(rng.integers(0, n) for n in value.shape)
        here, losses = value[at], []
        for step in (1e-6, -1e-6):
            value[at] = here + step
            losses.append(loss_of(w, x, y)[0])
        value[at] = here
        assert grads[name][at] == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4, abs=1e-8), name


@pytest.mark.parametrize(
    ("model", "mode"), [("article", "captured"), ("mlp", "eager"), ("mlp", "captured"), ("gpt", "eager")]
)
def test_norchs_steps_are_those_by_hand(model, mode, monkeypatch):
    """What is asked of each framework before it is timed."""
    if model == "gpt":
        monkeypatch.setattr(problem, "STEPS", 2)
    found = child.step_of(import_module("by_norch"), model, mode, 0.001)
    assert found["difference"] < problem.AGREES
    assert found["seconds"] > 0


def test_a_framework_that_computes_something_else_is_not_timed():
    class Wrong:
        @staticmethod
        def step(model, mode):
            return lambda: 1.0

    found = child.tried(lambda: child.step_of(Wrong, "article", "eager", 0.001))
    assert "AssertionError: its losses are" in found["why"]


def test_of_rounds_the_shortest_counts_and_reasons_stay():
    rounds = [{"a": {"seconds": s}, "b": {"seconds": 1.0}, "c": ["x"]} for s in (3.0, 1.0, 2.0)]
    assert choose.merged(rounds) == {"a": {"seconds": 1.0}, "b": {"seconds": 1.0}, "c": ["x"]}
    rounds[1]["b"] = {"why": "no compiler"}
    assert choose.merged(rounds)["b"] == {"why": "no compiler"}


def test_tables_show_what_there_is_and_why_there_is_nothing():
    frameworks = {
        "norch": {
            "install": {"spec": "norch-core", "bytes": 75e6, "packages": ["a==1", "b==1"], "seconds": 20.0},
            "versions": {"norch-core": "0.1.0"},
            "start": {"import": 0.0612, "first_sum": 0.15},
            "ops": {"add": 4e-7, "exp": 4e-4, "matmul": {"why": "OSError: no"}},
            "steps": {"mlp": {"eager": {"seconds": 0.0023, "first": 1.0}, "captured": {"why": "it differs"}}},
        },
        "tinygrad": {"why": "ERROR: no such package"},
    }
    assert choose_tables.start(frameworks).splitlines()[2:7] == [
        "| version | 0.1.0 | - |",
        "| what pip was given | `norch-core` | - |",
        "| size on disk, MB | 75.0 | - |",
        "| packages, itself included | 2 | - |",
        "| `pip install` with its downloads, s | 20.0 | - |",
    ]
    assert "| 4x4 add, us | 0.4 | - |" in choose_tables.ops(frameworks)
    assert "| MLP, batch 64, ms | 2.3 | - |" in choose_tables.eager(frameworks)
    reasons = choose_tables.reasons(frameworks)
    assert "tinygrad: ERROR: no such package" in reasons
    assert "captured: it differs" in reasons
    assert "512x512 matmul, ms: OSError: no" in reasons
