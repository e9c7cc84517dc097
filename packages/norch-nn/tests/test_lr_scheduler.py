"""Schedules: what trajectories.py does not show. Closed forms, resuming, saving, warnings and errors."""

import inspect
import json
import math
import warnings

import numpy as np
import pytest
from trajectories import SCHEDULERS, Schedulers

import norch
from norch import nn, optim
from norch.optim import lr_scheduler as schedules

pytestmark = pytest.mark.usefixtures("on_host")

NAMES = [n for n, v in vars(schedules).items() if isinstance(v, type) and v is not schedules.LRScheduler]


def sgd(*lrs, **options):
    lrs = lrs or (0.8,)
    return optim.SGD([{"params": [nn.Parameter(norch.ones(1))], "lr": lr} for lr in lrs], momentum=0.9, **options)


def advance(optimizer, scheduler, steps):
    """The rates of the first group at the end of each step."""
    rates = []
    for i in range(steps):
        optimizer.step()
        if isinstance(scheduler, schedules.ReduceLROnPlateau):
            scheduler.step(1 / (1 + i // 5))
        else:
            scheduler.step()
        rates.append(float(optimizer.param_groups[0]["lr"]))
    return rates


CLOSED = {
    "step": lambda e: 0.8 * 0.5 ** (e // 7),
    "multistep": lambda e: 0.8 * 0.5 ** sum(e >= m for m in [5, 12, 12, 30]),
    "constant": lambda e: 0.8 if e >= 11 else 0.8 * 0.3,
    "linear": lambda e: 0.8 * (0.1 + 0.9 * min(e, 20) / 20),
    "exponential": lambda e: 0.8 * 0.93**e,
    "polynomial": lambda e: 0.8 * (1 - min(e, 40) / 40) ** 1.7,
    "cosine": lambda e: 1e-3 + (0.8 - 1e-3) * (1 + math.cos(math.pi * e / 50)) / 2,
    "cosine_again": lambda e: 0.8 * (1 + math.cos(math.pi * e / 9)) / 2,
    "restarts": lambda e: 1e-3 + (0.8 - 1e-3) * (1 + math.cos(math.pi * (e % 12) / 12)) / 2,
    "lambda": lambda e: 0.8 * 0.95**e,
    "cyclic2": lambda e: 0.01 + 0.09 * (1 - abs((e % 16) / 8 - 1)) / 2 ** (e // 16),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name):
    optimizer = sgd()
    rates = advance(optimizer, SCHEDULERS[name](optimizer, Schedulers(norch)), 50)
    np.testing.assert_allclose(rates, [CLOSED[name](e) for e in range(1, 51)], rtol=1e-12, atol=1e-15)


def test_one_cycle():
    optimizer = sgd()
    scheduler = schedules.OneCycleLR(
        optimizer, 1.0, total_steps=101, pct_start=0.2, div_factor=10, final_div_factor=100
    )
    rates = [0.1, *advance(optimizer, scheduler, 100)]
    up = [0.1 + 0.9 * (1 - math.cos(math.pi * i / 19.2)) / 2 for i in range(20)]
    down = [1e-3 + 0.999 * (1 + math.cos(math.pi * (i - 19.2) / 80.8)) / 2 for i in range(20, 101)]
    np.testing.assert_allclose(rates, up + down, rtol=1e-12)
    assert optimizer.param_groups[0]["momentum"] == pytest.approx(0.95)
    optimizer.step()
    scheduler.step()
    with pytest.raises(ValueError, match="step 102, but the specified number of total steps is 101"):
        scheduler.step()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_each_group_has_its_own_rate(name):
    both, second = sgd(0.8, 0.2), sgd(0.2)
    ours, theirs = (SCHEDULERS[name](o, Schedulers(norch)) for o in (both, second))
    advance(both, ours, 17)
    advance(second, theirs, 17)
    assert both.param_groups[1]["lr"] == second.param_groups[0]["lr"]
    assert ours.get_last_lr() == [group["lr"] for group in both.param_groups]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_loaded_schedule_goes_on_the_same(name):
    first, second = sgd(), sgd()
    ours, theirs = (SCHEDULERS[name](o, Schedulers(norch)) for o in (first, second))
    advance(first, ours, 13)
    state, options = json.loads(json.dumps(ours.state_dict())), first.state_dict()
    before = json.dumps(state)
    second.load_state_dict(options)
    theirs.load_state_dict(state)
    assert json.dumps(state) == before
    assert advance(second, theirs, 20) == advance(first, ours, 20)
    assert theirs.get_last_lr() == ours.get_last_lr()
    assert theirs.last_epoch == ours.last_epoch if hasattr(ours, "last_epoch") else True


@pytest.mark.parametrize("name", [n for n in SCHEDULERS if n not in ("plateau", "sequential", "chained", "swa")])
def test_states_of_pytorch(name):
    torch = pytest.importorskip("torch")
    parameter = torch.ones(1, requires_grad=True)
    other = torch.optim.SGD([parameter], lr=0.8, momentum=0.9)
    theirs = SCHEDULERS[name](other, Schedulers(torch))
    parameter.grad = torch.ones(1)
    advance(other, theirs, 13)
    optimizer = sgd()
    ours = SCHEDULERS[name](optimizer, Schedulers(norch))
    optimizer.load_state_dict({"state": {}, "param_groups": other.state_dict()["param_groups"]})
    ours.load_state_dict(theirs.state_dict())
    np.testing.assert_allclose(advance(optimizer, ours, 20), advance(other, theirs, 20), rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize(
    "name", ["lambda", "step", "multistep", "exponential", "linear", "cosine", "polynomial", "cyclic"]
)
def test_resuming_with_last_epoch(name):
    whole, part = sgd(), sgd()
    expected = advance(whole, SCHEDULERS[name](whole, Schedulers(norch)), 30)
    advance(part, SCHEDULERS[name](part, Schedulers(norch)), 13)
    state = part.state_dict()
    resumed = sgd()
    resumed.load_state_dict(state)
    maker = {
        "lambda": lambda: schedules.LambdaLR(resumed, lambda e: 0.95**e, last_epoch=12),
        "step": lambda: schedules.StepLR(resumed, 7, 0.5, last_epoch=12),
        "multistep": lambda: schedules.MultiStepLR(resumed, [5, 12, 12, 30], 0.5, last_epoch=12),
        "exponential": lambda: schedules.ExponentialLR(resumed, 0.93, last_epoch=12),
        "linear": lambda: schedules.LinearLR(resumed, start_factor=0.1, total_iters=20, last_epoch=12),
        "cosine": lambda: schedules.CosineAnnealingLR(resumed, 50, 1e-3, last_epoch=12),
        "polynomial": lambda: schedules.PolynomialLR(resumed, 40, 1.7, last_epoch=12),
        "cyclic": lambda: schedules.CyclicLR(resumed, 0.01, 0.1, 6, 9, last_epoch=12),
    }
    scheduler = maker[name]()
    assert scheduler.last_epoch == 13
    np.testing.assert_allclose(resumed.param_groups[0]["lr"], expected[12], rtol=1e-12)
    np.testing.assert_allclose(advance(resumed, scheduler, 17), expected[13:], rtol=1e-12)


def test_resuming_needs_the_initial_rates():
    with pytest.raises(KeyError, match="initial_lr"):
        schedules.StepLR(sgd(), 3, last_epoch=5)


@pytest.mark.parametrize("name", ["step", "multistep", "constant", "linear", "exponential", "polynomial", "cosine"])
def test_a_given_epoch_uses_the_closed_form(name):
    optimizer = sgd()
    scheduler = SCHEDULERS[name](optimizer, Schedulers(norch))
    optimizer.step()
    for epoch in (3, 30, 8):
        with pytest.warns(UserWarning, match="epoch parameter"):
            scheduler.step(epoch)
        assert scheduler.get_last_lr() == [pytest.approx(CLOSED[name](epoch), rel=1e-12)]


@pytest.mark.parametrize("mult", [1, 2])
def test_restarts_at_fractions_of_epochs(mult):
    torch = pytest.importorskip("torch")
    optimizer = sgd()
    other = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.8)
    ours = schedules.CosineAnnealingWarmRestarts(optimizer, 3, mult, 0.01)
    theirs = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(other, 3, mult, 0.01)
    for i in range(60):
        ours.step(i / 4)
        theirs.step(i / 4)
        assert ours.get_last_lr() == [pytest.approx(theirs.get_last_lr()[0], rel=1e-12)]
    with pytest.raises(ValueError, match="non-negative"):
        ours.step(-1)


def test_a_step_before_the_optimizers_warns():
    optimizer = sgd()
    optimizer.step()  # before there was a schedule
    scheduler = schedules.StepLR(optimizer, 3)
    with pytest.warns(UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()
    scheduler.step()
    optimizer = sgd()
    scheduler = schedules.StepLR(optimizer, 3)
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()


def test_get_lr_is_not_for_users():
    scheduler = schedules.ExponentialLR(sgd(), 0.5)
    with pytest.warns(UserWarning, match="get_last_lr"):
        scheduler.get_lr()
    with schedules._enable_get_lr_call(scheduler) as same:  # as a `step` of one's own does
        assert same.get_lr() == [scheduler.get_last_lr()[0] * 0.5]


def test_rates_that_are_tensors():
    lr = norch.tensor(0.8, dtype=norch.float64)
    optimizer = optim.SGD([nn.Parameter(norch.ones(1))], lr=lr)
    scheduler = schedules.ExponentialLR(optimizer, 0.5)
    assert advance(optimizer, scheduler, 3) == [0.4, 0.2, 0.1]
    assert optimizer.param_groups[0]["lr"] is lr
    assert [float(x) for x in scheduler.get_last_lr()] == [0.1]
    assert [float(x) for x in scheduler.base_lrs] == [0.8]


def test_a_schedule_of_the_users():
    class Noam(schedules.LRScheduler):
        def __init__(self, optimizer, warmup, last_epoch=-1):
            self.warmup = warmup
            super().__init__(optimizer, last_epoch)

        def get_lr(self):
            step = self.last_epoch + 1
            return [lr * min(step**-0.5, step * self.warmup**-1.5) for lr in self.base_lrs]

    optimizer = sgd(1.0)
    scheduler = Noam(optimizer, 4)
    rates = [scheduler.get_last_lr()[0], *advance(optimizer, scheduler, 8)]
    assert max(rates) == rates[3] == pytest.approx(0.5)
    assert scheduler.state_dict()["warmup"] == 4
    with pytest.raises(NotImplementedError, match="get_lr"):
        schedules.LRScheduler(sgd())


class Halved:
    """A function with a state."""

    def __init__(self):
        self.factor = 1.0

    def __call__(self, epoch):
        return self.factor


@pytest.mark.parametrize("make", [schedules.LambdaLR, schedules.MultiplicativeLR])
def test_objects_as_functions_are_saved(make):
    first, second = Halved(), Halved()
    ours, theirs = make(sgd(), first), make(sgd(), [second])
    first.factor = 0.25
    theirs.load_state_dict(json.loads(json.dumps(ours.state_dict())))
    assert second.factor == 0.25


def test_a_scale_of_the_users():
    optimizer = sgd()
    scheduler = schedules.CyclicLR(optimizer, 0.0, 1.0, 4, scale_fn=lambda x: 1 / x, scale_mode="cycle")
    assert advance(optimizer, scheduler, 12)[3::8] == [1.0, 0.5]
    assert json.loads(json.dumps(scheduler.state_dict()))["total_size"] == 8


def test_plateau():
    optimizer = sgd(0.8, 0.02)
    scheduler = schedules.ReduceLROnPlateau(
        optimizer, "max", factor=0.5, patience=1, threshold=0.1, threshold_mode="abs", cooldown=2, min_lr=[0.1, 0.01]
    )
    rates = []
    for value in [
        1.0,
        1.05,
        1.09,
        1.0,
        norch.tensor(1.0),
        np.float64(1.0),
        1.0,
        1.0,
        3.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
    ]:
        scheduler.step(value)
        rates.append(tuple(scheduler.get_last_lr()))
    assert rates[1:3] == [(0.8, 0.02), (0.4, 0.01)]
    assert rates[5:7] == [(0.4, 0.01), (0.2, 0.01)]
    assert rates[-1] == (0.1, 0.01)
    assert scheduler.best == 3.0
    optimizer.add_param_group({"params": [nn.Parameter(norch.ones(1))]})
    with pytest.raises(RuntimeError, match="3 groups, but there are 2 min_lrs"):
        for _ in range(9):
            scheduler.step(0.0)


def test_plateau_beside_pytorch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    for mode in ("min", "max"):
        for threshold_mode in ("rel", "abs"):
            optimizer, other = sgd(), torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.8)
            how = dict(mode=mode, patience=2, factor=0.7, threshold=0.05, threshold_mode=threshold_mode, cooldown=1)
            ours = schedules.ReduceLROnPlateau(optimizer, **how)
            theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(other, **how)
            for value in rng.standard_normal(60):
                ours.step(value)
                theirs.step(value)
                assert ours.get_last_lr() == theirs.get_last_lr()


def test_sequences_in_sequences():
    torch = pytest.importorskip("torch")

    def rates(framework, optimizer):
        s = framework.optim.lr_scheduler
        inner = s.SequentialLR(optimizer, [s.ConstantLR(optimizer, 0.5), s.ExponentialLR(optimizer, 0.9)], [2])
        chained = s.ChainedScheduler([s.StepLR(optimizer, 2, 0.7), s.ExponentialLR(optimizer, 0.95)])
        outer = s.SequentialLR(optimizer, [s.LinearLR(optimizer, 0.1, total_iters=3), s.StepLR(optimizer, 3)], [4])
        found = []
        for scheduler in (inner, chained, outer):
            for _ in range(10):
                optimizer.step()
                scheduler.step()
                found += scheduler.get_last_lr()
        return found

    p = torch.ones(1, requires_grad=True)
    expected = rates(torch, torch.optim.SGD([p], lr=0.8))
    np.testing.assert_allclose(rates(norch, sgd()), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda o: schedules.StepLR(o.state, 3), TypeError, "not an Optimizer"),
        (lambda o: schedules.ReduceLROnPlateau(o.state), TypeError, "not an Optimizer"),
        (lambda o: schedules.OneCycleLR(o.state, 1.0, 10), TypeError, "not an Optimizer"),
        (lambda o: schedules.LambdaLR(o, [abs, abs]), ValueError, "1 lr_lambdas"),
        (lambda o: schedules.MultiplicativeLR(o, 0.5), TypeError, "float"),
        (lambda o: schedules.ConstantLR(o, 1.5), ValueError, "between 0 and 1"),
        (lambda o: schedules.LinearLR(o, 0.0), ValueError, "start_factor"),
        (lambda o: schedules.LinearLR(o, 0.5, -0.5), ValueError, "end_factor"),
        (lambda o: schedules.CosineAnnealingWarmRestarts(o, 0), ValueError, "T_0"),
        (lambda o: schedules.CosineAnnealingWarmRestarts(o, 2, 1.5), ValueError, "T_mult"),
        (lambda o: schedules.OneCycleLR(o, 1.0), ValueError, "total_steps OR"),
        (lambda o: schedules.OneCycleLR(o, 1.0, 0), ValueError, "positive integer total_steps"),
        (lambda o: schedules.OneCycleLR(o, 1.0, epochs=0, steps_per_epoch=2), ValueError, "positive integer epochs"),
        (lambda o: schedules.OneCycleLR(o, 1.0, 10, pct_start=2.0), ValueError, "pct_start"),
        (lambda o: schedules.OneCycleLR(o, 1.0, 10, anneal_strategy="exp"), ValueError, "anneal_strategy"),
        (lambda o: schedules.OneCycleLR(o, [1.0, 1.0], 10), ValueError, "max_lr must have the same length"),
        (lambda o: schedules.CyclicLR(o, 0.1, 1.0, mode="round"), ValueError, "mode must be"),
        (lambda o: schedules.ReduceLROnPlateau(o, factor=1.0), ValueError, "factor"),
        (lambda o: schedules.ReduceLROnPlateau(o, "least"), ValueError, "mode 'least'"),
        (lambda o: schedules.ReduceLROnPlateau(o, threshold_mode="x"), ValueError, "threshold_mode 'x'"),
        (lambda o: schedules.ReduceLROnPlateau(o, min_lr=[0, 0]), ValueError, "1 min_lrs"),
        (lambda o: schedules.SequentialLR(o, [], []), ValueError, "no scheduler"),
        (lambda o: schedules.SequentialLR(o, [schedules.StepLR(o, 1)], [1]), ValueError, "1 schedulers and 1 miles"),
        (lambda o: schedules.SequentialLR(o, [o.state], []), TypeError, "not a scheduler of an optimizer"),
        (lambda o: schedules.SequentialLR(o, [schedules.ReduceLROnPlateau(o)], []), ValueError, "metrics"),
        (lambda o: schedules.ChainedScheduler([schedules.StepLR(sgd(), 1)], o), ValueError, "same optimizer"),
    ],
)
def test_what_schedules_refuse(make, error, message):
    with pytest.raises(error, match=message):
        make(sgd())


@pytest.mark.parametrize(
    "make", [lambda o: schedules.OneCycleLR(o, 1.0, 10), lambda o: schedules.CyclicLR(o, 0.1, 1.0)]
)
def test_momentum_is_needed_to_turn_it(make):
    with pytest.raises(ValueError, match="Rprop does not"):
        make(optim.Rprop([nn.Parameter(norch.ones(1))]))


def test_names_are_pytorchs():
    torch = pytest.importorskip("torch")
    theirs = torch.optim.lr_scheduler
    assert set(theirs.__all__) == {"LRScheduler", *NAMES}
    for name in NAMES:
        a, b = (inspect.signature(getattr(m, name).__init__).parameters.values() for m in (schedules, theirs))
        assert [(p.name, p.kind, p.default) for p in a] == [(p.name, p.kind, p.default) for p in b], name
