"""The optimisers by name, and how tests make one and take its steps."""

import inspect

import numpy as np

import norch
from norch import nn, optim

NAMES = [n for n in vars(optim) if inspect.isclass(getattr(optim, n)) and n != "Optimizer"]
STEPWISE = [n for n in NAMES if n != "LBFGS"]
OF_PYTORCH = [n for n in NAMES if n != "Lion"]
RNG = np.random.default_rng(2)
START = RNG.standard_normal((3, 4))
GRADS = RNG.standard_normal((8, 3, 4))


def made(name, *params, **options):
    return getattr(optim, name)(list(params), **options)


def parameter(value=START):
    return nn.Parameter(norch.tensor(value))


def train(optimizer, p, grads):
    for g in grads:
        p.grad = norch.tensor(g)
        optimizer.step(lambda: norch.ones(()))
