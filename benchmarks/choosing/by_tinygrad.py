"""tinygrad: lazy, each step realised; and the step replayed by TinyJit. It compiles with a clang of the system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import problem
from problem import BATCH, CONTEXT, HEADS, IMAGE, LAYERS, VOCABULARY, WIDTH
from tinygrad import Context, Tensor, TinyJit, nn

MODES = ("eager", "compiled")
PACKAGES = ("tinygrad",)


def op(name: str) -> Callable[[], object]:
    given = [Tensor(x).realize() for x in problem.operands(name)]
    function = {"add": Tensor.add, "exp": Tensor.exp, "matmul": Tensor.matmul}[name]
    return lambda: wait(function(*given).realize())


def wait(x: Any) -> Any:
    from tinygrad import Device

    Device[Device.DEFAULT].synchronize()
    return x


class Sequence:
    def __init__(self, *layers: Any) -> None:
        self.layers = list(layers)

    def __call__(self, x: Any) -> Any:
        return x.sequential(self.layers)


class CNN:
    def __init__(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.last = nn.Linear(64 * (IMAGE // 4) ** 2, 10)

    def __call__(self, x: Any) -> Any:
        x = self.conv1(x).relu().max_pool2d()
        return self.last(self.conv2(x).relu().max_pool2d().flatten(1))


class Block:
    def __init__(self) -> None:
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x: Any) -> Any:
        q, k, v = (
            part.reshape(BATCH, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(WIDTH, -1)
        )
        y = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))
        return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
    def __init__(self) -> None:
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = [Block() for _ in range(LAYERS)]
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def __call__(self, x: Any) -> Any:
        x = self.tokens(x) + self.places(Tensor.arange(CONTEXT).reshape(1, CONTEXT))
        return self.head(self.norm(x.sequential(self.blocks))).reshape(-1, VOCABULARY)


def article() -> Any:
    return Sequence(nn.Linear(1, 10), Tensor.sigmoid, nn.Linear(10, 1))


def mlp() -> Any:
    return Sequence(nn.Linear(784, 512), Tensor.relu, nn.Linear(512, 256), Tensor.relu, nn.Linear(256, 10))


def step(model: str, mode: str) -> Callable[[], Any]:
    net = {"article": article, "mlp": mlp, "cnn": CNN, "gpt": GPT}[model]()
    parameters = nn.state.get_parameters(net)
    for p, w in zip(parameters, problem.weights(model).values(), strict=True):
        p.assign(Tensor(w).reshape(p.shape)).realize()
    optimizer = {
        "article": lambda p: nn.optim.SGD(p, lr=0.001),
        "mlp": lambda p: nn.optim.SGD(p, lr=0.01, momentum=0.9),
        "cnn": lambda p: nn.optim.Adam(p, lr=0.001),
        "gpt": lambda p: nn.optim.AdamW(p, lr=0.001, weight_decay=0.01),
    }[model](parameters)
    x, y = (Tensor(v).realize() for v in problem.data(model))

    def update() -> Any:
        optimizer.zero_grad()
        out = net(x)
        loss = (out - y).square().mean() if model == "article" else out.sparse_categorical_crossentropy(y)
        return loss.backward().realize(*optimizer.schedule_step())

    run = update if mode == "eager" else TinyJit(update)

    def call() -> Any:
        with Context(TRAINING=1):
            return wait(run())

    return call
