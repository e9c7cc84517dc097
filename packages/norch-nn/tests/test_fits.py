"""norch.fits: what a step needs, told without running it. Numbers by hand; tests/test_memory.py has measured ones."""

import copy
import functools
import gc

import numpy as np
import pytest

import norch
from norch import nn, optim
from norch.memory import FitsError
from norch.nn import functional as F
from norch.testing.null import null_device

pytestmark = pytest.mark.usefixtures("on_host")

FLOAT = 4


@pytest.fixture(autouse=True)
def exact_bytes(monkeypatch):
    """As if the allocator rounded nothing and kernels took nothing, so that bytes can be counted by hand."""
    backend = norch.device("cpu").backend
    if hasattr(backend, "module"):
        monkeypatch.setattr(backend.module, "allocated_size", lambda nbytes: nbytes)
        monkeypatch.setattr(backend, "scratch_bytes", lambda kernel: 0)
        norch.memory.counting._stand_ins.clear()
        yield
        norch.memory.counting._stand_ins.clear()
    else:
        yield


def line_of(text):
    with open(__file__) as file:
        return next(f"test_fits.py:{i}" for i, line in enumerate(file, 1) if text in line)


class Two(nn.Module):
    """30 -> 20 -> 10, in between a sigmoid, whose result it saves."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(30, 20), nn.Linear(20, 10)

    def forward(self, x):
        return self.second(self.first(x).sigmoid())


PARAMS = (30 * 20 + 20 + 20 * 10 + 10) * FLOAT


@pytest.mark.parametrize(
    ("make", "states"),
    [
        (lambda p: optim.SGD(p, 0.1), 0),
        (lambda p: optim.SGD(p, 0.1, momentum=0.9), 1),
        (lambda p: optim.Adam(p), 2),
        (optim.AdamW, 2),
    ],
)
@pytest.mark.parametrize("is_made", [True, False])
def test_the_parts_by_hand(make, states, is_made):
    model, x = Two(), norch.randn(7, 30)
    found = norch.fits(model, x, make(model.parameters()) if is_made else make, largest_batch=False)
    assert found.device == "cpu"
    assert found.parameters == found.gradients == PARAMS
    assert found.optimizer_state == states * PARAMS
    assert found.inputs == 7 * 30 * FLOAT
    assert found.saved == 7 * 20 * FLOAT  # sigmoid's result; the input is there anyway
    assert found.activations == found.saved + (7 * 10 + 1) * FLOAT  # the output and its sum
    assert found.peak >= (2 + states) * PARAMS + found.inputs
    assert found.batch == 7
    assert bool(found) is True


def test_no_optimizer_buffers_and_arguments_by_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x, *, scale):
            return self.norm(x) * scale

    found = norch.fits(Named(), {"x": norch.randn(4, 6), "scale": norch.ones(6)}, largest_batch=False)
    assert found.parameters == found.gradients == 12 * FLOAT
    assert found.buffers == 12 * FLOAT + 8  # statistics, and how many batches there were
    assert found.optimizer_state == 0
    assert found.inputs == 30 * FLOAT


def test_nothing_is_changed_and_nothing_left():
    norch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 2))
    optimizer = optim.Adam(model.parameters())
    x, y = norch.randn(6, 8), norch.tensor([0, 1, 0, 1, 1, 0])
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    grads = [p.grad for p in model.parameters()]
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    values = [g.tolist() for g in grads]
    drawn = norch.get_rng_state().tolist()
    versions = [p._version for p in model.parameters()]
    norch.fits(model, x, optimizer, loss=F.cross_entropy, targets=y)
    assert norch.get_rng_state().tolist() == drawn
    assert all(p.grad is g for p, g in zip(model.parameters(), grads))
    assert [g.tolist() for g in grads] == values
    assert [p._version for p in model.parameters()] == versions
    after = model.state_dict(), optimizer.state_dict()
    assert str(after) == str(before)
    gc.collect()
    assert not any(t.device.is_meta for t in gc.get_objects() if type(t) is norch.Tensor)
    assert norch.ones(2).tolist() == [1, 1]  # on the real device, as before


def test_memory_of_the_models_size_is_not_needed():
    with norch.device("meta"):
        model = nn.Sequential(*[nn.Linear(20_000, 20_000) for _ in range(20)])  # 32 GB
    found = norch.fits(model, norch.empty(2, 20_000, device="meta"), optim.Adam, memory=1 << 30)
    assert found.device == "cpu"
    assert found.parameters == 20 * (20_000**2 + 20_000) * FLOAT
    assert found.peak > 4 * found.parameters - 20_000**2 * FLOAT * 2
    assert not found
    assert found.largest_batch == 0
    assert "does not fit" in str(found)


def test_the_largest_batch():
    model = Two()

    def peak(batch):
        return norch.fits(model, norch.randn(batch, 30), optim.SGD, largest_batch=False).peak

    room = 500_000
    found = norch.fits(model, norch.randn(4, 30), lambda p: optim.SGD(p, 0.1), memory=room)
    best = found.largest_batch
    assert peak(best) <= room < peak(best + max(2, best >> 9))
    assert found.batch == 4
    along = norch.fits(nn.LSTM(3, 4), norch.randn(5, 2, 3), memory=10_000, dim=1, loss=lambda out: out[0].sum())
    assert along.largest_batch > 2


def test_a_model_for_one_batch_alone_says_so():
    class Fixed(Two):
        def forward(self, x):
            return super().forward(x.reshape(4, 30))

    found = norch.fits(Fixed(), norch.randn(4, 30), memory=1 << 20)
    assert found.peak
    assert found.largest_batch is None
    assert "ShapeError" in found.why_no_batch
    assert "cannot be told" in str(found)


class Reads(Two):
    def forward(self, x):
        y = super().forward(x)
        if y.sum().item() > 0:  # a value
            y = y * 2
        return y


class Branches(Two):
    def forward(self, x):
        y = super().forward(x)
        return y * 2 if y.mean() > 0 else y  # a truth


class Masks(Two):
    def forward(self, x):
        y = super().forward(x)
        return y[y > 0]  # a mask


class Arrays(Two):
    def forward(self, x):
        return super().forward(norch.from_numpy(np.tanh(x.numpy())))  # an array


@pytest.mark.parametrize(
    ("kind", "op", "line"),
    [(Reads, "item", "# a value"), (Branches, "item", "# a truth"), (Masks, "numpy", "# a mask"),
     (Arrays, "numpy", "# an array")],
)  # fmt: skip
def test_a_model_that_reads_values_is_told_apart_with_its_line(kind, op, line):
    with pytest.raises(FitsError, match=rf"{op}\(\) at {line_of(line)} \(.*\) reads values") as caught:
        norch.fits(kind(), norch.randn(3, 30))
    assert isinstance(caught.value, norch.NorchError)
    assert norch.zeros(1).item() == 0


CONSTANT = norch.ones(20)


class Mixed(nn.Module):
    """What real programs do besides: tensors made in forward, constants of the file, functions that hold a module."""

    def __init__(self):
        super().__init__()
        part = nn.Linear(30, 20)
        self.part = part
        self.act = lambda x: part(x).relu()
        self.offset = [norch.ones(20)]
        self.device = norch.device("cpu")

    def forward(self, x):
        y = self.act(x.cpu()) * CONSTANT + norch.zeros(len(x), 20) + self.offset[0]
        y = y + norch.arange(20, device=self.device) + norch.tensor([1.0] * 20, device="cpu")
        return y + norch.from_numpy(np.ones(20, np.float32)) + norch.full((20,), 2.0, device=x.device)


def test_what_real_programs_do_besides():
    model = Mixed()
    found = norch.fits(model, norch.randn(5, 30), optim.SGD, largest_batch=False)
    assert found.parameters == found.gradients == (30 * 20 + 20) * FLOAT
    assert CONSTANT.tolist() == [1] * 20
    assert model(norch.ones(1, 30)).shape == (1, 20)


def test_a_loss_may_hold_its_targets_or_get_them():
    model = nn.Linear(30, 20)
    x, y = norch.randn(8, 30), norch.randint(0, 20, (8,))
    held = norch.fits(model, x, loss=lambda out: F.cross_entropy(out, y), memory=1 << 20)
    given = norch.fits(model, x, loss=F.cross_entropy, targets=y, memory=1 << 20)
    assert held.to_dict() == given.to_dict()  # the targets in the function grow with the batch too


@pytest.mark.parametrize("often", [1, 1000])
def test_what_waits_for_the_collector_is_not_freed_in_the_middle(often):
    class Cyclic(nn.Linear):
        def forward(self, x):
            kept = [super().forward(x)]
            kept.append(kept)
            [[i] for i in range(2000)]
            return kept[0]

    def fit():
        return norch.fits(Cyclic(30, 20), norch.randn(8, 30), memory=1 << 20).to_dict()

    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        wanted = fit()
    finally:
        gc.enable()
    gc.collect()
    gc.set_threshold(often, 2, 2)
    try:
        assert fit() == wanted
    finally:
        gc.set_threshold(*thresholds)


def test_a_loss_among_the_outputs_is_it():
    class WithLoss(Two):
        def forward(self, x, y):
            out = super().forward(x)
            return {"logits": out, "loss": F.cross_entropy(out, y)}

    found = norch.fits(WithLoss(), (norch.randn(3, 30), norch.randint(0, 10, (3,))), largest_batch=False)
    assert found.gradients == PARAMS


def test_mistakes_are_told():
    x = norch.randn(3, 30)
    with pytest.raises(TypeError, match="must be a Module, got function"):
        norch.fits(lambda x: x, x)
    with pytest.raises(FitsError, match=r"the loss must have one element, it has shape \(3, 10\)"):
        norch.fits(Two(), x, loss=lambda out: out)
    with pytest.raises(FitsError, match=r"the dry run raised ShapeError.*linear"):
        norch.fits(Two(), norch.randn(3, 31))
    with pytest.raises(FitsError, match="give a loss="):
        norch.fits(nn.Linear(2, 2).requires_grad_(False), norch.randn(3, 2))


def test_it_is_told_as_text_and_data():
    found = norch.fits(Two(), norch.randn(7, 30), optim.Adam, memory=1 << 20)
    text = str(found)
    assert text.startswith("A training step of a batch of 7 on cpu:\n  parameters")
    assert "peak" in text.splitlines()[-3]
    assert "It fits: 1.00 MiB are there for it." in text
    assert found.to_dict()["peak"] == found.peak


def test_other_threads_compute_meanwhile():
    """A dry run in one thread gives the others real tensors."""
    import threading

    wrong, stop = [], threading.Event()

    def compute():
        while not stop.is_set():
            if (norch.ones(3) + norch.tensor([1.0, 2, 3])).tolist() != [2, 3, 4]:
                wrong.append(1)

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        for _ in range(3):
            norch.fits(Mixed(), norch.randn(5, 30), optim.SGD, largest_batch=False)
    finally:
        stop.set()
        thread.join()
    assert not wrong


def test_a_model_on_two_devices():
    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(30, 1000), nn.Linear(1000, 5000).to(null_device())

        def forward(self, x):
            return self.second(self.first(x).to("null")).to("cpu")

    found = norch.fits(Apart(), norch.randn(4, 30), optim.SGD, largest_batch=False)
    assert found.parameters == (30 * 1000 + 1000) * FLOAT
    assert list(found.elsewhere) == ["null:0"]
    there = (1000 * 5000 + 5000) * FLOAT
    assert 2 * there < found.elsewhere["null:0"] < 3.1 * there
    assert "peak on null:0" in str(found)


def test_losses_of_other_kinds():
    x, y = norch.randn(8, 30), norch.randint(0, 10, (8,))
    of_module = nn.CrossEntropyLoss(weight=norch.ones(10))
    found = norch.fits(Two(), x, optim.SGD, loss=of_module, targets=y, largest_batch=False)
    assert found.gradients == PARAMS
    assert of_module.weight.tolist() == [1] * 10
    partial = functools.partial(F.cross_entropy, label_smoothing=0.1)
    assert norch.fits(Two(), x, loss=partial, targets=y, largest_batch=False).gradients == PARAMS


def test_a_dry_run_within_another_is_refused():
    class Asks(Two):
        def forward(self, x):
            norch.fits(Two(), x)
            return super().forward(x)

    with pytest.raises(FitsError, match="within a dry run of its own"):
        norch.fits(Asks(), norch.randn(7, 30))
    assert norch.ones(1).tolist() == [1]
