"""Recurrent layers on the GPU, forward and backward, beside the CPU in float64."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest

import norch
from norch.dtype import bfloat16, float16, float32, float64

nn = pytest.importorskip("norch.nn")
rnn = pytest.importorskip("norch.nn.utils.rnn")

pytestmark = pytest.mark.usefixtures("cuda")

TOLERANCE = {float64: 1e-10, float32: 5e-4, float16: 2e-2, bfloat16: 1.2e-1}
KINDS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {})]


def close(found, expected, dtype):
    a, b = found.detach().to("cpu").double().numpy(), expected.detach().double().numpy()
    scale = float(np.abs(b).max())
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * max(scale, 1e-3))


def flat(results):
    return [x for r in results for x in (flat(r) if isinstance(r, tuple) else (r,))]


def check(module, inputs, dtype, call=lambda module, *inputs: module(*inputs)):
    """Results, and gradients of inputs and parameters, of a module made in float64 on the CPU."""
    reference = module.to(dtype).double()
    ours = copy.deepcopy(reference).to(dtype).to("cuda")
    found = []
    for m, kind, device in ((ours, dtype, "cuda"), (reference, float64, "cpu")):
        given = [norch.tensor(x, dtype=float64).to(dtype).to(kind).to(device).requires_grad_() for x in inputs]
        results = flat(call(m, *given))
        draw = np.random.default_rng(3)
        sum((r * norch.tensor(draw.standard_normal(r.shape), dtype=kind).to(device)).sum() for r in results).backward()
        found.append([*results, *[x.grad for x in given], *[p.grad for p in m.parameters()]])
    for a, b in zip(*found, strict=True):
        close(a, b, dtype)


def numbers(*shape):
    return np.random.default_rng(7).standard_normal(shape)


@pytest.mark.parametrize(("name", "options"), KINDS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_layers(name, options, dtype):
    if options and dtype in (float16, bfloat16):
        pytest.skip("relu has a kink: where the sum is rounded to the other side of 0, the gradient is another")
    sizes = [(1, 3, 5, 7), (4, 1, 8, 16), (5, 3, 6, 10), (7, 33, 20, 129), (3, 40, 64, 256)]
    for steps, batch, inputs, hidden in sizes:
        norch.manual_seed(0)
        module = getattr(nn, name)(inputs, hidden, dtype=float64, bidirectional=hidden == 10, **options)
        check(module, [numbers(steps, batch, inputs)], dtype)


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_first_states_and_packed_sequences(name, options):
    norch.manual_seed(0)
    module = getattr(nn, name)(6, 9, 2, dtype=float64, bidirectional=True, **options)
    states = [numbers(4, 5, 9)] * (2 if name == "LSTM" else 1)

    def call(module, x, *states):
        packed = rnn.pack_padded_sequence(x, [3, 6, 1, 5, 4], enforce_sorted=False)
        out, last = module(packed, states if name == "LSTM" else states[0])
        return out.data, last

    check(module, [numbers(6, 5, 6), *states], float32, call)


@pytest.mark.parametrize(("steps", "batch", "hidden"), [(3, 2, 2100), (4, 200, 512), (6, 32, 512), (3, 16, 1024)])
def test_large_layers(steps, batch, hidden):
    """Weights that do not fit a kernel, more rows than one launch takes, long rows in parts."""
    norch.manual_seed(0)
    check(nn.LSTM(24, hidden, dtype=float64), [numbers(steps, batch, 24)], float32)


@pytest.mark.parametrize(("name", "options"), [(f"{n}Cell", o) for n, o in KINDS])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(name, options, bias):
    for batch, hidden in itertools.product((1, 5), (3, 64)):
        norch.manual_seed(0)
        module = getattr(nn, name)(4, hidden, bias=bias, dtype=float64, **options)
        check(module, [numbers(batch, 4)], float32)


def test_a_recorded_layer_gives_the_same_numbers():
    norch.manual_seed(0)
    lstm = nn.LSTM(16, 32, 2).to("cuda")
    x = norch.randn(5, 4, 16).to("cuda")

    def step(x):
        out, _ = lstm(x)
        grads = norch.autograd.grad(out.square().sum(), list(lstm.parameters()))
        return (out, *grads)

    expected = step(x)
    captured = norch.capture(step)
    for _ in range(4):
        for a, b in zip(captured(x), expected, strict=True):
            np.testing.assert_array_equal(a.detach().to("cpu").numpy(), b.detach().to("cpu").numpy())
