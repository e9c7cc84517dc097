"""norch and PyTorch: one text, with another import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import problem
from problem import CONTEXT, HEADS, IMAGE, LAYERS, VOCABULARY, WIDTH


def op(lib: Any, name: str) -> Callable[[], object]:
    given = [lib.tensor(x) for x in problem.operands(name)]
    function = getattr(lib, name)
    return lambda: function(*given)


def step(lib: Any, model: str, compiled: Callable[[Any, Callable[[], Any]], Callable[[], Any]] | None) -> Any:
    """A call that takes one step of training and returns the loss. `compiled(net, step)` makes it fast, if given."""
    nn, optim = lib.nn, lib.optim
    net = {"article": article, "mlp": mlp, "cnn": cnn, "gpt": gpt}[model](nn, lib)
    for p, w in zip(net.parameters(), problem.weights(model).values(), strict=True):
        p.data.copy_(lib.tensor(w))
    optimizer = {
        "article": lambda p: optim.SGD(p, lr=0.001),
        "mlp": lambda p: optim.SGD(p, lr=0.01, momentum=0.9),
        "cnn": lambda p: optim.Adam(p, lr=0.001),
        "gpt": lambda p: optim.AdamW(p, lr=0.001),
    }[model](net.parameters())
    loss_fn = nn.MSELoss() if model == "article" else nn.CrossEntropyLoss()
    x, y = (lib.tensor(v) for v in problem.data(model))

    def steps(forward: Any) -> Callable[[], Any]:
        def call() -> Any:
            optimizer.zero_grad()
            loss = loss_fn(forward(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return call

    return steps(net) if compiled is None else compiled(net, steps)


def article(nn: Any, lib: Any) -> Any:
    return nn.Sequential(nn.Linear(1, 10), nn.Sigmoid(), nn.Linear(10, 1))


def mlp(nn: Any, lib: Any) -> Any:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def cnn(nn: Any, lib: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (IMAGE // 4) ** 2, 10),
    )


def gpt(nn: Any, lib: Any) -> Any:
    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.norm2 = nn.LayerNorm(WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            q, k, v = (
                part.reshape(n, t, HEADS, WIDTH // HEADS).transpose(1, 2)
                for part in self.qkv(self.norm1(x)).split(WIDTH, 2)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, WIDTH))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, x: Any) -> Any:
            x = self.tokens(x) + self.places(lib.arange(CONTEXT))
            return self.head(self.norm(self.blocks(x))).reshape(-1, VOCABULARY)

    return GPT()
