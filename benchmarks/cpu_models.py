"""The rows of benchmarks/cpu.py that are a training step each: a model written once, for norch and for PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from cpu_rows import LIBRARIES, Row, torch
from timing import Call

import norch
from norch import nn, optim

STEPS = 3  # of which the losses must agree before a step is timed
IMAGE = 28
LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH = 4, 128, 4, 64, 65, 16

# --- What norch.nn and norch.optim do not have yet --------------------------------------------------------------------


class Conv2d(nn.Module):
    """As PyTorch's, of one kernel size and padding."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, padding: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_channels * kernel_size**2)
        shape = (out_channels, in_channels, kernel_size, kernel_size)
        self.weight = nn.Parameter((norch.rand(*shape) * 2 - 1) * bound)
        self.bias = nn.Parameter((norch.rand(out_channels) * 2 - 1) * bound)
        self.padding = padding

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return norch.conv2d(x, self.weight, self.bias, padding=self.padding)


class MaxPool2d(nn.Module):
    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return norch.max_pool2d(x, self.kernel_size)


class Embedding(nn.Module):
    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(norch.randn(num_embeddings, embedding_dim))

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return norch.embedding(x, self.weight)


class LayerNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(norch.ones(size)), nn.Parameter(norch.zeros(size))

    def forward(self, x: norch.Tensor) -> norch.Tensor:
        return norch.layer_norm(x, self.weight.shape, self.weight, self.bias)


class Adam:
    """Adam with decoupled weight decay, tensor by tensor."""

    def __init__(self, params: Any, lr: float, weight_decay: float = 0.0) -> None:
        self.params, self.lr, self.weight_decay, self.t = list(params), lr, weight_decay, 0
        self.first = [norch.zeros_like(p, requires_grad=False) for p in self.params]
        self.second = [norch.zeros_like(p, requires_grad=False) for p in self.params]

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        self.t += 1
        rate, root = self.lr / (1 - 0.9**self.t), math.sqrt(1 - 0.999**self.t)
        with norch.no_grad():
            for p, m, v in zip(self.params, self.first, self.second):
                m.mul_(0.9).add_(p.grad * 0.1)
                v.mul_(0.999).add_(p.grad * p.grad * 0.001)
                if self.weight_decay:
                    p.mul_(1 - self.lr * self.weight_decay)
                p.sub_(m * rate / (v.sqrt() / root + 1e-8))


def _norch() -> SimpleNamespace:
    """What a model is written with: norch's layers, and until they are there those above."""
    layers = {c.__name__: getattr(nn, c.__name__, c) for c in (Conv2d, MaxPool2d, Embedding, LayerNorm)}
    adam = getattr(optim, "Adam", Adam)
    # Without a decay of its own: PyTorch's AdamW has 0.01.
    adamw = getattr(optim, "AdamW", None) or (lambda params, lr: Adam(params, lr, weight_decay=0.01))
    layers |= {name: getattr(nn, name) for name in nn.__all__}
    return SimpleNamespace(
        **layers, F=nn.functional, SGD=optim.SGD, Adam=adam, AdamW=adamw, arange=norch.arange, tensor=norch.tensor
    )


def _torch() -> SimpleNamespace:
    names = ("Module", "Sequential", "Linear", "Flatten", "ReLU", "Sigmoid", "GELU", "CrossEntropyLoss", "MSELoss")
    layers = {name: getattr(torch.nn, name) for name in (*names, "Conv2d", "MaxPool2d", "Embedding", "LayerNorm")}
    optimizers = {name: getattr(torch.optim, name) for name in ("SGD", "Adam", "AdamW")}
    return SimpleNamespace(
        **layers, **optimizers, F=torch.nn.functional, arange=torch.arange, tensor=lambda a: torch.from_numpy(a).clone()
    )


# --- The models -------------------------------------------------------------------------------------------------------


def article(lib: Any) -> Any:
    """That of the article which norch began with."""
    return lib.Sequential(lib.Linear(1, 10), lib.Sigmoid(), lib.Linear(10, 1))


def mlp(lib: Any) -> Any:
    return lib.Sequential(lib.Linear(784, 512), lib.ReLU(), lib.Linear(512, 256), lib.ReLU(), lib.Linear(256, 10))


