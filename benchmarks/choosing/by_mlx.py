"""MLX: lazy, each step evaluated; and the step compiled. Images have their channels last."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import problem
from mlx import nn
from mlx import optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten
from problem import BATCH, CONTEXT, HEADS, IMAGE, LAYERS, VOCABULARY, WIDTH

MODES = ("eager", "compiled")
PACKAGES = ("mlx", "mlx-cpu")


def op(name: str) -> Callable[[], object]:
    given = [mx.array(x) for x in problem.operands(name)]
    function = {"add": mx.add, "exp": mx.exp, "matmul": mx.matmul}[name]
    return lambda: mx.eval(function(*given))


class CNN(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.pool, self.last = nn.MaxPool2d(2, 2), nn.Linear(64 * (IMAGE // 4) ** 2, 10)

    def __call__(self, x: Any) -> Any:
        x = self.pool(nn.relu(self.conv1(x)))
        x = self.pool(nn.relu(self.conv2(x)))
        return self.last(x.flatten(1))


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x: Any) -> Any:
        q, k, v = (
            part.reshape(BATCH, CONTEXT, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
            for part in self.qkv(self.norm1(x)).split(3, -1)
        )
        y = mx.fast.scaled_dot_product_attention(q, k, v, scale=(WIDTH // HEADS) ** -0.5, mask="causal")
        x = x + self.out(y.transpose(0, 2, 1, 3).reshape(BATCH, CONTEXT, WIDTH))
        return x + self.down(nn.gelu_approx(self.up(self.norm2(x))))


class GPT(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = [Block() for _ in range(LAYERS)]
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def __call__(self, x: Any) -> Any:
        x = self.tokens(x) + self.places(mx.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).reshape(-1, VOCABULARY)


def article() -> Any:
    return nn.Sequential(nn.Linear(1, 10), nn.Sigmoid(), nn.Linear(10, 1))


def mlp() -> Any:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def parameters(model: str) -> Any:
    """By MLX's names: those of each layer, its weight and bias in this order."""
    arrays = list(problem.channels_last(model, problem.weights(model)).values())
    if model == "gpt":
        names = ["tokens.weight", "places.weight"]
        layers = [f"blocks.{i}.{n}" for i in range(LAYERS) for n in ("norm1", "qkv", "out", "norm2", "up", "down")]
    else:
        names = []
        layers = {"article": ["layers.0", "layers.2"], "mlp": ["layers.0", "layers.2", "layers.4"]}.get(
            model, ["conv1", "conv2", "last"]
        )
    layers += ["norm", "head"] if model == "gpt" else []
    names += [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    return [(name, mx.array(array)) for name, array in zip(names, arrays, strict=True)]


def step(model: str, mode: str) -> Callable[[], Any]:
    net = {"article": article, "mlp": mlp, "cnn": CNN, "gpt": GPT}[model]()
    if {name for name, _ in tree_flatten(net.parameters())} != {name for name, _ in parameters(model)}:
        raise AssertionError("MLX names parameters otherwise")
    net.update(tree_unflatten(parameters(model)))
    optimizer = {
        "article": lambda: optim.SGD(0.001),
        "mlp": lambda: optim.SGD(0.01, momentum=0.9),
        "cnn": lambda: optim.Adam(0.001, bias_correction=True),
        "gpt": lambda: optim.AdamW(0.001, weight_decay=0.01, bias_correction=True),
    }[model]()
    x, y = (mx.array(v) for v in problem.data(model))
    if model == "cnn":
        x = x.transpose(0, 2, 3, 1)
    criterion = nn.losses.mse_loss if model == "article" else partial(nn.losses.cross_entropy, reduction="mean")
    loss_and_grad = nn.value_and_grad(net, lambda net, x, y: criterion(net(x), y))
    state = [net.state, optimizer.state]

    def update(x: Any, y: Any) -> Any:
        loss, grads = loss_and_grad(net, x, y)
        optimizer.update(net, grads)
        return loss

    run = update if mode == "eager" else mx.compile(update, inputs=state, outputs=state)

    def call() -> Any:
        loss = run(x, y)
        mx.eval(state, loss)
        return loss

    return call
