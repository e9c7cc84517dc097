"""Adam and AdamW: against NumPy, against PyTorch where it is installed, and the errors."""

import copy

import numpy as np
import pytest

import norch
from norch import nn, optim

OPTIONS = {
    "plain": {},
    "lr": dict(lr=1),
    "betas": dict(betas=(0.7, 0.95)),
    "no_momentum": dict(betas=(0.0, 0.5)),
    "eps": dict(eps=0.3),
    "weight_decay": dict(weight_decay=0.1),
    "maximize": dict(weight_decay=0.2, maximize=True),
    "amsgrad": dict(amsgrad=True, betas=(0.9, 0.5)),
}
START = np.random.default_rng(0).standard_normal((3, 4))
GRADS = np.random.default_rng(1).standard_normal((20, 3, 4))


def by_hand(decoupled, lr=0.05, betas=(0.9, 0.999), eps=1e-8, weight_decay=None, maximize=False, amsgrad=False):
    """The parameter after each step, the gradient of step i being GRADS[i] * p."""
    if weight_decay is None:
        weight_decay = 0.01 if decoupled else 0.0
    p, m, v, largest, path = START.copy(), 0.0, 0.0, 0.0, []
    for i, scale in enumerate(GRADS):
        g = -scale * p if maximize else scale * p
        if decoupled:
            p = p - lr * weight_decay * p
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        largest = np.maximum(largest, v) if amsgrad else v
        corrected = m / (1 - betas[0] ** (i + 1)), largest / (1 - betas[1] ** (i + 1))
        p = p - lr * corrected[0] / (np.sqrt(corrected[1]) + eps)
        path.append(p)
    return np.stack(path)


def path_of(framework, optimizer, **options):
    """The same with a framework's tensors and optimiser."""
    p = framework.tensor(START, dtype=framework.float64, requires_grad=True)
    optimizer = optimizer([p], **{"lr": 0.05, **options})
    path = []
    for scale in GRADS:
        loss = (framework.tensor(scale, dtype=framework.float64) * p * p).sum() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        path.append(p.detach().cpu().numpy().copy())
    return np.stack(path)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_takes_the_steps_that_its_docstring_says(name, options):
    path = path_of(norch, getattr(optim, name), **options)
    np.testing.assert_allclose(path, by_hand(name == "AdamW", **options), rtol=1e-10)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_takes_pytorchs_steps(name, options):
    torch = pytest.importorskip("torch")
    expected = path_of(torch, getattr(torch.optim, name), **options)
    np.testing.assert_allclose(path_of(norch, getattr(optim, name), **options), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_defaults_are_pytorchs(name):
    group = getattr(optim, name)([nn.Parameter(norch.ones(1))]).param_groups[0]
    del group["params"]
    assert group == dict(
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0.01 if name == "AdamW" else 0,
        amsgrad=False,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=name == "AdamW",
    )
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.optim, name)([torch.ones(1, requires_grad=True)]).param_groups[0]
    del theirs["params"]
    assert group == theirs


def test_each_parameter_counts_its_own_steps():
    a, b = nn.Parameter(norch.tensor(START)), nn.Parameter(norch.tensor(START))
    alone = nn.Parameter(norch.tensor(START))
    optimizer, other = optim.Adam([a, b], lr=0.1), optim.Adam([alone], lr=0.1)
    for i, scale in enumerate(GRADS[:6]):
        for p in (a, b, alone):
            p.grad = norch.tensor(scale)
        if i < 3:
            b.grad = None
        optimizer.step()
        if i >= 3:
            other.step()
    assert b.tolist() == alone.tolist()
    assert (optimizer.state[a]["step"], optimizer.state[b]["step"]) == (6, 3)


def test_parameters_without_gradient_are_left_alone():
    used, unused = nn.Parameter(norch.ones(1)), nn.Parameter(norch.ones(1))
    optimizer = optim.AdamW([used, unused], lr=0.1, weight_decay=1.0)
    optimizer.step()
    used.sum().backward()
    optimizer.step()
    assert unused.item() == 1.0
    assert list(optimizer.state) == [used]


def test_state_dict_round_trip():
    def train(p, optimizer, steps):
        for scale in steps:
            optimizer.zero_grad()
            (norch.tensor(scale) * p * p).sum().backward()
            optimizer.step()

    p = nn.Parameter(norch.tensor(START))
    optimizer = optim.AdamW([p], lr=0.05)
    train(p, optimizer, GRADS[:5])
    state = copy.deepcopy(optimizer.state_dict())
    assert state["state"][0]["step"] == 5
    q = copy.deepcopy(p)
    other = optim.AdamW([q], lr=1.0)
    other.load_state_dict(state)
    train(p, optimizer, GRADS[5:10])
    train(q, other, GRADS[5:10])
    assert q.tolist() == p.tolist()


def test_closure_and_groups():
    a, b = nn.Parameter(norch.tensor([2.0])), nn.Parameter(norch.tensor([2.0]))
    optimizer = optim.Adam([{"params": a}, {"params": b, "lr": 0.5}], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (a * a + b * b).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 8.0
    assert (a.item(), b.item()) == pytest.approx((1.75, 1.5))
    assert "Adam (" in repr(optimizer)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(lr=-1), ValueError, "learning rate"),
        (dict(eps=float("nan")), ValueError, "eps"),
        (dict(weight_decay=-1), ValueError, "weight_decay"),
        (dict(betas=(1.0, 0.9)), ValueError, "betas"),
        (dict(betas=(0.9, -0.1)), ValueError, "betas"),
        (dict(betas=(0.9,)), ValueError, "betas"),
    ],
)
def test_options_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        optim.AdamW([nn.Parameter(norch.ones(1))], **options)


def test_a_refused_group_is_not_kept():
    optimizer = optim.Adam([nn.Parameter(norch.ones(1))])
    with pytest.raises(ValueError, match="eps"):
        optimizer.add_param_group({"params": [nn.Parameter(norch.ones(1))], "eps": -1})
    assert len(optimizer.param_groups) == 1


def test_a_changing_learning_rate_and_step_compile_nothing():
    p = nn.Parameter(norch.ones(2))
    optimizer = optim.AdamW([p])
    backend = type(p.device.backend)
    compile_kernel, compiled = backend.compile, []

    def counting(self, *args):
        compiled.append(args[0])
        return compile_kernel(self, *args)

    def step(lr):
        optimizer.param_groups[0]["lr"] = lr
        p.grad = norch.ones(2)
        optimizer.step()

    step(0.1)
    step(0.2)
    backend.compile = counting
    try:
        for i in range(5):
            step(0.01 / (i + 1))
    finally:
        backend.compile = compile_kernel
    assert not compiled
