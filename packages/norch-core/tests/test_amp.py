"""GradScaler steps, skips and adapts as PyTorch's. For autocast see test_autocast.py."""

from __future__ import annotations

import math
import pickle

import pytest

import norch
from norch.amp import GradScaler


class Descent:
    """The least that an optimiser is: parameter groups and a step."""

    def __init__(self, *parameters):
        self.param_groups = [{"params": list(parameters)}]
        self.steps = 0

    def step(self):
        self.steps += 1
        with norch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad)
        return "stepped"


def test_scales_and_unscales():
    x = norch.ones(2, requires_grad=True)
    optimizer, scaler = Descent(x), GradScaler("cpu", init_scale=8.0)
    loss = (x * norch.tensor([0.5, 0.25])).sum()
    assert scaler.scale(loss).item() == 6.0
    assert [v.item() for v in scaler.scale([loss, loss])] == [6.0, 6.0]
    scaler.scale(loss).backward()
    assert x.grad.tolist() == [4, 2]
    scaler.unscale_(optimizer)
    assert x.grad.tolist() == [0.5, 0.25]
    with pytest.raises(norch.AutogradError, match="already"):
        scaler.unscale_(optimizer)
    assert scaler.step(optimizer) == "stepped"
    with pytest.raises(norch.AutogradError, match="already"):
        scaler.step(optimizer)
    scaler.update()
    assert x.tolist() == [0.5, 0.75]


def test_leaves_out_steps_that_overflowed_and_grows_after_good_ones():
    x = norch.ones(1, requires_grad=True)
    optimizer, scaler = Descent(x), GradScaler("cpu", init_scale=4.0, growth_interval=2)
    factors = []
    for value in (1.0, 1.0, math.inf, 1.0, 1.0):
        scaler.scale(x.detach())
        x.grad = norch.tensor([value])
        scaler.step(optimizer)
        scaler.update()
        factors.append(scaler.get_scale())
    assert factors == [4, 8, 4, 4, 8]
    assert optimizer.steps == 4


def test_state_goes_on():
    scaler = GradScaler("cpu", init_scale=4.0, growth_interval=2)
    x = norch.ones(1, requires_grad=True)
    x.grad = norch.ones(1)
    scaler.scale(x)
    scaler.step(Descent(x))
    scaler.update()
    again = GradScaler("cpu")
    again.load_state_dict(scaler.state_dict())
    assert again.state_dict() == scaler.state_dict()
    assert scaler.state_dict()["_growth_tracker"] == 1
    with pytest.raises(norch.AutogradError, match="empty"):
        again.load_state_dict({})


