"""Captured modules: they behave as the module does, and train as it would, bit for bit."""

import copy
import io
import pickle

import pytest

import norch
import norch.nn.functional as F
from norch import nn
from norch.errors import CaptureError
from norch.nn.compiled import OptimizedModule


def bits(value):
    if value is None:
        return None
    if isinstance(value, dict | list | tuple):
        return [bits(v) for v in (value.values() if isinstance(value, dict) else value)]
    return value.detach().float().cpu().numpy().tobytes(), tuple(value.shape), value.dtype.name


class Block(nn.Module):
    """Residual branches, a norm, dropout, two results."""

    def __init__(self, n=8):
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.up, self.down = nn.Linear(n, 2 * n), nn.Linear(2 * n, n)
        self.drop = nn.Dropout(0.2)
        self.scale = 0.5

    def forward(self, x, skip=None):
        h = self.down(F.gelu(self.up(self.norm(x))))
        x = x + self.drop(h) * self.scale
        return x if skip is None else (x, x + skip)

    def twice(self):
        return self.scale * 2


def net():
    norch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 8),
        Block(), nn.Dropout(0.1), nn.Linear(8, 3),
    )  # fmt: skip


def images(n=6):
    return norch.randn(n, 1, 4, 4), norch.randint(0, 3, (n,))


def entries(model):
    return list(model._captured.entries.values())


def replayed(model):
    return [bool(entry.programs) for entry in entries(model)]


