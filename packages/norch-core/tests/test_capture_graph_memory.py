"""Captured functions whose results are part of a graph: whose memory is found, kept, used again and let go."""

import gc

import pytest
from capture_graph_harness import Net, bits, both, replayed

import norch


def test_frozen_weights_are_found(monkeypatch):
    net = Net()
    gc.freeze()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)  # the tests' own freezing is hidden: see conftest.py
    forward = norch.capture(net.__call__)
    for _ in range(6):
        x = norch.randn(5, 6)
        assert bits(forward(x)) == bits(net(x))
    assert replayed(forward) == [True]
    gc.freeze()


def test_what_was_recorded_is_looked_at_again():
    net = Net()
    scale = [1.0]

    class Scaled(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g * scale[0]

    forward = norch.capture(lambda x: Scaled.apply(x @ net.a))
    x = norch.ones(2, 6)

    def run():
        for i in range(24):
            if i == 10:
                scale[0] = 3.0  # which nothing watches
            net.zero()
            forward(x).sum().backward()

    with pytest.warns(UserWarning, match="not what was recorded"):
        run()
    assert net.a.grad[0, 0].item() == 6.0


def test_memory_of_recordings_is_let_go():
    net = Net()
    forward = norch.capture(net.__call__)
    for _ in range(8):
        forward(norch.randn(5, 6)).sum().backward()
        net.zero()
    gc.collect()
    alive = [t for t in gc.get_objects() if isinstance(t, norch.Tensor) and tuple(t.shape) == (5, 6)]
    assert alive == []


def test_gradients_on_memory_that_the_step_uses():
    def train(net, forward, i):
        net.zero()
        x = norch.randn(6, 6)
        y = norch.cat([forward(x), norch.zeros(6, 2)], 1)
        z = forward(x)
        if i < 4:  # while it is recorded the gradients are a weight, an argument, or one another
            norch.autograd.backward([z, y], [net.a.detach()[:, :4], x])
        else:
            norch.autograd.backward([z, y], [norch.randn(6, 4), norch.randn(6, 6)])
        return y

    both(train, 10)


def test_gradients_of_an_expanded_sum():
    def train(net, forward, i):
        net.zero()
        y = forward(norch.randn(5, 6))
        (y.sum() + y.mean(0).sum()).backward()
        return y

    assert replayed(both(train)) == [True]


def test_views_of_arguments_that_are_views():
    found = []
    for captured in (False, True):
        net = Net()

        def run(x, net=net):
            return x.t(), x + net.c

        forward = norch.capture(run) if captured else run
        norch.manual_seed(1)
        seen = []
        for _ in range(8):
            h = (norch.randn(6, 5).requires_grad_() * 2).t()
            y, z = forward(h)
            y.mul_(0.5)
            (y.sum() + z.sum() + h.sum()).backward()
            seen.append(bits([y, z, h, net.c.grad]))
        found.append(seen)
    assert found[0] == found[1]
    assert replayed(forward) == [True]
