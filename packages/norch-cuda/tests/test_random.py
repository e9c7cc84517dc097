"""random and dropout on the GPU: the same numbers as norch-core's definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import norch
from norch.numpy_backend import philox
from norch.ops.random import draw_keyed
from norch.ops.rejection import log_gamma_draw, poisson_draw
from norch.ops.sampling import exponential_draw, race_keys

SIZES = [0, 1, 2, 3, 4, 5, 7, 1023, 4097, 70001]
KINDS = sorted(philox.KINDS)
SEED, OFFSET = 0x9ABCDEF012345678, 0x8000000300000007


def expected(kind: str, dtype: str, n: int) -> Any:
    per_block = 2 if dtype in ("float64", "int64") and kind != "bits" else 4
    blocks = -(-n // per_block)
    return philox.KINDS[kind, dtype](philox.words(SEED, OFFSET, 0, blocks)).reshape(-1)[:n]


def drawn(kind: str, dtype: str, shape: Any, device: str, strides: Any = None) -> Any:
    like = norch.empty(shape, dtype=getattr(norch, dtype), device=device)
    out = draw_keyed(like.spec, kind, SEED, OFFSET).to("cpu")
    return (out.to(norch.float64) if dtype in ("float16", "bfloat16") else out).numpy()


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_definition(cuda: str, kind: str, dtype: str) -> None:
    for n in SIZES:
        out, wanted = drawn(kind, dtype, n, cuda), expected(kind, dtype, n)
        if kind != "normal":
            np.testing.assert_array_equal(out, wanted if dtype != "int64" else wanted.astype(np.int64))
        else:
            ulp = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
            near = np.abs(out - wanted) <= 6 * ulp * np.abs(wanted) + (2**-24 if dtype == "float16" else 0)
            assert near.all(), (out[~near][:3], wanted[~near][:3])


def test_shapes_count_row_by_row(cuda: str) -> None:
    flat = drawn("uniform", "float32", 3 * 7 * 5, cuda)
    np.testing.assert_array_equal(drawn("uniform", "float32", (3, 7, 5), cuda).reshape(-1), flat)


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_strided_and_offset_outputs(cuda: str, kind: str, dtype: str) -> None:
    from norch.backend.contract import Operand
    from norch_cuda.backend import CudaBackend

    of = getattr(norch, dtype)
    scalar = Operand(norch.int64, (), (), True)
    backend = CudaBackend()
    for strides, offset, places in (((1, 7), 0, 35), ((5, 1), 1, 36), ((12, 2), 3, 90)):
        kernel = backend.compile("random", (Operand(of, (7, 5), strides), scalar, scalar), {"kind": kind})
        buffer = backend.allocate(places * of.itemsize, 0)
        kernel(buffer, offset, SEED, OFFSET)
        raw = bytearray(places * of.itemsize)
        backend.copy_out(buffer, 0, memoryview(raw))
        flat = norch.frombuffer(raw, dtype=of).to(norch.int64 if dtype == "int64" else norch.float64).numpy()
        at = offset + np.arange(7)[:, None] * strides[0] + np.arange(5) * strides[1]
        np.testing.assert_array_equal(flat[at].reshape(-1), drawn(kind, dtype, 35, cuda))


def test_the_same_generator_gives_the_same_as_the_cpu(cuda: str) -> None:
    def draws(device: str) -> list[Any]:
        norch.manual_seed(5)
        made = (norch.rand(100, device=device), norch.rand(2, 3, dtype=norch.float64, device=device))
        return [x.to("cpu").numpy() for x in made]

    for a, b in zip(draws("cpu"), draws(cuda), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [norch.float64, norch.float32, norch.float16, norch.bfloat16], ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_dropout(cuda: str, dtype: Any, p: float) -> None:
    for shape in ((0,), (1,), (6,), (33, 65), (4096, 3)):
        x = norch.tensor(np.random.default_rng(0).normal(size=shape)).to(dtype)
        for view in (lambda x: x, lambda x: x.T, lambda x: x[..., 1:], lambda x: x[:1].expand(x.shape)):
            on_host = view(x)
            norch.manual_seed(3)
            a = norch.dropout(on_host, p)
            norch.manual_seed(3)
            b = norch.dropout(view(x.to(cuda)), p).to("cpu")
            np.testing.assert_array_equal(a.to(norch.float64).numpy(), b.to(norch.float64).numpy())


def test_gradient_of_dropout_drops_the_same(cuda: str) -> None:
    x = norch.ones(1000, device=cuda).requires_grad_()
    y = norch.dropout(x, 0.3)
    y.backward(norch.ones(1000, device=cuda))
    np.testing.assert_array_equal(y.detach().to("cpu").numpy(), x.grad.to("cpu").numpy())


# --- Of distributions -----------------------------------------------------------------------------------------------


def parameters(shape: tuple[int, ...], most: float) -> Any:
    """Positive numbers of many sizes, and some that no distribution has."""
    found = np.random.default_rng(2).uniform(-3, np.log(most), shape)
    found = np.exp(found)
    special = [1.0, 10.0, np.nextafter(1, 0), np.nextafter(10, 0), 0.0, -1.0, np.nan, np.inf]
    if found.size >= len(special):
        found.flat[: len(special)] = special
    return found


@pytest.mark.parametrize("shape", [(0,), (1,), (70001,), (301, 41)])
@pytest.mark.parametrize("draw", [log_gamma_draw, poisson_draw, race_keys])
def test_draws_of_a_parameter_are_those_of_the_definition(cuda: str, draw: Any, shape: tuple[int, ...]) -> None:
    for most in (9.0, 300.0):
        values = parameters(shape, most)
        given = norch.tensor(np.nan_to_num(np.abs(values), posinf=most) if draw is race_keys else values)
        views = [lambda x: x, lambda x: x.T, lambda x: x[..., 1:], lambda x: x[:1].expand(x.shape)]
        for view in views if len(shape) == 2 else views[:1]:
            wanted = draw(view(given), SEED, OFFSET).numpy()
            found = draw(view(given.to(cuda)), SEED, OFFSET).cpu().numpy()
            np.testing.assert_allclose(found, wanted, rtol=0 if draw is poisson_draw else 1e-11, atol=1e-12)


def test_distributions_draw_the_same_as_on_the_cpu(cuda: str) -> None:
    def draws(device: str) -> list[Any]:
        norch.manual_seed(5)
        a = norch.linspace(0.1, 40, 1000).to(device)
        made = (norch.distributions.Gamma(a, 2 * a).sample(), norch.poisson(a), norch.poisson(a[:100] * 0.1))
        return [x.cpu().numpy() for x in made]

    for i, (a, b) in enumerate(zip(draws("cpu"), draws(cuda), strict=True)):
        np.testing.assert_allclose(a, b, rtol=0 if i else 1e-5)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float16, norch.bfloat16], ids=str)
def test_keys_of_narrow_weights(cuda: str, dtype: Any) -> None:
    weights = norch.rand(3, 1001).to(dtype)
    found = race_keys(weights.to(cuda), SEED, OFFSET).cpu().numpy()
    np.testing.assert_allclose(found, race_keys(weights, SEED, OFFSET).numpy(), rtol=1e-13)


@pytest.mark.parametrize("dtype", [norch.float64, norch.float32, norch.float16], ids=str)
def test_exponential_draws(cuda: str, dtype: Any) -> None:
    for shape in ((0,), (5,), (70001,), (31, 20)):
        like = norch.zeros(shape, dtype=dtype)
        for rate in (1.0, 0.3):
            found = exponential_draw(like.to(cuda), rate, SEED, OFFSET).cpu()
            wanted = exponential_draw(like, rate, SEED, OFFSET)
            assert found.dtype is wanted.dtype
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-13 if dtype is norch.float64 else 4e-7)


@pytest.mark.parametrize("dtype", [norch.float64, norch.float32, norch.float16], ids=str)
@pytest.mark.parametrize("fill", ["uniform_", "normal_", "exponential_"])
def test_draws_in_place_are_those_of_the_cpu(cuda: str, fill: str, dtype: Any) -> None:
    for view in (lambda x: x, lambda x: x.T, lambda x: x[1:, ::2]):
        made = []
        for device in ("cpu", cuda):
            norch.manual_seed(5)
            x = norch.zeros(37, 50, dtype=dtype, device=device)
            getattr(view(x), fill)()
            x[:3] += getattr(norch.zeros(50, dtype=dtype, device=device), fill)()
            made.append(x.cpu().double().numpy())
        unit = {norch.float64: 1e-13, norch.float32: 1e-6, norch.float16: 2e-3}[dtype]
        np.testing.assert_allclose(made[0], made[1], rtol=unit, atol=unit)


def test_captured_steps_draw_what_they_would(cuda: str) -> None:
    rate, weights = norch.full((6,), 4.0, device=cuda), norch.rand(3, 50, device=cuda)

    def step(x: Any) -> Any:
        filled = norch.zeros(4, device=cuda).exponential_(), norch.zeros(4, device=cuda).normal_(1, 2)
        gamma = norch.distributions.Gamma(rate, 1.0, validate_args=False).sample()
        return norch.poisson(rate) + gamma, norch.multinomial(weights, 2), *filled, norch.dropout(x)

    found = []
    for function in (step, norch.capture(step)):
        norch.manual_seed(1)
        found.append([[t.cpu().tolist() for t in function(norch.ones(5, device=cuda))] for _ in range(5)])
    assert found[0] == found[1]
    assert len({str(drawn) for drawn in found[0]}) == 5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_weights_that_are_none_are_told_of_late(cuda: str, bad: float) -> None:
    weights = norch.tensor([[0.5, 1.0, 2.0], [0.5, bad, 2.0]], device=cuda)
    norch.multinomial(weights, 1)
    with pytest.raises(RuntimeError, match=r"multinomial\(\): the weights must be .* number 4 of all is not .*cuda:0"):
        norch.cuda.synchronize()
    assert norch.multinomial(norch.tensor([0.0, 1.0], device=cuda), 1).tolist() == [1]
