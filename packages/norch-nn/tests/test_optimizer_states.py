"""States of optimisers: saved, loaded, PyTorch's and older ones, and those of the user's own."""

import copy
import inspect

import numpy as np
import pytest
from optimizer_runs import GRADS, NAMES, OF_PYTORCH, START, made, parameter, train

import norch
from norch import nn, optim


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_state_goes_on_the_same(name):
    p = parameter()
    optimizer = made(name, p, lr=0.1)

    def closure(optimizer, p):
        def compute():
            optimizer.zero_grad()
            loss = (p * p * norch.tensor(np.arange(1.0, 13).reshape(3, 4))).sum()
            loss.backward()
            return loss

        return compute

    for _ in range(3):
        optimizer.step(closure(optimizer, p))
    state = copy.deepcopy(optimizer.state_dict())
    q = copy.deepcopy(p)
    other = made(name, q)
    other.load_state_dict(state)
    for _ in range(3):
        optimizer.step(closure(optimizer, p))
        other.step(closure(other, q))
    assert q.tolist() == p.tolist()
    assert other.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("name", [n for n in OF_PYTORCH if n != "SparseAdam"])  # PyTorch's takes no dense gradients
@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"momentum": 0.9}, {"centered": True}])
def test_states_of_pytorch(name, options):
    """Have the same keys and values, and can be loaded: training goes on as it would have there."""
    torch = pytest.importorskip("torch")
    if not set(options) <= set(inspect.signature(getattr(optim, name)).parameters):
        options = {}
    p, q = parameter(), torch.tensor(START, requires_grad=True)
    ours, theirs = getattr(optim, name)([p], **options), getattr(torch.optim, name)([q], **options)

    def closure(framework, p, optimizer):
        def compute():
            optimizer.zero_grad()
            loss = (p * p * p * p * framework.tensor(np.arange(1.0, 13).reshape(3, 4))).sum()
            loss.backward()
            return loss

        return compute

    for _ in range(4):
        theirs.step(closure(torch, q, theirs))
        ours.step(closure(norch, p, ours))
    expected = theirs.state_dict()
    rtol = 1e-3 if name == "Muon" else 1e-6  # its steps are computed in bfloat16
    if name != "LBFGS":
        assert list(ours.state_dict()["state"]) == list(expected["state"])
        for key, state in expected["state"].items():
            assert set(ours.state_dict()["state"][key]) == set(state)
            for k, value in state.items():
                mine = ours.state_dict()["state"][key][k]
                mine = mine.cpu() if hasattr(mine, "cpu") else mine
                np.testing.assert_allclose(mine, value, rtol=rtol, err_msg=k)
    moved = {
        "state": {key: {k: move(torch, v) for k, v in state.items()} for key, state in expected["state"].items()},
        "param_groups": expected["param_groups"],
    }
    p = nn.Parameter(norch.tensor(q.detach().numpy()))
    ours = getattr(optim, name)([p], **options)
    ours.load_state_dict(moved)
    for _ in range(4):
        theirs.step(closure(torch, q, theirs))
        ours.step(closure(norch, p, ours))
    np.testing.assert_allclose(p.tolist(), q.tolist(), rtol=rtol)


def move(torch, value):
    if isinstance(value, list):
        return [move(torch, v) for v in value]
    return norch.tensor(value.detach().numpy()) if isinstance(value, torch.Tensor) else value


def test_an_older_state_without_newer_options():
    p = parameter()
    optimizer = optim.Adam([p])
    state = optimizer.state_dict()
    del state["param_groups"][0]["decoupled_weight_decay"]
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is False
    train(optimizer, p, GRADS[:1])


def test_options_are_not_shared_with_a_loaded_state():
    optimizer = optim.SGD([parameter()], lr=norch.tensor(0.5))
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    optimizer.param_groups[0]["lr"].fill_(0.25)
    assert state["param_groups"][0]["lr"].item() == 0.5


def test_adagrad_has_its_state_at_once():
    p = parameter()
    optimizer = optim.Adagrad([p], initial_accumulator_value=0.5)
    assert optimizer.state[p]["sum"].tolist() == [[0.5] * 4] * 3
    optimizer.add_param_group({"params": [q := parameter()]})
    assert optimizer.state[q]["step"] == 0


def test_options_of_the_users_optimizers_are_their_own():
    """Such as Adafactor's, which has no learning rate and two eps, or Adan's three betas."""

    class Own(optim.Optimizer):
        def step(self, closure=None):
            return None

    optimizer = Own([parameter()], dict(lr=None, eps=(1e-30, 1e-3), betas=(0.98, 0.92, 0.99)))
    optimizer.add_param_group({"params": [parameter()], "momentum": "mine"})
    assert optimizer.step() is None


def test_a_count_of_the_users_keeps_its_dtype():
    class Counting(optim.Optimizer):
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                self.state[p].setdefault("step", norch.tensor(1000.0)).add_(1)

    p = nn.Parameter(norch.ones(1, dtype=norch.bfloat16))
    optimizer = Counting([p], {})
    optimizer.step()
    other = Counting([p], {})
    other.load_state_dict(optimizer.state_dict())
    optimizer.step()
    assert other.state[p]["step"].item() == 1001


def test_a_parameter_of_two_groups_has_its_first_number():
    a, b = (nn.Parameter(norch.ones(1)) for _ in "ab")
    optimizer = optim.Adam([a, b])
    for p in (a, b):
        p.grad = norch.ones(1)
    optimizer.step()
    once = optimizer.state_dict()
    optimizer.param_groups.extend(optimizer.param_groups)
    twice = optimizer.state_dict()
    assert twice["state"].keys() == once["state"].keys() == {0, 1}
    assert [group["params"] for group in twice["param_groups"]] == [[0, 1], [0, 1]]
