"""Which program a call runs: one a signature, the least recently used goes; and what makes a step be captured again."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from capture_harness import image, numbers, same_bits

import norch


def batch(device, i, *shape):
    return norch.tensor(numbers(i, *shape), device=device)


def test_at_most_eight_and_the_least_recently_used_goes(device):
    run = norch.capture(lambda x: x * 2)
    for _ in range(4):
        for n in range(1, 9):
            run(batch(device, n, n))
    assert run.report().replayed == 8
    assert len(run.report().programs) == 8
    run(batch(device, 1, 1))  # used: the second goes
    for _ in range(4):
        run(batch(device, 9, 9))
    sizes = {p.signature for p in run.report().programs}
    assert len(sizes) <= 8
    assert any("[1]" in s for s in sizes)
    assert not any("[2]" in s for s in sizes)
    for n in range(1, 12):
        x = batch(device, n, n)
        assert run(x).tolist() == (x * 2).tolist()


def test_signatures_that_never_come_again_push_no_program_out(device):
    run = norch.capture(lambda x, k: x * k)
    x = batch(device, 0, 3)
    for _ in range(5):
        run(x, 2)
    for k in range(3, 103):
        assert run(x, k).tolist() == (x * k).tolist()
    assert "is another at each call" in str(run.report())
    before = run.report().replayed
    run(x, 2)
    assert run.report().replayed == before + 1
    assert len(run.entries) <= 64


def changing(device, change, calls=10, at=5, replayed=None):
    """A regression whose surroundings `change(i, w, made)` changes before call `at`."""

    def make():
        w = [norch.tensor(numbers(50 + k, 3, 3), device=device, requires_grad=True) for k in range(2)]
        scale = norch.full((3,), 2.0, device=device)
        held = {"w": w, "scale": scale}

        def step(x):
            for p in w:
                p.grad = None
            y = (x @ w[0]).tanh() @ w[1] * scale
            loss = (y * y).sum()
            if loss.requires_grad:
                loss.backward()
                with norch.no_grad():
                    for p in w:
                        if p.grad is not None:
                            p -= 0.01 * p.grad
            return loss.detach(), [p.grad for p in w if p.grad is not None]

        step.held = held
        return step, lambda i: (batch(device, i, 4, 3),), lambda: (w, scale)

    def around(i, step, *rest):
        if i == at:
            change(step.held)

    return same_bits(make, calls, replayed=calls - 5 if replayed is None else replayed, around=around)


def test_other_memory_of_a_parameter(device):
    def change(held):
        held["w"][0].data = held["w"][0].data * 2

    run = changing(device, change)
    assert "other memory" in str(run.report())


def test_other_memory_of_state(device):
    def change(held):
        held["scale"].data = norch.full((3,), 3.0, device=device)

    changing(device, change)


def test_state_of_another_place_in_its_memory(device):
    def change(held):
        held["scale"].data = norch.arange(9, dtype=norch.float32, device=device)[4:7]

    changing(device, change)


def test_a_parameter_that_no_longer_requires_grad(device):
    changing(device, lambda held: held["w"][1].requires_grad_(False), replayed=4)


def test_hooks(device):
    seen = []

    def change(held):
        held["w"][0].register_hook(lambda g: g * 2)
        held["w"][1].register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))
        seen.append(1)

    changing(device, change)


def test_hooks_that_are_taken_away(device):
    handles = []

    def make():
        w = norch.tensor(numbers(1, 3), device=device, requires_grad=True)
        handles.append(w.register_hook(lambda g: g * 3))

        def step(x):
            w.grad = None
            (w * x).sum().backward()
            return w.grad

        return step, lambda i: (batch(device, i, 3),), lambda: w

    def around(i, *made):
        if i == 6:
            handles[-1].remove()

    same_bits(make, 12, replayed=7, around=around)


def test_precision_of_products(device):
    def make():
        norch.set_float32_matmul_precision("highest")
        return lambda x: x @ x, lambda i: (batch(device, i, 3, 3),)

    def around(i, *made):
        if i == 5:
            norch.set_float32_matmul_precision("high")

    try:
        same_bits(make, 10, replayed=4, around=around)
    finally:
        norch.set_float32_matmul_precision("highest")


def test_default_dtype(device):
    def make():
        def step(x):
            return x + norch.ones(3, device=device), norch.tensor(0.5, device=device) * 2

        return step, lambda i: (batch(device, i, 3),)

    def around(i, *made):
        norch.set_default_dtype(norch.float64 if i >= 5 else norch.float32)

    try:
        same_bits(make, 10, replayed=4, around=around)
    finally:
        norch.set_default_dtype(norch.float32)


def test_default_device(device):
    def make():
        return lambda: norch.ones(3) * 2, lambda i: ()

    def around(i, *made):
        norch.set_default_device(device if i >= 5 else "cpu")

    try:
        same_bits(make, 10, replayed=7 if device == "cpu" else 4, around=around)
    finally:
        norch.set_default_device(None)


def test_autocast_around(device):
    w = norch.tensor(numbers(1, 3, 4), device=device, requires_grad=True)

    def step(x):
        w.grad = None
        loss = (x @ w).float().sum()
        loss.backward()
        with norch.no_grad():
            w.sub_(0.1 * w.grad)
        return loss.detach()

    run = norch.capture(step)
    start, seen = w.detach().clone(), []
    for f in (step, run):
        with norch.no_grad():
            w.copy_(start)
        found = []
        for i in range(16):
            with norch.autocast(device, dtype=norch.bfloat16, enabled=i % 2 == 1):
                found.append(image((f(batch(device, i, 5, 3)), w)))
        with norch.autocast(device, dtype=norch.bfloat16):
            found += [image((f(batch(device, i, 5, 3)), w)) for i in range(4)]
        seen.append(found)
    assert seen[0] == seen[1]
    assert run.report().replayed


def test_anomaly_mode_is_eager(device):
    w = norch.ones(3, device=device, requires_grad=True)

    @norch.capture
    def step(x):
        w.grad = None
        (w * x).sqrt().sum().backward()

    for _ in range(5):
        step(norch.ones(3, device=device))
    with norch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="NaN"):
        for _ in range(5):
            step(-norch.ones(3, device=device))


def test_a_generator_chosen_outside(device):
    def make():
        one = norch.Generator().manual_seed(1)
        return lambda x: x + norch.rand(3, device=device), lambda i: (batch(device, i, 3),), lambda: one

    generators = [norch.Generator().manual_seed(5) for _ in range(2)]
    outcomes = []
    for generator, wrap in zip(generators, (lambda f: f, norch.capture)):
        norch.manual_seed(3)
        run, seen = wrap(make()[0]), []
        for i in range(12):
            if i % 2:
                with norch.use_generator(generator):
                    seen.append(run(batch(device, i, 3)).tolist())
            else:
                seen.append(run(batch(device, i, 3)).tolist())
        outcomes.append((seen, generator.get_state().tolist()))
    assert outcomes[0] == outcomes[1]


def test_an_attribute_that_is_another_tensor(device):
    """The old one is gone: that is seen. Where something else holds it, a later check finds it."""

    class Model:
        def __init__(self):
            self.scale = norch.full((3,), 2.0, device=device)

    model = Model()
    run = norch.capture(lambda x: x * model.scale)
    for i in range(8):
        if i == 5:
            model.scale = norch.full((3,), 5.0, device=device)
        x = batch(device, i, 3)
        assert run(x).tolist() == (x * model.scale).tolist(), i
    assert run.report().replayed == 3


def test_a_gradient_of_another_layout(device):
    w = norch.tensor(numbers(1, 3, 4), device=device, requires_grad=True)
    v = w.detach().clone().requires_grad_()

    def step_of(p):
        def step(x):
            (p * x).sum().backward()
            return p.grad.sum()

        return step

    run, plain = norch.capture(step_of(w)), step_of(v)
    for i in range(14):
        if i == 5:
            for p in (w, v):
                p.grad = norch.tensor(numbers(9, 4, 3), device=device).T
        if i == 9:
            for p in (w, v):
                p.grad = norch.zeros(4, 3, 4, device=device)[2]
        x = batch(device, i, 3, 4)
        assert run(x).tolist() == plain(x).tolist()
        assert w.grad.tolist() == v.grad.tolist()


# --- Checks now and then ----------------------------------------------------------------------------------------------


def test_numbers_that_change_at_first(device):
    """In the second to fifth call, and not after: it is refused, and tried again at the 16th."""
    state = {"k": 0.0}

    def step(x):
        return x * state["k"]

    run = norch.capture(step)
    for i in range(40):
        state["k"] = float(min(i, 6))
        x = batch(device, i, 3)
        assert run(x).tolist() == (x * state["k"]).tolist()
    assert run.report().replayed >= 20


def test_a_number_that_changes_later(device):
    """It was the same in both recordings: a check at the 16th replay sees it, and says so."""
    state = {"k": 2.0}
    run = norch.capture(lambda x: x * state["k"])
    x = norch.ones(3, device=device)
    for _ in range(6):
        run(x)
    state["k"] = 3.0
    with pytest.warns(UserWarning, match=r"not what was recorded of it.*a number that mul gets was 2.0, then 3.0"):
        found = [run(x).tolist()[0] for _ in range(20)]
    assert found[0] == 2.0
    assert set(found[14:]) == {3.0}
    assert "a number that mul gets" in str(run.report())
    assert run.report().replayed


def test_checks_are_few(device):
    run = norch.capture(lambda x: x * 2)
    x = norch.ones(3, device=device)
    for _ in range(400):
        run(x)
    report = run.report()
    assert (report.eager, report.recorded, report.replayed) == (1, 4, 395)
    assert not report.captured_again


def test_a_step_that_settles_keeps_its_program(device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        def make():
            w = norch.tensor(numbers(1, 3), device=device, requires_grad=True)

            def step(x):
                w.grad = None
                loss = norch.dropout(w * x, 0.5, training=True).sum()
                loss.backward()
                with norch.no_grad():
                    w.sub_(w.grad, alpha=0.1)
                return loss

            return step, lambda i: (batch(device, i, 3),), lambda: w

        same_bits(make, 40, replayed=36)


def test_a_tensor_that_moves_before_every_call(device):
    """Recording each call would cost more than it gains."""
    p = norch.ones(3, device=device)
    run = norch.capture(lambda x: x * p)
    for i in range(80):
        p.data = p.data + 1
        x = batch(device, i, 3)
        assert run(x).tolist() == (x * p).tolist()
    assert run.report().recorded < 60
    assert "again and again" in str(run.report())


def test_numbers_of_numpy_arrays_in_place(device):
    data = np.zeros(3, np.float32)

    def step():
        return norch.tensor(data, device=device) * 2

    run = norch.capture(step)
    for i in range(8):
        data[:] = i
        assert run().tolist() == [2.0 * i] * 3
    assert "Python data that change" in str(run.report())


def test_each_program_of_a_signature_is_found_quickly(device, monkeypatch):
    w = norch.ones(3, device=device, requires_grad=True)

    @norch.capture
    def step(x):
        loss = (x * w).sum()
        loss.backward()
        return loss

    def batch():
        w.grad = None
        for i in range(4):  # gradients are added up, but for the first
            step(norch.full((2, 3), i + 1.0, device=device))
        return w.grad.tolist()

    for _ in range(8):
        assert batch() == [20.0] * 3
    monkeypatch.setattr(step, "_slowly", None)
    assert batch() == [20.0] * 3
