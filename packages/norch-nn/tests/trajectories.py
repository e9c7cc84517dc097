"""Training runs that norch and PyTorch make alike: 50 steps of a small network, with each optimiser and schedule.

`run` takes either framework. What PyTorch gave is in trajectories.json; make_trajectories.py writes it.
"""

from __future__ import annotations

import math

import numpy as np

STEPS = 50

OPTIMIZERS = {
    "sgd": ("SGD", dict(lr=0.1, weight_decay=0.01)),
    "sgd_momentum": ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.2)),
    "sgd_nesterov": ("SGD", dict(lr=0.05, momentum=0.9, nesterov=True)),
    "adam": ("Adam", dict(lr=0.01)),
    "adam_decay": ("Adam", dict(lr=0.01, weight_decay=0.1, betas=(0.8, 0.95))),
    "adam_amsgrad": ("Adam", dict(lr=0.02, amsgrad=True, betas=(0.8, 0.9))),
    "adam_decoupled": ("Adam", dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)),
    "adamw": ("AdamW", dict(lr=0.01, weight_decay=0.1)),
    "adamw_amsgrad": ("AdamW", dict(lr=0.02, amsgrad=True, eps=1e-3)),
    "adamax": ("Adamax", dict(lr=0.01)),
    "adamax_decay": ("Adamax", dict(lr=0.02, weight_decay=0.1, betas=(0.8, 0.9))),
    "nadam": ("NAdam", dict(lr=0.01)),
    "nadam_decay": ("NAdam", dict(lr=0.01, weight_decay=0.1, momentum_decay=0.1)),
    "nadam_decoupled": ("NAdam", dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)),
    "radam": ("RAdam", dict(lr=0.02)),
    "radam_decay": ("RAdam", dict(lr=0.02, weight_decay=0.1, betas=(0.8, 0.9))),
    "radam_decoupled": ("RAdam", dict(lr=0.02, weight_decay=0.1, decoupled_weight_decay=True)),
    "rmsprop": ("RMSprop", dict(lr=0.003)),
    "rmsprop_centered": ("RMSprop", dict(lr=0.003, centered=True, weight_decay=0.1)),
    "rmsprop_momentum": ("RMSprop", dict(lr=0.002, momentum=0.8, alpha=0.9)),
    "rmsprop_both": ("RMSprop", dict(lr=0.002, momentum=0.8, centered=True, eps=1e-3)),
    "adagrad": ("Adagrad", dict(lr=0.05)),
    "adagrad_decay": ("Adagrad", dict(lr=0.05, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.2)),
    "adadelta": ("Adadelta", dict(lr=1.0)),
    "adadelta_decay": ("Adadelta", dict(lr=2.0, rho=0.8, eps=1e-4, weight_decay=0.1)),
    "asgd": ("ASGD", dict(lr=0.1, t0=20, lambd=0.01)),
    "asgd_decay": ("ASGD", dict(lr=0.1, weight_decay=0.1, alpha=0.5)),
    "rprop": ("Rprop", dict(lr=0.01)),
    "rprop_etas": ("Rprop", dict(lr=0.02, etas=(0.4, 1.1), step_sizes=(1e-3, 0.1))),
    "lbfgs": ("LBFGS", dict(lr=0.5, max_iter=2, history_size=5)),
    "lbfgs_wolfe": ("LBFGS", dict(max_iter=2, line_search_fn="strong_wolfe")),
    "maximize": ("AdamW", dict(lr=0.01, maximize=True)),
}
"""Runs by name: the optimiser and its options."""