def test_disabled_it_does_nothing():
    scaler = GradScaler(enabled=False)
    x = norch.ones(1, requires_grad=True)
    x.grad = norch.ones(1)
    optimizer = Descent(x)
    assert scaler.scale(x) is x
    scaler.unscale_(optimizer)
    assert scaler.step(optimizer) == "stepped"
    scaler.update()
    assert (scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (1.0, {}, False)


def test_what_it_refuses():
    x = norch.ones(1, requires_grad=True)
    scaler = GradScaler("cpu")
    for call in (lambda: scaler.unscale_(Descent(x)), lambda: scaler.step(Descent(x)), scaler.update):
        with pytest.raises(norch.AutogradError, match=r"scale\(loss\) was not called"):
            call()
    scaler.scale(x)
    with pytest.raises(norch.AutogradError, match="no parameter of this optimizer has a gradient"):
        scaler.step(Descent(x))
    with pytest.raises(norch.AutogradError, match="no gradients were looked at"):
        scaler.update()
    with pytest.raises(ValueError, match="growth_factor"):
        GradScaler("cpu", growth_factor=1.0)
    half = norch.ones(1, dtype=norch.float16, requires_grad=True)
    half.grad = norch.ones(1, dtype=norch.float16)
    with pytest.raises(ValueError, match="float16"):
        scaler.unscale_(Descent(half))
    with pytest.raises(NotImplementedError, match="closure"):
        scaler.step(Descent(x), closure=lambda: None)
    with pytest.raises(ValueError, match="needs a Tensor"):
        scaler.scale(3.0)


def test_each_optimiser_has_its_own_stage():
    good, bad = norch.ones(1, requires_grad=True), norch.ones(1, requires_grad=True)
    first, second, scaler = Descent(good), Descent(bad), GradScaler("cpu", init_scale=4.0)
    scaler.scale(good)
    good.grad, bad.grad = norch.ones(1), norch.tensor([math.nan])
    scaler.unscale_(second)
    scaler.step(first)
    scaler.step(second)
    assert (first.steps, second.steps) == (1, 0)
    with pytest.raises(norch.AutogradError, match="pickled"):
        pickle.dumps(scaler)
    scaler.update()
    assert scaler.get_scale() == 2.0
    scaler.update(16.0)
    assert scaler.get_scale() == 16.0
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == scaler.state_dict()


def test_a_short_loss_is_scaled_in_float32():
    loss = norch.ones((), dtype=norch.float16, requires_grad=True)
    scaled = GradScaler("cpu").scale(loss)
    assert (scaled.dtype, scaled.item()) == (norch.float32, 65536.0)
    assert GradScaler("cpu").scale(norch.ones(2, dtype=norch.float16)).dtype is norch.float16


@pytest.mark.skipif(norch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_off_unless_told_of_another_device():
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not GradScaler().is_enabled()
    assert not norch.cuda.amp.GradScaler(enabled=False).is_enabled()
    assert norch.cpu.amp.GradScaler(2.0).get_scale() == 2.0


ORDERS = (
    "scale backward step update",
    "scale backward unscale step update",
    "scale backward unscale unscale",
    "scale backward step step",
    "scale backward step unscale",
    "scale backward unscale update step update",
    "scale backward update",
    "backward step",
    "backward unscale",
    "update",
    "scale step",
    "scale unscale update",
    "scale backward step update update",
    "scale overflow step update scale backward step update",
    "scale overflow unscale step step",
    "scale backward step set scale backward step update",
)


@pytest.mark.parametrize("order", ORDERS)
def test_orders_of_calls_beside_pytorch(order):
    torch = pytest.importorskip("torch")

    def run(lib, scaler, optimizer, x):
        done = []
        for call in order.split():
            try:
                if call == "scale":
                    loss = scaler.scale((x * lib.tensor([0.5, 0.25])).sum())
                elif call == "backward":
                    x.grad = None
                    (loss if "loss" in locals() else x.sum()).backward()
                elif call == "overflow":
                    x.grad = lib.tensor([1.0, math.inf])
                elif call == "set":
                    scaler.update(64.0)
                elif call == "update":
                    scaler.update()
                else:
                    getattr(scaler, {"unscale": "unscale_"}.get(call, call))(optimizer)
            except (RuntimeError, AssertionError):
                done.append("refused")
                break
            done.append((x.tolist(), scaler.get_scale(), scaler.state_dict()))
        return done

    theirs = torch.ones(2, requires_grad=True)
    expected = run(torch, torch.amp.GradScaler("cpu", 8.0), torch.optim.SGD([theirs], lr=1.0), theirs)
    ours = norch.ones(2, requires_grad=True)
    assert run(norch, GradScaler("cpu", 8.0), Descent(ours), ours) == expected


class AllowsHalf(GradScaler):
    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        assert (allow_fp16, inv_scale.item(), found_inf.item()) == (False, 0.25, 0)
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, True)


@pytest.mark.parametrize("bad", [False, True])
def test_a_program_that_allows_gradients_of_float16(bad):
    weight = norch.ones(2, dtype=norch.float16, requires_grad=True)
    optimizer, scaler = Descent(weight), AllowsHalf("cpu", init_scale=4.0)
    scaler.scale((weight * norch.tensor([3.0, math.inf if bad else 5.0], dtype=norch.float16)).sum()).backward()
    scaler.step(optimizer)
    assert optimizer.steps == (0 if bad else 1)
    assert weight.grad.tolist() == [3, math.inf if bad else 5]
    scaler.update()
    assert scaler.get_scale() == (2 if bad else 4)
