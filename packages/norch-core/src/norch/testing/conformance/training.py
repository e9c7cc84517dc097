"""Level 7: models train. Two are followed step by step by NumPy in float64; the others must learn what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from ... import ops
from ...device import Device
from .case import Case, Skipped, rerunning
from .place import Array

MODELS: dict[str, Callable[[Device], None]] = {}


def cases() -> Iterator[Case]:
    for i, (name, model) in enumerate(MODELS.items()):
        yield Case(7, "train", "float32", name, 100 + i, model, rerunning(f"7: {name}"))


def _model(name: str, of_nn: bool = True) -> Callable[[Any], Any]:
    """`of_nn`: whether it is made of norch-nn's modules, and given `nn` and `optim`."""

    def add(function: Any) -> Any:
        MODELS[name] = _with_modules(function) if of_nn else function
        return function

    return add


def _with_modules(model: Callable[[Any, Any, Device], None]) -> Callable[[Device], None]:
    def check(device: Device) -> None:
        try:
            nn, optim = import_module("norch.nn"), import_module("norch.optim")
        except ImportError:
            raise Skipped("norch-nn is not installed: pip install norch-nn") from None
        ops.manual_seed(0)
        model(nn, optim, device)

    return check


def _on(device: Device, values: list[Array]) -> tuple[list[Any], list[Any]]:
    """Parameters on the device, and zeros of their shapes."""
    weights = [ops.tensor(v, device=device, requires_grad=True) for v in values]
    return weights, [ops.zeros_like(w) for w in weights]


def _forget(weights: list[Any]) -> None:
    for w in weights:
        w.grad = None


def _follow(found: list[float], wanted: list[float]) -> None:
    off = np.abs(np.array(found) / np.array(wanted) - 1)
    if not (off < 2e-3).all():
        step = int(np.argmax(~(off < 2e-3)))
        raise AssertionError(f"the loss of step {step} is {found[step]}, expected {wanted[step]}")


def _learn(nn: Any, optimizer: Any, loss: Callable[[], Any], steps: int, below: float) -> None:
    """Trains, and expects the last loss to be that much of the first."""
    losses = []
    for _ in range(steps):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    first, last = losses[0].item(), losses[-1].item()
    if not last < below * first:
        raise AssertionError(f"the loss went from {first} to {last} in {steps} steps, not below {below * first}")


@_model("regression with tanh and SGD with momentum", of_nn=False)
def _regression(device: Device) -> None:
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 1, (16, 3)).astype(np.float32)
    y = np.sin(x.sum(1, keepdims=True))
    parameters = [draw.uniform(-0.6, 0.6, shape).astype(np.float32) for shape in ((8, 3), (8,), (1, 8), (1,))]
    weights, speeds = _on(device, parameters)
    given, goal = (ops.tensor(a, device=device) for a in (x, y))
    found = []
    for _ in range(20):
        w1, b1, w2, b2 = weights
        loss = ops.mse_loss((given @ w1.T + b1).tanh() @ w2.T + b2, goal)
        loss.backward()
        ops.sgd_step_(weights, [w.grad for w in weights], speeds, lr=0.1, momentum=0.9)
        _forget(weights)
        found.append(loss.item())
    w1, b1, w2, b2 = exact = [p.astype(np.float64) for p in parameters]
    velocities = [np.zeros_like(p) for p in exact]
    wanted = []
    for _ in range(20):
        h = np.tanh(x @ w1.T + b1)
        error = h @ w2.T + b2 - y
        wanted.append(float((error**2).mean()))
        g = 2 * error / error.size
        inner = (g @ w2) * (1 - h * h)
        for p, v, slope in zip(exact, velocities, (inner.T @ x, inner.sum(0), g.T @ h, g.sum(0))):
            v *= 0.9
            v += slope
            p -= 0.1 * v
    _follow(found, wanted)


@_model("classification with ReLU, cross entropy and Adam", of_nn=False)
def _classification(device: Device) -> None:
    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(24, 6)).astype(np.float32), draw.integers(0, 4, 24)
    parameters = [draw.uniform(-0.4, 0.4, shape).astype(np.float32) for shape in ((12, 6), (12,), (4, 12), (4,))]
    weights, averages = _on(device, parameters)
    given, goal = ops.tensor(x, device=device), ops.tensor(y, device=device)
    squares = [a.clone() for a in averages]
    found = []
    for step in range(1, 16):
        w1, b1, w2, b2 = weights
        loss = ops.cross_entropy((given @ w1.T + b1).relu() @ w2.T + b2, goal)
        loss.backward()
        ops.adam_step_(weights, [w.grad for w in weights], averages, squares, step=step, lr=0.01)
        _forget(weights)
        found.append(loss.item())
    w1, b1, w2, b2 = exact = [p.astype(np.float64) for p in parameters]
    means, spreads = ([np.zeros_like(p) for p in exact] for _ in range(2))
    wanted = []
    for step in range(1, 16):
        h = np.maximum(x @ w1.T + b1, 0)
        scores = h @ w2.T + b2
        scores = scores - scores.max(1, keepdims=True)
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        wanted.append(float(-np.log(shares[np.arange(24), y]).mean()))
        g = (shares - np.eye(4)[y]) / 24
        inner = (g @ w2) * (h > 0)
        for p, m, v, slope in zip(exact, means, spreads, (inner.T @ x, inner.sum(0), g.T @ h, g.sum(0))):
            m += 0.1 * (slope - m)
            v += 0.001 * (slope**2 - v)
            p -= 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    _follow(found, wanted)


@_model("a convolutional network tells bars from columns")
def _convolutional(nn: Any, optim: Any, device: Device) -> None:
    draw = np.random.default_rng(2)
    images, labels = np.zeros((32, 1, 8, 8), np.float32), np.arange(32) % 2
    for i, label in enumerate(labels):
        place = draw.integers(0, 8)
        images[i, 0, place if label else slice(None), slice(None) if label else place] = 1
    x, y = ops.tensor(images, device=device), ops.tensor(labels, device=device)

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(ops.randn(4, 1, 3, 3) * 0.4)
            self.fc = nn.Linear(36, 2)

        def forward(self, x: Any) -> Any:
            return self.fc(ops.max_pool2d(ops.conv2d(x, self.weight).relu(), 2).flatten(1))

    model = Net().to(device)
    optimizer = optim.Adam(model.parameters(), lr=0.02)
    _learn(nn, optimizer, lambda: nn.CrossEntropyLoss()(model(x), y), 40, 0.3)


@_model("attention, layer_norm and an embedding learn to copy")
def _attention(nn: Any, optim: Any, device: Device) -> None:
    tokens = ops.tensor(np.random.default_rng(3).integers(0, 6, (8, 5)), device=device)

    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Parameter(ops.randn(6, 16) * 0.5)
            self.places = nn.Parameter(ops.randn(5, 16) * 0.5)
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 6)

        def forward(self, x: Any) -> Any:
            h = ops.embedding(x, self.tokens) + self.places
            q, k, v = self.qkv(ops.layer_norm(h, (16,))).split(16, dim=-1)
            h = h + ops.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(ops.gelu(h)).flatten(0, 1)

    model = Net().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.02)
    _learn(nn, optimizer, lambda: nn.CrossEntropyLoss()(model(tokens), tokens.flatten()), 40, 0.2)
