"""Small calls that a captured step makes as one: casts of weights, moving averages. The same bits."""

from __future__ import annotations

import numpy as np
import pytest
from capture_harness import same_bits
from native_backend import NativeBackend, on_cpu

import norch
from norch.backend.registry import register, unregister
from norch.capturing.recording import recorder_here
from norch.dispatch.call import run


class Listing(NativeBackend):
    """Has the kernel "casts" too, and steps of averages. What kernels compute on the CPU is no part of a recording."""

    device_type = "listing"

    def compile(self, op, operands, attrs):
        kernel = super().compile(op, operands, attrs) if op not in ("casts", "update_averages") else None

        def of_lists(*args):
            flat, count = iter(args), attrs["count"]
            tensors = [next(flat) if o.is_scalar else on_cpu(o, next(flat), next(flat)) for o in operands]
            with norch.no_grad():
                for to, source in zip(tensors[:count], tensors[count : 2 * count], strict=True):
                    to.copy_(source if op == "casts" else norch.lerp(to, source, tensors[-1]))

        def call(*args):
            recorder = recorder_here()
            if recorder is not None:
                recorder.hidden += 1
            try:
                (of_lists if kernel is None else kernel)(*args)
            finally:
                if recorder is not None:
                    recorder.hidden -= 1

        return None if kernel is None and op not in ("casts", "update_averages") else call

    def compute(self, entry, values):
        return run(entry, *values)


@pytest.fixture(autouse=True, scope="module")
def listing():
    backend = Listing()
    register(backend)
    yield backend
    unregister("listing")


def leaf(rng, *shape):
    return norch.tensor(rng.uniform(-1, 1, shape).astype(np.float32), device="listing").requires_grad_()


def feed(i):
    rng = np.random.default_rng(i)
    return (norch.tensor(rng.uniform(-1, 1, (6, 8)).astype(np.float32), device="listing"),)


def calls_of(make):
    captured = same_bits(make)
    return [call for entry in captured.entries.values() for program, _ in entry.programs for call in program.calls]


def test_casts_of_weights_are_one_call():
    def make():
        weights = [leaf(np.random.default_rng(k), 8, 8) for k in range(4)]

        def step(x):
            with norch.autocast("listing", norch.bfloat16):
                for weight in weights:
                    x = norch.linear(x, weight)
            x.float().sum().backward()
            with norch.no_grad():
                for weight in weights:
                    weight -= weight.grad * 0.1
                    weight.grad = None
            return x.detach()

        return step, feed, lambda: [w.detach() for w in weights]

    calls = calls_of(make)
    first, last = [call for call in calls if call.op == "casts"]
    assert first.attrs["count"] == 5  # what the step is given too
    assert calls.index(first) == 0
    assert last.attrs["count"] == 4  # the gradients, which nothing needs before the step


def test_casts_of_what_the_step_has_changed_stay():
    def make():
        weight, other = (leaf(np.random.default_rng(k), 8, 8) for k in range(2))

        def step(x):
            with norch.no_grad():
                weight.mul_(0.5)
                found = [t.to(norch.bfloat16) * x.to(norch.bfloat16).sum() for t in (weight, other)]
            return found

        return step, feed, lambda: [weight.detach(), other.detach()]

    (casts,) = [call for call in calls_of(make) if call.op == "casts"]
    assert casts.attrs["count"] == 2  # x and other


@pytest.mark.parametrize("shared", [False, True])
def test_moving_averages_are_one_call(shared):
    def make():
        averages = [norch.zeros(8, device="listing") for _ in range(6)]
        pairs = [averages[:2], averages[2:4], averages[2:4] if shared else averages[4:]]

        def step(x):
            with norch.no_grad():
                for mean, variance in pairs:
                    x = norch.batch_norm(x, mean, variance, training=True) + 0.5
            return x

        return step, feed, lambda: averages

    calls = [call for call in calls_of(make) if call.op == "update_averages"]
    assert [call.attrs["count"] for call in calls] == ([2, 2, 2] if shared else [6])
