"""What all optimisers share: options, states, hooks, closures; beside PyTorch where it is installed."""

import inspect

import numpy as np
import pytest
from optimizer_runs import GRADS, NAMES, OF_PYTORCH, START, STEPWISE, made, parameter, train

import norch
from norch import nn, optim

# --- Options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_PYTORCH)
def test_arguments_defaults_and_repr_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(optim, name), getattr(torch.optim, name)

    def described(cls):
        parameters = inspect.signature(cls.__init__).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert described(ours) == described(theirs)
    a, b = ours([norch.ones(1, 1)]), theirs([torch.ones(1, 1)])
    assert repr(a) == repr(b)
    assert {k: v for k, v in a.param_groups[0].items() if k != "params"} == {
        k: v for k, v in b.param_groups[0].items() if k != "params"
    }


@pytest.mark.parametrize("name", NAMES)
def test_options_that_no_optimizer_can_have(name):
    for options, message in [
        (dict(lr=-1), "learning rate"),
        (dict(lr=norch.ones(2)), "one element"),
    ]:
        with pytest.raises(ValueError, match=f"{name}.*{message}"):
            made(name, parameter(), **options)
    known = inspect.signature(getattr(optim, name)).parameters
    for option, value in dict(eps=-1, weight_decay=-1, betas=(1.0, 0.5), momentum=-1, alpha=-1, rho=2).items():
        if option in known and (name, option) != ("ASGD", "alpha"):
            with pytest.raises(ValueError, match=f"{name}.*{option}"):
                made(name, parameter(), **{option: value})
    if "fused" in known:
        with pytest.raises(RuntimeError, match="`fused` and `foreach`"):
            made(name, parameter(), fused=True, foreach=True)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("NAdam", dict(momentum_decay=-1), "momentum_decay"),
        ("Adagrad", dict(lr_decay=-1), "lr_decay"),
        ("Adagrad", dict(initial_accumulator_value=-1), "initial_accumulator_value"),
        ("Rprop", dict(etas=(1.5, 1.2)), "etas"),
        ("Rprop", dict(etas=(0.5, 0.9)), "etas"),
        ("LBFGS", dict(line_search_fn="wolfe"), "strong_wolfe"),
    ],
)
def test_options_of_one_optimizer(name, options, message):
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        made(name, parameter(), **options)


@pytest.mark.parametrize("name", STEPWISE)
def test_options_that_choose_an_implementation_change_nothing(name):
    known = inspect.signature(getattr(optim, name)).parameters
    found = []
    for chosen in ({}, {"foreach": True}, {"fused": True}, {"capturable": True}):
        if all(option in known for option in chosen):
            p = parameter()
            train(made(name, p, **chosen), p, GRADS[:3])
            found.append(p.tolist())
    assert all(path == found[0] for path in found)


def test_groups_may_have_keys_of_the_users():
    optimizer = optim.SGD([{"params": [parameter()], "lr_scale": 0.5, "name": "body"}], lr=0.1)
    assert optimizer.param_groups[0]["lr_scale"] == 0.5
    assert "lr_scale: 0.5" in repr(optimizer)
    with pytest.raises(ValueError, match="SGD has no option 'betas'"):
        optimizer.add_param_group({"params": [parameter()], "betas": (0.9, 0.99)})


def test_parameters_with_names():
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.param_groups[0]["params"][0] is model.weight
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="others have none"):
        optimizer.add_param_group({"params": [parameter()]})
    with pytest.raises(ValueError, match="1 of 2 parameters"):
        optim.SGD([("a", parameter()), parameter()])


@pytest.mark.parametrize("name", STEPWISE)
def test_a_learning_rate_may_be_a_tensor(name):
    p, q = parameter(), parameter()
    lr = norch.tensor(0.25)
    optimizer = made(name, q, lr=lr)
    assert optimizer.param_groups[0]["lr"] is lr
    train(made(name, p, lr=0.25), p, GRADS[:3])
    train(optimizer, q, GRADS[:3])
    assert q.tolist() == p.tolist()


