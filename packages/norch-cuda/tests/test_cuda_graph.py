"""norch.cuda.graph: PyTorch's idiom trains as eager does, and what would be the same in each replay is refused."""

from __future__ import annotations

import numpy as np
import pytest

import norch

pytestmark = pytest.mark.usefixtures("cuda")


def gpt(nn, width=64, heads=4, classes=600, length=24):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.drop = nn.Dropout(0.1)

        def forward(self, x):
            b, t, c = x.shape
            parts = [p.view(b, t, heads, -1).transpose(1, 2) for p in self.attn(self.ln_1(x)).split(c, 2)]
            y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, c)))
            return x + self.drop(self.mlp(self.ln_2(x)))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(classes, width), nn.Embedding(length, width)
            self.drop, self.blocks = nn.Dropout(0.1), nn.Sequential(Block(), Block())
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes, bias=False)

        def forward(self, x, y):
            h = self.blocks(self.drop(self.wte(x) + self.wpe(norch.arange(length, device=x.device))))
            return nn.functional.cross_entropy(self.head(self.norm(h)).view(-1, classes), y.view(-1))

    return Model()


class Training:
    def __init__(self, nn, optim, autocast):
        norch.manual_seed(3)
        self.model = gpt(nn).to("cuda")
        self.optimizer = optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.1)
        self.autocast = autocast

    def step(self, x, y):
        with norch.autocast("cuda", norch.bfloat16, enabled=self.autocast):
            loss = self.model(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def schedule(self, turn):
        for group in self.optimizer.param_groups:
            group["lr"] = 1e-3 / (1 + turn)


@pytest.mark.parametrize("autocast", [False, True])
def test_the_idiom_of_pytorch_has_the_losses_of_eager(autocast):
    nn, optim = pytest.importorskip("norch.nn"), pytest.importorskip("norch.optim")
    rng = np.random.default_rng(0)
    batches = [norch.tensor(rng.integers(0, 600, (2, 4, 24)), device="cuda") for _ in range(10)]
    eager, recorded = Training(nn, optim, autocast), Training(nn, optim, autocast)

    norch.manual_seed(7)
    expected = []
    for turn, (x, y) in enumerate(batches):
        eager.schedule(turn)
        eager.optimizer.zero_grad(set_to_none=True)
        expected.append(eager.step(x, y).item())

    norch.manual_seed(7)
    found = []
    side = norch.cuda.Stream()
    side.wait_stream(norch.cuda.current_stream())
    with norch.cuda.stream(side):
        for turn, (x, y) in enumerate(batches[:3]):
            recorded.schedule(turn)
            recorded.optimizer.zero_grad(set_to_none=True)
            found.append(recorded.step(x, y))
    norch.cuda.current_stream().wait_stream(side)
    static_x, static_y = (part.clone() for part in batches[0])
    graph = norch.cuda.CUDAGraph()
    recorded.optimizer.zero_grad(set_to_none=True)
    with norch.cuda.graph(graph):
        static_loss = recorded.step(static_x, static_y)
    for turn, (x, y) in enumerate(batches[3:], 3):
        recorded.schedule(turn)
        static_x.copy_(x)
        static_y.copy_(y)
        graph.replay()
        found.append(static_loss.clone())
    assert [loss.item() for loss in found] == expected
    for p, q in zip(eager.model.parameters(), recorded.model.parameters(), strict=True):
        assert p.detach().cpu().numpy().tobytes() == q.detach().cpu().numpy().tobytes()


def test_draws_go_on_in_replays():
    x = norch.ones(1000, device="cuda")
    norch.manual_seed(1)
    expected = [(norch.dropout(x, 0.5), norch.rand(1000, device="cuda")) for _ in range(4)]
    graph = norch.cuda.CUDAGraph()
    norch.manual_seed(1)
    with norch.cuda.graph(graph):
        made = norch.dropout(x, 0.5), norch.rand(1000, device="cuda")
    for wanted in expected:
        graph.replay()
        for got, want in zip(made, wanted, strict=True):
            assert got.cpu().numpy().tobytes() == want.cpu().numpy().tobytes()


def test_what_would_never_change_is_refused_with_its_line():
    optim = pytest.importorskip("norch.optim")
    p = norch.ones(8, device="cuda").requires_grad_()
    p.grad = norch.ones(8, device="cuda")
    fresh = optim.AdamW([p])
    with pytest.raises(norch.CaptureError, match=r"AdamW.step\(\) makes its state.*test_cuda_graph.py:"):
        with norch.cuda.graph(norch.cuda.CUDAGraph()):
            fresh.step()
    own = norch.Generator().manual_seed(5)
    with pytest.raises(norch.CaptureError, match="random draws from another generator"):
        with norch.cuda.graph(norch.cuda.CUDAGraph()):
            norch.rand(8, generator=own, device="cuda")
    state = [norch.zeros(8, device="cuda") for _ in range(2)]
    with pytest.raises(norch.CaptureError, match="adam_step_.. is called by no optimiser"):
        with norch.cuda.graph(norch.cuda.CUDAGraph()):
            norch.adam_step_([p.detach()], [p.grad], [state[0]], [state[1]], step=1)
    fresh.step()
    assert norch.ones(3, device="cuda").tolist() == [1, 1, 1]


def test_a_pool_is_taken():
    graph, x = norch.cuda.CUDAGraph(), norch.ones(3, device="cuda")
    with norch.cuda.graph(graph, norch.cuda.graph_pool_handle(), capture_error_mode="thread_local"):
        y = x + 1
    second = norch.cuda.CUDAGraph()
    with norch.cuda.graph(second, pool=graph.pool(), stream=norch.cuda.Stream()):
        z = y * 2
    for run in (graph, second):
        run.replay()
    assert z.tolist() == [4, 4, 4]


def test_a_graph_is_recorded_by_calls_and_forgotten():
    graph, x = norch.cuda.CUDAGraph(), norch.ones(3, device="cuda")
    with pytest.raises(ValueError, match="default stream cannot be recorded"):
        graph.capture_begin()
    with pytest.raises(ValueError, match="not being recorded"):
        graph.capture_end()
    with norch.cuda.stream(norch.cuda.Stream()):
        graph.capture_begin(pool=norch.cuda.graph_pool_handle())
        y = x + 1
        graph.capture_end()
        with pytest.raises(ValueError, match="recorded already"):
            graph.capture_begin()
    graph.replay()
    assert y.tolist() == [2, 2, 2]
    before = norch.cuda.memory_allocated()
    del y
    graph.reset()
    assert norch.cuda.memory_allocated() < before
    with pytest.raises(ValueError, match="has not been recorded"):
        graph.replay()
    with norch.cuda.graph(graph):
        y = x * 3
    graph.replay()
    assert y.tolist() == [3, 3, 3]


def test_a_graph_that_was_given_up_can_be_recorded_again():
    graph, x = norch.cuda.CUDAGraph(), norch.ones(3, device="cuda")
    with pytest.raises(KeyError), norch.cuda.graph(graph):
        x + 1
        raise KeyError
    with pytest.raises(ValueError, match="has not been recorded"):
        graph.replay()
    with pytest.raises(norch.CaptureError, match="draws from another generator"), norch.cuda.graph(graph):
        norch.rand(8, generator=norch.Generator().manual_seed(5), device="cuda")
    with pytest.raises(ValueError, match="has not been recorded"):
        graph.replay()
    with norch.cuda.stream(norch.cuda.Stream()):
        graph.capture_begin()
        x + 2
        graph.reset()
    with norch.cuda.graph(graph):
        y = x + 4
    graph.replay()
    assert y.tolist() == [5, 5, 5]


def test_gradients_may_go_between_replays():
    optim = pytest.importorskip("norch.optim")
    p = norch.ones(8, device="cuda").requires_grad_()
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)

    def step():
        (p * 2).sum().backward()
        optimizer.step()

    step()
    graph = norch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with norch.cuda.graph(graph):
        step()
    for _ in range(3):
        optimizer.zero_grad()
        graph.replay()
        assert p.grad is None
    expected, buffer = 1.0, 0.0
    for _ in range(4):
        buffer = 0.9 * buffer + 2
        expected -= 0.1 * buffer
    np.testing.assert_allclose(p.detach().cpu().numpy(), np.full(8, expected), rtol=1e-6)


