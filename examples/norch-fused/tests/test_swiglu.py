"""swiglu by norch's own kit: its values, layouts and derivatives, decomposed and by its kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import norch
from norch.backend import registry
from norch.coverage import watch
from norch.testing import conformance
from norch.testing.samples import checks
from norch.testing.strict import strict_device


@pytest.fixture(params=["numpy", "decomposed"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The CPU with the package's kernel, and a device that has none."""
    monkeypatch.setenv("NORCH_BACKEND_CPU", "numpy")
    registry.reset()
    yield "cpu" if request.param == "numpy" else str(strict_device())
    registry.reset()


def test_conformance(device: str) -> None:
    report = conformance.run(device, [5, 6], ["swiglu", "swiglu_grad"])
    assert len(report.results) > 150
    assert report.passed, report.text()


def test_second_derivatives(device: str) -> None:
    checks.check_gradients(norch.swiglu.sample(), device)


def test_the_kernel_runs_where_there_is_one(device: str) -> None:
    x = norch.randn(50_000, device=device)
    with watch() as seen:
        out = norch.swiglu(x, x)
    assert np.allclose(out.tolist(), (norch.silu(x) * x).tolist(), atol=1e-5)
    assert ("swiglu", "cpu", "native") in seen.counts or (device != "cpu")


def test_it_is_one_node_that_keeps_its_operands(device: str) -> None:
    gate, up = (norch.randn(3, device=device, requires_grad=True) for _ in range(2))
    out = norch.swiglu(gate, up)
    assert repr(out.grad_fn) == "<swiglu_backward>"
    out.sum().backward()
    assert gate.grad is not None
    assert up.grad is not None


def test_what_it_does_not_take() -> None:
    with pytest.raises(norch.DTypeError, match=r"swiglu\(\): expected a floating dtype, got norch.int64"):
        norch.swiglu(norch.arange(3), norch.arange(3))
    with pytest.raises(norch.ShapeError, match="swiglu"):
        norch.swiglu(norch.ones(3), norch.ones(4))
