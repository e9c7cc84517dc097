"""By hand: the derivatives too. In float64 it is what the others are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import problem
from problem import BATCH, CONTEXT, HEADS, LAYERS, WIDTH, Array

MODES = ("eager",)
PACKAGES = ("numpy",)
Grads = dict[str, Array]


def op(name: str) -> Callable[[], object]:
    given = problem.operands(name)
    function = {"add": np.add, "exp": np.exp, "matmul": np.matmul}[name]
    return lambda: function(*given)


def step(model: str, mode: str, dtype: Any = np.float32) -> Callable[[], float]:
    w = {name: value.astype(dtype) for name, value in problem.weights(model).items()}
    x, y = problem.data(model)
    x, y = (v.astype(dtype) if v.dtype == np.float32 else v for v in (x, y))
    loss_of = {"article": article, "mlp": mlp, "cnn": cnn, "gpt": gpt}[model]
    update = optimizer(model, w)

    def call() -> float:
        loss, grads = loss_of(w, x, y)
        update(grads)
        return float(loss)

    return call


def optimizer(model: str, w: Grads) -> Callable[[Grads], None]:
    """SGD; or Adam (Kingma and Ba, 2015), with decoupled decay for the GPT (Loshchilov and Hutter, 2019)."""
    first, second = ({name: np.zeros_like(value) for name, value in w.items()} for _ in range(2))
    steps = 0

    def update(grads: Grads) -> None:
        nonlocal steps
        steps += 1
        for name, g in grads.items():
            m, v = first[name], second[name]
            if model == "article":
                w[name] -= 0.001 * g
                continue
            if model == "mlp":
                m *= 0.9
                m += g
                w[name] -= 0.01 * m
                continue
            if model == "gpt":
                w[name] *= 1 - 0.001 * 0.01
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            w[name] -= 0.001 * (m / (1 - 0.9**steps)) / (np.sqrt(v / (1 - 0.999**steps)) + 1e-8)

    return update


def linear(x: Array, w: Grads, name: str, bias: str, g: Array, grads: Grads) -> Array:
    """The derivatives of x @ w.T + b, which it keeps, and that by x, which it returns."""
    flat, rows = g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1])
    grads[name], grads[bias] = flat.T @ rows, flat.sum(0)
    return g @ w[name]


def cross_entropy(logits: Array, classes: Array) -> tuple[Any, Array]:
    """The mean loss of the rows, and its derivative."""
    shifted = logits - logits.max(1, keepdims=True)
    e = np.exp(shifted)
    total = e.sum(1, keepdims=True)
    rows = np.arange(len(classes))
    loss = (np.log(total[:, 0]) - shifted[rows, classes]).mean()
    g = e / total
    g[rows, classes] -= 1
    return loss, g / len(classes)


def article(w: Grads, x: Array, y: Array) -> tuple[Any, Grads]:
    h = 1 / (1 + np.exp(-(x @ w["w1"].T + w["b1"])))
    error = h @ w["w2"].T + w["b2"] - y
    grads: Grads = {}
    g = linear(h, w, "w2", "b2", 2 * error / error.size, grads)
    linear(x, w, "w1", "b1", g * h * (1 - h), grads)
    return (error * error).mean(), grads


def mlp(w: Grads, x: Array, y: Array) -> tuple[Any, Grads]:
    h1 = np.maximum(x @ w["w1"].T + w["b1"], 0)
    h2 = np.maximum(h1 @ w["w2"].T + w["b2"], 0)
    loss, g = cross_entropy(h2 @ w["w3"].T + w["b3"], y)
    grads: Grads = {}
    g = linear(h2, w, "w3", "b3", g, grads) * (h2 > 0)
    g = linear(h1, w, "w2", "b2", g, grads) * (h1 > 0)
    flat = g.T @ x
    grads["w1"], grads["b1"] = flat, g.sum(0)
    return loss, grads


def windows(x: Array) -> Array:
    """The 3x3 windows of images that were padded by 1: (n, h, w, c * 9)."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.ascontiguousarray(found.transpose(0, 2, 3, 1, 4, 5)).reshape(*x.shape[:1], *x.shape[2:], -1)


def convolution(seen: Array, kernel: Array, bias: Array) -> Array:
    return (seen @ kernel.reshape(len(kernel), -1).T + bias).transpose(0, 3, 1, 2)


def pooled(x: Array) -> tuple[Array, Array]:
    """The largest of each 2x2, and where it lies (the first of equals)."""
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)
    at = parts.argmax(-1)
    return np.take_along_axis(parts, at[..., None], -1)[..., 0], at


def unpooled(g: Array, at: Array) -> Array:
    n, c, h, w = g.shape
    parts = np.zeros((*g.shape, 4), g.dtype)
    np.put_along_axis(parts, at[..., None], g[..., None], -1)
    return parts.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)


def cnn(w: Grads, x: Array, y: Array) -> tuple[Any, Grads]:
    seen1 = windows(x)
    h1, at1 = pooled(np.maximum(convolution(seen1, w["conv1"], w["b1"]), 0))
    seen2 = windows(h1)
    h2, at2 = pooled(np.maximum(convolution(seen2, w["conv2"], w["b2"]), 0))
    flat = h2.reshape(len(x), -1)
    loss, g = cross_entropy(flat @ w["w3"].T + w["b3"], y)
    grads: Grads = {}
    g = linear(flat, w, "w3", "b3", g, grads).reshape(h2.shape) * (h2 > 0)
    g = kernel_grads(unpooled(g, at2), seen2, w, 2, grads)
    back = (g @ w["conv2"].reshape(len(w["conv2"]), -1)).reshape(*g.shape[:3], -1, 3, 3)
    padded = np.zeros((*h1.shape[:2], h1.shape[2] + 2, h1.shape[3] + 2), x.dtype)
    for i in range(3):
        for j in range(3):
            padded[:, :, i : i + h1.shape[2], j : j + h1.shape[3]] += back[..., i, j].transpose(0, 3, 1, 2)
    kernel_grads(unpooled(padded[:, :, 1:-1, 1:-1] * (h1 > 0), at1), seen1, w, 1, grads)
    return loss, grads


