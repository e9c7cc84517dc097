"""Run in the environment of tests/test_plugins.py: what the installed plug-ins do there, as JSON."""

import json
import sys
import time

import norch

found = {"loaded by import": sorted(n for n in sys.modules if n.startswith("norch_"))}


def error(function):
    try:
        return repr(function())
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"


def train(device):
    """The losses of a small model. Nothing of it names a device."""
    norch.manual_seed(0)
    norch.set_default_device(device)
    try:
        model = norch.nn.Sequential(norch.nn.Linear(3, 8), norch.nn.GELU(), norch.nn.Linear(8, 2))
        step = norch.optim.Adam(model.parameters(), lr=0.05)
        x = norch.randn(16, 3)
        y = (x.sum(1) > 0).long()
        losses = []
        for _ in range(15):
            step.zero_grad()
            loss = norch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            step.step()
            losses.append(round(loss.item(), 4))
        return losses
    finally:
        norch.set_default_device("cpu")


def stored(device):
    """The bits of numbers in dtypes of which no backend knows, made on the device, moved and cast back there."""
    x = norch.linspace(0, 500, 64, device=device)
    made = [x.to(getattr(norch, n)) for n in ("float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64")]
    return [
        [y.view(norch.uint8).tolist(), y[::2].flip(0).to(norch.float32).tolist(), (y == y).all().item()] for y in made
    ]


def module_of(device):
    return type(norch.device(device).backend).__module__


start = time.perf_counter()
found["unknown"] = error(lambda: norch.ones(2, device="abacus"))
found["unknown takes"] = time.perf_counter() - start
found["loaded by an unknown device"] = sorted(n for n in sys.modules if n.startswith("norch_"))
for device in ("raises", "libless", "newer"):
    found[device] = error(lambda device=device: norch.ones(2, device=device))
    found[f"{device} is available"] = getattr(norch, device).is_available()

found["cpu"] = train("cpu")
found["frozen"] = train("frozen")
found["bare"] = train("bare")
found["stored"] = {device: stored(device) for device in ("cpu", "frozen", "bare")}
bare = norch.device("bare").backend
found["bare asked for"] = sorted(bare.refused)
found["twin"], found["equal"] = module_of("twin"), module_of("equal")
x = norch.ones(2, 3, device="faulty")
found["faulty"] = [error(x.exp), error(x.log), (x + 1).tolist(), error(norch.ones(2).exp)]

found["ops loaded before"] = sorted(n for n in sys.modules if n in ("norch_fused", "norch_op_raises"))
gate, up = norch.randn(5, requires_grad=True), norch.randn(5)
out = norch.swiglu(gate, up)
found["swiglu"] = [norch.allclose(out, norch.silu(gate) * up), repr(out.grad_fn), norch.ops.swiglu is norch.swiglu]
found["ops"] = {
    name: error(lambda name=name: getattr(norch, name))
    for name in ("broken_op", "doubled", "absent_op", "wrong_op", "relu", "no_such_op")
}
found["kernel"] = [error(lambda: norch.faulty_op(x)), error(lambda: norch.faulty_op(norch.ones(2)))]
json.dump(found, sys.stdout)
