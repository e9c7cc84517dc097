"""The shadow device: right devices run through it, and a wrong one is stopped at the op that is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from broken_backends import Broken, view
from broken_contract import FAULTS

import norch
from norch.backend import registry
from norch.testing.shadow import Divergence, shadow


@pytest.fixture
def target():
    def register(backend):
        registry.register(backend(), "norch-broken", "1.2")

    yield register
    registry.unregister("shadow")
    registry.unregister("broken")


def steps(device):
    """Some training, on a device."""
    norch.manual_seed(0)
    w = norch.randn(4, 3, device=device, requires_grad=True)
    x = norch.randn(8, 4, device=device)
    y = norch.arange(8, device=device) % 3
    for _ in range(3):
        loss = norch.cross_entropy((x @ w).tanh(), y) + w.T[1:].exp().mean()
        (slope,) = norch.autograd.grad(loss, [w])
        with norch.no_grad():
            w -= slope * 0.1
    return loss


def test_a_right_device_runs_through(target):
    target(Broken)
    device = shadow("broken")
    assert device.type == "shadow"
    loss = steps(device)
    assert loss.item() == pytest.approx(steps("cpu").item(), rel=1e-5)
    assert norch.arange(5, device=device).flip(0).sort().values.tolist() == [0, 1, 2, 3, 4]


def test_the_first_wrong_op_is_named_with_a_script_that_fails_alike(target, tmp_path):
    target(FAULTS["erf is good to four digits"][2])
    x = norch.tensor([[0.0, 3.0], [0.12345, -0.5]], device=shadow("broken", tmp_path))
    with pytest.raises(
        Divergence, match=r"erf of float32\[2, 2\].*\(0, 1\) is 1\.0, the reference has 0\.99997"
    ) as caught:
        norch.erf(x + 0).sum()
    assert caught.value.op == "erf"
    script = tmp_path / "divergence_erf.py"
    assert script.read_text() == caught.value.script
    assert "Place('float32', (1,))" in caught.value.script
    with pytest.raises(AssertionError, match="1 of 1 elements are wrong"):
        exec(caught.value.script, {})


def test_a_wrong_op_of_the_backward_pass_is_found(target):
    class Wrong(Broken):
        def compile(self, op, operands, attrs):
            good = super().compile(op, operands, attrs)

            def kernel(*args):
                good(*args)
                view(operands[0], *args[:2])[...] *= np.where(attrs["dims"] == (0,), 1.01, 1)

            return kernel if op == "sum" and operands[0].dtype is norch.float32 else good

    target(Wrong)
    device = shadow("broken")
    b = norch.ones(3, device=device, requires_grad=True)
    out = (norch.ones(2, 3, device=device) * b).sum()
    with pytest.raises(Divergence, match=r"sum of float32\[2, 3\]") as caught:
        out.backward()
    with pytest.raises(AssertionError, match="elements are wrong"):
        exec(caught.value.script, {})


def test_native_composites_are_compared_with_their_parts(target):
    target(FAULTS["a native composite is an approximation that was not asked for"][2])
    x = norch.linspace(-3, 3, 7, device=shadow("broken"))
    with pytest.raises(Divergence, match="gelu of float32"):
        norch.gelu(x)