# --- Steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STEPWISE)
def test_each_parameter_counts_its_own_steps(name):
    late, other, alone = parameter(), parameter(), parameter()
    together, apart = made(name, late, other, lr=0.1), made(name, alone, lr=0.1)
    for i, g in enumerate(GRADS):
        for p in (other, alone, late):
            p.grad = norch.tensor(g)
        if i < 3:
            late.grad = None
        together.step()
        if i >= 3:
            apart.step()
    np.testing.assert_allclose(late.tolist(), alone.tolist(), rtol=1e-12)


@pytest.mark.parametrize("name", STEPWISE)
def test_a_later_option_begins_its_state(name):
    """Such as RMSprop's momentum, that a schedule switches on."""
    switches = {"RMSprop": dict(momentum=0.9, centered=True), "Adam": dict(amsgrad=True), "SGD": dict(momentum=0.9)}
    p = parameter()
    optimizer = made(name, p)
    train(optimizer, p, GRADS[:2])
    optimizer.param_groups[0].update(switches.get(name, {}))
    train(optimizer, p, GRADS[2:4])
    assert norch.isfinite(p).all().item()


def test_lion_takes_the_steps_of_its_paper():
    p, m, q = START.copy(), 0.0, parameter()
    for g in GRADS:
        p = p - 0.1 * (np.sign(0.8 * m + 0.2 * g) + 0.05 * p)
        m = 0.9 * m + 0.1 * g
    train(made("Lion", q, lr=0.1, betas=(0.8, 0.9), weight_decay=0.05), q, GRADS)
    np.testing.assert_allclose(q.tolist(), p, rtol=1e-12)


def test_zero_grad_keeps_what_was_passed():
    p = parameter()
    given = p.grad = norch.tensor(GRADS[0])
    optimizer = optim.Adam([p])
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.abs().sum().item() == 0
    assert given.tolist() == GRADS[0].tolist()


def test_hooks():
    seen = []
    optimizer = optim.SGD([parameter()], lr=0.1)
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append(("before", args, kwargs)))
    after = optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(("after", o)))
    optimizer.step()
    optimizer.step(None)
    assert seen == [("before", (), {}), ("after", optimizer), ("before", (None,), {}), ("after", optimizer)]
    before.remove()
    after.remove()
    optimizer.step()
    assert len(seen) == 4
    with optimizer.register_step_pre_hook(lambda o, args, kwargs: ((lambda: 5.0,), {})):
        assert optimizer.step() == 5.0
    with optimizer.register_step_pre_hook(lambda o, args, kwargs: 1), pytest.raises(TypeError, match="pre-hook"):
        optimizer.step()
    assert optimizer.step() is None


def test_hooks_of_states():
    optimizer = optim.SGD([parameter()], lr=0.1)
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("pre"))
    optimizer.register_state_dict_post_hook(lambda o, found: {**found, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, found: seen.append(found["more"]))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("post"))
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == ["pre", 1, "post"]


def test_an_optimizer_of_the_users():
    """As scripts write them for PyTorch."""

    class Halving(optim.Optimizer):
        def __init__(self, params, lr=optim.optimizer.required):
            super().__init__(params, dict(lr=lr))

        @norch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with norch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if len(state) == 0:
                        state["seen"] = 0
                    state["seen"] += 1
                    p.data.mul_(group["lr"])
            return loss

    with pytest.raises(ValueError, match="'lr', which it must"):
        Halving([parameter()])
    p = parameter([2.0])
    optimizer = Halving([p], lr=0.5)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    assert optimizer.step(lambda: 3) == 3
    assert (p.item(), optimizer.state[p]["seen"], calls) == (1.0, 1, [1])


def test_a_subclass_of_an_optimizer_keeps_its_constructor():
    class Annotated(optim.SGD):
        lr: float = 0.5
        note: str = "kept"

    class Halved(optim.Adam):
        def __init__(self, params, lr=1e-3, **options):
            super().__init__(params, lr / 2, **options)

    assert Annotated([parameter()]).param_groups[0]["lr"] == 1e-3
    assert Annotated([parameter()]).note == "kept"
    assert Halved([parameter()], 1.0, amsgrad=True).param_groups[0]["lr"] == 0.5
    with pytest.raises(TypeError, match=r"SGD.__init__\(\) missing 1 required positional argument: 'params'"):
        optim.SGD()
    with pytest.raises(TypeError, match=r"Adam.__init__\(\) got an unexpected keyword argument 'momentum'"):
        optim.Adam([parameter()], momentum=0.9)


