"""Captured functions whose results are part of a graph: what is differentiated later is what eager would give, bit for
bit."""

import gc
from weakref import ref

import pytest
from capture_graph_harness import Net, bits, both, replayed

import norch
from norch.errors import AutogradError


def test_forward_and_backward_are_replayed():
    def train(net, forward, i):
        loss = (forward(norch.randn(5, 6)) ** 2).mean()
        net.zero()
        loss.backward()
        net.step()
        return loss

    assert replayed(both(train)) == [True]


@pytest.mark.parametrize("every", [2, 3])
def test_gradients_are_gathered_as_eager_gathers_them(every):
    def train(net, forward, i):
        loss = (forward(norch.randn(5, 6)) ** 2).mean()
        loss.backward()
        if i % every == every - 1:
            net.step()
            net.zero()
        return loss

    assert replayed(both(train, 16)) == [True]


def test_an_argument_gets_its_gradient_in_order():
    w = norch.randn(6, 6)

    def train(net, forward, i):
        x = norch.randn(5, 6).requires_grad_()
        h = (x @ w).tanh()  # used before, inside and after: three contributions, whose sum depends on their order
        loss = (forward(h) ** 2).sum() + (h * 3.1).sin().sum() + (forward(h * 0.7)).sum()
        loss.backward()
        net.zero()
        return loss, x.grad

    assert replayed(both(train)) == [True]


def test_several_forwards_before_their_backwards():
    def train(net, forward, i):
        net.zero()
        losses = [(forward(norch.randn(5, 6)) ** 2).mean() for _ in range(3)]
        for loss in (losses[1], losses[0], losses[2]):
            loss.backward()
        net.step()
        return losses

    assert replayed(both(train)) == [True]


def test_one_backward_through_several_forwards():
    def train(net, forward, i):
        net.zero()
        x = norch.randn(5, 6)
        out = forward(x)
        for _ in range(3):
            out = forward(norch.cat([out, x[:, 4:]], 1))
        out.sum().backward()
        net.step()
        return out

    both(train)


def test_retained_graphs_and_freed_ones():
    def train(net, forward, i):
        net.zero()
        y = forward(norch.randn(5, 6))
        loss = (y * y).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(AutogradError, match="differentiated before"):
            y.sum().backward()
        return y

    both(train)


def test_grad_instead_of_backward():
    def train(net, forward, i):
        x = norch.randn(5, 6).requires_grad_()
        h = x * 2
        y = forward(h)
        wanted = [net.a, h] if i % 2 else [net.c]
        return norch.autograd.grad((y * y).sum(), wanted)

    assert replayed(both(train, 14)) == [True]


def test_create_graph():
    def train(net, forward, i):
        net.zero()
        x = norch.randn(5, 6).requires_grad_()
        h = x.sin()
        y = forward(h)
        (g,) = norch.autograd.grad(y.tanh().sum(), h, create_graph=True)
        (g * g).sum().backward()
        return g, x.grad

    both(train)


def test_unused_results_and_other_subsets():
    def pair(net):
        def run(x):
            h = (x @ net.a).tanh()
            return h, {"y": h @ net.b, "n": 3, "z": (h @ net.a).detach()}

        return run

    found = []
    for captured in (False, True):
        net = Net()
        run = norch.capture(pair(net)) if captured else pair(net)
        norch.manual_seed(1)
        seen = []
        for i in range(14):
            h, rest = run(norch.randn(5, 6))
            assert rest["n"] == 3
            assert not rest["z"].requires_grad
            (h.sum() if i % 3 == 0 else rest["y"].sum() if i % 3 == 1 else (rest["y"] * h[:, :4]).sum()).backward()
            seen.append(bits([h, rest["y"], rest["z"], *[p.grad for p in net.parameters()]]))
            net.zero()
        found.append(seen)
    assert found[0] == found[1]


def test_without_a_backward_pass_it_is_replayed_and_its_memory_freed():
    net = Net()
    forward = norch.capture(net.__call__)
    for _ in range(5):
        y = forward(norch.ones(5, 6))
    assert replayed(forward) == [True]
    assert y.requires_grad
    assert y.node.graph is None
    tensor = ref(y)
    del y
    gc.collect()
    assert tensor() is None
    # A pass that comes after all runs the step once more.
    y = forward(norch.ones(5, 6))
    y.sum().backward()
    grads = bits([p.grad for p in net.parameters()])
    net.zero()
    net(norch.ones(5, 6)).sum().backward()
    assert grads == bits([p.grad for p in net.parameters()])


def test_hooks_of_leaves_and_results():
    def train(net, forward, i):
        if i == 0:
            net.seen = []
            net.a.register_hook(lambda g: g * 1.5)
            net.b.register_post_accumulate_grad_hook(lambda p: net.seen.append(bits(p.grad)))
        y = forward(norch.randn(5, 6))
        y.register_hook(lambda g: g + 0.1)
        if i == 5:
            net.c.register_hook(lambda g: g * 0.5)
        (y * y).sum().backward()
        return y, net.seen and list(net.seen[-1])[1:]

    both(train, 12)