SCHEDULERS = {
    "lambda": lambda o, s: s.LambdaLR(o, lambda epoch: 0.95**epoch),
    "multiplicative": lambda o, s: s.MultiplicativeLR(o, lambda epoch: 1 - 0.5 / (epoch + 1)),
    "step": lambda o, s: s.StepLR(o, 7, gamma=0.5),
    "multistep": lambda o, s: s.MultiStepLR(o, [5, 12, 12, 30], gamma=0.5),
    "constant": lambda o, s: s.ConstantLR(o, factor=0.3, total_iters=11),
    "linear": lambda o, s: s.LinearLR(o, start_factor=0.1, total_iters=20),
    "linear_down": lambda o, s: s.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=40),
    "exponential": lambda o, s: s.ExponentialLR(o, 0.93),
    "polynomial": lambda o, s: s.PolynomialLR(o, total_iters=40, power=1.7),
    "cosine": lambda o, s: s.CosineAnnealingLR(o, 50, eta_min=1e-3),
    "cosine_again": lambda o, s: s.CosineAnnealingLR(o, 9),
    "restarts": lambda o, s: s.CosineAnnealingWarmRestarts(o, 12, eta_min=1e-3),
    "restarts_longer": lambda o, s: s.CosineAnnealingWarmRestarts(o, 5, T_mult=2),
    "one_cycle": lambda o, s: s.OneCycleLR(o, 0.2, total_steps=STEPS + 1),
    "one_cycle_linear": lambda o, s: s.OneCycleLR(
        o, 0.2, epochs=3, steps_per_epoch=17, anneal_strategy="linear", three_phase=True, pct_start=0.4
    ),
    "cyclic": lambda o, s: s.CyclicLR(o, 0.01, 0.1, step_size_up=6, step_size_down=9),
    "cyclic2": lambda o, s: s.CyclicLR(o, 0.01, 0.1, step_size_up=8, mode="triangular2", cycle_momentum=False),
    "cyclic_exp": lambda o, s: s.CyclicLR(o, 0.01, 0.1, step_size_up=8, mode="exp_range", gamma=0.97),
    "plateau": lambda o, s: s.ReduceLROnPlateau(o, factor=0.5, patience=2, threshold=0.02, cooldown=1, min_lr=1e-3),
    "sequential": lambda o, s: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=10), s.CosineAnnealingLR(o, 25), s.ConstantLR(o, 0.5)], [10, 35]
    ),
    "chained": lambda o, s: s.ChainedScheduler([s.ConstantLR(o, 0.2, total_iters=9), s.ExponentialLR(o, 0.95)]),
    "swa": lambda o, s: s.SWALR(o, swa_lr=0.02, anneal_epochs=20),
}
"""Schedules by name: each of SGD with momentum, and of Adam where it turns the momentum."""


class Schedulers:
    """The schedulers of a framework by name."""

    def __init__(self, framework):
        self.modules = framework.optim.lr_scheduler, framework.optim.swa_utils

    def __getattr__(self, name):
        return getattr(self.modules[name == "SWALR"], name)


def network(framework, dtype):
    """Parameters, and the function that computes the loss of a fixed batch."""
    rng = np.random.default_rng(11)
    shapes = (5, 8), (8,), (8, 8), (8,), (8, 1), (1,)
    arrays = [rng.standard_normal(shape) / math.sqrt(shape[0]) for shape in shapes]
    params = [framework.tensor(a, dtype=dtype, requires_grad=True) for a in arrays]
    x = rng.standard_normal((16, 5))
    y = np.sin(x.sum(1, keepdims=True)) + 0.1 * rng.standard_normal((16, 1))
    x, y = framework.tensor(x, dtype=dtype), framework.tensor(y, dtype=dtype)

    def loss():
        hidden = framework.tanh(x @ params[0] + params[1])
        hidden = framework.tanh(hidden @ params[2] + params[3])
        error = hidden @ params[4] + params[5] - y
        return (error * error).mean()

    return params, loss


def run(framework, optimizer, options, scheduler=None):
    """The losses of 50 steps, the learning rates and the momenta at the end of each, and the last weights."""
    params, loss = network(framework, framework.float64)
    groups = [{"params": params[:2]}, {"params": params[2:], "lr": options.get("lr", 1) / 2}]
    one = optimizer == "LBFGS"
    optimizer = getattr(framework.optim, optimizer)(params if one else groups, **options)
    schedule = None if scheduler is None else SCHEDULERS[scheduler](optimizer, Schedulers(framework))
    losses, rates, momenta = [], [], []

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(STEPS):
        value = optimizer.step(closure)
        losses.append(value.item())
        if scheduler == "plateau":
            schedule.step(value.detach())
        elif schedule is not None:
            schedule.step()
        rates += [float(group["lr"]) for group in optimizer.param_groups]
        momenta += [
            group.get("momentum", group.get("betas", [0])[0]) for group in optimizer.param_groups[:1] if not one
        ]
    weights = np.concatenate([p.detach().cpu().numpy().ravel() for p in params])
    return {"losses": losses, "rates": rates, "momenta": [float(m) for m in momenta], "weights": weights.tolist()}


def run_optimizer(framework, name):
    return run(framework, *OPTIMIZERS[name])


def run_scheduler(framework, name):
    """With SGD and momentum; the cycles with Adam."""
    if name in ("one_cycle", "cyclic_exp"):
        return run(framework, "Adam", dict(lr=0.01), name)
    return run(framework, "SGD", dict(lr=0.05, momentum=0.8), name)


def summary(found):
    """What is kept of a run: every fifth loss, every third rate and momentum, every eighth weight."""
    return {
        "losses": found["losses"][4::5],
        "rates": found["rates"][::3] if len(set(found["rates"])) > 2 else [],
        "momenta": found["momenta"][::3] if len(set(found["momenta"])) > 1 else [],
        "weights": found["weights"][::8],
    }
