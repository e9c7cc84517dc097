"""Activations and their gradients on the GPU, against the same on the CPU in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import norch
from norch.testing import assert_close

ULP = {norch.float64: 2.0**-52, norch.float32: 2.0**-23, norch.float16: 2.0**-10, norch.bfloat16: 2.0**-7}

ACTIVATIONS: dict[str, Callable[[norch.Tensor], norch.Tensor]] = {
    "relu": norch.relu,
    "leaky_relu": lambda x: norch.leaky_relu(x, 0.2),
    "hardtanh": lambda x: norch.hardtanh(x, -0.5, 1.5),
    "elu": lambda x: norch.elu(x, 1.3),
    "selu": norch.selu,
    "celu": lambda x: norch.celu(x, 0.7),
    "gelu": norch.gelu,
    "gelu_tanh": lambda x: norch.gelu(x, "tanh"),
    "silu": norch.silu,
    "softplus": lambda x: norch.softplus(x, 1.5, 10.0),
    "tanh": norch.tanh,
    "sigmoid": norch.sigmoid,
}


def values() -> Any:
    spread = np.random.default_rng(0).normal(size=1003) * np.geomspace(1e-3, 30, 1003)
    return np.concatenate((spread, [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 50.0, -50.0]))


def run(op: str, x: norch.Tensor, g: norch.Tensor) -> tuple[Any, Any]:
    leaf = x.detach().requires_grad_()
    y = ACTIVATIONS[op](leaf)
    y.backward(g)
    return tuple(t.detach().to("cpu").to(norch.float64).numpy() for t in (y, leaf.grad))


@pytest.mark.parametrize("dtype", ULP, ids=str)
@pytest.mark.parametrize("op", ACTIVATIONS)
def test_values_and_gradients(cuda: str, op: str, dtype: Any) -> None:
    x = norch.tensor(values()).to(dtype)
    g = norch.tensor(np.random.default_rng(1).normal(size=x.shape[0])).to(dtype)
    with np.errstate(all="ignore"):
        wanted = run(op, x.to(norch.float64), g.to(norch.float64))
    found = run(op, x.to(cuda), g.to(cuda))
    size = np.abs(x.to(norch.float64).numpy()) + 1
    # A gradient that is made of the rounded result has that rounding's error.
    weight = np.abs(g.to(norch.float64).numpy()) * (1 if dtype in (norch.float64, norch.float32) else 2)
    assert (np.abs(found[0] - wanted[0]) <= 8 * ULP[dtype] * size).all()
    differs = np.abs(found[1] - wanted[1]) > 8 * ULP[dtype] * size * weight
    if op == "hardtanh":  # whether a result is at a bound depends on how the bound is rounded
        differs &= ~np.isin(np.abs(wanted[0]), (0.5, 1.5))
    assert not differs.any()


@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16], ids=str)
def test_gelu_is_nearly_rounded_once(cuda: str, dtype: Any) -> None:
    x = norch.tensor(np.linspace(-5.5, 8, 20001)).to(dtype)
    exact = x.to(norch.float64).numpy()
    with np.errstate(all="ignore"):
        wanted = norch.gelu(x.to(norch.float64)).numpy()
    found = norch.gelu(x.to(cuda)).to("cpu").to(norch.float64).numpy()
    spacing = np.maximum(2.0 ** np.floor(np.log2(np.abs(wanted) + 1e-300)), 2.0**-14) * ULP[dtype]
    assert (np.abs(found - wanted) <= 0.54 * spacing).all(), exact[np.argmax(np.abs(found - wanted) / spacing)]


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_special_values(cuda: str, op: str) -> None:
    inf, nan = float("inf"), float("nan")
    below = [] if op == "gelu" else [-inf, -1e30]  # there it is -inf times 0, or nearly 0
    x = norch.tensor([nan, inf, 1e30, *below], dtype=norch.float32)
    with np.errstate(all="ignore"):
        on_host = ACTIVATIONS[op](x).numpy()
    np.testing.assert_allclose(ACTIVATIONS[op](x.to(cuda)).to("cpu").numpy(), on_host, rtol=1e-5)


@pytest.mark.parametrize("op", ["gelu", "silu", "relu", "softplus"])
def test_layouts(cuda: str, op: str) -> None:
    full = norch.tensor(np.random.default_rng(2).normal(size=(9, 14, 11)).astype(np.float32))
    for view in (
        lambda x: x.permute(2, 0, 1),
        lambda x: x[:, 1:, ::3],
        lambda x: x[:1].expand(5, 14, 11),
        lambda x: x[0, 0, 0],
    ):
        with np.errstate(all="ignore"):
            x = view(full)
            g = norch.ones(()).expand(tuple(x.shape))
            wanted = run(op, x, g)
            found = run(op, view(full.to(cuda)), norch.ones((), device=cuda).expand(tuple(x.shape)))
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [norch.int64, norch.int32, norch.int16, norch.int8, norch.uint8], ids=str)
def test_relu_of_integers(cuda: str, dtype: Any) -> None:
    x = norch.tensor([-3, 0, 5, -128, 127]).to(dtype)
    np.testing.assert_array_equal(norch.relu(x.to(cuda)).to("cpu").numpy(), np.maximum(x.numpy(), 0))


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_what_is_written_over_its_input_takes_no_memory(cuda: str, name: str) -> None:
    x = norch.randn(1 << 18, device=cuda, requires_grad=True)
    y = x * 2
    expected = getattr(norch, name)(y.detach(), *([0.25] if name == "leaky_relu" else []))
    before = norch.cuda.memory_allocated()
    norch.cuda.reset_peak_memory_stats()
    z = y.relu_() if name == "relu" else norch.leaky_relu_(y, 0.25)
    assert norch.cuda.max_memory_allocated() == before
    assert (z == expected).all()
    z.sum().backward()
    slope = 0.0 if name == "relu" else 0.25
    assert_close(x.grad.cpu(), norch.where(x.detach() > 0, 2.0, 2 * slope).cpu(), rtol=0, atol=0)