def kernel_grads(g: Array, seen: Array, w: Grads, layer: int, grads: Grads) -> Array:
    """The derivatives of a convolution's kernel and bias; g with its channels last."""
    g = np.ascontiguousarray(g.transpose(0, 2, 3, 1))
    flat = g.reshape(-1, g.shape[-1])
    kernel = w[f"conv{layer}"]
    grads[f"conv{layer}"] = (flat.T @ seen.reshape(len(flat), -1)).reshape(kernel.shape)
    grads[f"b{layer}"] = flat.sum(0)
    return g


def normed(x: Array, weight: Array, bias: Array) -> tuple[Array, Array, Array]:
    """Layer normalisation (Ba et al., 2016): the result, and what its derivative needs."""
    centred = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    z = centred * scale
    return z * weight + bias, z, scale


def norm_grads(g: Array, z: Array, scale: Array, w: Grads, name: str, grads: Grads) -> Array:
    grads[name] = (g * z).reshape(-1, WIDTH).sum(0)
    grads[f"{name}_b"] = g.reshape(-1, WIDTH).sum(0)
    g = g * w[name]
    return (g - g.mean(-1, keepdims=True) - z * (g * z).mean(-1, keepdims=True)) * scale


C = math.sqrt(2 / math.pi)


def gelu(x: Array) -> tuple[Array, Array]:
    """GPT-2's, by tanh (Hendrycks and Gimpel, 2016), and the tanh."""
    t = np.tanh(C * (x + 0.044715 * x * x * x))
    return 0.5 * x * (1 + t), t


def gelu_grad(g: Array, x: Array, t: Array) -> Array:
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * C * (1 + 3 * 0.044715 * x * x))


MASK = np.triu(np.full((CONTEXT, CONTEXT), -np.inf, np.float32), 1)


def heads(x: Array) -> Array:
    return x.reshape(BATCH, CONTEXT, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def joined(x: Array) -> Array:
    return x.transpose(0, 2, 1, 3).reshape(BATCH, CONTEXT, WIDTH)


def gpt(w: Grads, x: Array, y: Array) -> tuple[Any, Grads]:
    """GPT-2's blocks (Radford et al., 2019)."""
    h = w["tokens"][x] + w["places"]
    kept = []
    for i in range(LAYERS):
        a, z1, scale1 = normed(h, w[f"{i}.norm1"], w[f"{i}.norm1_b"])
        q, k, v = (heads(part) for part in np.split(a @ w[f"{i}.qkv"].T + w[f"{i}.qkv_b"], 3, -1))
        scores = q @ k.swapaxes(2, 3) * (WIDTH // HEADS) ** -0.5 + MASK.astype(h.dtype)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        mixed = joined(p @ v)
        h = h + mixed @ w[f"{i}.out"].T + w[f"{i}.out_b"]
        b, z2, scale2 = normed(h, w[f"{i}.norm2"], w[f"{i}.norm2_b"])
        up = b @ w[f"{i}.up"].T + w[f"{i}.up_b"]
        act, t = gelu(up)
        h = h + act @ w[f"{i}.down"].T + w[f"{i}.down_b"]
        kept.append((a, z1, scale1, q, k, v, p, mixed, b, z2, scale2, up, t, act))
    last, z, scale = normed(h, w["norm"], w["norm_b"])
    flat = last.reshape(-1, WIDTH)
    loss, g = cross_entropy(flat @ w["head"].T + w["head_b"], y)
    grads: Grads = {}
    g = linear(flat, w, "head", "head_b", g, grads).reshape(h.shape)
    g = norm_grads(g, z, scale, w, "norm", grads)
    for i in reversed(range(LAYERS)):
        a, z1, scale1, q, k, v, p, mixed, b, z2, scale2, up, t, act = kept[i]
        inner = gelu_grad(linear(act, w, f"{i}.down", f"{i}.down_b", g, grads), up, t)
        inner = linear(b, w, f"{i}.up", f"{i}.up_b", inner, grads)
        g = g + norm_grads(inner, z2, scale2, w, f"{i}.norm2", grads)
        of_mixed = heads(linear(mixed, w, f"{i}.out", f"{i}.out_b", g, grads))
        of_p = of_mixed @ v.swapaxes(2, 3)
        of_scores = p * (of_p - (of_p * p).sum(-1, keepdims=True)) * (WIDTH // HEADS) ** -0.5
        parts = (of_scores @ k, of_scores.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ of_mixed)
        of_qkv = np.concatenate([joined(part) for part in parts], -1)
        inner = linear(a, w, f"{i}.qkv", f"{i}.qkv_b", of_qkv, grads)
        g = g + norm_grads(inner, z1, scale1, w, f"{i}.norm1", grads)
    grads["places"] = g.sum(0)
    grads["tokens"] = np.zeros_like(w["tokens"])
    np.add.at(grads["tokens"], x, g)
    return loss, grads