def test_a_graphed_module_trains_as_it_does():
    nn, optim = pytest.importorskip("norch.nn"), pytest.importorskip("norch.optim")
    rng = np.random.default_rng(1)
    batches = [norch.tensor(rng.standard_normal((8, 6)).astype(np.float32), device="cuda") for _ in range(5)]
    losses = []
    for graphed in (False, True):
        norch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)).to("cuda")
        if graphed:
            assert norch.cuda.make_graphed_callables(net, (batches[0].clone().requires_grad_(),)) is net
        optimizer = optim.SGD(net.parameters(), lr=0.1)
        found = []
        for turn, x in enumerate(batches):
            x = x.clone().requires_grad_()
            loss = net(x).square().mean()
            loss.backward()
            found.append((loss.item(), x.grad.norm().item(), net[0].weight.grad.norm().item()))
            if turn % 2:  # else gradients add up
                optimizer.step()
                optimizer.zero_grad()
        net.eval()
        found.append((net(batches[0]).sum().item(), 0, 0))
        losses.append(found)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_graphed_functions():
    def mixed(a, b):
        return (a @ b).tanh(), [a.sum(), b]

    a, b = (norch.rand(4, 4, device="cuda").requires_grad_() for _ in range(2))
    (call,) = norch.cuda.make_graphed_callables((mixed,), ((a.detach().clone().requires_grad_(), b.detach().clone()),))
    for _ in range(2):
        first, (second, third) = call(a, b.detach())
        (slope,) = norch.autograd.grad(first.sum() + second, a)
        (expected,) = norch.autograd.grad((a @ b.detach()).tanh().sum() + a.sum(), a)
        np.testing.assert_allclose(slope.cpu().numpy(), expected.cpu().numpy(), rtol=1e-5)
        np.testing.assert_array_equal(third.detach().cpu().numpy(), b.detach().cpu().numpy())
        with norch.no_grad():
            a.mul_(0.5)
    with pytest.raises(TypeError, match="expected tensors"):
        norch.cuda.make_graphed_callables(mixed, (a, 2.0))


def test_a_captured_step_that_replays_one_is_not_replayed():
    held = norch.zeros(4, device="cuda")
    for _ in range(2):
        held * 2  # what a recording may not load
    graph = norch.cuda.CUDAGraph()
    with norch.cuda.graph(graph):
        made = held * 2

    @norch.capture
    def step(x):
        held.copy_(x)
        graph.replay()
        return made + 1

    for i in range(6):
        assert step(norch.full((4,), float(i), device="cuda")).tolist() == [2.0 * i + 1] * 4
    assert "CUDAGraph.replay() gives the device work that no recording sees" in str(step.report())
