"""Optimizer and SGD: against NumPy, against PyTorch where it is installed, and the errors."""

import copy

import numpy as np
import pytest

import norch
from norch import nn, optim

OPTIONS = {
    "plain": {},
    "momentum": dict(momentum=0.9),
    "dampening": dict(momentum=0.9, dampening=0.3),
    "nesterov": dict(momentum=0.8, nesterov=True),
    "weight_decay": dict(weight_decay=0.1),
    "all": dict(momentum=0.9, nesterov=True, weight_decay=0.1),
    "maximize": dict(momentum=0.5, weight_decay=0.1, maximize=True),
    "int_lr": dict(lr=1, momentum=0.5, dampening=1),
}
START = np.random.default_rng(0).standard_normal((3, 4))
GRADS = np.random.default_rng(1).standard_normal((20, 3, 4))


def by_hand(lr=0.05, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):
    """The parameter after each step, the gradient of step i being GRADS[i] * p."""
    p, built, path = START.copy(), None, []
    for scale in GRADS:
        g = scale * p
        if maximize:
            g = -g
        g = g + weight_decay * p
        if momentum:
            built = g if built is None else momentum * built + (1 - dampening) * g
            g = g + momentum * built if nesterov else built
        p = p - lr * g
        path.append(p)
    return np.stack(path)


def path_of(framework, sgd, **options):
    """The same with a framework's tensors and optimiser."""
    p = framework.tensor(START, dtype=framework.float64, requires_grad=True)
    optimizer = sgd([p], **{"lr": 0.05, **options})
    path = []
    for scale in GRADS:
        loss = (framework.tensor(scale, dtype=framework.float64) * p * p).sum() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        path.append(p.detach().cpu().numpy().copy())
    return np.stack(path)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_sgd_takes_the_steps_that_its_docstring_says(options):
    np.testing.assert_allclose(path_of(norch, optim.SGD, **options), by_hand(**options), rtol=1e-12)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_sgd_takes_pytorchs_steps(options):
    torch = pytest.importorskip("torch")
    expected = path_of(torch, torch.optim.SGD, **options)
    np.testing.assert_allclose(path_of(norch, optim.SGD, **options), expected, rtol=1e-12)


def test_parameters_stay_what_they_are():
    p = nn.Parameter(norch.ones(2))
    at = p.data_ptr()
    optimizer = optim.SGD([p], lr=0.5)
    (p * 3).sum().backward()
    optimizer.step()
    assert p.tolist() == [-0.5, -0.5]
    assert p.data_ptr() == at
    assert p.is_leaf
    assert p.requires_grad
    assert type(p) is nn.Parameter
    assert p.grad.tolist() == [3.0, 3.0]
    assert norch.is_grad_enabled()


def test_parameters_without_gradient_are_skipped():
    used, unused = nn.Parameter(norch.ones(1)), nn.Parameter(norch.ones(1))
    optimizer = optim.SGD([used, unused], lr=0.1, momentum=0.9, weight_decay=1.0)
    used.sum().backward()
    optimizer.step()
    assert unused.item() == 1.0
    assert list(optimizer.state) == [used]


def test_the_first_momentum_is_no_alias_of_the_gradient():
    p = nn.Parameter(norch.ones(1))
    optimizer = optim.SGD([p], lr=0.0, momentum=0.9)
    p.sum().backward()
    optimizer.step()
    p.grad.zero_()
    assert optimizer.state[p]["momentum_buffer"].item() == 1.0


def test_zero_grad():
    p = nn.Parameter(norch.ones(1))
    optimizer = optim.SGD([p], lr=0.1)
    p.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.item() == 0.0
    optimizer.zero_grad()
    assert p.grad is None


