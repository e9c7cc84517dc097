"""The models, their first weights and their data, as NumPy arrays: the same for every framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

IMAGE = 28
LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH = 4, 128, 4, 64, 65, 16
MODELS = {
    "article": "the article's model, batch 1, SGD",
    "mlp": "MLP 784-512-256-10, batch 64, SGD with momentum",
    "cnn": "CNN 1x28x28, batch 64, Adam",
    "gpt": "GPT, 4 layers of 128, batch 16, AdamW",
}
OPS = {"add": "4x4 add", "exp": "exp of 1M floats", "matmul": "512x512 matmul"}
STEPS = (
    6  # of which the losses must agree before a step is timed; norch's captured ones are replayed from the fourth on
)
AGREES = 2e-4


def shapes(model: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The parameters by name, a linear layer's as (out, in)."""
    if model == "article":
        yield from (("w1", (10, 1)), ("b1", (10,)), ("w2", (1, 10)), ("b2", (1,)))
    elif model == "mlp":
        for i, (size, out) in enumerate(((784, 512), (512, 256), (256, 10)), 1):
            yield from ((f"w{i}", (out, size)), (f"b{i}", (out,)))
    elif model == "cnn":
        yield from (("conv1", (32, 1, 3, 3)), ("b1", (32,)), ("conv2", (64, 32, 3, 3)), ("b2", (64,)))
        yield from (("w3", (10, 64 * (IMAGE // 4) ** 2)), ("b3", (10,)))
    else:
        yield from (("tokens", (VOCABULARY, WIDTH)), ("places", (CONTEXT, WIDTH)))
        for i in range(LAYERS):
            yield from ((f"{i}.norm1", (WIDTH,)), (f"{i}.norm1_b", (WIDTH,)))
            yield from ((f"{i}.qkv", (3 * WIDTH, WIDTH)), (f"{i}.qkv_b", (3 * WIDTH,)))
            yield from ((f"{i}.out", (WIDTH, WIDTH)), (f"{i}.out_b", (WIDTH,)))
            yield from ((f"{i}.norm2", (WIDTH,)), (f"{i}.norm2_b", (WIDTH,)))
            yield from ((f"{i}.up", (4 * WIDTH, WIDTH)), (f"{i}.up_b", (4 * WIDTH,)))
            yield from ((f"{i}.down", (WIDTH, 4 * WIDTH)), (f"{i}.down_b", (WIDTH,)))
        yield from (("norm", (WIDTH,)), ("norm_b", (WIDTH,)), ("head", (VOCABULARY, WIDTH)), ("head_b", (VOCABULARY,)))


def weights(model: str) -> dict[str, Array]:
    """The first weights, float32: uniform within 1/sqrt(fan in), ones and zeros for norms."""
    rng = np.random.default_rng(0)
    found = {}
    for name, shape in shapes(model):
        if "norm" in name:
            found[name] = np.full(shape, 0.0 if name.endswith("_b") else 1.0, np.float32)
        else:
            bound = float(np.prod(shape[1:] or shape)) ** -0.5
            found[name] = rng.uniform(-bound, bound, shape).astype(np.float32)
    return found


def data(model: str) -> tuple[Array, Array]:
    """A batch: inputs, and targets or classes."""
    rng = np.random.default_rng(1)
    if model == "article":
        return np.full((1, 1), 0.4, np.float32), np.full((1, 1), 0.15, np.float32)
    if model == "gpt":
        text = rng.integers(0, VOCABULARY, (BATCH, CONTEXT + 1))
        return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:]).reshape(-1)
    shape = (64, 784) if model == "mlp" else (64, 1, IMAGE, IMAGE)
    return rng.standard_normal(shape, np.float32), rng.integers(0, 10, 64)


def operands(op: str) -> tuple[Array, ...]:
    rng = np.random.default_rng(2)
    shape, count = {"add": ((4, 4), 2), "exp": ((1_000_000,), 1), "matmul": ((512, 512), 2)}[op]
    return tuple(rng.standard_normal(shape, np.float32) for _ in range(count))


def channels_last(model: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """The CNN's weights for images of shape (n, h, w, c): kernels (out, h, w, in), the last layer's inputs in order."""
    if model != "cnn":
        return arrays
    side = IMAGE // 4
    last = arrays["w3"].reshape(10, 64, side, side).transpose(0, 2, 3, 1).reshape(10, -1)
    kernels = {name: arrays[name].transpose(0, 2, 3, 1) for name in ("conv1", "conv2")}
    return {**arrays, **kernels, "w3": last}
