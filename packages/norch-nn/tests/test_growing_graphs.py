"""One warning where a graph outlives the steps of an optimiser, naming the line; none where that is as it should be."""

import inspect
import random
import warnings

import pytest

import norch
from norch import nn

STEPS = 45


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    growth = inspect.getmodule(norch.autograd.note_step)
    monkeypatch.setattr(growth, "_told", set())
    with norch.autograd.record_lines(False):
        yield


def model(*widths):
    norch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def parts(kind=norch.optim.SGD, lr=0.01):
    net = model()
    return net, kind(net.parameters(), lr=lr), norch.rand(5, 3), norch.rand(5, 1)


def trained(keep, every=1):
    """Trains, and calls `keep(loss)` after each step."""
    net, optimizer, x, y = parts()
    for i in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)  # loss
        loss.backward()
        optimizer.step()
        if i % every == 0:
            keep(loss, net(x))


def line_of(text):
    source, _ = inspect.getsourcelines(inspect.getmodule(line_of))
    return next(i for i, line in enumerate(source, 1) if line.rstrip().endswith(f"# {text}"))


def warned(program, text, *arguments):
    """Runs a program that warns once, of the line of this file that ends in `# text`."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        program(*arguments)
    (found,) = seen
    assert (found.filename, found.lineno, found.category) == (__file__, line_of(text), UserWarning)
    message = str(found.message)
    assert f"test_growing_graphs.py:{line_of(text)}" in message
    assert "`.item()`" in message
    assert "`.detach()`" in message
    return message


def test_other_graphs_from_before_are_not_blamed():
    net, x = model(), norch.rand(5, 3)
    with norch.autograd.record_lines():
        others = [net(x).sum() for _ in range(60)]
    losses = []
    warned(trained, "loss", lambda loss, _: losses.append(loss))
    assert len(others) == 60


def test_a_sum_of_losses():
    total = 0

    def keep(loss, _):
        nonlocal total
        total = total + loss  # sum

    assert "results of add are summed up" in warned(trained, "sum", keep)


def test_a_sum_in_place():
    total = norch.zeros(())

    def keep(loss, _):
        nonlocal total
        total += loss  # in place

    assert "summed up" in warned(trained, "in place", keep)


def test_a_moving_average():
    average = 0.0

    def keep(loss, _):
        nonlocal average
        average = 0.9 * average + 0.1 * loss  # average

    assert "summed up" in warned(trained, "average", keep)


@pytest.mark.parametrize("every", [1, 3])
def test_a_history_of_losses(every):
    history = []
    message = warned(trained, "loss", lambda loss, _: history.append(loss), every)
    assert "results of mse_loss are kept" in message


def test_no_code_of_other_objects_runs():
    class Deprecated:  # as some of PyTorch's, which warn when anything is asked of them
        @property
        def __class__(self):
            warnings.warn("deprecated", FutureWarning, stacklevel=2)
            return type(self)

    history, others = [], [Deprecated()]
    warned(trained, "loss", lambda loss, _: history.append(loss))
    assert len(others) == 1


def test_results_that_were_never_differentiated():
    history = []
    message = warned(trained, "outputs", lambda _, out: history.append(out * 2))  # outputs
    assert "results of mul are kept" in message


def test_once_for_a_line():
    history = []
    warned(trained, "loss", lambda loss, _: history.append(loss))
    trained(lambda loss, _: history.append(loss))


# --- As it should be: a warning is an error here ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "keep", [lambda h, loss: h.append(loss.item()), lambda h, loss: h.append(loss.detach()), lambda h, loss: None]
)
def test_a_history_of_numbers(keep):
    history = []
    trained(lambda loss, _: keep(history, loss))


def test_the_latest_graphs_only():
    history = []

    def keep(loss, _):
        history.append(loss)
        del history[:-4]

    trained(keep)


def test_a_sum_over_few_steps_that_is_begun_again():
    total = 0
    count = 0

    def keep(loss, _):
        nonlocal total, count
        total, count = (0, 0) if count == 6 else (total + loss, count + 1)

    trained(keep)


def test_accumulated_gradients():
    net, optimizer, x, y = parts()
    for _ in range(STEPS):
        for part, target in zip(x.split(1), y.split(1), strict=True):
            loss = nn.functional.mse_loss(net(part), target) / 5
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("lengths", [lambda i: 7, lambda i: i + 1, lambda i: random.Random(i).randint(1, 20)])
def test_truncated_backpropagation_through_time(lengths):
    """Also of sequences that grow with each step: then nodes are looked at, and there are no old ones."""
    cell = nn.RNNCell(2, 3)
    optimizer = norch.optim.Adam(cell.parameters())
    hidden = norch.zeros(1, 3)
    for i in range(STEPS):
        hidden = hidden.detach()
        for _ in range(lengths(i)):
            hidden = cell(norch.ones(1, 2), hidden)
        loss = hidden.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_two_optimisers_of_a_gan():
    generator, critic = model(), nn.Linear(1, 1)
    first, second = norch.optim.SGD(generator.parameters()), norch.optim.Adam(critic.parameters())
    for _ in range(STEPS):
        fake = generator(norch.rand(4, 3))
        second.zero_grad()
        (critic(fake.detach()).mean() - critic(norch.rand(4, 1)).mean()).backward()
        second.step()
        first.zero_grad()
        critic(fake).mean().backward()
        first.step()


def test_a_graph_that_is_kept_for_all_steps():
    """Biases alone are learned, so that the graph stays good."""
    layer = nn.Linear(3, 1)
    optimizer = norch.optim.SGD([layer.bias])
    loss = (layer(norch.ones(2, 3)) - layer.bias * 2).sum()
    for _ in range(STEPS):
        loss.backward(retain_graph=True)
        optimizer.step()


def test_lbfgs():
    net, optimizer, x, y = parts(norch.optim.LBFGS, 0.1)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        return loss

    for _ in range(STEPS // 3):
        last = optimizer.step(closure)
    assert last.requires_grad


def test_meta_learning():
    net, optimizer, x, y = parts()
    for i in range(STEPS):
        params = dict(net.named_parameters())
        for _ in range(1 + i % 3):
            loss = nn.functional.mse_loss(norch.func.functional_call(net, params, (x,)), y)
            grads = norch.autograd.grad(loss, list(params.values()), create_graph=True)
            params = {name: p - 0.1 * g for (name, p), g in zip(params.items(), grads, strict=True)}
        optimizer.zero_grad()
        nn.functional.mse_loss(norch.func.functional_call(net, params, (x,)), y).backward()
        optimizer.step()


def test_a_penalty_on_the_gradient():
    net, optimizer, x, y = parts(norch.optim.Adam)
    x.requires_grad_()
    for _ in range(STEPS):
        (slope,) = norch.autograd.grad(net(x).sum(), x, create_graph=True)
        optimizer.zero_grad()
        (slope.square().sum() + nn.functional.mse_loss(net(x), y)).backward()
        optimizer.step()


def test_captured_steps():
    net, optimizer, x, y = parts()

    @norch.capture
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(x, y) for _ in range(STEPS)]
    assert losses[-1] < losses[0]


def test_models_that_are_trained_one_after_another():
    kept = []
    for _ in range(STEPS):
        net, optimizer, x, y = parts()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        kept.append((net, loss))