# --- Sparse gradients and repeated parameters -------------------------------------------------------------------------


def test_sparse_adam_changes_the_rows_that_were_used():
    p = nn.Parameter(norch.ones(3, 2))
    optimizer = optim.SparseAdam([p], lr=0.1)
    for rows in ([0, 2], [2]):
        optimizer.zero_grad()
        p[rows].sum().backward()
        optimizer.step()
    m, v = 0.1 + 0.9 * 0.1, 0.001 + 0.999 * 0.001  # of row 2, after two steps
    second = 0.9 - 0.1 * (1 - 0.999**2) ** 0.5 / (1 - 0.9**2) * m / (v**0.5 + 1e-8)
    norch.testing.assert_close(p.detach(), norch.tensor([[0.9] * 2, [1.0] * 2, [second] * 2]))
    assert optimizer.state[p]["exp_avg"][1].tolist() == [0, 0]


def test_sparse_adam_gives_the_same_where_few_rows_are_used():
    rng = np.random.default_rng(3)
    start, g = rng.standard_normal((40, 3)), np.zeros((2, 40, 3))
    g[0, [1, 7, 39]], g[1, [7, 20]] = rng.standard_normal((3, 3)), rng.standard_normal((2, 3))
    g[1, 20, 0] = np.nan
    p, m, v = start.copy(), np.zeros((40, 3)), np.zeros((40, 3))
    table = nn.Parameter(norch.tensor(start))
    optimizer = optim.SparseAdam([table], lr=0.1, maximize=True)
    for t in (1, 2):
        table.grad = norch.tensor(g[t - 1])
        optimizer.step()
        rows = [1, 7, 39] if t == 1 else [7, 20]
        m[rows] += 0.1 * (-g[t - 1, rows] - m[rows])
        v[rows] += 0.001 * (g[t - 1, rows] ** 2 - v[rows])
        p[rows] -= 0.1 * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t) * m[rows] / (v[rows] ** 0.5 + 1e-8)
    np.testing.assert_allclose(table.detach().cpu().numpy(), p, rtol=1e-12)
    np.testing.assert_allclose(optimizer.state[table]["exp_avg_sq"].cpu().numpy(), v, rtol=1e-12)


def test_sparse_adam_is_pytorchs():
    torch = pytest.importorskip("torch")
    results = []
    for lib in (norch, torch):
        table = lib.nn.Embedding(6, 3, sparse=True)
        with lib.no_grad():
            table.weight.copy_(lib.arange(18.0).reshape(6, 3) / 10)
        optimizer = lib.optim.SparseAdam(list(table.parameters()), lr=0.05)
        for step in range(5):
            optimizer.zero_grad()
            (table(lib.tensor([step % 6, 2, 2])) ** 2).sum().backward()
            optimizer.step()
        results.append(table.weight.detach().cpu().numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in STEPWISE if n not in ("Lion", "Muon", "SparseAdam")])
def test_a_parameter_that_is_twice_in_a_group_takes_two_steps(name):
    torch = pytest.importorskip("torch")
    results = []
    for lib in (norch, torch):
        p, q = (lib.nn.Parameter(lib.tensor([1.0, -2.0, 0.5]) * k) for k in (1, 2))
        with pytest.warns(UserWarning, match="parameter"):
            optimizer = getattr(lib.optim, name)([p, q, p], lr=0.01, foreach=False)
        for k in range(3):
            optimizer.zero_grad()
            ((p - k) ** 2 + p * q).sum().backward()
            optimizer.step()
        state = optimizer.state_dict()
        assert state["param_groups"][0]["params"] == [2, 1, 2]
        optimizer.load_state_dict(state)
        results.append([*p.tolist(), *q.tolist(), float(optimizer.state_dict()["state"].get(2, {}).get("step", 0))])
    np.testing.assert_allclose(results[0][:6], results[1][:6], rtol=1e-5)
    if name != "SGD":
        assert results[0][6] == results[1][6] == 6


