"""What a captured step keeps alive: its programs' constants, and nothing of its callers."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from capture_harness import numbers

import norch
from norch.dispatch.symbolic import Program


def batch(device, i, *shape):
    return norch.tensor(numbers(i, *shape), device=device)


def memory_of(*tensors):
    """Weak references to the tensors' memory, where the backend's buffers can have them."""
    found = []
    for tensor in tensors:
        try:
            found.append(weakref.ref(tensor.buffer))
        except TypeError:
            pass
    return found


class Model:
    def __init__(self, device, seed=0):
        self.w = norch.tensor(numbers(seed, 3, 3), device=device, requires_grad=True)

    def step(self, x):
        self.w.grad = None
        loss = (x @ self.w).tanh().sum()
        loss.backward()
        with norch.no_grad():
            self.w.sub_(self.w.grad, alpha=0.1)
        return loss


def test_arguments_and_results_are_not_kept(device):
    step = norch.capture(lambda x: (x * 2, x.sum()))
    seen = []
    for i in range(8):
        x = batch(device, i, 3)
        out = step(x)
        seen += [weakref.ref(x), weakref.ref(out[0]), *memory_of(x, out[0])]
        del x, out
    assert step.report().replayed == 5
    gc.collect()
    assert [ref() for ref in seen if ref() is not None] == []


def test_a_model_and_its_captured_step_go_together(device):
    model = Model(device)
    run = norch.capture(model.step)
    for i in range(6):
        run(batch(device, i, 2, 3))
    assert run.report().replayed
    seen = [weakref.ref(model.w), weakref.ref(model), weakref.ref(run)]
    del model, run
    gc.collect()
    assert [ref() for ref in seen if ref() is not None] == []


def test_a_model_that_is_replaced(device):
    """The step finds its model by a name. The old one's memory is given back at the next call."""
    held = {"model": Model(device)}
    run = norch.capture(lambda x: held["model"].step(x))
    for i in range(6):
        run(batch(device, i, 2, 3))
    old = weakref.ref(held["model"].w)
    memory = memory_of(held["model"].w)
    held["model"] = Model(device, 5)
    gc.collect()
    assert old() is None
    plain = Model(device, 5)
    for i in range(8):
        x = batch(device, i, 2, 3)
        assert run(x).tolist() == plain.step(x).tolist()
    assert [m() for m in memory if m() is not None] == []
    assert "another" in str(run.report())


def test_a_leaf_with_a_gradient_that_goes(device):
    held = {"w": norch.ones(3, device=device, requires_grad=True)}

    @norch.capture
    def step(x):
        for w in held.values():
            w.grad = None
            (w * x).sum().backward()
        return x + 1

    for i in range(6):
        step(batch(device, i, 3))
    held.clear()
    for i in range(6):
        x = batch(device, i, 3)
        assert step(x).tolist() == (x + 1).tolist()


def test_many_captured_steps_leave_no_memory(device):
    def count():
        gc.collect()
        return sum(isinstance(x, norch.Tensor) for x in gc.get_objects()), len(gc.get_objects())

    def use():
        model = Model(device)
        run = norch.capture(model.step)
        for i in range(6):
            run(batch(device, i, 2, 3))

    use()
    tensors, objects = count()
    for _ in range(10):
        use()
    after, more = count()
    assert after <= tensors
    assert more < objects + 500


def test_memory_does_not_grow_with_calls(device):
    model = Model(device)
    run = norch.capture(model.step)
    for i in range(20):
        run(batch(device, i, 2, 3))
    gc.collect()
    before = len(gc.get_objects())
    for i in range(100):
        run(batch(device, i, 2, 3))
    gc.collect()
    assert len(gc.get_objects()) < before + 50


def test_dead_proxies_and_odd_objects_are_left_alone(device):
    """Recording looks at all objects there are; it runs none of their code."""

    class Odd:
        @property
        def __class__(self):
            raise RuntimeError("asked")

    class Thing:
        pass

    thing, odd = Thing(), Odd()
    proxy = weakref.proxy(thing)
    del thing
    step = norch.capture(lambda x: x * 2)
    for _ in range(5):
        step(norch.ones(3, device=device))
    assert step.report().replayed == 2
    assert type(odd) is Odd
    assert type(proxy) is not Odd


def test_a_temporary_cycle_is_no_leftover(device):
    def step(x):
        y = x * 2
        ring = [y]
        ring.append(ring)
        return y + 1

    run = norch.capture(step)
    for _ in range(6):
        run(norch.ones(3, device=device))
    assert run.report().replayed == 3


def test_constants_are_made_anew_where_they_change(device):
    def step(x):
        total = norch.tensor(0.5, device=device)
        for row in x:
            total += row.sum()
        other = norch.tensor([1.0, 2.0], device=device)
        return total, other

    run, plain = norch.capture(step), step
    for i in range(8):
        x = batch(device, i, 3, 2)
        a, b = run(x)
        assert a.tolist() == plain(x)[0].tolist()
        assert b.tolist() == [1.0, 2.0]
        a.zero_(), b.zero_()
    assert run.report().replayed == 5


def test_arrays_that_a_step_shares(device):
    array = np.zeros(3, np.float32)
    run = norch.capture(lambda x: x + norch.from_numpy(array).to(device))
    for i in range(8):
        array[:] = i if i > 5 else 0
        x = norch.ones(3, device=device)
        found = run(x).tolist()
        if device == "cpu":
            assert found == [1.0 + array[0]] * 3


def test_an_array_that_a_step_returns_as_a_tensor():
    """Its owner would see what is done to the result: it stays the array's memory. On the CPU, which shares it."""
    array = np.zeros(3, np.float32)
    run = norch.capture(lambda x: norch.from_numpy(array))
    for i in range(6):
        run(norch.ones(3)).add_(1)
        assert array.tolist() == [i + 1.0] * 3
    assert "memory of a NumPy array" in str(run.report())


@pytest.mark.parametrize("held", [False, True])
def test_other_tensors_on_the_same_memory(device, held):
    """The state's memory has several tensors; that the one which the recording knew it by goes means nothing."""
    state = batch(device, 0, 3)
    others = [state.detach() for _ in range(5)]
    run = norch.capture(lambda x: x * state)
    for _ in range(4):
        run(norch.ones(3, device=device))
    if not held:
        others.clear()
        gc.collect()
    for _ in range(4):
        assert run(norch.ones(3, device=device)).tolist() == state.tolist()
    report = run.report()
    assert report.replayed == 5
    assert not report.captured_again


def test_what_stands_for_an_operand_is_no_tensor_of_the_step(device):
    """Such as an exception keeps alive until the collector comes, where l1_loss is no chain of elementwise ops."""
    x = norch.ones(3, device=device)
    symbol = Program(1).symbol(("operand", 0), x.spec)
    run = norch.capture(lambda x: x * 2)
    for _ in range(5):
        assert run(x).tolist() == [2, 2, 2]
    assert run.report().replayed
    assert symbol.name == ("operand", 0)