def train(wrap, steps=10, scheduler=False, make=net, **options):
    model = make()
    called = wrap(model)
    optimizer = norch.optim.AdamW(called.parameters(), lr=0.01, **options)
    norch.manual_seed(1)
    losses = []
    for i in range(steps):
        if i == 6:
            called.eval()
            with norch.no_grad():
                losses.append(bits(called(images()[0])))
            called.train()
        x, y = images()
        loss = F.cross_entropy(called(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(bits(loss))
    return losses, bits(model.state_dict()), called


@pytest.mark.parametrize("wrap", [norch.capture, norch.compile, norch.compile(mode="reduce-overhead")])
def test_training_a_captured_module(wrap):
    expected, state, _ = train(lambda model: model)
    losses, captured_state, model = train(wrap)
    assert losses == expected
    assert captured_state == state
    assert isinstance(model, OptimizedModule)
    assert True in replayed(model)


def test_compile_in_place():
    expected, state, _ = train(lambda model: model)

    def wrap(model):
        assert model.compile(fullgraph=True) is None
        return model

    losses, captured_state, model = train(wrap)
    assert losses == expected
    assert captured_state == state
    assert type(model) is nn.Sequential
    assert any(entry.programs for entry in model._hooks.compiled.entries.values())
    again = pickle.loads(pickle.dumps(model))
    assert bits(again.state_dict()) == bits(model.state_dict())
    assert again._hooks.compiled is None
    model.compile(disable=True)
    assert model._hooks.compiled is None


def test_parts_of_a_model_may_be_captured():
    def wrap(model):
        for i, part in enumerate(model):
            model[i] = norch.compile(part)
        return model

    expected, state, _ = train(lambda model: model)
    losses, captured_state, model = train(wrap)
    assert losses == expected
    assert captured_state == state
    assert all(True in replayed(part) for part in model)


def test_it_behaves_as_the_module():
    block = Block()
    model = norch.compile(block)
    assert isinstance(model, nn.Module)
    assert model._orig_mod is block
    assert model.scale == 0.5
    assert model.twice() == 1.0
    assert model.up is block.up
    model.scale = 0.25
    assert block.scale == 0.25
    model.extra = norch.ones(2)
    assert block.extra is model.extra
    assert next(n for n, _ in model.named_parameters()) == "_orig_mod.norm.weight"
    assert next(iter(model.state_dict())) == "_orig_mod.norm.weight"
    assert {id(p) for p in model.parameters()} == {id(p) for p in block.parameters()}
    model.load_state_dict(model.state_dict())
    assert model.eval() is model
    assert not block.training
    assert not model.training
    model.training = True
    assert block.training
    assert "twice" in dir(model)
    assert repr(model).startswith("OptimizedModule(\n  (_orig_mod): Block(")
    assert norch.compile(model) is model
    assert len(norch.compile(nn.Sequential(block, block))) == 2
    with pytest.raises(AttributeError):
        model.nothing
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(other, OptimizedModule)
        assert other._orig_mod is not block
        assert bits(other.state_dict()) == bits(model.state_dict())


def test_state_dicts_are_saved_and_loaded(tmp_path):
    model = norch.compile(Block())
    norch.save(model.state_dict(), tmp_path / "m.pt")
    loaded = norch.load(tmp_path / "m.pt")
    stripped = {name.removeprefix("_orig_mod."): value for name, value in loaded.items()}
    plain = Block()
    plain.load_state_dict(stripped)
    assert bits(plain.state_dict()) == bits(model.state_dict())
    file = io.BytesIO()
    norch.save(model, file)


def test_weights_that_are_loaded_or_moved_are_seen():
    def run(wrap):
        norch.manual_seed(3)
        block = Block().eval()
        model, seen = wrap(block), []
        for i in range(14):
            x = norch.randn(4, 8).requires_grad_()
            h = x * 1
            out = model(h)
            out.square().sum().backward()
            seen.append(bits([out, x.grad, *[p.grad for p in block.parameters()]]))
            block.zero_grad()
            if i == 4:
                block.load_state_dict({k: v * 0.5 for k, v in block.state_dict().items()})
            if i == 6:
                block.up.weight.data = norch.randn(16, 8)
            if i == 8:
                block.up = nn.Linear(8, 16, bias=False)
            if i == 10:
                block.norm.weight.requires_grad_(False)
        return seen

    assert run(lambda m: m) == run(norch.compile)


def test_autocast_and_scaling():
    def run(wrap):
        norch.manual_seed(3)
        model = wrap(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
        optimizer = norch.optim.SGD(model.parameters(), lr=0.1)
        scaler = norch.amp.GradScaler("cpu", enabled=True)
        seen = []
        for _ in range(8):
            optimizer.zero_grad()
            with norch.autocast("cpu"):
                loss = F.mse_loss(model(norch.randn(4, 8)).float(), norch.ones(4, 4))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            seen.append(bits([loss, *model.parameters()]))
        return seen, model

    expected, _ = run(lambda m: m)
    seen, model = run(norch.compile)
    assert seen == expected
    assert True in replayed(model)


def test_hooks_of_modules_are_called():
    block = Block().eval()
    model = norch.compile(block)
    for _ in range(5):
        model(norch.ones(2, 8)).sum().backward()
    calls = []
    handle = block.up.register_forward_hook(lambda module, args, out: calls.append(out.shape))
    for _ in range(3):
        model(norch.ones(2, 8)).sum().backward()
    assert len(calls) == 3
    handle.remove()
    model(norch.ones(2, 8)).sum().backward()
    assert len(calls) == 3


def test_what_cannot_be_replayed_runs_as_it_is():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            if x.sum().item() > 0:
                return self.fc(x)
            return self.fc(-x) * 2

    module = Reads()
    model = norch.compile(module)
    for _ in range(8):
        x = norch.randn(3, 4)
        assert bits(model(x)) == bits(module(x))
    model = norch.compile(module, fullgraph=True)
    with pytest.raises(CaptureError, match="test_capture_module.py"):
        for _ in range(8):
            model(norch.randn(3, 4))


def test_arguments_of_compile():
    block = Block()
    assert norch.compile(block, disable=True) is block
    assert norch.compile(block, backend="eager") is block
    assert norch.compile(dynamic=True, options={"max_autotune": True})(block)._orig_mod is block
    with pytest.raises(RuntimeError, match="unknown mode"):
        norch.compile(block, mode="fast")
    with pytest.raises(RuntimeError, match="mode or options"):
        norch.compile(block, mode="default", options={})
    with pytest.raises(RuntimeError, match="unknown backend"):
        norch.compile(block, backend="nothing")
    with pytest.raises(TypeError):
        norch.compile(3)

    @norch.compile
    def double(x):
        return x * 2

    assert double.__name__ == "double"
    assert double(norch.ones(2)).tolist() == [2, 2]


class Decoder(nn.Module):
    """One layer of attention over a cache of fixed size, which is written at a position."""

    def __init__(self, write, n=16, heads=2, size=12, vocabulary=20):
        super().__init__()
        self.write, self.heads = write, heads
        self.embed, self.place = nn.Embedding(vocabulary, n), nn.Embedding(size, n)
        self.qkv, self.out, self.head = nn.Linear(n, 3 * n), nn.Linear(n, n), nn.Linear(n, vocabulary)
        self.register_buffer("keys", norch.zeros(1, heads, size, n // heads))
        self.register_buffer("values", norch.zeros(1, heads, size, n // heads))

    def forward(self, token, position):
        h = self.embed(token) + self.place.weight[position]
        q, k, v = (t.view(1, 1, self.heads, -1).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        self.write(self.keys, position, k)
        self.write(self.values, position, v)
        seen = norch.arange(self.keys.shape[2]) <= position
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        return self.head(self.out(y.transpose(1, 2).reshape(1, 1, -1)) + h)[:, -1].argmax(-1, keepdim=True)


def _set(cache, position, value):
    if isinstance(position, int):
        cache[:, :, position] = value[:, :, 0]
    else:
        cache[:, :, position.view(1)] = value


WRITES = {
    "index_copy_": lambda cache, position, value: cache.index_copy_(2, position.view(1), value),
    "a tensor as index": _set,
    "scatter_": lambda cache, position, value: cache.scatter_(
        2, position.view(1, 1, 1, 1).expand(1, cache.shape[1], 1, cache.shape[3]), value
    ),
}


@pytest.mark.parametrize("write", WRITES)
def test_decoding_with_a_cache(write):
    def decode(wrap):
        norch.manual_seed(0)
        model = wrap(Decoder(WRITES[write]).eval())
        found = []
        with norch.no_grad():
            for start in (3, 7):
                token, tokens = norch.tensor([[start]]), []
                for i in range(12):
                    token = model(token, norch.tensor([[i]]))
                    tokens.append(token.item())
                found.append(tokens)
        return found, bits(model.state_dict()), model

    expected, state, _ = decode(lambda m: m)
    found, captured_state, model = decode(lambda m: norch.capture(m, fullgraph=True))
    assert found == expected
    assert captured_state == state
    assert replayed(model) == [True]  # one program for all positions


def test_decoding_with_a_position_that_is_an_int():
    def decode(wrap):
        norch.manual_seed(0)
        model = wrap(Decoder(_set).eval())
        found = []
        with norch.no_grad():
            for _ in range(5):
                token = norch.tensor([[5]])
                for i in range(6):
                    token = model(token, i)
                    found.append(token.item())
        return found, model

    expected, _ = decode(lambda m: m)
    found, model = decode(norch.compile)
    assert found == expected
    assert replayed(model) == [True] * 6  # each position has a program


def test_slices_of_a_growing_batch_of_one():
    model = norch.capture(nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9)).eval())
    tokens = norch.tensor([[1, 2, 3, 4]])
    with norch.no_grad():
        for _ in range(8):  # whose first stride says how long the batch is by now
            last = tokens[:, -4:]
            found = model(last)
            assert bits(found) == bits(model._orig_mod(last))
            tokens = norch.cat([tokens, found[:, -1].argmax(-1, keepdim=True)], 1)
    assert replayed(model) == [True]


def test_modules_that_talk_to_other_processes_run_as_they_are():
    model = norch.compile(nn.Sequential(nn.Linear(4, 4), nn.SyncBatchNorm(4)).eval())
    for _ in range(5):
        model(norch.ones(2, 4)).sum().backward()
    assert entries(model) == []


def test_backward_passes_that_were_not_recorded():
    """The step is run once more: running averages and random numbers must not move on by it."""

    def run(wrap):
        norch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 2))
        called, seen = wrap(model), []
        for i in range(24):
            x = norch.randn(5, 6).requires_grad_()
            h = x * 1
            y = called(h)
            if i == 6:
                (g,) = norch.autograd.grad(y.tanh().sum(), h, create_graph=True)
                (g * g).sum().backward()
            elif i == 7:
                y.sum().backward(retain_graph=True)
                seen.append(bits(norch.autograd.grad(y[0].sum(), [x, model[0].weight])))
            elif i == 8:
                with norch.autograd.detect_anomaly():
                    y.sum().backward()
            elif i == 9:
                handle = model[4].weight.register_hook(lambda g: g * 2)
                y.sum().backward()
                handle.remove()
            else:
                y.sum().backward()
            seen.append(bits([y, x.grad, model.state_dict(), [p.grad for p in model.parameters()]]))
            model.zero_grad()
        return seen, called

    expected, _ = run(lambda m: m)
    seen, model = run(norch.compile)
    for i, (one, other) in enumerate(zip(expected, seen, strict=True)):
        assert one == other, i
    assert any(replayed(model))