def test_muon_steps_are_nearly_orthogonal():
    for shape in ((3, 4), (4, 3), (5, 5)):
        p = nn.Parameter(norch.zeros(shape))
        p.grad = norch.tensor(np.random.default_rng(1).standard_normal(shape).astype(np.float32))
        optim.Muon([p], lr=1.0, weight_decay=0.5).step()
        values = np.linalg.svd(p.detach().cpu().numpy() / max(1, shape[0] / shape[1]) ** 0.5, compute_uv=False)
        assert 0.5 < values.min() <= values.max() < 1.3
    for options, message in (
        ({"ns_steps": 100}, "ns_steps must be below 100"),
        ({"ns_coefficients": (1, 2)}, "three numbers"),
        ({"adjust_lr_fn": "other"}, "adjust_lr_fn must be"),
    ):
        with pytest.raises(ValueError, match=message):
            optim.Muon([parameter()], **options)
    with pytest.raises(ValueError, match=r"matrices, got one of shape \(3,\)"):
        optim.Muon([nn.Parameter(norch.ones(3))])


def test_muon_and_adafactor_are_pytorchs():
    torch = pytest.importorskip("torch", minversion="2.13")
    start, rng = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32), np.random.default_rng(1)
    grads = rng.standard_normal((6, 5, 3)).astype(np.float32)
    for name, options, rtol in (
        ("Muon", {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, 1e-3),
        ("Muon", {"momentum": 0.5, "weight_decay": 0.0}, 1e-3),
        ("Adafactor", {"weight_decay": 0.1, "d": 2.0, "maximize": True, "eps": (1e-6, 1e-2)}, 1e-5),
        ("Adafactor", {"beta2_decay": -0.5, "lr": 0.5}, 1e-5),
    ):
        results = []
        for lib in (norch, torch):
            p = lib.nn.Parameter(lib.tensor(start))
            optimizer = getattr(lib.optim, name)([p], **options)
            for grad in grads:
                p.grad = lib.tensor(grad)
                optimizer.step()
            results.append(p.detach().cpu().numpy())
        np.testing.assert_allclose(results[0], results[1], rtol=rtol, atol=rtol / 10, err_msg=name)


def test_a_dict_becomes_the_group():
    """As in PyTorch: programs keep the dicts, and wrappers such as SAM share theirs with the optimiser inside."""
    p, given = parameter(), {"params": (q for q in [parameter()]), "lr": 0.5}
    optimizer = optim.SGD([given, {"params": p}], lr=0.1)
    assert optimizer.param_groups[0] is given
    assert (given["lr"], given["momentum"], len(given["params"])) == (0.5, 0, 1)
    start = given["params"][0].detach().clone()
    given["params"][0].grad = norch.ones_like(given["params"][0])
    given["lr"] = 2.0
    optimizer.step()
    assert norch.allclose(given["params"][0].detach(), start - 2.0)


def test_one_that_wraps_another():
    """Sharpness-aware minimisation has an option rho in the groups that it gives to the optimiser inside."""

    class SAM(optim.Optimizer):
        def __init__(self, params, base, rho, **options):
            super().__init__(params, {"rho": rho, "adaptive": False, **options})
            self.base = base(self.param_groups, **options)
            self.param_groups = self.base.param_groups

        def step(self):
            self.base.step()

    class Around(optim.Optimizer):  # an Optimizer by name alone
        def __init__(self, inner):
            self.inner = inner

        def step(self):
            return self.inner.step()

    p = parameter()
    start = p.detach().clone()
    sam = SAM([p], optim.SGD, rho=0.05, lr=0.1)
    sam.param_groups[0]["lr"] = 0.5
    p.grad = norch.ones_like(p)
    Around(sam).step()
    assert norch.allclose(p.detach(), start - 0.5)
    assert sam.base.param_groups[0]["rho"] == 0.05
