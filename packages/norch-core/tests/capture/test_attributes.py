"""Results that steps leave in attributes, as models do with `self.last_loss = loss`."""

import gc
from weakref import ref

import pytest

import norch


class Model:
    def __init__(self, device):
        self.weight = norch.ones(3, device=device)
        self.last = None

    def __call__(self, x):
        self.last = x * self.weight
        return self.last.sum()


@pytest.mark.parametrize("returns", ["sum", "attribute", "both"])
def test_a_result_in_an_attribute_is_that_of_the_last_call(device, returns):
    model = Model(device)

    @norch.capture
    def step(x):
        total = model(x)
        return {"sum": total, "attribute": model.last, "both": (total, model.last)}[returns]

    kept = []
    for i in range(7):
        x = norch.full((3,), float(i), device=device)
        out = step(x)
        assert model.last.tolist() == [i] * 3
        if returns == "attribute":
            assert out is model.last
        kept.append(model.last)
    assert [t.tolist() for t in kept] == [[i] * 3 for i in range(7)]
    assert step.report().replayed == 4


def test_several_objects(device):
    one, other = Model(device), Model(device)

    def step(x):
        one.y = other(x) + 1
        return one.y * 2

    captured = norch.capture(step)
    for i in range(6):
        x = norch.full((3,), float(i), device=device)
        assert captured(x).item() == 2 * (3 * i + 1)
        assert one.y.item() == 3 * i + 1
        assert other.last.tolist() == [i] * 3
    assert captured.report().replayed == 3


def test_the_object_may_go(device):
    model = Model(device)
    gone = ref(model)
    holder = [model]
    captured = norch.capture(lambda x: holder[0](x) if holder else x.sum())
    x = norch.ones(3, device=device)
    for _ in range(5):
        captured(x)
    del model, holder[0]
    gc.collect()
    assert gone() is None
    assert captured(x).item() == 3.0


def test_what_a_list_holds_too_is_refused(device):
    model, seen = Model(device), []

    def step(x):
        out = model(x)
        seen.append(model.last)
        return out

    captured = norch.capture(step)
    for i in range(6):
        captured(norch.full((3,), float(i), device=device))
    assert captured.report().replayed == 0
    assert [t.tolist() for t in seen] == [[i] * 3 for i in range(6)]


def test_an_attribute_that_the_step_reads_too(device):
    """As the hidden state of a recurrent model: replayed with this call's, or not at all."""

    class Recurrent:
        def __init__(self):
            self.hidden = norch.zeros(3, device=device)

        def __call__(self, x):
            self.hidden = self.hidden * 0.5 + x
            return self.hidden.sum()

    eager, captured = Recurrent(), Recurrent()
    step = norch.capture(lambda x: captured(x))
    for i in range(9):
        x = norch.full((3,), float(i), device=device)
        assert step(x).item() == eager(x).item()
        assert captured.hidden.tolist() == eager.hidden.tolist()
