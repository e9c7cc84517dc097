"""Steps of optimisers with differentiable=True against differences of steps."""

import numpy as np
import pytest

import norch
from norch import nn, optim

pytestmark = pytest.mark.usefixtures("on_host")

P, G = np.array([0.7, -1.3, 0.4]), np.array([0.5, 0.8, -1.1])
CASES = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.2, "maximize": True}),
    ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Adagrad", {"weight_decay": 0.1, "lr_decay": 0.1}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("ASGD", {}),
    ("Rprop", {}),
]


def stepped(name, options, p, g, lr, **more):
    """A parameter after three steps, as the result of an op."""
    q = p.clone()
    optimizer = getattr(optim, name)([q], lr=lr, **options, **more)
    for i in range(3):
        q.grad = g * (1 - 0.4 * i) + 0.3 * q
        optimizer.step()
    return q


def values(name, options, p, g, lr):
    """The same in numbers alone."""
    q = nn.Parameter(norch.tensor(p))
    optimizer = getattr(optim, name)([q], lr=lr, **options)
    for i in range(3):
        q.grad = norch.tensor(g) * (1 - 0.4 * i) + 0.3 * q.detach()
        optimizer.step()
    return q.detach().numpy().copy()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_gradients_go_through_steps(name, options):
    through_lr = name not in ("ASGD", "Rprop")
    p, g = norch.tensor(P, requires_grad=True), norch.tensor(G, requires_grad=True)
    lr = norch.tensor(0.1, dtype=norch.float64, requires_grad=True) if through_lr else 0.1
    q = stepped(name, options, p, g, lr, differentiable=True)
    np.testing.assert_allclose(q.detach().numpy(), values(name, options, P, G, 0.1), rtol=1e-12)
    grads = norch.autograd.grad(q.sum(), [p, g, *([lr] if through_lr else [])])

    def slope(at):
        h = 1e-6

        def moved(sign):
            given = [P.copy(), G.copy(), np.array([0.1])]
            given[at[0]][at[1]] += sign * h
            return values(name, options, given[0], given[1], float(given[2][0])).sum()

        return (moved(1) - moved(-1)) / (2 * h)

    for i in range(3):
        assert grads[0][i].item() == pytest.approx(slope((0, i)), rel=1e-5, abs=1e-7)
        assert grads[1][i].item() == pytest.approx(slope((1, i)), rel=1e-5, abs=1e-7)
    if through_lr:
        assert grads[2].item() == pytest.approx(slope((2, 0)), rel=1e-5, abs=1e-7)


def test_no_gradient_goes_through_other_options():
    rate = norch.tensor(0.1, requires_grad=True)
    with pytest.raises(NotImplementedError, match="no gradient goes through lr"):
        optim.Rprop([norch.ones(1)], lr=rate, differentiable=True)
    with pytest.raises(NotImplementedError, match="no gradient goes through momentum"):
        optim.SGD([norch.ones(1)], momentum=rate, differentiable=True)


def test_a_leaf_that_requires_grad_takes_no_differentiable_step():
    p = nn.Parameter(norch.ones(2))
    p.grad = norch.ones(2)
    with pytest.raises(norch.AutogradError, match="leaf"):
        optim.SGD([p], differentiable=True).step()


def test_a_captured_step_may_be_differentiable():
    rate = norch.tensor(0.5, requires_grad=True)

    def step(w, x):
        q = w.clone()
        q.grad = 2 * q * x
        optim.SGD([q], lr=rate, differentiable=True).step()
        return norch.autograd.grad(q.sum(), rate)[0]

    captured = norch.capture(step)
    w, x = norch.tensor([1.0, 2.0], requires_grad=True), norch.tensor(3.0)
    for _ in range(4):
        assert captured(w, x).item() == step(w, x).item() == -18.0
