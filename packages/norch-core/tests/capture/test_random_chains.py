"""Random steps with views, writes in place, copies and gradients: captured, they give the bits of eager ones."""

import random

import numpy as np
import pytest

import norch

N = 6


def clone_and(write):
    def op(p, q):
        y = p.clone()
        write(y, q)
        return y

    return op


def joined(p, q):
    y = norch.zeros(N, N)
    y[: N // 2].copy_(p[: N // 2])
    y[N // 2 :].add_(q[N // 2 :])
    return y


def split(p, q, dim):
    a, b, c = p.split([1, N - 2, 1], dim)
    return norch.cat([c, b * 2, a], dim) + q


def pooled(p, q, *window):
    y = norch.max_pool2d(norch.relu(p.reshape(1, 1, N, N)), *window)
    return q * y.reshape(-1)[:1] + y.sum()


OPS = [
    lambda p, q: -p,
    lambda p, q: p + q,
    lambda p, q: p * q,
    lambda p, q: norch.maximum(p, q),
    lambda p, q: p * -0.0,
    lambda p, q: norch.tanh(p) + norch.tanh(p),
    lambda p, q: norch.where(p > q, p, q * 0.5),
    lambda p, q: norch.tanh(p @ q),
    lambda p, q: p - q.sum(0, keepdim=True),
    lambda p, q: p.to(norch.float64).to(norch.float32) + q.to(norch.float64).to(norch.float32),
    lambda p, q: norch.cat([p[: N // 2], q[N // 2 :]]),
    lambda p, q: p.mT.contiguous(),
    lambda p, q: p.mT,
    lambda p, q: p.clone(),
    lambda p, q: (p * 1).relu_(),
    lambda p, q: split(p, q, 0),
    lambda p, q: split(p, q, 1),
    lambda p, q: pooled(p, q, 2),
    lambda p, q: pooled(p, q, 3, 2, 1),
    joined,
    clone_and(lambda y, q: y.add_(q)),
    clone_and(lambda y, q: y[:, 1:3].add_(q[:, 1:3])),
    clone_and(lambda y, q: y.mT.mul_(q)),
]


def make(seed):
    """A step, a leaf and a tensor that the step changes."""
    draw = random.Random(seed)
    plan = [(draw.choice(OPS), draw.random(), draw.random()) for _ in range(draw.randint(4, 20))]
    returned = draw.sample(range(len(plan)), 2)
    first = np.random.default_rng(seed)
    leaf = norch.tensor(first.standard_normal((N, N), np.float32)).requires_grad_()
    state = norch.tensor(first.standard_normal((N, N), np.float32))

    def step(x):
        leaf.grad = None
        made = [x * 1.5, leaf * x, state + x]
        for op, p, q in plan:
            made.append(op(made[int(p * len(made))], made[int(q * len(made))]))
        total = sum((norch.tanh(y) * (i + 1)).sum() for i, y in enumerate(made[-6:]))
        total.backward()
        state.mul_(0.5).add_(made[2])
        return total.detach(), *(made[3 + i].detach() for i in returned)

    return step, leaf, state


def bits(value):
    """The bytes of a tensor; all NaNs are one."""
    array = value.detach().numpy().copy()
    array[np.isnan(array)] = np.nan
    return array.tobytes()


@pytest.mark.parametrize("seed", range(30))
def test_random_chains(seed):
    (eager, leaf, state), (step, other_leaf, other_state) = make(seed), make(seed)
    captured = norch.capture(step)
    for run in range(5):
        numbers = np.random.default_rng(run).choice([0.0, -0.0, 1, -1, 0.3, -2.7, 1e-40], (N, N))
        x = norch.tensor(numbers.astype(np.float32))
        try:
            expected = eager(x)
        except norch.errors.AutogradError:
            return  # what a gradient needs was changed in place
        for a, b in zip(expected, captured(x), strict=True):
            assert bits(a) == bits(b)
        assert bits(leaf.grad) == bits(other_leaf.grad)
        assert bits(state) == bits(other_state)
