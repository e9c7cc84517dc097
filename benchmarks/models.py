"""The models that the benchmarks train, each written once, for norch and for PyTorch."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from timing import Call

import norch
from norch import nn, optim

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


def norch_library(device: str = "cpu") -> SimpleNamespace:
    """What a model is written with: norch's layers, and until they are there those above."""
    layers = {c.__name__: getattr(nn, c.__name__, c) for c in (Conv2d, MaxPool2d, Embedding, LayerNorm)}
    adam = getattr(optim, "Adam", Adam)
    # Without a decay of its own: PyTorch's AdamW has 0.01.
    adamw = getattr(optim, "AdamW", None) or (lambda params, lr: Adam(params, lr, weight_decay=0.01))
    layers |= {name: getattr(nn, name) for name in nn.__all__}
    return SimpleNamespace(
        **layers,
        F=nn.functional,
        SGD=optim.SGD,
        Adam=adam,
        AdamW=adamw,
        arange=partial(norch.arange, device=device),
        tensor=partial(norch.tensor, device=device),
    )


def torch_library(device: str = "cpu") -> SimpleNamespace:
    """The same of PyTorch."""
    import torch

    names = ("Module", "Sequential", "Linear", "Flatten", "ReLU", "Sigmoid", "GELU", "CrossEntropyLoss", "MSELoss")
    layers = {name: getattr(torch.nn, name) for name in (*names, "Conv2d", "MaxPool2d", "Embedding", "LayerNorm")}
    optimizers = {name: getattr(torch.optim, name) for name in ("SGD", "Adam", "AdamW")}
    return SimpleNamespace(
        **layers,
        **optimizers,
        F=torch.nn.functional,
        arange=partial(torch.arange, device=device),
        tensor=lambda a: torch.from_numpy(a).clone().to(device),
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


def training_step(model: Any, loss_fn: Any, optimizer: Any, x: Any, y: Any) -> Call:
    """A call that takes one step and returns the loss."""

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def classes(rng: np.random.Generator, *shape: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return rng.standard_normal(shape, np.float32), rng.integers(0, 10, shape[0])


def text(rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Random tokens, and those that follow them."""
    tokens = rng.integers(0, VOCABULARY, (BATCH, CONTEXT + 1))
    return np.ascontiguousarray(tokens[:, :-1]), tokens[:, 1:].reshape(-1)


def same_weights(name: str, nets: list[Any], tensors: list[Any]) -> None:
    """Gives every model the first one's weights; `tensors` are the libraries' functions that make a tensor."""
    first = [p.detach().cpu().numpy().copy() for p in nets[0].parameters()]
    for net, tensor in zip(nets[1:], tensors[1:]):
        params = list(net.parameters())
        if [tuple(p.shape) for p in params] != [w.shape for w in first]:
            raise AssertionError(f"{name}: the parameters are not in the same order")
        for p, w in zip(params, first):
            p.data.copy_(tensor(w))
