"""The models that the benchmarks train, each written once, for norch and for PyTorch."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from timing import Call

import norch
from norch import nn, optim

IMAGE = 28
LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH = 4, 128, 4, 64, 65, 16

LAYER_NAMES = (
    *("Module", "Sequential", "Linear", "Flatten", "ReLU", "Sigmoid", "GELU", "CrossEntropyLoss", "MSELoss"),
    *("Conv1d", "Conv2d", "MaxPool2d", "Embedding", "LayerNorm", "BatchNorm2d", "ReLU6", "AdaptiveAvgPool2d"),
    *("ModuleList", "Parameter", "LSTM", "LSTMCell"),
)


FUNCTION_NAMES = ("cat", "rsqrt", "ones", "no_grad")


def _library(root: Any, nn: Any, optim: Any, arange: Any, tensor: Any) -> SimpleNamespace:
    """What a model is written with."""
    functions = {name: getattr(root, name) for name in FUNCTION_NAMES}
    layers = {name: getattr(nn, name) for name in LAYER_NAMES}
    optimizers = {name: getattr(optim, name) for name in ("SGD", "Adam", "AdamW")}
    return SimpleNamespace(**functions, **layers, **optimizers, nn=nn, F=nn.functional, arange=arange, tensor=tensor)


def norch_library(device: str = "cpu") -> SimpleNamespace:
    """norch's layers, optimisers and functions."""
    return _library(norch, nn, optim, partial(norch.arange, device=device), partial(norch.tensor, device=device))


def torch_library(device: str = "cpu") -> SimpleNamespace:
    """The same of PyTorch."""
    import torch

    return _library(
        torch,
        torch.nn,
        torch.optim,
        partial(torch.arange, device=device),
        lambda array: torch.from_numpy(array).clone().to(device),
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


def gpt(
    lib: Any,
    layers: int = LAYERS,
    width: int = WIDTH,
    heads: int = HEADS,
    context: int = CONTEXT,
    vocabulary: int = VOCABULARY,
    tied: bool = False,
) -> Any:
    """GPT-2's blocks (Radford et al., 2019), small; tied: the head has the weights of the embedding, as there."""

    class Attention(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = lib.Linear(width, 3 * width), lib.Linear(width, width)

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            q, k, v = (
                part.reshape(n, t, heads, width // heads).transpose(1, 2) for part in self.qkv(x).split(width, 2)
            )
            y = lib.F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(n, t, width))

    class Block(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attention, self.norm2 = lib.LayerNorm(width), Attention(), lib.LayerNorm(width)
            self.mlp = lib.Sequential(lib.Linear(width, 4 * width), lib.GELU(), lib.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class GPT(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = lib.Embedding(vocabulary, width), lib.Embedding(context, width)
            self.blocks = lib.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = lib.LayerNorm(width), lib.Linear(width, vocabulary, bias=not tied)
            if tied:
                self.head.weight = self.tokens.weight
            self.at = lib.arange(context)

        def forward(self, x: Any) -> Any:
            x = self.blocks(self.tokens(x) + self.places(self.at))
            return self.head(self.norm(x)).reshape(-1, vocabulary)

    return GPT()


def lstm(lib: Any, width: int) -> Any:
    """Two LSTM layers, and a number from each state."""

    class Sequences(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = lib.LSTM(width, width, 2), lib.Linear(width, 1)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0])

    return Sequences()


def sequences(rng: np.random.Generator, width: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """32 of 64 steps."""
    return rng.standard_normal((64, 32, width), np.float32), rng.standard_normal((64, 32, 1), np.float32)


def voice_detector(lib: Any) -> Any:
    """Whether somebody speaks in 512 samples, as Silero's model finds out: a spectrum, four convolutions,
    an LSTM of one step a chunk, whose states the caller keeps."""

    class VoiceDetector(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.spectrum = lib.Conv1d(1, 258, 256, stride=128, bias=False)
            widths = [129, 128, 64, 64, 128]
            self.encoder = lib.Sequential(
                *[
                    lib.Sequential(lib.Conv1d(a, b, 3, stride=stride, padding=1), lib.ReLU())
                    for a, b, stride in zip(widths, widths[1:], (1, 2, 2, 1))
                ]
            )
            self.rnn, self.head = lib.LSTMCell(128, 128), lib.Linear(128, 1)

        def forward(self, x: Any, states: Any = None) -> Any:
            found = self.spectrum(lib.F.pad(x, (0, 64), mode="reflect"))
            real, imaginary = found.chunk(2, 1)
            x = self.encoder((real * real + imaginary * imaginary).sqrt())
            h, c = self.rnn(x.squeeze(-1), states)
            return self.head(h.relu()).sigmoid(), (h, c)

    return VoiceDetector()


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
