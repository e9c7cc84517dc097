"""Training leaves nothing behind: memory and objects after many steps are what they were after few."""

import gc
import tracemalloc

import pytest

import norch
from norch import nn, optim


def trainer():
    model = nn.Sequential(nn.Linear(1, 10), nn.Sigmoid(), nn.Linear(10, 1))
    criterion = nn.MSELoss()
    optimizer = optim.SGD(model.parameters(), lr=0.001, momentum=0.5)

    def train(steps):
        for i in range(steps):
            x, target = norch.Tensor([[i * 0.4]]).T, norch.Tensor([[0.5]]).T
            loss = criterion(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return train


def test_two_thousand_steps_leave_no_objects():
    train = trainer()
    train(100)
    gc.collect()
    before = len(gc.get_objects())
    gc.disable()  # what only the cycle collector frees counts as a leak as well
    try:
        train(2_000)
        after = len(gc.get_objects())
    finally:
        gc.enable()
    assert after - before < 50


@pytest.mark.slow
def test_a_thousand_steps_leave_no_memory():
    train = trainer()
    grown = []
    tracemalloc.start()
    try:
        train(100)
        for _ in range(4):
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            train(250)
            gc.collect()
            grown.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    # The interpreter's own caches fill up now and then; a leak grows in every round.
    assert min(grown) < 2_500, grown


def test_a_changing_learning_rate_compiles_nothing():
    p = nn.Parameter(norch.ones(2))
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.01)
    compiled = []
    backend = type(p.device.backend)
    compile_kernel = backend.compile

    def counting(self, *args):
        compiled.append(args[0])
        return compile_kernel(self, *args)

    def step(lr):
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()

    step(0.1)
    step(0.05)
    backend.compile = counting
    try:
        for i in range(10):
            step(0.01 / (i + 1))
        step(0)
    finally:
        backend.compile = compile_kernel
    assert compiled == []
