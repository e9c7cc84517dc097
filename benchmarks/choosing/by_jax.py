"""JAX: parameters in a dict, derivatives by value_and_grad; op by op, and the whole step compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import problem
from jax import nn
from problem import BATCH, CONTEXT, HEADS, LAYERS, WIDTH

MODES = ("eager", "compiled")
PACKAGES = ("jax", "jaxlib", "numpy")


def op(name: str) -> Callable[[], object]:
    given = [jnp.asarray(x) for x in problem.operands(name)]
    function = {"add": jnp.add, "exp": jnp.exp, "matmul": jnp.matmul}[name]
    return lambda: function(*given).block_until_ready()


def step(model: str, mode: str) -> Callable[[], Any]:
    w = jax.tree.map(jnp.asarray, problem.channels_last(model, problem.weights(model)))
    x, y = (jnp.asarray(v) for v in problem.data(model))
    loss_of = {"article": article, "mlp": mlp, "cnn": cnn, "gpt": gpt}[model]
    if model == "cnn":
        x = x.transpose(0, 2, 3, 1)
    m, v = (jax.tree.map(jnp.zeros_like, w) for _ in range(2))
    state = [w, m, v, jnp.zeros(())]

    def update(w: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(w, x, y)
        return loss, *optimized(model, w, m, v, t, g)

    run = update if mode == "eager" else jax.jit(update, donate_argnums=(0, 1, 2, 3))

    def call() -> Any:
        loss, *state[:] = run(*state, x, y)
        return jax.block_until_ready((loss, state))[0]

    return call


def optimized(model: str, w: Any, m: Any, v: Any, t: Any, g: Any) -> Any:
    """New weights and moments: SGD, with momentum, or Adam (Kingma and Ba, 2015), decoupled decay for the GPT."""
    each = jax.tree.map
    if model == "article":
        return each(lambda p, d: p - 0.001 * d, w, g), m, v, t
    if model == "mlp":
        m = each(lambda a, d: 0.9 * a + d, m, g)
        return each(lambda p, a: p - 0.01 * a, w, m), m, v, t
    t = t + 1
    m = each(lambda a, d: 0.9 * a + 0.1 * d, m, g)
    v = each(lambda a, d: 0.999 * a + 0.001 * d * d, v, g)
    keep = 1 - 0.001 * 0.01 if model == "gpt" else 1.0
    first, second = 1 - 0.9**t, 1 - 0.999**t
    new = each(lambda p, a, b: p * keep - 0.001 * (a / first) / (jnp.sqrt(b / second) + 1e-8), w, m, v)
    return new, m, v, t


def cross_entropy(logits: Any, classes: Any) -> Any:
    return -jnp.take_along_axis(nn.log_softmax(logits), classes[:, None], 1).mean()


def article(w: Any, x: Any, y: Any) -> Any:
    return jnp.square(nn.sigmoid(x @ w["w1"].T + w["b1"]) @ w["w2"].T + w["b2"] - y).mean()


def mlp(w: Any, x: Any, y: Any) -> Any:
    x = nn.relu(x @ w["w1"].T + w["b1"])
    x = nn.relu(x @ w["w2"].T + w["b2"])
    return cross_entropy(x @ w["w3"].T + w["b3"], y)


def convolved(x: Any, kernel: Any, bias: Any) -> Any:
    x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "OHWI", "NHWC"))
    x = nn.relu(x + bias)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def cnn(w: Any, x: Any, y: Any) -> Any:
    x = convolved(convolved(x, w["conv1"], w["b1"]), w["conv2"], w["b2"])
    return cross_entropy(x.reshape(len(x), -1) @ w["w3"].T + w["b3"], y)


def norm(x: Any, weight: Any, bias: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * weight + bias


def gpt(w: Any, x: Any, y: Any) -> Any:
    x = w["tokens"][x] + w["places"]
    for i in range(LAYERS):
        h = norm(x, w[f"{i}.norm1"], w[f"{i}.norm1_b"]) @ w[f"{i}.qkv"].T + w[f"{i}.qkv_b"]
        q, k, v = (part.reshape(BATCH, CONTEXT, HEADS, WIDTH // HEADS) for part in jnp.split(h, 3, -1))
        mixed = nn.dot_product_attention(q, k, v, is_causal=True).reshape(BATCH, CONTEXT, WIDTH)
        x = x + mixed @ w[f"{i}.out"].T + w[f"{i}.out_b"]
        h = nn.gelu(norm(x, w[f"{i}.norm2"], w[f"{i}.norm2_b"]) @ w[f"{i}.up"].T + w[f"{i}.up_b"])
        x = x + h @ w[f"{i}.down"].T + w[f"{i}.down_b"]
    x = norm(x, w["norm"], w["norm_b"]) @ w["head"].T + w["head_b"]
    return cross_entropy(x.reshape(-1, x.shape[-1]), y)