def cnn(lib: Any) -> Any:
    return lib.Sequential(
        lib.Conv2d(1, 32, 3, padding=1),
        lib.ReLU(),
        lib.MaxPool2d(2),
        lib.Conv2d(32, 64, 3, padding=1),
        lib.ReLU(),
        lib.MaxPool2d(2),
        lib.Flatten(),
        lib.Linear(64 * (IMAGE // 4) ** 2, 10),
    )


def gpt(lib: Any) -> Any:
    """GPT-2's blocks (Radford et al., 2019), small."""

    class Attention(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = lib.Linear(WIDTH, 3 * WIDTH), lib.Linear(WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            q, k, v = (
                part.reshape(n, t, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.qkv(x).split(WIDTH, 2)
            )
            y = lib.F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(n, t, WIDTH))

    class Block(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attention, self.norm2 = lib.LayerNorm(WIDTH), Attention(), lib.LayerNorm(WIDTH)
            self.mlp = lib.Sequential(lib.Linear(WIDTH, 4 * WIDTH), lib.GELU(), lib.Linear(4 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class GPT(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = lib.Embedding(VOCABULARY, WIDTH), lib.Embedding(CONTEXT, WIDTH)
            self.blocks = lib.Sequential(*[Block() for _ in range(LAYERS)])
            self.norm, self.head = lib.LayerNorm(WIDTH), lib.Linear(WIDTH, VOCABULARY)
            self.at = lib.arange(CONTEXT)

        def forward(self, x: Any) -> Any:
            x = self.blocks(self.tokens(x) + self.places(self.at))
            return self.head(self.norm(x)).reshape(-1, VOCABULARY)

    return GPT()


# --- A step of one ----------------------------------------------------------------------------------------------------


def _step(model: Any, loss_fn: Any, optimizer: Any, x: Any, y: Any) -> Call:
    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def same_losses(calls: Mapping[str, Call]) -> str | None:
    """Says where the libraries' losses differ in their first steps."""
    losses = {library: [float(call().item()) for _ in range(STEPS)] for library, call in calls.items()}  # type: ignore[attr-defined]
    ours, theirs = losses["norch"], losses.get("torch", losses["norch"])
    if all(abs(a - b) <= 1e-4 * min(1.0, abs(b)) for a, b in zip(ours, theirs)):
        return None
    shown = [", ".join(f"{v:.6f}" for v in values) for values in (ours, theirs)]
    return f"the losses of norch are {shown[0]}, of torch {shown[1]}"


def model_row(
    name: str,
    at_most: float,
    model: Callable[[Any], Any],
    loss: str,
    optimizer: Callable[[Any, Any], Any],
    data: Callable[[np.random.Generator], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]],
    flops: float = 0,
) -> Row:
    """A row of one training step, from the same weights in each library."""

    def prepare() -> dict[str, Call]:
        norch.manual_seed(0)
        x, y = data(np.random.default_rng(0))
        calls: dict[str, Call] = {}
        weights: list[np.ndarray[Any, Any]] = []
        for library in LIBRARIES:
            if library == "numpy":
                continue
            lib = _norch() if library == "norch" else _torch()
            net = model(lib)
            params = list(net.parameters())
            if weights:
                if [tuple(p.shape) for p in params] != [w.shape for w in weights]:
                    raise AssertionError(f"{name}: the parameters of {library} are not in norch's order")
                for p, w in zip(params, weights):
                    p.data.copy_(lib.tensor(w))
            else:
                weights = [p.detach().numpy().copy() for p in params]
            calls[library] = _step(net, getattr(lib, loss)(), optimizer(lib, params), lib.tensor(x), lib.tensor(y))
        return calls

    return Row(name, "training step", at_most, prepare, same_losses, flops=flops)


def _classes(rng: np.random.Generator, *shape: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return rng.standard_normal(shape, np.float32), rng.integers(0, 10, shape[0])


def _text(rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    text = rng.integers(0, VOCABULARY, (BATCH, CONTEXT + 1))
    return np.ascontiguousarray(text[:, :-1]), text[:, 1:].reshape(-1)


def _flops() -> dict[str, float]:
    """Of a step: two a multiplication; forward, the weights' gradient and, but for the first layer, the input's."""
    first = 784 * 512
    dense = 64 * 2 * (2 * first + 3 * (512 * 256 + 256 * 10))
    conv1 = IMAGE**2 * 32 * 9
    conv2 = (IMAGE // 2) ** 2 * 64 * 32 * 9
    conv = 64 * 2 * (2 * conv1 + 3 * (conv2 + 64 * (IMAGE // 4) ** 2 * 10))
    tokens = BATCH * CONTEXT
    attention = tokens * WIDTH * CONTEXT  # two products, and half of each is masked
    blocks = LAYERS * (tokens * 12 * WIDTH**2 + attention)
    return {"mlp": dense, "cnn": conv, "gpt": 6 * (blocks + tokens * WIDTH * VOCABULARY)}


FLOPS = _flops()
MODELS = [
    model_row(
        "the article's model, batch 1",
        0.2,
        article,
        "MSELoss",
        lambda lib, params: lib.SGD(params, lr=0.001),
        lambda rng: (np.full((1, 1), 0.4, np.float32), np.full((1, 1), 0.15, np.float32)),
    ),
    model_row(
        "MLP 784-512-256-10, batch 64",
        0.75,
        mlp,
        "CrossEntropyLoss",
        lambda lib, params: lib.SGD(params, lr=0.01, momentum=0.9),
        lambda rng: _classes(rng, 64, 784),
        FLOPS["mlp"],
    ),
    model_row(
        "CNN 1x28x28, batch 64",
        0.9,
        cnn,
        "CrossEntropyLoss",
        lambda lib, params: lib.Adam(params, lr=0.001),
        lambda rng: _classes(rng, 64, 1, IMAGE, IMAGE),
        FLOPS["cnn"],
    ),
    model_row(
        "GPT, 4 layers of 128, batch 16",
        0.75,
        gpt,
        "CrossEntropyLoss",
        lambda lib, params: lib.AdamW(params, lr=0.001),
        _text,
        FLOPS["gpt"],
    ),
]
