"""torch.optim._functional: each function against the optimiser of its name, whose steps have tests of their own."""

import pytest

import norch
from norch import nn, optim
from norch.optim import functional_steps

pytestmark = pytest.mark.usefixtures("on_host")

ADAM = {"beta1": 0.9, "beta2": 0.99, "lr": 0.1, "weight_decay": 0.1, "eps": 1e-6}
CASES = {
    "adam": ("Adam", "exp_avg exp_avg_sq max_exp_avg_sq", ADAM | {"amsgrad": True, "maximize": True}),
    "adamw": ("AdamW", "exp_avg exp_avg_sq max_exp_avg_sq", ADAM | {"amsgrad": False}),
    "radam": ("RAdam", "exp_avg exp_avg_sq", ADAM),
    "adamax": ("Adamax", "exp_avg exp_inf", ADAM),
    "adagrad": ("Adagrad", "sum", {"lr": 0.1, "weight_decay": 0.1, "lr_decay": 0.2, "eps": 1e-6}),
    "adadelta": ("Adadelta", "square_avg acc_delta", {"lr": 0.1, "rho": 0.8, "eps": 1e-6, "weight_decay": 0.1}),
    "rmsprop": (
        "RMSprop",
        "square_avg grad_avg momentum_buffer",
        {"lr": 0.1, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1, "momentum": 0.9, "centered": True},
    ),
}


def gradients(i):
    return [norch.tensor([0.5, -1.0]) * (1 + i), norch.tensor([[2.0]]) - i]


@pytest.mark.parametrize("name", CASES)
def test_lists_are_stepped_on_as_by_the_optimiser(name):
    title, states, options = CASES[name]
    start = [norch.tensor([1.0, 2.0]), norch.tensor([[3.0]])]
    own, params = [p.clone() for p in start], [nn.Parameter(p.clone()) for p in start]
    given = dict(options)
    if "beta1" in given:
        given["betas"] = given.pop("beta1"), given.pop("beta2")
    optimizer = getattr(optim, title)(params, **given)
    lists = [[norch.zeros_like(p) for p in own] for _ in states.split()]
    steps = [norch.tensor(0.0) for _ in own]
    for i in range(3):
        for p, g in zip(params, gradients(i), strict=True):
            p.grad = g
        optimizer.step()
        with norch.no_grad():
            getattr(functional_steps, name)(own, gradients(i), *lists, steps, foreach=False, **options)
    for p, q in zip(own, params, strict=True):
        norch.testing.assert_close(p, q.detach())
    assert [step.item() for step in steps] == [3, 3]


@pytest.mark.parametrize("momentum", [0, 0.9])
def test_buffers_of_sgd_begin_as_gradients(momentum):
    options = {"lr": 0.1, "momentum": momentum, "dampening": 0.2, "weight_decay": 0.1, "nesterov": False}
    own, p = norch.tensor([1.0, 2.0]), nn.Parameter(norch.tensor([1.0, 2.0]))
    optimizer, buffers = optim.SGD([p], **options), [None]
    for i in range(3):
        p.grad = gradients(i)[0]
        optimizer.step()
        functional_steps.sgd([own], [gradients(i)[0]], buffers, foreach=None, **options)
    norch.testing.assert_close(own, p.detach())
    assert (buffers[0] is None) == (momentum == 0)


def test_what_is_refused():
    p = [norch.ones(1)]
    with pytest.raises(RuntimeError, match="state_steps"):
        functional_steps.adam(p, p, p, p, [], [1], amsgrad=False, **ADAM)
    with pytest.raises(NotImplementedError, match="found_inf"):
        functional_steps.adam(p, p, p, p, [], [norch.zeros(())], amsgrad=False, found_inf=norch.zeros(1), **ADAM)