def test_dropout_is_the_same_in_both_directions():
    found = []
    for captured in (False, True):
        net = Net()

        def run(x, net=net):
            return norch.dropout(x @ net.a, 0.4, True) @ net.b + norch.randn(5, 4)

        forward = norch.capture(run) if captured else run
        norch.manual_seed(7)
        seen = []
        for i in range(8):
            forward(norch.randn(5, 6)).sum().backward()
            seen.append(bits([p.grad for p in (net.a, net.b)]))
            if i == 5:
                norch.manual_seed(8)
        found.append(seen)
    assert found[0] == found[1]
    assert replayed(forward) == [True]


def test_changes_in_place_between_forward_and_backward_are_found():
    def train(net, forward, i):
        x = norch.randn(5, 6)
        y = forward(x)
        x.zero_()
        with pytest.raises(AutogradError, match="in place since"):
            y.sum().backward()
        y = forward(norch.randn(5, 6))
        with norch.no_grad():
            net.b.mul_(0.9)
        with pytest.raises(AutogradError, match="in place since"):
            y.sum().backward()
        net.zero()
        y = forward(norch.randn(5, 6))
        y.sum().backward()

    both(train)


def test_results_may_be_changed_in_place():
    def train(net, forward, i):
        net.zero()
        y = forward(norch.randn(5, 6))
        y *= 2
        y[0] = 1.0
        y.sum().backward()
        return y

    assert replayed(both(train)) == [True]


def test_results_that_are_views():
    found = []
    for captured in (False, True):
        net = Net()

        def run(x, z, net=net):
            left, right = (x @ net.a).chunk(2, 1)
            return left, right, z.view(-1), left

        forward = norch.capture(run) if captured else run
        norch.manual_seed(7)
        seen = []
        for _ in range(8):
            x = norch.randn(5, 6).requires_grad_()
            h = x * 2
            z = h + 1
            left, right, flat, again = forward(h, z)
            assert again is left
            right.mul_(3)
            left.add_(1)
            z.mul_(0.5)  # seen through the view
            ((left * right).sum() + flat.sum()).backward()
            seen.append(bits([left, right, flat, net.a.grad, x.grad]))
        found.append(seen)
    assert found[0] == found[1]
    assert replayed(forward) == [True]


def test_what_a_replay_could_not_leave_behind_is_left_eager():
    net = Net()

    def run(x):
        h = (x @ net.a).tanh()
        net.kept = h
        return h @ net.b

    forward = norch.capture(run)
    for _ in range(6):
        x = norch.randn(5, 6)
        forward(x)
        assert bits(net.kept) == bits((x @ net.a).tanh())
    assert "kept" in next(iter(forward.entries.values())).refusal

    def result(x):
        net.kept = h = (x @ net.a).tanh()
        return h

    forward = norch.capture(result)
    for _ in range(6):
        y = forward(norch.randn(5, 6))
        assert bits(net.kept) == bits(y)


def test_an_argument_that_is_returned():
    net = Net()
    forward = norch.capture(lambda x, y: (x, y @ net.a))
    for _ in range(6):
        x, y = norch.randn(5, 6), norch.randn(5, 6)
        out, _ = forward(x, y)
        assert out is x
    assert replayed(forward) == [True]


def test_leaves_as_arguments():
    net = Net()
    forward = norch.capture(net.__call__)
    for _ in range(12):
        x = norch.randn(5, 6).requires_grad_()
        forward(x).sum().backward()
        got = bits(x.grad)
        other = x.detach().requires_grad_()
        net(other).sum().backward()
        assert got == bits(other.grad)


class Normed(Net):
    """Its first layer is normed, and keeps running averages, which its results depend on if `uses`."""

    def __init__(self, uses=False):
        super().__init__()
        self.mean, self.uses = norch.zeros(6), uses

    def __call__(self, x):
        h = x @ self.a
        mean = h.mean(0)
        if self.uses:
            h = h - self.mean
        with norch.no_grad():
            self.mean.mul_(0.9).add_(mean.detach(), alpha=0.1)
        return (h - mean).tanh() @ self.b


@pytest.mark.parametrize("late", [5, 12])
def test_a_forward_that_changes_state_is_replayed_before_any_backward(late):
    found = []
    for wrap in (lambda f: f, norch.capture):
        net = Normed()
        forward = wrap(net.__call__)
        norch.manual_seed(3)
        seen = []
        for i in range(14):
            out = forward(norch.randn(5, 6))
            if i >= late:  # one that was replayed, and whose backward pass nobody has seen yet
                net.zero()
                (out**2).mean().backward()
            seen.append((bits(out), bits(net.mean), bits([p.grad for p in net.parameters()])))
        found.append(seen)
    assert found[0] == found[1]
    assert forward.report().replayed >= late - 4


def test_a_state_that_results_depend_on_waits_for_a_backward_pass_and_says_so():
    net = Normed(uses=True)
    forward = norch.capture(net.__call__)
    for i in range(12):
        forward(norch.randn(5, 6))
        if i >= 3:
            assert "no backward pass goes through its results" in str(forward.report())
    assert "not replayed" in str(forward.report())
    assert forward.report().replayed == 0