def test_groups_have_options_of_their_own():
    a, b, c = (nn.Parameter(norch.ones(1)) for _ in range(3))
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    optimizer.add_param_group({"params": iter([c]), "momentum": 0.9})
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.5, 0.1]
    assert [g["momentum"] for g in optimizer.param_groups] == [0, 0, 0.9]
    (a + b + c).backward()
    optimizer.step()
    assert [p.item() for p in (a, b, c)] == pytest.approx([0.9, 0.5, 0.9])
    optimizer.param_groups[0]["lr"] = 0.2
    optimizer.step()
    assert a.item() == pytest.approx(0.7)


@pytest.mark.parametrize("make", [optim.AdamW, optim.SGD])
def test_late_gradients_are_stepped_on_last(make, monkeypatch):
    def model():
        params = [norch.full((3,), float(i), requires_grad=True) for i in range(5)]
        for i, p in enumerate(params):
            p.grad = norch.full((3,), i - 2.5)
        return params, make([{"params": params[:3], "lr": 0.1}, {"params": params[3:], "lr": 0.2}])

    params, optimizer = model()
    late = {id(params[1]): 2, id(params[4]): 1, id(params[0]): 1, -1: 1}
    monkeypatch.setattr("norch.optim.multi_tensor.late", late)
    index = {id(p): i for i, p in enumerate(params)}
    order, step = [], optimizer._step_group

    def noted(group):
        order.append((group["lr"], [index[id(p)] for p in group["params"]]))
        step(group)

    monkeypatch.setattr(optimizer, "_step_group", noted)
    optimizer.step()
    assert order == [(0.1, [2]), (0.2, [3]), (0.1, [0]), (0.2, [4]), (0.1, [1])]
    assert late == {-1: 1}, "those of another optimiser stay"
    wanted, other = model()
    other.step()
    other.step()
    optimizer.step()
    assert [p.tolist() for p in params] == [p.tolist() for p in wanted]


def test_closure():
    p = nn.Parameter(norch.tensor([2.0]))
    optimizer = optim.SGD([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with norch.no_grad():
        assert optimizer.step(closure).item() == 4.0
    assert p.item() == pytest.approx(1.6)


def test_state_dict_round_trip():
    def train(p, optimizer, steps):
        for scale in steps:
            optimizer.zero_grad()
            (norch.tensor(scale) * p * p).sum().backward()
            optimizer.step()

    p = nn.Parameter(norch.tensor(START))
    optimizer = optim.SGD([p], lr=0.05, momentum=0.9)
    train(p, optimizer, GRADS[:5])
    state = copy.deepcopy(optimizer.state_dict())
    assert list(state["state"]) == [0]
    assert state["param_groups"][0]["params"] == [0]
    q = copy.deepcopy(p)
    other = optim.SGD([q], lr=1.0)
    other.load_state_dict(state)
    assert other.param_groups[0]["lr"] == 0.05
    assert other.param_groups[0]["params"][0] is q
    train(p, optimizer, GRADS[5:10])
    train(q, other, GRADS[5:10])
    assert q.tolist() == p.tolist()
    assert other.state[q]["momentum_buffer"].data_ptr() != state["state"][0]["momentum_buffer"].data_ptr()


def test_state_dict_must_fit():
    a, b = nn.Parameter(norch.ones(1)), nn.Parameter(norch.ones(1))
    state = optim.SGD([a, b], lr=0.1).state_dict()
    with pytest.raises(ValueError, match="2 parameters in group 0, the optimizer 1"):
        optim.SGD([a], lr=0.1).load_state_dict(state)
    with pytest.raises(ValueError, match="1 parameter groups, the optimizer 2"):
        optim.SGD([{"params": [a]}, {"params": [b]}], lr=0.1).load_state_dict(state)


def test_what_cannot_be_optimized():
    p = nn.Parameter(norch.ones(1))
    with pytest.raises(norch.DTypeError, match="should be an iterable of Tensors or dicts, but got a Parameter"):
        optim.SGD(p, lr=0.1)
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([], lr=0.1)
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD(nn.Tanh().parameters(), lr=0.1)
    with pytest.raises(norch.DTypeError, match="one of the params is str"):
        optim.SGD({"weight": p}, lr=0.1)
    with pytest.raises(ValueError, match="non-leaf Tensor"):
        optim.SGD([p * 2], lr=0.1)
    with pytest.raises(ValueError, match="twice"):
        optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)
    with pytest.raises(norch.DTypeError, match="need an order"):
        optim.SGD([{"params": {p}}], lr=0.1)
    with pytest.raises(ValueError, match="SGD has no option 'betas'"):
        optim.SGD([{"params": [p], "betas": (0, 1)}], lr=0.1)
    with pytest.raises(NotImplementedError, match="step"):
        optim.Optimizer([p], {}).step()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(lr=-1), "learning rate"),
        (dict(lr=float("nan")), "learning rate"),
        (dict(momentum=-1), "momentum"),
        (dict(weight_decay=-1), "weight_decay"),
        (dict(nesterov=True), "nesterov"),
        (dict(nesterov=True, momentum=0.9, dampening=0.1), "nesterov"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        optim.SGD([nn.Parameter(norch.ones(1))], **options)


# --- Parameters and gradients of every kind, for all optimisers -------------------------------------------------------

MAKERS = {
    "sgd": lambda params: optim.SGD(params, lr=0.1, weight_decay=0.1),
    "momentum": lambda params: optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda params: optim.Adam(params, lr=0.1),
    "adamw": lambda params: optim.AdamW(params, lr=0.1),
    "amsgrad": lambda params: optim.Adam(params, lr=0.1, amsgrad=True),
    "adamax": lambda params: optim.Adamax(params, lr=0.1),
    "nadam": lambda params: optim.NAdam(params, lr=0.1),
    "radam": lambda params: optim.RAdam(params, lr=0.1),
    "rmsprop": lambda params: optim.RMSprop(params, lr=0.1, centered=True, momentum=0.9),
    "adagrad": lambda params: optim.Adagrad(params, lr=0.1),
    "adadelta": lambda params: optim.Adadelta(params, lr=100.0),
    "asgd": lambda params: optim.ASGD(params, lr=0.1, t0=0),
    "rprop": lambda params: optim.Rprop(params, lr=0.1),
    "lion": lambda params: optim.Lion(params, lr=0.1),
}


def trained(make, given, grads, one_by_one):
    """Two steps of parameters `given`, each with an optimiser of its own if `one_by_one`."""
    params = [p.detach().requires_grad_() for p in given]
    optimizers = [make([p]) for p in params] if one_by_one else [make(params)]
    for i in range(2):
        for p, g in zip(params, grads[i], strict=True):
            p.grad = g
        for optimizer in optimizers:
            optimizer.step()
    return [p.detach().double().cpu().numpy() for p in params]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_parameters_of_many_kinds_at_once(make):
    def given():
        rng = np.random.default_rng(3)
        plain = norch.tensor(rng.standard_normal((3, 4)))
        return [
            plain,
            norch.tensor(rng.standard_normal((4, 3))).T,
            norch.tensor(rng.standard_normal((3, 4)), dtype=norch.float32),
            norch.tensor(rng.standard_normal((3, 8)))[:, ::2],
            norch.tensor(rng.standard_normal(()), dtype=norch.bfloat16),
            norch.tensor(rng.standard_normal((0, 2))),
        ]

    def grads():
        rng = np.random.default_rng(4)
        for _ in range(2):
            yield [
                norch.tensor(rng.standard_normal((4, 3))).T,
                norch.tensor(rng.standard_normal((3, 4))),
                norch.tensor(rng.standard_normal((3, 1)), dtype=norch.float32).expand(3, 4),
                norch.tensor(rng.standard_normal((3, 4))),
                norch.tensor(rng.standard_normal(()), dtype=norch.bfloat16),
                norch.tensor(rng.standard_normal((0, 2))),
            ]

    together = trained(make, given(), list(grads()), False)
    apart = trained(make, given(), list(grads()), True)
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    whole = given()[3]
    assert whole.storage_offset() == 0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_elements_between_those_of_a_strided_parameter_stay(make):
    whole = norch.ones(3, 4)
    p = whole[:, ::2].detach().requires_grad_()
    optimizer = make([p])
    p.grad = norch.ones(3, 2)
    optimizer.step()
    assert whole[:, 1::2].tolist() == [[1.0, 1.0]] * 3
    assert (whole[:, ::2] < 1).all().item()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_parameters_in_one_memory(make):
    """Side by side they are stepped at once; those that share elements one after the other."""

    def step(cuts):
        memory = norch.arange(6.0)
        params = [memory[a:b].detach().requires_grad_() for a, b in cuts]
        optimizer = make(params)
        for p in params:
            p.grad = norch.full(p.shape, 0.5)
        optimizer.step()
        return memory.cpu().numpy()

    whole = step([(0, 6)])
    np.testing.assert_allclose(step([(0, 2), (2, 6)]), whole, rtol=1e-6)
    twice = step([(0, 6), (3, 5)])
    np.testing.assert_array_equal(twice[[0, 1, 2, 5]], whole[[0, 1, 2, 5]])
    assert (twice[3:5] < whole[3:5]).all()


def test_a_gradient_that_is_the_parameter():
    p = norch.tensor([1.0, 2.0], requires_grad=True)
    p.grad = p.detach()
    optim.SGD([p], lr=0.25).step()
    assert p.tolist() == [0.75, 1.5]


def test_repeated_elements_cannot_be_stepped():
    p = norch.ones(1).expand(3).detach().requires_grad_()
    p.grad = norch.ones(3)
    with pytest.raises(norch.ShapeError, match="share memory"):
        optim.SGD([p], lr=0.1).step()


def test_a_step_between_forward_and_backward_is_noticed():
    p = nn.Parameter(norch.ones(2))
    optimizer = optim.SGD([p], lr=0.1)
    p.grad = norch.ones(2)
    loss = (p * p).sum()
    optimizer.step()
    with pytest.raises(norch.AutogradError, match="sgd_step_ has changed it in place"):
        loss.backward()


def test_a_step_is_not_recorded():
    p = nn.Parameter(norch.ones(2))
    p.grad = norch.ones(2, requires_grad=True) * 2
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    optimizer.step()
    assert p.is_leaf
    assert not optimizer.state[p]["momentum_buffer"].requires_grad
    assert norch.is_grad_enabled()


def test_the_first_momentum_is_the_gradient_whatever_the_dampening():
    a, b = nn.Parameter(norch.zeros(1)), nn.Parameter(norch.zeros(1))
    optimizer = optim.SGD([a, b], lr=1.0, momentum=0.5, dampening=0.75)
    a.grad = norch.ones(1)
    optimizer.step()
    b.grad = norch.ones(1)
    optimizer.step()
    built = [optimizer.state[p]["momentum_buffer"].item() for p in (a, b)]
    assert built == [0.75, 1.0]
    assert (a.item(), b.item()) == (-1.75, -1.0)


def test_infinite_gradients_and_parameters():
    p = nn.Parameter(norch.tensor([1.0, np.inf, 1.0]))
    p.grad = norch.tensor([np.inf, 1.0, np.nan])
    optim.SGD([p], lr=0.1).step()
    np.testing.assert_array_equal(p.detach().cpu().numpy(), [-np.inf, np.inf, np.nan])


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam", "Adam"])
def test_sparse_gradients_are_stepped_by_as_dense_ones(name):
    def stepped(dense):
        param = nn.Parameter(norch.ones(4, 2))
        optimizer = getattr(optim, name)([param], lr=0.1)
        for _ in range(3):
            grad = norch.sparse_coo_tensor([[0, 2, 0]], [[1.0, 2], [3, 4], [1, 1]], (4, 2))
            param.grad = grad.to_dense() if dense else grad
            optimizer.step()
        return param.tolist()

    np.testing.assert_allclose(stepped(False), stepped(True), rtol=1e-6)
